//! What a process behind a wall tries of the network is heard, and that it is heard changes nothing.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use casemate_protocol::policy::decide::{Transport, Way};
use casemate_protocol::policy::{AUDIT, DEVELOPER, Policy};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{
    Attempt, Exit, Listener, Places, Program, RefusedCall, SessionSpawner, Spawner, Wall,
};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
};
use nix::errno::Errno;

use support::{Session, command, eventually, inside, run, temp_dir, this_program, wait_for};

const TESTS: &[support::Test] = &[
    ("what_is_tried_is_heard_and_the_wall_alone_decides", heard),
    ("other_families_and_sockets_go_on_unheard", others),
    ("an_address_that_changes_behind_the_reader_opens_nothing", changing),
    ("ten_thousand_refusals_are_heard_and_refused", flood),
    ("one_who_is_killed_while_he_asks_holds_nobody_up", killed),
    ("signals_do_not_keep_a_call_from_being_answered", signals),
    ("who_cannot_be_read_is_counted_and_refused_all_the_same", unreadable),
    ("beside_another_listener_nothing_is_heard_and_the_wall_holds", deaf),
    ("a_wall_that_refuses_seccomp_is_heard_all_the_same", own_program),
    ("what_a_policy_refuses_is_heard_with_the_same_errno_and_nothing_is_let_through", refused),
    ("where_nobody_can_hear_the_wall_refuses_by_itself", refused_deaf),
];

fn main() {
    support::main(TESTS, |verb, rest| {
        let port = |at: usize| rest[at].parse::<u16>().unwrap();
        match verb {
            "try" => attempts(port(0), port(1)),
            "others" => other_sockets(port(0), Path::new(&rest[1])),
            "change" => change(port(0), port(1)),
            "flood" => repeat(port(0), port(1)),
            "one" => println!("{}", errno(TcpStream::connect((Ipv4Addr::LOCALHOST, port(0))))),
            "ticking" => ticking(port(0)),
            "undumpable" => undumpable(port(0)),
            "deaf" => deaf_inside(port(0)),
            "refused" => println!("{:?}", refused_calls()),
            "refused-deaf" => refused_deaf_inside(),
            other => panic!("{other}"),
        }
    });
}

/// Keeps what it hears; holds up who asks while `held`, or for a while.
#[derive(Debug, Default)]
struct Ears {
    heard: Mutex<Vec<Attempt>>,
    refused: Mutex<Vec<(&'static str, [u64; 6])>>,
    unread: AtomicU64,
    deaf: AtomicI32,
    held: Mutex<bool>,
    released: Condvar,
    slow: bool,
}

impl Listener for Ears {
    fn tried(&self, attempt: Attempt) {
        self.heard.lock().unwrap().push(attempt);
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        if self.slow {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn refused(&self, call: RefusedCall) {
        self.refused.lock().unwrap().push((call.name, call.arguments));
    }

    fn unread(&self) {
        self.unread.fetch_add(1, Ordering::SeqCst);
    }

    fn deaf(&self, errno: i32) {
        self.deaf.store(errno, Ordering::SeqCst);
    }
}

impl Ears {
    fn heard(&self) -> Vec<(Way, Transport, SocketAddr)> {
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|one| (one.way, one.transport, one.address)).collect()
    }
}

/// Reads, writes and runs everything; of TCP, connects to `open` and binds nothing.
fn wall(open: u16, programs: Vec<Program>) -> Wall {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V5))
        .unwrap()
        .handle_access(AccessNet::from_all(ABI::V4))
        .unwrap()
        .create()
        .unwrap();
    let all = PathBeneath::new(PathFd::new("/").unwrap(), AccessFs::from_all(ABI::V5));
    ruleset = ruleset.add_rule(all).unwrap();
    ruleset = ruleset.add_rule(NetPort::new(open, AccessNet::ConnectTcp)).unwrap();
    let fd: Option<OwnedFd> = ruleset.into();
    Wall::from_parts(fd.unwrap(), programs, Vec::new())
}

