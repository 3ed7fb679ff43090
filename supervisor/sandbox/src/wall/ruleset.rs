//! The Landlock ruleset: opened and filled in the parent, enforced in the child (landlock(7)).
//!
//! Handles every right that the kernel and this build know, whether the policy grants it to anything or not: what is
//! not granted is refused. What the policy requires and the kernel lacks is an error; what the kernel lacks beyond
//! that is reported, and so is what it has and this build does not use.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use casemate_protocol::policy::{Access as Right, Policy, Port, Scope as Scoped};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use nix::errno::Errno;

use super::errata::errata;
use super::grants::{self, Grant};
use super::lacks::lacks;
use super::never::Never;
use super::open::{NotOpened, Writable, open_path};
use super::private::Private;
use super::secrets::Secrets;
use super::{Layers, Places, WallError};

/// The newest ABI whose rights are used: all that the crate knows.
const NEWEST: ABI = ABI::V10;
const NEWEST_NUMBER: u32 = 10;
/// The first ABI with `LANDLOCK_RESTRICT_SELF_TSYNC`, which would put one session's wall around every other's threads.
const ALL_THREADS: u32 = 8;
/// The first ABI that restricts UDP ports.
const UDP: u32 = 10;

/// An opened ruleset and what is to be said about it.
#[derive(Debug)]
pub(super) struct Opened {
    /// `None` where nothing is left to be said in one.
    pub(super) fd: Option<OwnedFd>,
    pub(super) notes: Vec<String>,
}

/// The kernel's Landlock ABI.
///
/// # Errors
/// `ENOSYS` where it was not built in, `EOPNOTSUPP` where it was not enabled at boot.
pub fn landlock_abi() -> io::Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the call takes no attribute (null, size 0) and only returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(abi).map_err(|_| io::Error::last_os_error())
}

/// What the policy requires, against what there is.
pub(super) fn require(policy: &Policy) -> Result<u32, WallError> {
    let required = policy.landlock_abi;
    let found = landlock_abi().map_err(|source| WallError::NoLandlock { required, source })?;
    if found < required {
        return Err(WallError::Kernel { required, found });
    }
    Ok(found)
}

/// Whether a start with this policy in these places would be refused for where its paths lead on this machine. What is missing or out of
/// reach here may be elsewhere, so it is no error, and of [`Places`] that nobody knows yet the paths may be such.
///
/// # Errors
/// [`WallError::Moved`], [`WallError::Never`], [`WallError::Secret`]; [`WallError::Mounts`].
pub fn check_paths(policy: &Policy, places: &Places) -> Result<(), WallError> {
    let mut policy = policy.clone();
    policy.paths.iter_mut().for_each(|rule| rule.required = false);
    let (grants, _) = grants::expand(&policy, places)?;
    let limits = Limits::resolve(&grants, places)?;
    grants.iter().try_for_each(|grant| match limits.open(grant) {
        Err(WallError::Path { .. } | WallError::Elsewhere { .. }) => Ok(()),
        other => other.map(drop),
    })
}

/// Opens the ruleset of the layers that Landlock carries.
pub(super) fn open_of(
    policy: &Policy,
    places: &Places,
    abi: u32,
    layers: Layers,
) -> Result<Opened, WallError> {
    let scopes = if layers.scope { scopes(policy) } else { BitFlags::EMPTY };
    if !layers.landlock {
        return scopes_alone(policy, scopes);
    }
    let mut created = create(scopes).map_err(|source| refused("the ruleset", source))?;
    let (grants, mut skipped) = grants::expand(policy, places)?;
    let limits = Limits::resolve(&grants, places)?;
    let mut granted = 0_usize;
    for grant in &grants {
        if add_path(&mut created, grant, &limits)? {
            granted += 1;
        } else {
            skipped.push(format!("{} (missing)", grant.path.display()));
        }
    }
    add_ports(&mut created, policy, places, abi)?;
    let fd = Option::<OwnedFd>::from(created).ok_or(WallError::NoLandlock {
        required: policy.landlock_abi,
        source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
    })?;
    Ok(Opened { fd: Some(fd), notes: notes(policy, abi, granted, &skipped) })
}

