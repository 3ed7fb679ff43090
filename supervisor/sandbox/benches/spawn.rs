//! What a confined start costs, held against the cheapest start there is, in the same run.
//!
//! The process plays a supervisor of several sizes: 1, 64 and 512 MiB of heap, every page touched. Each round starts and reaps
//! one static program in each way, in an order that turns round every other time; the figure is the median over the rounds of
//! the ratio to bare. `bare` is posix_spawn(3), which is vfork and exec in one call; `confined` goes through the spawner
//! with the policy that is shipped (`policies/developer.toml`): Landlock, seccomp, descriptors, a session. `told` is the same
//! with somebody who hears of refusals, as an agent and its commands are started. `limit` is the least wall (`least/mod.rs`) around a
//! child of vfork(2), by a C function in this very process (`least/start.c`).
//!
//! `ROUNDS=300 cargo bench -p casemate-sandbox --bench spawn`. The program is built by `cc -static -O2` from
//! `int main(void) { return 0; }`.
// A benchmark leaves by its exit code and panics where it cannot go on.
#![allow(clippy::unwrap_used, clippy::exit, reason = "a benchmark that cannot go on ends there")]

mod least;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use casemate_protocol::policy::Policy;
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{
    Attempt, Command, Listener, Places, RefusedCall, SessionSpawner, Spawner, Wall,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

const HEAPS_MIB: [usize; 3] = [1, 64, 512];
const PAGE: usize = 4096;

/// A way to start the program: its name, and a function that starts and reaps it once.
type Way<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn main() {
    // Cargo's tests run benchmarks once to see that they work.
    let rounds = match std::env::args().any(|word| word == "--bench") {
        true => std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300),
        false => 3,
    };
    let spawner = Spawner::start(&[]).unwrap();
    let session = spawner.session().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(program) = static_program(dir.path()) else {
        println!("skipped: no static program can be built (cc with a static C library is missing)");
        return;
    };
    let wall = wall(dir.path());
    let told = told(dir.path());
    let null = File::open("/dev/null").unwrap();
    let text = CString::new(program.as_os_str().as_bytes()).unwrap();
    let least = Least::build(dir.path());
    let mut ways: Vec<Way<'_>> = vec![
        ("bare", Box::new(|| bare(&text, &[&text]))),
        ("bare again", Box::new(|| bare(&text, &[&text]))),
        ("limit", Box::new(|| least.start(&text))),
        ("confined", Box::new(|| confined(&session, &wall, &program, &null))),
        ("confined, told", Box::new(|| confined(&session, &told, &program, &null))),
    ];
    if let Some(bwrap) =
        ["/usr/bin/bwrap", "/bin/bwrap"].iter().find(|path| Path::new(path).exists())
    {
        let bwrap = CString::new(*bwrap).unwrap();
        let text = &text;
        ways.push((
            "bubblewrap, one read-only bind",
            Box::new(move || bare(&bwrap, &[&bwrap, c"--ro-bind", c"/", c"/", text])),
        ));
    }
    for mib in HEAPS_MIB {
        let heap = grown_heap(mib << 20);
        println!("{mib} MiB of heap, {rounds} rounds");
        report(&ways, &measure(&ways, rounds));
        drop(heap);
    }
}

fn measure(ways: &[Way<'_>], rounds: usize) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(rounds); ways.len()];
    // The first starts fill caches.
    for round in 0..rounds + 3 {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            let start = Instant::now();
            ways[way].1();
            let taken = start.elapsed().as_secs_f64() * 1e3;
            if round >= 3 {
                times[way].push(taken);
            }
        }
    }
    times
}

fn report(ways: &[Way<'_>], times: &[Vec<f64>]) {
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "start and reap", "median ms", "p10", "p90", "x bare", "x limit"
    );
    let limit = ways.iter().position(|(name, _)| *name == "limit").unwrap();
    for ((name, _), own) in ways.iter().zip(times) {
        let over = |base: &[f64]| {
            let ratios: Vec<f64> = own.iter().zip(base).map(|(own, base)| own / base).collect();
            quantile(&ratios, 50)
        };
        println!(
            "{name:32} {:>10.3} {:>10.3} {:>10.3} {:>8.2} {:>8.2}",
            quantile(own, 50),
            quantile(own, 10),
            quantile(own, 90),
            over(&times[0]),
            over(&times[limit])
        );
    }
}

fn quantile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * percent / 100]
}

fn grown_heap(bytes: usize) -> Vec<u8> {
    let mut heap = vec![0_u8; bytes];
    for page in heap.chunks_mut(PAGE) {
        page[0] = 1;
    }
    heap
}

