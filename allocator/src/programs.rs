//! Finds the agent's program and what of the file system it needs besides the system directories.
//!
//! What is granted is readable by the agent, so each rule is as narrow as installations allow: a whole `node_modules`
//! tree, an interpreter's prefix, else the program's own directory; never `/`, never a directory that holds the user's
//! HOME, never anything of casemate's home.

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
    /// casemate's home, resolved.
    pub casemate: &'a Path,
    /// The user's HOME.
    pub home: Option<&'a Path>,
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
    candidates
        .iter()
        .filter(|candidate| is_executable(candidate))
        .find_map(|candidate| candidate.canonicalize().ok())
        .ok_or_else(|| ProgramError::NotFound {
            program: argv0.to_owned(),
            looked: candidates.iter().map(|path| path.display().to_string()).collect(),
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
    let directory = program.parent().unwrap_or(program);
    let modules = program
        .ancestors()
        .filter(|ancestor| ancestor.file_name().is_some_and(|name| name == "node_modules"))
        .last();
    let wanted = modules.or_else(|| environment(directory)).unwrap_or(directory);
    add(wanted, program, limits, grants)
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
        let directory = place.parent().unwrap_or(place);
        // Interpreters read their library beside `bin`: `PREFIX/lib/node_modules`, `PREFIX/lib/python3`.
        let prefix = directory
            .file_name()
            .filter(|name| *name == "bin")
            .and_then(|_| directory.parent())
            .filter(|prefix| prefix.join("lib").is_dir() && allowed(prefix, limits));
        add(prefix.unwrap_or(directory), place, limits, grants)?;
    }
    Ok(())
}

/// The Python virtual environment whose `bin` this is.
fn environment(directory: &Path) -> Option<&Path> {
    let prefix = directory.parent()?;
    prefix.join("pyvenv.cfg").is_file().then_some(prefix)
}

/// Neither `/` nor a directory that is or holds HOME or casemate's home.
pub(crate) fn allowed(directory: &Path, limits: Limits<'_>) -> bool {
    let home = limits.home.is_some_and(|home| home.starts_with(directory));
    directory.parent().is_some() && !home && !limits.casemate.starts_with(directory)
}

fn add(
    directory: &Path,
    file: &Path,
    limits: Limits<'_>,
    grants: &mut BTreeSet<PathBuf>,
) -> Result<(), ProgramError> {
    if file.starts_with(limits.casemate) || directory.starts_with(limits.casemate) {
        return Err(ProgramError::Inside(file.to_owned()));
    }
    // Too much with it: the file alone.
    let grant = if allowed(directory, limits) { directory } else { file };
    grants.insert(grant.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let root = dir.path().canonicalize().unwrap();
            Self { _dir: dir, root }
        }

        fn program(&self, path: &str, text: &str) -> PathBuf {
            let path = self.root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn find(&self, argv0: &str, path: &str) -> Result<Found, ProgramError> {
            let env = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
            let (casemate, home) = (self.root.join("casemate"), self.root.join("user"));
            find(argv0, &env, Limits { casemate: &casemate, home: Some(&home) })
        }

        fn grants(&self, program: &Path) -> Vec<PathBuf> {
            self.find(program.to_str().unwrap(), "/usr/bin").unwrap().grants
        }
    }

    #[test]
    fn system_programs_need_no_grant() {
        let found = World::new().find("sh", "/usr/bin:/bin").unwrap();
        assert!(found.program.is_absolute() && found.grants.is_empty(), "{found:?}");
    }

    #[test]
    fn the_topmost_node_modules_is_granted_and_the_link_resolved() {
        let world = World::new();
        let real = world.program("t/node_modules/a/node_modules/b/bin/agent", "x");
        std::fs::create_dir_all(world.root.join("user/bin")).unwrap();
        std::os::unix::fs::symlink(&real, world.root.join("user/bin/agent")).unwrap();
        let found = world.find("agent", world.root.join("user/bin").to_str().unwrap()).unwrap();
        assert_eq!(found.program, real);
        assert_eq!(found.grants, [world.root.join("t/node_modules")]);
    }

    #[test]
    fn a_directory_that_holds_home_or_casemate_shrinks_to_the_file() {
        let world = World::new();
        for path in ["user/agent", "agent"] {
            let agent = world.program(path, "x");
            assert_eq!(world.grants(&agent), [agent]);
        }
        let agent = world.program("user/tools/agent", "x");
        assert_eq!(world.grants(&agent), [world.root.join("user/tools")]);
    }

    #[test]
    fn nothing_of_casemates_home_is_granted() {
        let world = World::new();
        let agent = world.program("casemate/slots/x/agent", "x");
        let error = world.find(agent.to_str().unwrap(), "/usr/bin").unwrap_err();
        assert!(matches!(error, ProgramError::Inside(_)));
    }

    #[test]
    fn an_interpreter_brings_its_prefix() {
        let world = World::new();
        let node = world.program("user/nvm/v20/bin/node", "x");
        std::fs::create_dir_all(world.root.join("user/nvm/v20/lib")).unwrap();
        let agent = world.program("t/node_modules/b/agent", "#!/usr/bin/env -S node --flag\n");
        let found =
            world.find(agent.to_str().unwrap(), node.parent().unwrap().to_str().unwrap()).unwrap();
        assert_eq!(
            found.grants,
            [world.root.join("t/node_modules"), world.root.join("user/nvm/v20")]
        );
    }

    #[test]
    fn a_virtual_environment_is_granted_whole() {
        let world = World::new();
        let agent = world.program("user/venv/bin/agent", "#!/usr/bin/python3\n");
        std::fs::write(world.root.join("user/venv/pyvenv.cfg"), "").unwrap();
        assert_eq!(world.grants(&agent), [world.root.join("user/venv")]);
    }

    #[test]
    fn what_is_not_found_says_where_it_looked() {
        let world = World::new();
        let error = world.find("no-such-agent", "/usr/bin:relative:/bin").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/usr/bin/no-such-agent, /bin/no-such-agent"), "{text}");
        assert!(matches!(world.find("./agent", "/bin"), Err(ProgramError::Relative(_))));
        assert!(matches!(world.find("", "/bin"), Err(ProgramError::Empty)));
    }
}