/// Every right everywhere but where the places say never, no port handled; the scopes stand.
pub(super) fn open_learning(policy: &Policy, places: &Places) -> Result<Opened, WallError> {
    let scopes = scopes(policy);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| {
            if scopes.is_empty() { ruleset.create() } else { ruleset.scope(scopes)?.create() }
        });
    let mut created = ruleset.map_err(|source| refused("the ruleset", source))?;
    let (grants, _) = grants::expand(policy, places)?;
    let limits = Limits::resolve(&grants, places)?;
    // What the policy grants has to be grantable while learning too: the file that is learned to is not in a place of the run's.
    for grant in &grants {
        add_path(&mut created, grant, &limits)?;
    }
    let mut opened = 0_usize;
    let mut to_open = vec![PathBuf::from("/")];
    while let Some(path) = to_open.pop() {
        let grant = Grant { path, access: Right::ALL.to_vec(), required: false, line: Some(0) };
        match add_path(&mut created, &grant, &limits) {
            Ok(_) => opened += 1,
            // Around what is closed: each entry by itself. New ones in such a directory stay closed.
            Err(WallError::Never { .. } | WallError::Secret { .. })
                if limits.is_above(&grant.path) =>
            {
                to_open.extend(entries(&grant.path));
            }
            Err(WallError::Landlock { what, source }) => {
                return Err(WallError::Landlock { what, source });
            }
            // Closed, or out of reach for this user anyway.
            Err(_) => {}
        }
    }
    let fd = Option::<OwnedFd>::from(created);
    let closed = places.never.iter().map(PathBuf::as_path).chain(limits.secrets.paths());
    let closed: Vec<_> = closed.map(|path| path.display().to_string()).collect();
    let closed = if closed.is_empty() { "nothing".to_owned() } else { closed.join(", ") };
    Ok(Opened { fd, notes: vec![format!("landlock {opened} paths open; closed: {closed}")] })
}

/// Directories and files in a directory; not its links, which lead to what is found by its own name.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    real.map(|entry| entry.path()).collect()
}

/// No path, no port: only who is signalled and which abstract sockets are reached. A domain that does not handle moves
/// between folders refuses them, so this one allows them everywhere.
fn scopes_alone(policy: &Policy, scopes: BitFlags<Scope>) -> Result<Opened, WallError> {
    if scopes.is_empty() {
        return Ok(Opened { fd: None, notes: Vec::new() });
    }
    let root = std::path::Path::new("/");
    let fd = open_path(root).map_err(|source| WallError::Path { path: root.to_owned(), source })?;
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::Refer)
        .and_then(|ruleset| ruleset.scope(scopes)?.create())
        .and_then(|created| created.add_rule(PathBeneath::new(fd, AccessFs::Refer)))
        .map_err(|source| refused("the scopes", source))?;
    let notes = vec![format!("landlock {} scopes alone", policy.scopes.len())];
    Ok(Opened { fd: Option::<OwnedFd>::from(created), notes })
}

fn scopes(policy: &Policy) -> BitFlags<Scope> {
    policy.scopes.iter().fold(BitFlags::EMPTY, |all, rule| {
        all | match rule.kind {
            Scoped::Signal => Scope::Signal,
            Scoped::AbstractUnixSocket => Scope::AbstractUnixSocket,
        }
    })
}

fn create(scopes: BitFlags<Scope>) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?;
    // An empty set of scopes is an error to the crate.
    if scopes.is_empty() { ruleset.create() } else { ruleset.scope(scopes)?.create() }
}

/// What no rule may be bound to, and where no rule's link may be.
struct Limits {
    never: Never,
    private: Private,
    secrets: Secrets,
    writable: Writable,
}

// === impl Limits ===

impl Limits {
    fn resolve(grants: &[Grant], places: &Places) -> Result<Self, WallError> {
        Ok(Self {
            never: Never::resolve(&places.never)?,
            private: Private::resolve(places)?,
            secrets: Secrets::resolve()?,
            writable: Writable::resolve(grants, places)?,
        })
    }

    /// What a rule's path is now, where it may be granted; `None` where it is missing.
    fn open(&self, grant: &Grant) -> Result<Option<OwnedFd>, WallError> {
        let path = || grant.path.clone();
        let fd = match self.writable.open(&grant.path) {
            Ok(fd) => fd,
            Err(NotOpened::Moved(link)) => {
                return Err(WallError::Moved { path: path(), link, line: grant.line });
            }
            Err(NotOpened::Io(error)) if is_missing(&error) => return Ok(None),
            Err(NotOpened::Io(source)) => return Err(WallError::Path { path: path(), source }),
        };
        // Checked on the descriptor that the rule is bound to, so nothing can be exchanged in between.
        self.never.check(grant, fd.as_fd())?;
        self.private.check(grant, fd.as_fd())?;
        self.secrets.check(grant, fd.as_fd())?;
        Ok(Some(fd))
    }

    /// Whether something closed lies below a path, so that there may be more in it that is not.
    fn is_above(&self, path: &Path) -> bool {
        self.never.is_above(path) || self.private.is_above(path) || self.secrets.is_above(path)
    }
}

/// Binds one rule to what its path is now; `false` where an optional one is missing.
fn add_path(
    created: &mut RulesetCreated,
    grant: &Grant,
    limits: &Limits,
) -> Result<bool, WallError> {
    let path = || grant.path.clone();
    let Some(fd) = limits.open(grant)? else {
        return match (grant.required, grant.line) {
            (false, _) => Ok(false),
            (true, Some(line)) => Err(WallError::MissingPath { path: path(), line }),
            (true, None) => Err(WallError::Path { path: path(), source: Errno::ENOENT.into() }),
        };
    };
    let metadata = nix::sys::stat::fstat(&fd)
        .map_err(|e| WallError::Path { path: path(), source: e.into() })?;
    let is_directory = metadata.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let rights = rights(&grant.access, is_directory);
    created
        .add_rule(PathBeneath::new(fd, rights))
        .map_err(|source| refused(&grant.path.display().to_string(), source))?;
    Ok(true)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV))
}

