//! What a worker in its own namespaces sees: decided before anything is mounted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use super::error::{Failure, NamespaceStep};

/// What the namespaces look like from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Root only: the unprivileged uid and gid on the host that the worker runs as. Ignored for others, who can map
    /// nothing but themselves.
    pub host_uid: Option<u32>,
    /// The uid and gid that the worker has inside.
    pub inside_uid: u32,
    /// What of the host is there. Everything else is not (ENOENT).
    pub binds: Vec<Bind>,
    /// The host name inside; `None`: the host's.
    pub hostname: Option<String>,
    /// A directory of its own in the new root that is taken away again, with every bind below it, by the
    /// [`Withdrawal`](super::Withdrawal) that the worker gets.
    pub withdrawn: Option<PathBuf>,
}

/// One file or directory of the host, with everything mounted below it. Never setuid, never a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Where it is on the host. Symbolic links are followed; but one in `/` that is shown at its own place (`/bin`)
    /// becomes the same link inside.
    pub source: PathBuf,
    /// Where it is inside: an absolute path without `..`.
    pub target: PathBuf,
    /// What may be done with it.
    pub access: Access,
    /// Without it there is no start; otherwise it is left out where the host does not have it.
    pub required: bool,
}

/// Read-only means EROFS for every write, whatever the file's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing can be written.
    ReadOnly,
    /// As the file's mode says.
    ReadWrite,
}

/// The plan with the host's layout looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Symbolic links of the root: place and text.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    /// By target, so a directory comes before what is mounted in it.
    pub(super) mounts: BTreeMap<PathBuf, Mount>,
    /// As in the plan.
    pub(super) withdrawn: Option<PathBuf>,
}

/// A bind whose source exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) source: PathBuf,
    pub(super) access: Access,
    pub(super) is_dir: bool,
}

impl Layout {
    /// Looks at the host.
    pub(super) fn of(plan: &Plan) -> Result<Self, Failure> {
        let mut layout = Self { withdrawn: plan.withdrawn.clone(), ..Self::default() };
        for bind in &plan.binds {
            layout.add(bind)?;
        }
        layout.add_resolver();
        Ok(layout)
    }

    fn add(&mut self, bind: &Bind) -> Result<(), Failure> {
        let plain = |path: &Path| {
            path.is_absolute()
                && path
                    .components()
                    .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        };
        if !bind.source.is_absolute() || !plain(&bind.target) || bind.target == Path::new("/") {
            return Err(NamespaceStep::Target.failed_at(&bind.target, Errno::EINVAL));
        }
        if bind.source == bind.target
            && bind.target.parent() == Some(Path::new("/"))
            && let Ok(text) = fs::read_link(&bind.source)
        {
            self.links.insert(bind.target.clone(), text);
            return Ok(());
        }
        match fs::metadata(&bind.source) {
            Ok(found) => {
                let mount = Mount {
                    source: bind.source.clone(),
                    access: bind.access,
                    is_dir: found.is_dir(),
                };
                self.mounts.insert(bind.target.clone(), mount);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !bind.required => Ok(()),
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
                Err(NamespaceStep::Source.failed_at(&bind.source, errno))
            }
        }
    }

    /// Many systems make /etc/resolv.conf a link to a file that a daemon writes below /run, which is not shown. The
    /// file that it stands for is then shown at the first place that is not.
    fn add_resolver(&mut self) {
        let resolver = PathBuf::from("/etc/resolv.conf");
        if !self.shows(&resolver) {
            return;
        }
        let Ok(file) = fs::canonicalize(&resolver) else { return };
        let mut place = resolver;
        // As many hops as the kernel follows (path_resolution(7)).
        for _ in 0..40 {
            let Ok(text) = fs::read_link(&place) else { return };
            place = normal(&place.parent().unwrap_or(Path::new("/")).join(text));
            if !self.shows(&place) {
                let mount = Mount { source: file, access: Access::ReadOnly, is_dir: false };
                self.mounts.insert(place, mount);
                return;
            }
        }
    }

    fn shows(&self, path: &Path) -> bool {
        path.ancestors()
            .any(|above| self.mounts.contains_key(above) || self.links.contains_key(above))
    }
}

/// Without `.` and `..`, by the text alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &Path, target: &str, required: bool) -> Bind {
        Bind {
            source: source.to_owned(),
            target: target.into(),
            access: Access::ReadOnly,
            required,
        }
    }

    fn plan(binds: Vec<Bind>) -> Plan {
        Plan { host_uid: None, inside_uid: 1000, binds, hostname: None, withdrawn: None }
    }

    #[test]
    fn a_missing_source_matters_only_where_it_is_required() {
        let missing = Path::new("/no/such/path");
        assert_eq!(Layout::of(&plan(vec![bind(missing, "/x", false)])).unwrap(), Layout::default());
        let failure = Layout::of(&plan(vec![bind(missing, "/x", true)])).unwrap_err();
        assert_eq!((failure.step, failure.errno), (NamespaceStep::Source, Errno::ENOENT));
    }

    #[test]
    fn targets_outside_the_new_root_are_refused() {
        for target in ["relative", "/a/../../etc", "/"] {
            let failure =
                Layout::of(&plan(vec![bind(Path::new("/usr"), target, true)])).unwrap_err();
            assert_eq!(
                (failure.step, failure.errno),
                (NamespaceStep::Target, Errno::EINVAL),
                "{target}"
            );
        }
    }

    #[test]
    fn parents_come_before_what_is_mounted_in_them() {
        let source = Path::new("/usr");
        let layout = Layout::of(&plan(vec![
            bind(source, "/a/b/c", true),
            bind(source, "/a", true),
            bind(source, "/a/b", true),
        ]));
        let order: Vec<_> = layout.unwrap().mounts.into_keys().collect();
        assert_eq!(order, ["/a", "/a/b", "/a/b/c"].map(PathBuf::from));
    }

    #[test]
    fn links_are_resolved_by_their_text() {
        assert_eq!(normal(Path::new("/etc/../run/./systemd/x")), Path::new("/run/systemd/x"));
        assert_eq!(normal(Path::new("/../../x")), Path::new("/x"));
    }
}