fn told(open: u16, ears: &Arc<Ears>) -> Wall {
    wall(open, Vec::new()).told_to(Arc::clone(ears) as Arc<dyn Listener>).unwrap()
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// The session ends, and with its last process each listener's thread: the next test begins with one thread.
fn over(session: SessionSpawner, spawner: Spawner) {
    drop(session);
    spawner.end();
    eventually("the listeners' threads are gone", || {
        std::fs::read_dir("/proc/self/task").unwrap().count() == 1
    });
}

/// Accepts and closes until it is told to stop; how many.
struct Accepting {
    port: u16,
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<usize>,
}

impl Accepting {
    fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let accepted =
            move || listener.incoming().take_while(|_| !stop.load(Ordering::SeqCst)).count();
        Self { port, over, thread: std::thread::spawn(accepted) }
    }

    fn stop(self) -> usize {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap());
        self.thread.join().unwrap()
    }
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap())
}

const EACCES: i32 = Errno::EACCES as i32;

fn heard() {
    let Session { spawner, session } = Session::new();
    let ((_open, open), (_closed, closed)) = (listener(), listener());
    let ears = Arc::new(Ears::default());
    let wall = told(open, &ears);
    let program = this_program();
    // By a program that a program starts.
    let script = format!("{} inside try {open} {closed}; echo", program.display());
    let (command, mut reader) = command(Path::new("/bin/sh"), &["sh", "-c", &script], &[]);
    let pid = session.spawn(command, &wall).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    wait_for(pid);
    assert_eq!(said.trim(), format!("0 {EACCES} {EACCES} {EACCES} {EACCES}"));
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let v6: SocketAddr = format!("[::ffff:127.0.0.1]:{closed}").parse().unwrap();
    let expected = [
        (Way::Connect, Transport::Tcp, local(open)),
        (Way::Connect, Transport::Tcp, local(closed)),
        (Way::Connect, Transport::Tcp, v6),
        (Way::Connect, Transport::Tcp, local(closed)),
        (Way::Bind, Transport::Tcp, local(closed)),
    ];
    assert_eq!(ears.heard(), expected);
    assert!(ears.heard.lock().unwrap().iter().all(|one| one.pid > 0 && one.pid != pid));
    assert_eq!(ears.deaf.load(Ordering::SeqCst), 0);
    // Its thread ends with the last process behind the wall, and lets go of the ears.
    drop(wall);
    over(session, spawner);
    assert_eq!(Arc::strong_count(&ears), 1);
}

/// The errnos of: an open port, a closed one, the same by IPv6, without waiting, bound.
fn attempts(open: u16, closed: u16) {
    let mapped = std::net::SocketAddrV6::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), closed, 0, 0);
    let patient = Duration::from_secs(5);
    let closed = SocketAddr::from((Ipv4Addr::LOCALHOST, closed));
    print!(
        "{} {} {} {} {}",
        errno(TcpStream::connect((Ipv4Addr::LOCALHOST, open))),
        errno(TcpStream::connect(closed)),
        errno(TcpStream::connect(mapped)),
        // A socket that does not block.
        errno(TcpStream::connect_timeout(&closed, patient)),
        errno(TcpListener::bind(closed)),
    );
}

fn others() {
    let Session { spawner, session } = Session::new();
    let (_open, open) = listener();
    let dir = temp_dir();
    let path = dir.path().join("socket");
    let ears = Arc::new(Ears::default());
    let (exit, said) =
        run(&session, &told(open, &ears), "others", &[&open.to_string(), path.to_str().unwrap()]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), "done"));
    let heard = ears.heard();
    assert!(heard.iter().all(|(_, transport, _)| *transport == Transport::Udp), "{heard:?}");
    assert_eq!(heard.len(), 2, "one bind and one connect of UDP: {heard:?}");
    over(session, spawner);
}

fn other_sockets(port: u16, path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    UnixStream::connect(path).unwrap();
    listener.accept().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    // No address, no memory, no socket: the kernel's own answers.
    let connect = |fd, address: *const libc::sockaddr, length| {
        // SAFETY: the kernel checks the address that it is given, and only reads.
        Errno::result(unsafe { libc::connect(fd, address, length) }).map(drop)
    };
    assert_eq!(connect(udp.as_raw_fd(), std::ptr::null(), 16), Err(Errno::EFAULT));
    assert_eq!(connect(udp.as_raw_fd(), std::ptr::null(), 0), Err(Errno::EINVAL));
    assert_eq!(connect(999, std::ptr::null(), 0), Err(Errno::EBADF));
    println!("done");
}

