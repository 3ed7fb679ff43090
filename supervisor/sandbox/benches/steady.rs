//! What the developer wall costs a program that works on files, held against the least wall there is, in the same run.
//!
//! Each round does each task in each way, in an order that turns round every other time: `bare`; behind the `limit`
//! (`least/mod.rs`); behind `ours`, what the spawner puts around an agent by `policies/developer.toml`. The figure is the median over the
//! rounds of the ratio of CPU time (user and system, of the task and its children), which other work on the machine
//! disturbs less than the clock's time.
//!
//! `ROUNDS=40 cargo bench -p casemate-sandbox --bench steady`. The trees lie in /dev/shm, where that is a tmpfs.
// A benchmark leaves by its exit code and panics where it cannot go on.
#![allow(clippy::unwrap_used, clippy::exit, reason = "a benchmark that cannot go on ends there")]

mod least;

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Command, Places, SessionSpawner, Spawner, Wall};

/// Files in the tree that `git status` and `find` walk.
const TREE: usize = 20_000;
/// Files that are created and deleted.
const SMALL: usize = 5_000;

const WAYS: [&str; 3] = ["bare", "limit", "ours"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, directory] = arguments.as_slice()
        && verb == "small-files"
    {
        return small_files(Path::new(directory));
    }
    // Cargo's tests run benchmarks once to see that they work.
    let (rounds, tree) = match arguments.iter().any(|word| word == "--bench") {
        true => {
            (std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20), TREE)
        }
        false => (1, 200),
    };
    let spawner = Spawner::start(&[]).unwrap();
    let bench = Bench::new(spawner.session().unwrap(), tree);
    println!(
        "{rounds} rounds, CPU time\n{:14} {:>9} {:>12} {:>12}",
        "task", "bare ms", "ours/limit", "ours/bare"
    );
    for (name, script) in bench.tasks() {
        let times = bench.measure(&script, rounds);
        let ratio =
            |over: usize| median(times.iter().map(|round| round[2] / round[over]).collect());
        let bare = median(times.iter().map(|round| round[0] * 1e3).collect());
        println!("{name:14} {bare:>9.1} {:>12.3} {:>12.3}", ratio(1), ratio(0));
    }
}

struct Bench {
    dir: tempfile::TempDir,
    session: SessionSpawner,
    wall: Wall,
    sysroot: PathBuf,
}

impl Bench {
    fn new(session: SessionSpawner, tree: usize) -> Self {
        let shm = Path::new("/dev/shm");
        let dir =
            if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["work", "home", "scratch", "program"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let own = dir.path().join("program/steady");
        fs::copy(std::env::current_exe().unwrap(), own).unwrap();
        let rustc =
            std::process::Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
        let sysroot = PathBuf::from(String::from_utf8(rustc.stdout).unwrap().trim());
        let place = |name: &str| dir.path().join(name);
        let places = Places {
            programs: vec![place("program"), sysroot.clone()],
            ports: PortRange { first: 20_000, count: 8 },
            ..Places::new(place("work"), place("home"), place("scratch"), Tier::Domain)
        };
        let wall = Wall::build(&Policy::parse(DEVELOPER).unwrap(), &places).unwrap();
        for line in wall.summary() {
            println!("{line}");
        }
        let bench = Self { dir, session, wall, sysroot };
        bench.plant(tree);
        bench
    }

    fn plant(&self, tree: usize) {
        let work = self.dir.path().join("work");
        for at in 0..tree {
            let directory = work.join(format!("tree/{}/{}", at % 20, at % 400));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(at.to_string()), at.to_string()).unwrap();
        }
        fs::create_dir_all(work.join("small/src")).unwrap();
        let manifest =
            "[package]\nname = \"small\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(work.join("small/Cargo.toml"), manifest).unwrap();
        let functions: Vec<String> = (0..300)
            .map(|at| format!("pub fn f{at}(x: u64) -> Option<u64> {{ x.checked_add({at}) }}\n"))
            .collect();
        fs::write(work.join("small/src/lib.rs"), functions.concat()).unwrap();
        let setup = "cd tree && git init -q && git add . && git -c user.name=n -c user.email=e commit -qm one";
        self.run(setup, 0);
    }

    fn tasks(&self) -> Vec<(&'static str, String)> {
        let program = self.dir.path().join("program/steady");
        let work = self.dir.path().join("work");
        vec![
            ("git status", "cd tree; for i in 1 2 3; do git status --porcelain; done".to_owned()),
            ("find", "for i in 1 2 3 4 5 6; do find tree -size +9k -newer small; done".to_owned()),
            ("git clone", "git clone -q --no-local tree copy && rm -rf copy".to_owned()),
            ("small files", format!("{} small-files {}", program.display(), work.display())),
            ("cargo check", "cd small; touch src/lib.rs; cargo check -q --offline".to_owned()),
        ]
    }

    /// CPU seconds by round and way.
    fn measure(&self, script: &str, rounds: usize) -> Vec<[f64; 3]> {
        let mut all = Vec::with_capacity(rounds);
        // The first fills caches.
        for round in 0..=rounds {
            let mut times = [0.0; 3];
            let mut order = [0, 1, 2];
            if round % 2 == 1 {
                order.reverse();
            }
            for way in order {
                times[way] = self.run(script, way);
            }
            if round > 0 {
                all.push(times);
            }
        }
        all
    }

    fn run(&self, script: &str, way: usize) -> f64 {
        let cwd = self.dir.path().join("work");
        let env = [
            ("HOME", self.dir.path().join("home").display().to_string()),
            ("PATH", format!("{}/bin:/usr/bin:/bin", self.sysroot.display())),
            ("TMPDIR", self.dir.path().join("scratch").display().to_string()),
        ];
        let pid = if WAYS[way] == "ours" {
            let text = |text: String| CString::new(text).unwrap();
            let null = || File::options().read(true).write(true).open("/dev/null").unwrap().into();
            let argv = ["sh", "-c", script].map(|word| text(word.to_owned()));
            let command = Command {
                program: "/bin/sh".into(),
                argv: argv.into(),
                env: env.iter().map(|(name, value)| text(format!("{name}={value}"))).collect(),
                cwd,
                stdin: null(),
                stdout: null(),
                stderr: null(),
                terminal: false,
            };
            self.session.spawn(command, &self.wall).unwrap()
        } else {
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", script]).env_clear().envs(env).current_dir(cwd);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if WAYS[way] == "limit" {
                let (root, sysroot) = (self.dir.path().to_owned(), self.sysroot.clone());
                let filter = least::filter();
                // SAFETY: this process has one thread: the child may allocate and open files before it execs.
                unsafe { command.pre_exec(move || least::enclose(&root, &sysroot, &filter)) };
            }
            i32::try_from(command.spawn().unwrap().id()).unwrap()
        };
        cpu_of(pid)
    }
}

/// Waits, and says what the process and its children took (wait4(2)).
fn cpu_of(pid: i32) -> f64 {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both point to live memory of the right types.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!((waited, status), (pid, 0), "the task failed");
    // SAFETY: all zero is a rusage, and the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The task of small files, as a program of its own behind the wall: three times created and deleted.
fn small_files(directory: &Path) {
    for _ in 0..3 {
        let path = |at: usize| directory.join(format!("small-{at}"));
        for at in 0..SMALL {
            fs::write(path(at), "small").unwrap();
        }
        for at in 0..SMALL {
            fs::remove_file(path(at)).unwrap();
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