fn static_program(dir: &Path) -> Option<PathBuf> {
    let (source, program) = (dir.join("true.c"), dir.join("true"));
    std::fs::write(&source, "int main(void) { return 0; }\n").ok()?;
    let built = std::process::Command::new("cc")
        .args(["-static", "-O2", "-o"])
        .args([&program, &source])
        .status()
        .ok()?;
    built.success().then_some(program)
}

/// The C function, loaded, and the wall that it puts around a child.
struct Least {
    start: unsafe extern "C" fn(
        *const libc::c_char,
        libc::c_int,
        *const libc::sock_fprog,
    ) -> libc::c_int,
    ruleset: OwnedFd,
    filter: Vec<libc::sock_filter>,
}

impl Least {
    fn build(dir: &Path) -> Self {
        let (source, library) = (dir.join("start.c"), dir.join("start.so"));
        std::fs::write(&source, include_str!("least/start.c")).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .status();
        assert!(built.unwrap().success());
        for name in ["program", "work", "home"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        let path = CString::new(library.as_os_str().as_bytes()).unwrap();
        // SAFETY: the library has no constructors; it stays loaded.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!loaded.is_null());
        // SAFETY: `loaded` is a library that is loaded.
        let found = unsafe { libc::dlsym(loaded, c"least_start".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function has this type in start.c.
        let start = unsafe {
            std::mem::transmute::<
                *mut libc::c_void,
                unsafe extern "C" fn(
                    *const libc::c_char,
                    libc::c_int,
                    *const libc::sock_fprog,
                ) -> libc::c_int,
            >(found)
        };
        Self { start, ruleset: least::ruleset(dir, dir).unwrap(), filter: least::filter() }
    }

    fn start(&self, program: &CStr) {
        let filter = libc::sock_fprog {
            len: u16::try_from(self.filter.len()).unwrap(),
            filter: self.filter.as_ptr().cast_mut(),
        };
        // SAFETY: a NUL-terminated string, an open descriptor and a filter that live through the call; the function changes none of them.
        let status =
            unsafe { (self.start)(program.as_ptr(), self.ruleset.as_raw_fd(), &raw const filter) };
        assert_eq!(status, 0);
    }
}

/// Hears, and keeps nothing.
#[derive(Debug)]
struct Ears;

impl Listener for Ears {
    fn tried(&self, _: Attempt) {}
    fn refused(&self, _: RefusedCall) {}
    fn unread(&self) {}
    fn deaf(&self, errno: i32) {
        panic!("nobody can hear here: errno {errno}");
    }
}

/// The shipped policy over three directories.
fn wall(dir: &Path) -> Wall {
    let wall = shipped(dir, "wall");
    for line in wall.summary() {
        println!("{line}");
    }
    wall
}

fn told(dir: &Path) -> Wall {
    shipped(dir, "told").told_to(Arc::new(Ears)).unwrap()
}

fn shipped(dir: &Path, for_whom: &str) -> Wall {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/developer.toml");
    let policy = Policy::parse(&std::fs::read_to_string(policies).unwrap()).unwrap();
    let own = |name: &str| {
        let path = dir.join(for_whom).join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let places = Places {
        programs: vec![dir.join("true")],
        ports: PortRange { first: 20_000, count: 8 },
        ..Places::new(own("work"), own("home"), own("scratch"), Tier::Domain)
    };
    Wall::build(&policy, &places).unwrap()
}

/// posix_spawn(3) and waitpid(2).
fn bare(program: &CStr, argv: &[&CStr]) {
    let argv: Vec<_> =
        argv.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect();
    let env = [std::ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: NUL-terminated strings and null-terminated lists that live through the call; no actions, no attributes.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            argv.as_ptr(),
            env.as_ptr(),
        )
    };
    assert_eq!(failed, 0);
    reaped(pid);
}

fn confined(session: &SessionSpawner, wall: &Wall, program: &Path, null: &File) {
    let command = Command {
        program: program.to_owned(),
        argv: vec![CString::new(program.as_os_str().as_bytes()).unwrap()],
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        stdin: null.try_clone().unwrap().into(),
        stdout: null.try_clone().unwrap().into(),
        stderr: null.try_clone().unwrap().into(),
        terminal: false,
    };
    reaped(session.spawn(command, wall).unwrap());
}

fn reaped(pid: i32) {
    let ended = waitpid(Pid::from_raw(pid), None).unwrap();
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
}
