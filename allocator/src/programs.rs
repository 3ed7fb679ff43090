//! Finds the agent's program and what of the file system it needs besides the system directories.
//!
//! What is granted is readable by the agent, so nothing is granted for lying beside it: a lone executable alone; of an
//! npm installation its `node_modules`; of a virtual environment its `bin` and `lib`; an interpreter itself with its own
//! library. Where such a directory may hold what belongs to others ([`is_shared`]), the file alone. Everything else is
//! named by a person: `--program`, or `programs` of the profile, which is refused only what would grant `/`, a home or
//! casemate's home.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Readable and executable in each session anyway.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt"];

/// Why an agent cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    /// No command line.
    #[error("the agent's command line is empty; name the agent after `--`")]
    Empty,
    /// A path relative to a directory that the allocator does not know.
    #[error("agent `{0}` is a relative path; write it absolute, or only its name to search PATH")]
    Relative(String),
    /// Not there.
    #[error("agent `{program}` was not found; looked for an executable file at {}", .looked.join(", "))]
    NotFound {
        /// The name.
        program: String,
        /// All candidates.
        looked: Vec<String>,
    },
    /// There, and not a program.
    #[error(
        "agent `{0}` is not an executable file; name the agent's program, or set its mode (chmod +x)"
    )]
    NotExecutable(PathBuf),
    /// Granting it would grant sessions.
    #[error(
        "{0} lies inside casemate's home, of which no agent gets anything; install the agent elsewhere"
    )]
    Inside(PathBuf),
}

/// An agent that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its program, absolute and resolved.
    pub program: PathBuf,
    /// Grants for it: directories, and single files where the directory would be too much.
    pub grants: Vec<PathBuf>,
}

/// What must not be granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// casemate's homes, resolved.
    pub casemate: &'a [PathBuf],
    /// Homes of the user, resolved: HOME's word and the user database's, which need not agree.
    pub homes: &'a [PathBuf],
}

// === impl Limits ===

impl Limits<'_> {
    /// Whether it is or lies in a home of casemate's.
    fn holds(self, path: &Path) -> bool {
        self.casemate.iter().any(|casemate| path.starts_with(casemate))
    }
}

/// The homes of the user who runs this, resolved. HOME may be unset, or be somebody else's (sudo).
pub(crate) fn homes() -> Vec<PathBuf> {
    let named = std::env::var_os("HOME").map(PathBuf::from);
    let known = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let mut homes: Vec<PathBuf> = named
        .into_iter()
        .chain(known.map(|user| user.dir))
        .filter(|path| path.is_absolute())
        .map(|path| path.canonicalize().unwrap_or(path))
        // A service user's home may be `/`, which is never granted anyway.
        .filter(|path| path.parent().is_some())
        .collect();
    homes.dedup();
    homes
}

/// Finds `argv0` along the PATH of `env`, or of this process.
///
/// # Errors
/// [`ProgramError`].
pub(crate) fn find(
    argv0: &str,
    env: &BTreeMap<String, String>,
    limits: Limits<'_>,
) -> Result<Found, ProgramError> {
    let path = match env.get("PATH") {
        Some(path) => path.into(),
        None => std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
    };
    let program = locate(argv0, &path)?;
    let mut grants = BTreeSet::new();
    grant_program(&program, limits, &mut grants)?;
    if let Some(interpreter) = interpreter(&program, &path) {
        grant_interpreter(&interpreter, limits, &mut grants)?;
    }
    Ok(Found { program, grants: grants.into_iter().collect() })
}

