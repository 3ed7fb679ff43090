//! What each kind of installation is granted, and what it is not.

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
        let (casemate, homes) = ([self.root.join("casemate")], [self.root.join("user")]);
        find(argv0, &env, Limits { casemate: &casemate, homes: &homes })
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
fn a_lone_executable_is_granted_alone_wherever_it_lies() {
    let world = World::new();
    for path in ["user/agent", "agent", "user/Downloads/agent", "user/.opencode/bin/agent"] {
        let agent = world.program(path, "x");
        assert_eq!(world.grants(&agent), [agent]);
    }
}

#[test]
fn a_home_is_a_home_without_the_variable() {
    let world = World::new();
    let agent = world.program("user/agent", "#!/usr/bin/python3\n");
    std::fs::write(world.root.join("pyvenv.cfg"), "").unwrap();
    let limits = |homes| Limits { casemate: &[], homes };
    let found = find(agent.to_str().unwrap(), &BTreeMap::new(), limits(&[])).unwrap();
    assert_eq!(found.grants, std::slice::from_ref(&agent));
    for home in ["/", "/home", "/home/me", "/root"] {
        assert!(!allowed(Path::new(home), limits(&[])), "{home}");
    }
    let known = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
    assert!(homes().contains(&known.dir.canonicalize().unwrap()));
}

#[test]
fn what_lies_directly_in_a_home_and_where_everybody_writes_is_asked_for() {
    let world = World::new();
    let open = world.root.join("open");
    for path in ["user/x", "user/node_modules", "open", "other/lib"] {
        std::fs::create_dir_all(world.root.join(path)).unwrap();
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let homes = [world.root.join("user")];
    let limits = Limits { casemate: &[], homes: &homes };
    for path in ["user/.local", "user/.config", "user/.ssh", "user/x", "open"] {
        assert!(is_shared(&world.root.join(path), limits), "{path}");
    }
    for path in ["user/node_modules", "user/x/y", "other/lib"] {
        assert!(!is_shared(&world.root.join(path), limits), "{path}");
    }
    assert!(is_shared(Path::new("/tmp"), limits) && is_shared(Path::new("/var/tmp"), limits));
    assert!(is_shared(Path::new("/home/me/.cache"), limits));
    // node_modules that anybody could fill.
    let agent = world.program("open/node_modules/a/agent", "x");
    let modules = world.root.join("open/node_modules");
    std::fs::set_permissions(&modules, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(world.grants(&agent), [agent]);
}

#[test]
fn nothing_of_casemates_home_is_granted() {
    let world = World::new();
    let agent = world.program("casemate/slots/x/agent", "x");
    let error = world.find(agent.to_str().unwrap(), "/usr/bin").unwrap_err();
    assert!(matches!(error, ProgramError::Inside(_)));
}

#[test]
fn an_interpreter_brings_its_own_library_and_nothing_else_of_its_prefix() {
    let world = World::new();
    for path in [
        "user/.local/lib/python3.12/os.py",
        "user/.local/lib/libpython3.12.so.1.0",
        "user/.local/lib/node_modules/other/secret",
        "user/.local/share/opencode/auth.json",
        "user/nvm/v20/lib/node_modules/npm/cli.js",
        "user/nvm/v20/lib/python3.11/os.py",
        "user/nvm/v20/etc/npmrc",
    ] {
        world.program(path, "x");
    }
    let python = world.program("user/.local/bin/python3.12", "x");
    std::os::unix::fs::symlink("python3.12", python.with_file_name("python3")).unwrap();
    let node = world.program("user/nvm/v20/bin/node", "x");
    for (agent, interpreter, wanted) in [
        (
            "#!/usr/bin/env python3\n",
            &python,
            &["bin/python3", "bin/python3.12", "lib/libpython3.12.so.1.0", "lib/python3.12"][..],
        ),
        ("#!/usr/bin/env -S node --flag\n", &node, &["bin/node", "lib/node_modules"][..]),
    ] {
        let agent = world.program("t/node_modules/b/agent", agent);
        let bin = interpreter.parent().unwrap();
        let found = world.find(agent.to_str().unwrap(), bin.to_str().unwrap()).unwrap();
        let mut grants = vec![world.root.join("t/node_modules")];
        grants.extend(wanted.iter().map(|part| bin.parent().unwrap().join(part)));
        assert_eq!(found.grants, grants);
    }
}

#[test]
fn a_virtual_environment_is_its_programs_and_libraries() {
    let world = World::new();
    let agent = world.program("user/venv/bin/agent", "#!/usr/bin/python3\n");
    world.program("user/venv/lib/python3.12/x.py", "x");
    world.program("user/venv/.env", "x");
    world.program("user/venv/pyvenv.cfg", "");
    let parts = ["bin", "lib", "pyvenv.cfg"].map(|part| world.root.join("user/venv").join(part));
    assert_eq!(world.grants(&agent), parts);
    // A home that was made into one is still a home.
    let agent = world.program("user/bin/agent", "#!/usr/bin/python3\n");
    world.program("user/pyvenv.cfg", "");
    let file = world.root.join("user/pyvenv.cfg");
    assert_eq!(world.grants(&agent), [agent, file]);
}

#[test]
fn a_link_does_not_grant_what_it_stands_for() {
    let world = World::new();
    let python = world.program("p/bin/python3", "x");
    std::fs::create_dir_all(world.root.join("user/.ssh")).unwrap();
    std::fs::create_dir_all(world.root.join("p/lib")).unwrap();
    std::os::unix::fs::symlink(world.root.join("user/.ssh"), world.root.join("p/lib/python3"))
        .unwrap();
    let agent = world.program("agent", &format!("#!{}\n", python.display()));
    assert_eq!(world.grants(&agent), [agent, python]);
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
