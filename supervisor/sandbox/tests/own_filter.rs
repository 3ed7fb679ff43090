//! The supervisor's own filter from the side of an attacker who runs code in the supervisor: each attack is made in a
//! process of its own, once as it is and once behind the filter.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

use casemate_sandbox::porter::{Answer, Porter};
use casemate_sandbox::shield::calls::{Role, Verb};
use casemate_sandbox::shield::{confine, refused_calls};
use casemate_sandbox::{Exit, Spawner};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use support::{Session, run, this_program, wall};

const TESTS: &[support::Test] = &[
    ("an_attack_succeeds_or_fails_otherwise_without_the_filter_and_not_with_it", attacks),
    (
        "what_the_porter_is_asked_for_it_does_and_an_attack_in_it_is_refused_or_its_end",
        in_the_porter,
    ),
    ("every_deadly_call_of_a_list_ends_the_process", deadly),
    ("a_refusal_is_an_errno_and_one_line_and_is_counted", refusals),
    ("a_thread_can_be_made_and_is_confined", threads),
    ("what_the_spawner_starts_does_not_wear_it", agents),
    ("a_process_with_threads_is_not_confined", beside_threads),
];

/// What an attacker has instead of a program of his own.
type Attack = (&'static str, libc::c_long, [u64; 6]);

const PAGE: u64 = 4096;
const ANONYMOUS: u64 = 0x22;
const NOBODY: u64 = u64::MAX;
const SIGCHLD: u64 = 17;
const SIGSYS: i32 = 31;

/// Refused with EPERM by the filter. Without it each gives something else: a result, or another errno.
const REFUSED: &[Attack] = &[
    ("a TCP socket", libc::SYS_socket, [2, 1, 0, 0, 0, 0]),
    ("a TCP socket of IPv6", libc::SYS_socket, [10, 1, 0, 0, 0, 0]),
    ("a UDP socket", libc::SYS_socket, [2, 2, 0, 0, 0, 0]),
    ("a unix socket", libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
    ("a netlink socket", libc::SYS_socket, [16, 3, 0, 0, 0, 0]),
    ("a socket of AF_ALG", libc::SYS_socket, [38, 5, 0, 0, 0, 0]),
    ("a pair that is not unix", libc::SYS_socketpair, [2, 1, 0, 0, 0, 0]),
    ("a connection", libc::SYS_connect, [NOBODY, 0, 0, 0, 0, 0]),
    ("another listener", libc::SYS_listen, [NOBODY, 1, 0, 0, 0, 0]),
    ("a bound socket", libc::SYS_bind, [NOBODY, 0, 0, 0, 0, 0]),
    ("a child", libc::SYS_clone, [SIGCHLD, 0, 0, 0, 0, 0]),
    ("a child in a namespace", libc::SYS_clone, [SIGCHLD | 0x1000_0000, 0, 0, 0, 0, 0]),
    ("new code", libc::SYS_mmap, [0, PAGE, 7, ANONYMOUS, NOBODY, 0]),
    ("a file as code", libc::SYS_mmap, [0, PAGE, 5, 2, NOBODY, 0]),
    ("memory becomes code", libc::SYS_mprotect, [0, 0, 4, 0, 0, 0]),
    ("a file without a name", libc::SYS_memfd_create, [0, 0, 0, 0, 0, 0]),
    ("dumpable again", libc::SYS_prctl, [4, 1, 0, 0, 0, 0]),
    ("a subreaper no more", libc::SYS_prctl, [36, 0, 0, 0, 0, 0]),
    ("a filter of its own", libc::SYS_seccomp, [1, 0, 0, 0, 0, 0]),
    ("limits of another process", libc::SYS_prlimit64, [NOBODY, 0, 0, 0, 0, 0]),
    ("limits of its own", libc::SYS_prlimit64, [0, 99, 1, 0, 0, 0]),
    ("everybody gets a signal", libc::SYS_kill, [NOBODY, 0, 0, 0, 0, 0]),
    ("a signal of another thread", libc::SYS_tgkill, [NOBODY, 1, 0, 0, 0, 0]),
    ("typing into a terminal", libc::SYS_ioctl, [NOBODY, 0x5412, 0, 0, 0, 0]),
    ("flags of an inode", libc::SYS_ioctl, [NOBODY, 0x4008_6602, 0, 0, 0, 0]),
    ("whom a descriptor signals", libc::SYS_fcntl, [NOBODY, 8, 1, 0, 0, 0]),
    ("a descriptor elsewhere", libc::SYS_dup3, [NOBODY, 100, 0, 0, 0, 0]),
    ("an option of a socket", libc::SYS_setsockopt, [NOBODY, 1, 15, 0, 0, 0]),
    ("a symbolic link", libc::SYS_symlinkat, [0, NOBODY, 0, 0, 0, 0]),
    ("a hard link", libc::SYS_linkat, [NOBODY, 0, NOBODY, 0, 0, 0]),
    ("a device", libc::SYS_mknodat, [NOBODY, 0, 0o20_666, 0, 0, 0]),
    ("another owner", libc::SYS_fchown, [NOBODY, 0, 0, 0, 0, 0]),
    ("an extended attribute", libc::SYS_setxattr, [0; 6]),
    ("another directory", libc::SYS_fchdir, [NOBODY, 0, 0, 0, 0, 0]),
    ("a watch", libc::SYS_inotify_init1, [0; 6]),
    ("another user", libc::SYS_setresuid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]),
    ("a session", libc::SYS_getsid, [0; 6]),
    ("shared memory", libc::SYS_shmget, [1, PAGE, 0, 0, 0, 0]),
    ("a message queue", libc::SYS_mq_open, [0; 6]),
    ("asynchronous IO", libc::SYS_io_setup, [1, 0, 0, 0, 0, 0]),
    ("a processor", libc::SYS_sched_setaffinity, [0; 6]),
    ("a trigger of time", libc::SYS_timer_create, [0; 6]),
];

/// What a supervisor may and an init may not, as [`REFUSED`]. No file is touched: the names are empty.
const REFUSED_TO_INIT: &[Attack] = &[
    ("a file to be written", libc::SYS_openat, [NOBODY, 0, 1, 0, 0, 0]),
    ("a file to be read and written", libc::SYS_openat, [NOBODY, 0, 2, 0, 0, 0]),
    ("a file that is made", libc::SYS_openat, [NOBODY, 0, 0x40, 0o600, 0, 0]),
    ("a file that is emptied", libc::SYS_openat, [NOBODY, 0, 0x200, 0, 0, 0]),
    ("a file beneath a directory", libc::SYS_openat2, [NOBODY, 0, 0, 24, 0, 0]),
    ("a directory", libc::SYS_mkdirat, [NOBODY, 0, 0o700, 0, 0, 0]),
    ("another name", libc::SYS_renameat2, [NOBODY, 0, NOBODY, 0, 0, 0]),
    ("a mode", libc::SYS_fchmod, [NOBODY, 0, 0, 0, 0, 0]),
    ("less of a file", libc::SYS_ftruncate, [NOBODY, 0, 0, 0, 0, 0]),
    ("a write at a place", libc::SYS_pwrite64, [NOBODY, 0, 0, 0, 0, 0]),
    ("a client", libc::SYS_accept4, [NOBODY, 0, 0, 0, 0, 0]),
    ("a pipe", libc::SYS_pipe2, [0, 0, 0, 0, 0, 0]),
    ("a domain of its own", libc::SYS_landlock_create_ruleset, [0, 0, 0, 0, 0, 0]),
    ("another process, held", libc::SYS_pidfd_open, [NOBODY, 0, 0, 0, 0, 0]),
    ("a terminal", libc::SYS_ioctl, [NOBODY, 0x5441, 0, 0, 0, 0]),
];

fn main() {
    support::main(TESTS, |verb, rest| match (verb, rest) {
        ("attack", [number, arguments @ .., worn]) => {
            let mut given = [0; 6];
            for (place, word) in given.iter_mut().zip(arguments) {
                *place = word.parse().unwrap();
            }
            let worn = Role::ALL.into_iter().find(|role| role.name() == *worn);
            attack(number.parse().unwrap(), given, worn);
        }
        ("in-the-porter", []) => in_the_porter_inside(),
        ("refusals", []) => refusals_inside(),
        ("threads", []) => threads_inside(),
        ("agents", []) => agents_inside(),
        ("state", []) => println!("{}", filters()),
        ("beside-threads", []) => beside_threads_inside(),
        other => panic!("{other:?}"),
    });
}

/// Prints the errno of one call, 0 where it gave a result.
fn attack(number: libc::c_long, [a, b, c, d, e, f]: [u64; 6], worn: Option<Role>) {
    let parent = std::process::id();
    if let Some(role) = worn {
        confine(role).unwrap();
    }
    // SAFETY: an attacker's call with numbers for arguments: null pointers, pages that did not exist, descriptors that are
    // none. A child that it makes has a copy of this process and leaves below.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let errno = if result < 0 { Errno::last_raw() } else { 0 };
    if std::process::id() == parent {
        println!("errno {errno}");
    }
    std::process::exit(0);
}

fn tried(number: libc::c_long, arguments: [u64; 6], worn: Option<Role>) -> Output {
    Command::new(this_program())
        .args(["inside", "attack", &number.to_string()])
        .args(arguments.map(|argument| argument.to_string()))
        .arg(worn.map_or("open", Role::name))
        .output()
        .unwrap()
}

fn attacks() {
    let errno = |(_, number, arguments): &Attack, worn| {
        String::from_utf8(tried(*number, *arguments, worn).stdout).unwrap()
    };
    let refused = |attack: &Attack, roles: &[Role]| {
        let (what, open) = (attack.0, errno(attack, None));
        assert!(open.starts_with("errno "), "{what}: without the filter: {open:?}");
        assert_ne!(open, "errno 1\n", "{what}: EPERM without the filter proves nothing");
        for role in roles {
            let said = errno(attack, Some(*role));
            assert_eq!(said, "errno 1\n", "{what}, {role:?}: with the filter; without: {open}");
        }
    };
    REFUSED.iter().for_each(|attack| refused(attack, &[Role::Supervisor, Role::Init]));
    for attack in REFUSED_TO_INIT {
        refused(attack, &[Role::Init]);
        assert_ne!(errno(attack, Some(Role::Supervisor)), "errno 1\n", "{}", attack.0);
    }
}

/// With arguments that make none of them do anything, were they allowed.
fn deadly() {
    for role in [Role::Supervisor, Role::Porter, Role::Init] {
        let rules = role.rules().unwrap();
        for rule in rules.iter().filter(|rule| rule.verb == Verb::Kill) {
            let Some(number) = casemate_sandbox::syscall_number(&rule.name) else { continue };
            let nothing = [NOBODY; 6];
            let open = tried(number, nothing, None);
            assert!(open.stdout.starts_with(b"errno "), "{rule:?} without the filter: {open:?}");
            let confined = tried(number, nothing, Some(role));
            assert_eq!(confined.status.signal(), Some(SIGSYS), "{rule:?}: {confined:?}");
            assert!(confined.stdout.is_empty(), "{rule:?}");
        }
    }
    // A new program, for good measure with a path that there is.
    let path = c"/bin/true".as_ptr() as u64;
    let execve = tried(libc::SYS_execve, [path, 0, 0, 0, 0, 0], Some(Role::Supervisor));
    assert_eq!(execve.status.signal(), Some(SIGSYS));
    // getpid(2) by its x32 number.
    #[cfg(target_arch = "x86_64")]
    {
        let x32 = 0x4000_0000 | libc::SYS_getpid;
        assert!(tried(x32, [0; 6], None).status.success());
        let confined = tried(x32, [0; 6], Some(Role::Supervisor));
        assert_eq!(confined.status.signal(), Some(SIGSYS));
    }
}

fn in_the_porter() {
    let (_, log) = role("in-the-porter");
    assert!(log.contains(r#"refused a system call","call":"fork"#), "{log}");
    assert!(log.contains(r#"refused a system call","call":"fchown"#), "{log}");
}

/// An errand is a number of a call, as whoever has got hold of the porter would make it.
fn in_the_porter_inside() {
    let (own, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = [own.path().join("file"), others.path().join("file")];
    fs::write(&places[1], "kept").unwrap();
    let mine = places.clone();
    let porter = Porter::start(own.path(), move |words| {
        if let Some(place) = words.strip_prefix(b"write ") {
            let path = &mine[usize::from(place[0])];
            let errno = |error: &std::io::Error| error.raw_os_error().unwrap();
            let done = [fs::write(path, "changed"), fs::create_dir(path.with_extension("d"))];
            let words = done.map(|done| done.as_ref().map_or_else(errno, |()| 0).to_ne_bytes());
            return Answer { words: words.concat(), ..Answer::default() };
        }
        let number = libc::c_long::from_ne_bytes(words.try_into().unwrap());
        // SAFETY: arguments that name nothing. A child that fork(2) makes has a copy of this process and leaves at once.
        let result = unsafe { libc::syscall(number, NOBODY, 0, 0) };
        let errno = if result < 0 { Errno::last_raw() } else { 0 };
        if number == libc::SYS_fork && result == 0 {
            std::process::exit(0);
        }
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Answer {
            words: errno.to_ne_bytes().to_vec(),
            descriptors: vec![socket.into()],
            held: Some(Box::new(fs::File::open("/dev/null").unwrap())),
        }
    })
    .unwrap();
    for (place, expected) in [(0, 0), (1, libc::EACCES)] {
        let words = porter.ask(&[b"write ".as_slice(), &[place]].concat()).unwrap().words;
        assert_eq!(words, [expected; 2].map(i32::to_ne_bytes).concat());
    }
    assert_eq!(fs::read_to_string(&places[1]).unwrap(), "kept");
    let errno = |number: libc::c_long| {
        let errand = porter.ask(&number.to_ne_bytes())?;
        let socket: std::net::TcpListener = errand.descriptors.into_iter().next().unwrap().into();
        assert!(socket.local_addr().unwrap().port() > 0);
        Ok::<_, std::io::Error>(i32::from_ne_bytes(errand.words.try_into().unwrap()))
    };
    assert_eq!(errno(libc::SYS_getpid).unwrap(), 0);
    assert_eq!(errno(libc::SYS_close).unwrap(), libc::EBADF);
    for refused in [libc::SYS_fchown, libc::SYS_fork] {
        assert_eq!(errno(refused).unwrap(), libc::EPERM);
    }
    let pid = porter.pid();
    errno(libc::SYS_execve).unwrap_err();
    let ended = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap();
    assert!(matches!(ended, WaitStatus::Signaled(_, Signal::SIGSYS, _)), "{ended:?}");
    assert!(errno(libc::SYS_getpid).is_err());
    porter.end();
}

fn role(name: &str) -> (String, String) {
    let output = Command::new(this_program()).args(["inside", name]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {:?}\n{said}\n{log}", output.status);
    (said, log)
}

fn refusals() {
    let (_, log) = role("refusals");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"level":"ERROR","message":"the process's own filter refused a system call","call":"getsid"}"#,
            r#"{"level":"ERROR","message":"the process's own filter refused a system call","call":"socket"}"#,
        ]
    );
}

fn refusals_inside() {
    /// Beyond what any kernel has so far.
    const NO_SUCH_CALL: libc::c_long = 600;
    confine(Role::Supervisor).unwrap();
    for _ in 0..3 {
        assert_eq!(nix::unistd::getsid(None), Err(Errno::EPERM));
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0");
    assert_eq!(socket.unwrap_err().raw_os_error(), Some(Errno::EPERM as i32));
    assert_eq!(refused_calls(), 4);
    // SAFETY: no arguments, and no such call.
    let unknown = unsafe { libc::syscall(NO_SUCH_CALL) };
    assert_eq!((unknown, Errno::last()), (-1, Errno::ENOSYS));
    assert_eq!(refused_calls(), 4);
}

fn threads() {
    role("threads");
}

fn threads_inside() {
    confine(Role::Supervisor).unwrap();
    let thread = std::thread::Builder::new().name("one".into());
    let refused = thread.spawn(|| nix::unistd::getsid(None)).unwrap().join().unwrap();
    assert_eq!((refused, refused_calls()), (Err(Errno::EPERM), 1));
}

fn agents() {
    role("agents");
}

/// The test's agent is this program again, which makes sockets and threads as it likes.
fn agents_inside() {
    let around = filters();
    let s = Session::new();
    confine(Role::Supervisor).unwrap();
    assert_eq!(filters(), around + 1);
    let (exit, said) = run(&s.session, &wall(&[]), "state", &[]);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert_eq!(said.trim(), (around + 1).to_string(), "the wall's, not the supervisor's");
    assert_eq!(refused_calls(), 0);
}

/// How many seccomp programs this process wears.
fn filters() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count.unwrap().trim().parse().unwrap()
}

fn beside_threads() {
    role("beside-threads");
}

fn beside_threads_inside() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || told.recv());
    assert!(confine(Role::Supervisor).is_err());
    drop(tell);
    let _ = thread.join().unwrap();
    confine(Role::Supervisor).unwrap();
    let _ = Spawner::start(&[]).map(|_| panic!("a child was made"));
}