/// `struct sockaddr_in`, whose port another thread changes.
#[repr(C)]
struct Address {
    family: libc::sa_family_t,
    port: AtomicU16,
    address: [u8; 4],
    rest: [u8; 8],
}

fn changing() {
    let Session { spawner, session } = Session::new();
    let ((accepts, open), (never, closed)) = (listener(), listener());
    never.set_nonblocking(true).unwrap();
    let accepting = Accepting::on(accepts);
    let ears = Arc::new(Ears::default());
    let ports = [open.to_string(), closed.to_string()];
    let (exit, said) = run(&session, &told(open, &ears), "change", &[&ports[0], &ports[1]]);
    assert!(accepting.stop() > 0);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert_eq!(errno(never.accept()), Errno::EAGAIN as i32, "a closed port was reached");
    over(session, spawner);
}

fn change(open: u16, closed: u16) {
    let address = Arc::new(Address {
        family: libc::sa_family_t::try_from(libc::AF_INET).unwrap(),
        port: AtomicU16::new(open.to_be()),
        address: [127, 0, 0, 1],
        rest: [0; 8],
    });
    let changed = Arc::clone(&address);
    std::thread::spawn(move || {
        loop {
            changed.port.store(closed.to_be(), Ordering::Relaxed);
            changed.port.store(open.to_be(), Ordering::Relaxed);
        }
    });
    let mut seen = [0; 2];
    for _ in 0..5000 {
        // SAFETY: plain numbers; the descriptor is made for us.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let length = libc::socklen_t::try_from(size_of::<Address>()).unwrap();
        // SAFETY: the kernel reads one structure of this length that lives; its port is an atomic.
        let connected =
            unsafe { libc::connect(socket.as_raw_fd(), Arc::as_ptr(&address).cast(), length) };
        match Errno::result(connected) {
            Ok(_) => seen[0] += 1,
            Err(Errno::EACCES) => seen[1] += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    std::process::exit(0);
}

fn flood() {
    let Session { spawner, session } = Session::new();
    let ((accepts, open), (_closed, closed)) = (listener(), listener());
    let ears = Arc::new(Ears::default());
    let ports = [open.to_string(), closed.to_string()];
    let times = |wall: &Wall| {
        let (exit, said) = run(&session, wall, "flood", &[&ports[0], &ports[1]]);
        assert_eq!(exit, Exit::Code(0), "{said}");
        let times: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (times[0], times[1])
    };
    // After the spawner, which wants to be forked from one thread.
    let accepting = Accepting::on(accepts);
    let with = times(&told(open, &ears));
    let refused = |(way, _, address): &&(Way, Transport, SocketAddr)| {
        *way == Way::Connect && address.port() == closed
    };
    assert_eq!(ears.heard().iter().filter(refused).count(), 10_000);
    let without = times(&wall(open, Vec::new()));
    accepting.stop();
    println!(
        "connect to loopback {:.1} us, heard {:.1} us (x{:.2}); refused {:.1} us, heard {:.1} us",
        without.0,
        with.0,
        with.0 / without.0,
        without.1,
        with.1
    );
    over(session, spawner);
}

/// Prints microseconds: of a connection made and closed by its other end, of a refused one.
fn repeat(open: u16, closed: u16) {
    let start = Instant::now();
    for _ in 0..2000 {
        // Up to its other end's close: a queue that is full would be what is measured.
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, open)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let made = start.elapsed().as_secs_f64() * 1e6 / 2e3;
    let start = Instant::now();
    for _ in 0..10_000 {
        assert_eq!(errno(TcpStream::connect((Ipv4Addr::LOCALHOST, closed))), EACCES);
    }
    println!("{made} {}", start.elapsed().as_secs_f64() * 1e6 / 1e4);
}

fn killed() {
    let Session { spawner, session } = Session::new();
    let (_closed, closed) = listener();
    let ears = Arc::new(Ears { held: Mutex::new(true), ..Ears::default() });
    let wall = told(1, &ears);
    let (command, _reader) = inside("one", &[&closed.to_string()]);
    let pid = session.spawn(command, &wall).unwrap();
    eventually("it asks", || ears.heard().len() == 1);
    session.kill_all().unwrap();
    assert_eq!(wait_for(pid), Exit::Signal(9));
    *ears.held.lock().unwrap() = false;
    ears.released.notify_all();
    let (_, said) = run(&session, &wall, "one", &[&closed.to_string()]);
    assert_eq!(said.trim(), EACCES.to_string());
    over(session, spawner);
}

fn signals() {
    let Session { spawner, session } = Session::new();
    let (_closed, closed) = listener();
    let ears = Arc::new(Ears { slow: true, ..Ears::default() });
    let (exit, said) = run(&session, &told(1, &ears), "ticking", &[&closed.to_string()]);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert_eq!(ears.heard().len(), 20, "each is asked once, whatever comes in between");
    over(session, spawner);
}

/// Twenty calls, each of which takes four ticks of a timer.
fn ticking(port: u16) {
    extern "C" fn tick(_: i32) {}
    let action = nix::sys::signal::SigAction::new(
        nix::sys::signal::SigHandler::Handler(tick),
        nix::sys::signal::SaFlags::SA_RESTART,
        nix::sys::signal::SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    unsafe { nix::sys::signal::sigaction(nix::sys::signal::SIGALRM, &action) }.unwrap();
    let five = libc::timeval { tv_sec: 0, tv_usec: 5000 };
    let timer = libc::itimerval { it_interval: five, it_value: five };
    // SAFETY: the kernel reads one structure that lives.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    for _ in 0..20 {
        assert_eq!(errno(TcpStream::connect((Ipv4Addr::LOCALHOST, port))), EACCES);
    }
}

fn unreadable() {
    let Session { spawner, session } = Session::new();
    let (_closed, closed) = listener();
    let ears = Arc::new(Ears::default());
    let (_, said) = run(&session, &told(1, &ears), "undumpable", &[&closed.to_string()]);
    assert_eq!(said.trim(), EACCES.to_string());
    // Root reads everybody's memory.
    let expected = if nix::unistd::geteuid().is_root() { (0, 1) } else { (1, 0) };
    assert_eq!((ears.unread.load(Ordering::SeqCst), ears.heard().len()), expected);
    over(session, spawner);
}

fn undumpable(port: u16) {
    nix::sys::prctl::set_dumpable(false).unwrap();
    println!("{}", errno(TcpStream::connect((Ipv4Addr::LOCALHOST, port))));
}

fn deaf() {
    let (_closed, closed) = listener();
    let output = std::process::Command::new(this_program())
        .args(["inside", "deaf", &closed.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim(), format!("{} {EACCES}", Errno::EBUSY as i32), "{errors}");
}

/// Puts a listener around this process, which asks about a call that nobody makes.
fn other_listener() {
    nix::sys::prctl::set_no_new_privs().unwrap();
    let number = u32::try_from(libc::SYS_mq_unlink).unwrap();
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let program = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, number),
        step(0x06, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the kernel copies the live program.
    let other = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    assert!(other >= 0);
}

fn deaf_inside(port: u16) {
    other_listener();
    let Session { spawner, session } = Session::new();
    let ears = Arc::new(Ears::default());
    let (_, said) = run(&session, &told(1, &ears), "one", &[&port.to_string()]);
    assert!(ears.heard().is_empty());
    println!("{} {}", ears.deaf.load(Ordering::SeqCst), said.trim());
    over(session, spawner);
}

fn own_program() {
    let Session { spawner, session } = Session::new();
    let (_closed, closed) = listener();
    let number = u32::try_from(libc::SYS_seccomp).unwrap();
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let program = Program::new(vec![
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, number),
        step(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
    let ears = Arc::new(Ears::default());
    let wall = wall(1, vec![program]).told_to(Arc::clone(&ears) as Arc<dyn Listener>).unwrap();
    let (_, said) = run(&session, &wall, "one", &[&closed.to_string()]);
    assert_eq!((said.trim(), ears.heard().len()), (EACCES.to_string().as_str(), 1));
    over(session, spawner);
}

/// Behind a built-in policy's whole wall.
fn of_policy(text: &str, root: &Path) -> Wall {
    for name in ["work", "home", "scratch"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let places = Places {
        work: root.join("work"),
        home: root.join("home"),
        scratch: root.join("scratch"),
        skills: None,
        programs: vec![this_program()],
        read: Vec::new(),
        never: Vec::new(),
        private: Vec::new(),
        ports: PortRange { first: 1, count: 0 },
        connect: Vec::new(),
        tier: Tier::Domain,
    };
    Wall::build(&Policy::parse(text).unwrap(), &places).unwrap()
}

/// The errnos of: a call without conditions, one with, one whose errno is ENOSYS, two kinds of sockets, and one call that is allowed.
fn refused_calls() -> [i32; 6] {
    let call = |number, one: libc::c_long, two: libc::c_long| {
        // SAFETY: numbers; the wall refuses all of them before a pointer would be followed.
        Errno::result(unsafe { libc::syscall(number, one, two, 0, 0, 0, 0) })
            .map_or_else(|errno| errno as i32, |_| 0)
    };
    [
        call(libc::SYS_bpf, 0, 0),
        call(libc::SYS_ioctl, 0, 0x5412),
        call(libc::SYS_io_uring_setup, 0, 0),
        call(libc::SYS_socket, libc::AF_INET.into(), libc::SOCK_DGRAM.into()),
        call(libc::SYS_socket, libc::AF_PACKET.into(), libc::SOCK_RAW.into()),
        call(libc::SYS_getpriority, 0, 0),
    ]
}

const REFUSED: [i32; 6] = [
    Errno::EPERM as i32,
    Errno::EPERM as i32,
    Errno::ENOSYS as i32,
    Errno::EACCES as i32,
    Errno::EACCES as i32,
    0,
];

fn refused() {
    let Session { spawner, session } = Session::new();
    let dir = temp_dir();
    let said_behind = |wall: &Wall| {
        let (exit, said) = run(&session, wall, "refused", &[]);
        assert_eq!(exit, Exit::Code(0), "{said}");
        said.trim().to_owned()
    };
    let alone = said_behind(&of_policy(DEVELOPER, dir.path()));
    assert_eq!(alone, format!("{REFUSED:?}"));
    let ears = Arc::new(Ears::default());
    let wall = of_policy(DEVELOPER, dir.path());
    let heard = said_behind(&wall.told_to(Arc::clone(&ears) as Arc<dyn Listener>).unwrap());
    assert_eq!(heard, alone, "told or not, the answers are the same");
    let refused: Vec<_> = ears.refused.lock().unwrap().clone();
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["bpf", "ioctl", "socket", "socket"]);
    assert_eq!(refused[2].1[..2], [2, 2]);
    // Where the kernel is to record them, they are its own.
    let ears = Arc::new(Ears::default());
    let wall = of_policy(AUDIT, dir.path()).told_to(Arc::clone(&ears) as Arc<dyn Listener>);
    assert_eq!(said_behind(&wall.unwrap()), alone);
    assert!(ears.refused.lock().unwrap().is_empty());
    over(session, spawner);
}

fn refused_deaf() {
    let output = std::process::Command::new(this_program())
        .args(["inside", "refused-deaf"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said} {errors}");
}

fn refused_deaf_inside() {
    other_listener();
    let Session { spawner, session } = Session::new();
    let dir = temp_dir();
    let ears = Arc::new(Ears::default());
    let wall = of_policy(DEVELOPER, dir.path()).told_to(Arc::clone(&ears) as Arc<dyn Listener>);
    let (exit, said) = run(&session, &wall.unwrap(), "refused", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), format!("{REFUSED:?}").as_str()));
    assert!(ears.refused.lock().unwrap().is_empty());
    assert_eq!(ears.deaf.load(Ordering::SeqCst), Errno::EBUSY as i32);
    over(session, spawner);
}