fn locate(argv0: &str, path: &std::ffi::OsStr) -> Result<PathBuf, ProgramError> {
    let candidates: Vec<PathBuf> = if argv0.is_empty() {
        return Err(ProgramError::Empty);
    } else if argv0.starts_with('/') {
        vec![PathBuf::from(argv0)]
    } else if argv0.contains('/') {
        return Err(ProgramError::Relative(argv0.to_owned()));
    } else {
        // An empty or relative entry means the caller's directory, which is not ours.
        let absolute = std::env::split_paths(path).filter(|directory| directory.is_absolute());
        absolute.map(|directory| directory.join(argv0)).collect()
    };
    let program = candidates
        .iter()
        .filter(|candidate| is_executable(candidate))
        .find_map(|candidate| candidate.canonicalize().ok());
    program.ok_or_else(|| match candidates.iter().find(|candidate| candidate.exists()) {
        Some(there) => ProgramError::NotExecutable(there.clone()),
        None => ProgramError::NotFound {
            program: argv0.to_owned(),
            looked: candidates.iter().map(|path| path.display().to_string()).collect(),
        },
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The program of a `#!` line (execve(2)), `env` looked through: unresolved, so that a virtual environment's own
/// `python` keeps its place.
fn interpreter(program: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    // Linux reads at most 256 bytes of the line (BINPRM_BUF_SIZE).
    let mut head = [0u8; 256];
    let length = File::open(program).ok()?.read(&mut head).ok()?;
    let line = head[..length].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let first = PathBuf::from(words.next()?);
    if first.file_name()? != "env" {
        return Some(first);
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    locate_unresolved(name, path)
}

fn locate_unresolved(name: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(PathBuf::from(name));
    }
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|directory| path.starts_with(directory))
}

fn grant_program(
    program: &Path,
    limits: Limits<'_>,
    grants: &mut BTreeSet<PathBuf>,
) -> Result<(), ProgramError> {
    if is_system(program) {
        return Ok(());
    }
    let modules = program
        .ancestors()
        .filter(|ancestor| ancestor.file_name().is_some_and(|name| name == "node_modules"))
        .last();
    if let Some(modules) = modules {
        add_directory(modules, limits, grants);
    } else if let Some(prefix) = program.parent().and_then(environment) {
        for part in ["bin", "lib", "lib64"] {
            add_directory(&prefix.join(part), limits, grants);
        }
        // How Python knows that it is one.
        grants.insert(prefix.join("pyvenv.cfg"));
    }
    add_file(program, limits, grants)
}

fn grant_interpreter(
    interpreter: &Path,
    limits: Limits<'_>,
    grants: &mut BTreeSet<PathBuf>,
) -> Result<(), ProgramError> {
    let Ok(resolved) = interpreter.canonicalize() else { return Ok(()) };
    for place in [interpreter, &resolved] {
        if is_system(place) {
            continue;
        }
        if let Some(prefix) = prefix(place) {
            for part in library(place, &prefix.join("lib")) {
                if part.is_dir() {
                    add_directory(&part, limits, grants);
                } else {
                    add_file(&part, limits, grants)?;
                }
            }
        }
        add_file(place, limits, grants)?;
    }
    Ok(())
}

/// The installation whose `bin` holds the program.
fn prefix(program: &Path) -> Option<&Path> {
    let bin = program.parent().filter(|directory| directory.ends_with("bin"))?;
    bin.parent()
}

/// What an interpreter reads of its own in `PREFIX/lib`; nothing of others that share the prefix (`~/.local`).
fn library(interpreter: &Path, lib: &Path) -> Vec<PathBuf> {
    let name = interpreter.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let own: &[&str] = if name.starts_with("python") {
        &["python3", "libpython3"]
    } else if matches!(name, "node" | "nodejs") {
        &["node_modules", "node"]
    } else {
        &[]
    };
    let entries = lib.read_dir().into_iter().flatten().flatten();
    let found = entries.filter(|entry| {
        let name = entry.file_name();
        // Versions follow Python's names: `python3.12`, `libpython3.12.so.1.0`.
        let python = name.to_str().is_some_and(|name| own.iter().any(|own| name.starts_with(own)));
        if own.contains(&"node") { own.iter().any(|own| name == *own) } else { python }
    });
    found.map(|entry| entry.path()).collect()
}

/// The Python virtual environment whose `bin` this is.
fn environment(directory: &Path) -> Option<&Path> {
    let prefix = directory.parent().filter(|_| directory.ends_with("bin"))?;
    prefix.join("pyvenv.cfg").is_file().then_some(prefix)
}

/// Neither `/` nor a directory that is or holds a home or casemate's home: a person may name it.
pub(crate) fn allowed(directory: &Path, limits: Limits<'_>) -> bool {
    let home = limits.homes.iter().any(|home| home.starts_with(directory)) || is_home(directory);
    let holds = limits.casemate.iter().any(|casemate| casemate.starts_with(directory));
    directory.parent().is_some() && !home && !holds
}

/// A home by its place, or the directory of all homes.
fn is_home(directory: &Path) -> bool {
    let homes = Path::new("/home");
    directory == homes || directory.parent() == Some(homes) || directory == Path::new("/root")
}

/// Whether a directory may hold what belongs to somebody else than the agent, so that only a person may grant it:
/// where everybody writes, and what lies directly in a home (`~/.local`, `~/.ssh`, `~/Downloads`), but for npm's own.
fn is_shared(directory: &Path, limits: Limits<'_>) -> bool {
    let of_a_home = directory
        .parent()
        .is_some_and(|parent| is_home(parent) || limits.homes.iter().any(|home| home == parent));
    let npm = directory.ends_with("node_modules");
    let everybody = [Path::new("/tmp"), Path::new("/var/tmp"), Path::new("/dev/shm")];
    (of_a_home && !npm) || everybody.contains(&directory) || is_world_writable(directory)
}

fn is_world_writable(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
}

/// Grants a directory by itself, if nobody has to be asked. A link stands for what it leads to, so both are looked at.
fn add_directory(directory: &Path, limits: Limits<'_>, grants: &mut BTreeSet<PathBuf>) {
    let Ok(real) = directory.canonicalize() else { return };
    let fits =
        |place: &Path| !limits.holds(place) && allowed(place, limits) && !is_shared(place, limits);
    let known = grants.iter().any(|granted| directory.starts_with(granted));
    if !known && fits(directory) && fits(&real) {
        grants.insert(directory.to_owned());
    }
}

fn add_file(
    file: &Path,
    limits: Limits<'_>,
    grants: &mut BTreeSet<PathBuf>,
) -> Result<(), ProgramError> {
    if limits.holds(file) {
        return Err(ProgramError::Inside(file.to_owned()));
    }
    if !grants.iter().any(|granted| file.starts_with(granted)) {
        grants.insert(file.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
