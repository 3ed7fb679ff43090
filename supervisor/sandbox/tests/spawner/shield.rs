//! What a supervisor does before it has agents: the shield, and a signal scope or no session.

use std::fs;

use casemate_sandbox::{Exit, Spawner, shield};
use nix::errno::Errno;

use crate::support::{Session, run, this_program, wall};

pub(crate) fn shield_stays() {
    let shielded =
        std::process::Command::new(this_program()).args(["inside", "shielded"]).status().unwrap();
    assert!(shielded.success());
}

/// A shielded supervisor: its own memory is sealed, an agent's just-in-time compiler works.
pub(crate) fn shielded() {
    assert_eq!(executable_memory(), "succeeded", "before the shield it is to be had");
    let report = shield::harden().unwrap();
    assert_eq!(report.mdwe, shield::Mdwe::On);
    assert_eq!(executable_memory(), "EACCES");
    let root = nix::unistd::geteuid().is_root();
    assert_eq!(report.bounding == shield::Bounding::Empty, root, "{report:?}");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
    }
    // Non-dumpable: the files of our own process belong to root.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self/environ").unwrap());
    assert_eq!(owner, 0);
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "jit", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), "succeeded"));
}

/// What a just-in-time compiler does: write, then execute.
pub(crate) fn executable_memory() -> String {
    let length = 4096;
    // SAFETY: a new anonymous mapping, which nothing else knows; it is left to the process's end.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the whole of the mapping above.
    let executable = unsafe { libc::mprotect(page, length, libc::PROT_READ | libc::PROT_EXEC) };
    Errno::result(executable).map_or_else(|errno| format!("{errno:?}"), |_| "succeeded".to_owned())
}

pub(crate) fn no_scope_no_session() {
    let output = std::process::Command::new(this_program())
        .args(["inside", "without-landlock"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "SignalScope ENOSYS\nno tier\n");
}

/// A supervisor on a kernel without Landlock, as far as system calls tell.
pub(crate) fn without_landlock() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap();
    let program = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, number),
        step(0x06, 0, 0, 0x0005_0026), // ENOSYS
        step(0x06, 0, 0, 0x7fff_0000), // allow
    ];
    let header = libc::sock_fprog { len: 4, filter: program.as_ptr().cast_mut() };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // SAFETY: the header describes a live array of four instructions.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, 1, 0, &raw const header) };
    assert_eq!(installed, 0);
    let report = casemate_sandbox::kernel::report();
    let spawner = Spawner::start(&[]).unwrap();
    let error = spawner.session().unwrap_err();
    println!("{:?} {:?}", error.step, Errno::from_raw(error.errno()));
    println!("{}", report.tier.map_or("no tier".to_owned(), |tier| tier.to_string()));
}