/// The kernel refuses a directory's rights on a file.
fn rights(access: &[Right], is_directory: bool) -> BitFlags<AccessFs> {
    let all = access.iter().fold(BitFlags::EMPTY, |all, right| all | right_bits(*right));
    if is_directory { all } else { all & AccessFs::from_file(NEWEST) }
}

/// Device nodes are never made: with them a writable directory would be a way to every device.
fn right_bits(right: Right) -> BitFlags<AccessFs> {
    match right {
        Right::Read => AccessFs::ReadFile | AccessFs::ReadDir,
        Right::Execute => AccessFs::Execute.into(),
        Right::Write => {
            AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::RemoveFile
                | AccessFs::RemoveDir
                | AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::MakeSym
                | AccessFs::MakeFifo
                | AccessFs::MakeSock
                | AccessFs::Refer
                | AccessFs::ResolveUnix
        }
        Right::Device => AccessFs::IoctlDev.into(),
    }
}

fn add_ports(
    created: &mut RulesetCreated,
    policy: &Policy,
    places: &Places,
    abi: u32,
) -> Result<(), WallError> {
    let tcp = ("tcp", &policy.tcp, AccessNet::ConnectTcp, AccessNet::BindTcp);
    let udp = ("udp", &policy.udp, AccessNet::ConnectSendUdp, AccessNet::BindUdp);
    // Below its ABI nothing is handled for UDP, and a policy with rules for it makes no datagram sockets there.
    for (table, rules, connect, bind) in std::iter::once(tcp).chain((abi >= UDP).then_some(udp)) {
        for rule in rules {
            for (ports, access) in [(&rule.connect, connect), (&rule.bind, bind)] {
                for port in ports.iter().flat_map(|port| numbers(*port, places)) {
                    created
                        .add_rule(NetPort::new(port, access))
                        .map_err(|source| refused(&format!("{table} port {port}"), source))?;
                }
            }
        }
    }
    Ok(())
}

/// The ports that one stands for here.
pub(super) fn numbers(port: Port, places: &Places) -> Vec<u16> {
    match port {
        Port::Number(number) => vec![number],
        Port::Own => places.ports.iter().collect(),
        Port::Connect => places.connect.clone(),
    }
}

fn refused(what: &str, source: RulesetError) -> WallError {
    WallError::Landlock { what: what.to_owned(), source }
}

fn notes(policy: &Policy, abi: u32, granted: usize, skipped: &[String]) -> Vec<String> {
    let mut notes = vec![format!(
        "landlock abi {abi} (required {}), {}, {granted} paths, {} scopes",
        policy.landlock_abi,
        errata(abi),
        policy.scopes.len()
    )];
    notes.extend(lacks(abi).map(|missing| format!("landlock abi {abi} {missing}")));
    if abi >= ALL_THREADS {
        notes.push(format!(
            "landlock abi {abi} could restrict all threads at once (abi {ALL_THREADS}): not used, a wall is one thread's"
        ));
    }
    if abi > NEWEST_NUMBER {
        notes.push(format!(
            "landlock abi {abi} offers more than the abi {NEWEST_NUMBER} that is used"
        ));
    }
    if !skipped.is_empty() {
        notes.push(format!("landlock skipped {}", skipped.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_no_directory_rights() {
        let all = [Right::Read, Right::Execute, Right::Write, Right::Device];
        let on_file = rights(&all, false);
        assert_eq!(on_file & !AccessFs::from_file(NEWEST), BitFlags::EMPTY);
        assert!(on_file.contains(AccessFs::ReadFile) && on_file.contains(AccessFs::WriteFile));
        assert!(rights(&all, true).contains(AccessFs::MakeDir));
    }

    /// Every right that the crate offers is handled where the kernel has it.
    #[test]
    fn no_right_is_left_out() {
        assert_eq!(AccessFs::from_all(NEWEST), BitFlags::<AccessFs>::all());
        assert_eq!(AccessNet::from_all(NEWEST), BitFlags::<AccessNet>::all());
        assert_eq!(Scope::from_all(NEWEST), Scope::Signal | Scope::AbstractUnixSocket);
        assert_eq!(Scope::from_all(NEWEST), BitFlags::<Scope>::all());
    }

    #[test]
    fn no_right_makes_device_nodes() {
        let all = rights(&[Right::Read, Right::Execute, Right::Write, Right::Device], true);
        assert!(!all.contains(AccessFs::MakeChar) && !all.contains(AccessFs::MakeBlock));
        // Everything else that exists can be granted by some word.
        assert_eq!(all | AccessFs::MakeChar | AccessFs::MakeBlock, AccessFs::from_all(NEWEST));
    }
}
