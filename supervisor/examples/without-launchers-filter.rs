//! Runs a program that the kernel refuses one call: seccomp(2) with TSYNC alone, by which a launcher puts on its filter, and
//! nobody else does anything.
#![allow(clippy::unwrap_used, reason = "a test's program: a panic is its report")]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

fn main() {
    let is = |argument, value: libc::c_ulong| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap()
    };
    let rule = SeccompRule::new(vec![
        is(0, libc::SECCOMP_SET_MODE_FILTER.into()),
        is(1, libc::SECCOMP_FILTER_FLAG_TSYNC),
    ]);
    let filter = SeccompFilter::new(
        [(libc::SYS_seccomp, vec![rule.unwrap()])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EACCES.cast_unsigned()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    let mut words = std::env::args_os().skip(1);
    panic!("{}", Command::new(words.next().unwrap()).args(words).exec());
}
