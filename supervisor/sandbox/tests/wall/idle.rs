//! No rule of a built-in policy is idle: each is taken out once, right by right, and the kernel answers otherwise.
//!
//! Derived from the policies themselves, so a rule that is added is tested as well. Path rules are moved below a tree of
//! this test's own, where every path exists, whatever this machine has. System calls: `calls.rs`; limits and the log:
//! `tests/policy.rs`; variables: `environment.rs` of the crate.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use casemate_protocol::policy::{
    Access, BUILT_IN, PathTemplate, Policy, Port, Scope, SocketCall, SocketRule,
};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::Wall;

use super::cell::{Site, call, confined, errno, give, pid, victim};
use super::explained::attempt;

fn policies() -> impl Iterator<Item = (&'static str, Policy)> {
    BUILT_IN.into_iter().map(|(name, text)| (name, Policy::parse(text).unwrap()))
}

/// Where a rule's path is in the tree: `{home}` is a directory of that name.
fn moved(tree: &Path, path: &PathTemplate) -> PathBuf {
    let path = path.to_string().replace(['{', '}'], "_");
    tree.join(path.trim_start_matches('/'))
}

/// Makes what a rule names, a file where this machine has a file there; returns something in it to try.
fn make(tree: &Path, path: &PathTemplate) -> PathBuf {
    let (place, real) = (moved(tree, path), PathBuf::from(path.to_string()));
    let specimen = if real.exists() && !real.is_dir() { place } else { place.join("specimen") };
    fs::create_dir_all(specimen.parent().unwrap()).unwrap();
    fs::write(&specimen, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&specimen, fs::Permissions::from_mode(0o755)).unwrap();
    specimen
}

#[test]
fn no_right_of_a_path_rule_is_idle() {
    let site = Site::in_tier(Tier::Namespace);
    let mut tried = 0;
    for (name, whole) in policies() {
        let tree = site.path("other").join(name);
        let specimens: Vec<PathBuf> =
            whole.paths.iter().map(|rule| make(&tree, &rule.path)).collect();
        give(&tree);
        let mut whole = whole;
        for rule in &mut whole.paths {
            let place = moved(&tree, &rule.path).display().to_string();
            rule.path = PathTemplate::parse(&place).unwrap();
        }
        let wall = Wall::build(&whole, &site.places).unwrap();
        for (index, specimen) in specimens.iter().enumerate() {
            for access in &whole.paths[index].access {
                // Device nodes have a test of their own.
                let Some(granted) = confined(&wall, || attempt(specimen, *access)) else {
                    continue;
                };
                let line = whole.paths[index].line;
                assert_eq!(granted, 0, "{name}, line {line}: {access} {}", specimen.display());
                let mut less = whole.clone();
                less.paths[index].access.retain(|right| right != access);
                if less.paths[index].access.is_empty() {
                    less.paths.remove(index);
                }
                let less = Wall::build(&less, &site.places).unwrap();
                let refused = confined(&less, || attempt(specimen, *access));
                assert_eq!(refused, Some(libc::EACCES), "{name}, line {line}: {access} is idle");
                tried += 1;
            }
        }
    }
    assert!(tried > 120, "{tried}");
}

/// ioctl(2) on a device, which answers ENOTTY once Landlock lets it through. /dev/zero stands for each device.
#[test]
fn no_right_to_a_device_is_idle() {
    const TCGETS: u64 = 0x5401;
    let site = Site::in_tier(Tier::Namespace);
    let mut tried = 0;
    for (name, policy) in policies() {
        for rule in policy.paths.iter().filter(|rule| rule.access.contains(&Access::Device)) {
            let ask = |device: bool| {
                let mut alone = policy.clone();
                let mut rule = rule.clone();
                rule.path = PathTemplate::parse("/dev/zero").unwrap();
                rule.access.retain(|right| device || *right != Access::Device);
                alone.paths = vec![rule];
                let wall = Wall::build(&alone, &site.places).unwrap();
                confined(&wall, || {
                    let zero = File::open("/dev/zero").unwrap();
                    let mut answer = [0_u64; 16];
                    let at = &raw mut answer as u64;
                    call(libc::SYS_ioctl, [zero.as_raw_fd() as u64, TCGETS, at, 0, 0, 0])
                })
            };
            assert_eq!(ask(true), Err(libc::ENOTTY), "{name}, line {}", rule.line);
            assert_eq!(ask(false), Err(libc::EACCES), "{name}, line {}: idle", rule.line);
            tried += 1;
        }
    }
    assert!(tried > 6, "{tried}");
}

fn number(port: Port, site: &Site) -> u16 {
    match port {
        Port::Number(number) => number,
        Port::Own => site.places.ports.first,
        Port::Connect => site.places.connect[0],
    }
}

#[test]
fn no_port_of_a_built_in_policy_is_idle() {
    let mut site = Site::new();
    // Free a moment ago, and next to each other in nobody's range.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.places.ports = PortRange { first: free(), count: 1 };
    site.places.connect = vec![free()];
    let connects = |port: u16| match TcpStream::connect(("127.0.0.1", port)) {
        Err(error) => errno(&error) != libc::EACCES,
        Ok(_) => true,
    };
    let binds = |port: u16| match TcpListener::bind(("127.0.0.1", port)) {
        Err(error) => errno(&error) != libc::EACCES,
        Ok(_) => true,
    };
    let mut tried = 0;
    for (name, whole) in policies() {
        let wall = Wall::build(&whole, &site.places).unwrap();
        for index in 0..whole.tcp.len() {
            let rule = &whole.tcp[index];
            for (connecting, ports) in [(true, &rule.connect), (false, &rule.bind)] {
                let is_open = |port| if connecting { connects(port) } else { binds(port) };
                for port in ports {
                    let at = number(*port, &site);
                    let mut less = whole.clone();
                    let list = &mut less.tcp[index];
                    let list = if connecting { &mut list.connect } else { &mut list.bind };
                    list.retain(|other| other != port);
                    let less = Wall::build(&less, &site.places).unwrap();
                    assert!(confined(&wall, || is_open(at)), "{name}, line {}: {port}", rule.line);
                    assert!(
                        !confined(&less, || is_open(at)),
                        "{name}, line {}: {port} is idle",
                        rule.line
                    );
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 14, "{tried}");
}

#[test]
fn no_scope_of_a_built_in_policy_is_idle() {
    // Where unix sockets are made, or their refusal would stand for the scope's.
    let site = Site::in_tier(Tier::Namespace);
    let name =
        UnixAddress::from_abstract_name(format!("casemate-idle-{}", std::process::id())).unwrap();
    let _listener = UnixListener::bind_addr(&name).unwrap();
    let victim = victim();
    for (policy, whole) in policies() {
        assert_eq!(whole.scopes.len(), 2, "{policy}");
        for index in 0..whole.scopes.len() {
            let kind = whole.scopes[index].kind;
            let attack = || match kind {
                Scope::Signal => call(libc::SYS_kill, [pid(&victim), 0, 0, 0, 0, 0]).map(drop),
                Scope::AbstractUnixSocket => {
                    UnixStream::connect_addr(&name).map(drop).map_err(|error| errno(&error))
                }
            };
            let mut less = whole.clone();
            less.scopes.remove(index);
            let (wall, less) = (
                Wall::build(&whole, &site.places).unwrap(),
                Wall::build(&less, &site.places).unwrap(),
            );
            assert_eq!(confined(&wall, attack), Err(libc::EPERM), "{policy}: {kind}");
            assert_eq!(confined(&less, attack), Ok(()), "{policy}: {kind} is idle");
        }
    }
}

/// What a rule lets be made, made; the errno of each refusal.
fn made(rule: &SocketRule) -> Vec<Result<(), i32>> {
    let mut answers = Vec::new();
    for call_of in &rule.calls {
        for kind in &rule.types {
            for protocol in &rule.protocols {
                let mut pair = [-1_i32; 2];
                let arguments =
                    [rule.family.number().into(), kind.number().into(), u64::from(*protocol)];
                let [a, b, c] = arguments;
                let answer = match call_of {
                    SocketCall::Socket => call(libc::SYS_socket, [a, b, c, 0, 0, 0]),
                    SocketCall::Socketpair => {
                        call(libc::SYS_socketpair, [a, b, c, &raw mut pair as u64, 0, 0])
                    }
                };
                if let Ok(fd) = answer {
                    let made = if *call_of == SocketCall::Socket {
                        vec![fd as u64]
                    } else {
                        pair.map(|fd| fd as u64).to_vec()
                    };
                    for fd in made {
                        call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]).unwrap();
                    }
                }
                answers.push(answer.map(drop));
            }
        }
    }
    answers
}

/// A rule's types and protocols, each by itself: what it is, the rule of it alone, and the rule without it, if anything is left.
fn words(rule: &SocketRule) -> Vec<(String, SocketRule, Option<SocketRule>)> {
    let types = rule.types.iter().map(|kind| {
        let (mut only, mut less) = (rule.clone(), rule.clone());
        only.types = vec![*kind];
        less.types.retain(|other| other != kind);
        (format!("type {kind}"), only, Some(less).filter(|less| !less.types.is_empty()))
    });
    let protocols = rule.protocols.iter().map(|protocol| {
        let (mut only, mut less) = (rule.clone(), rule.clone());
        only.protocols = vec![*protocol];
        less.protocols.retain(|other| other != protocol);
        let less = Some(less).filter(|less| !less.protocols.is_empty());
        (format!("protocol {protocol}"), only, less)
    });
    types.chain(protocols).collect()
}

/// On this kernel; for rules of a later Landlock ABI `seccomp_tests.rs` reads the compiled program.
#[test]
fn no_type_or_protocol_of_a_socket_rule_that_applies_here_is_idle() {
    let abi = casemate_sandbox::landlock_abi().unwrap();
    let mut tried = 0;
    for (name, whole) in policies() {
        for (index, rule) in whole.sockets.allow.iter().enumerate() {
            if rule.landlock_abi > abi {
                continue;
            }
            let site = Site::in_tier(rule.tier.max(whole.tier));
            let wall = Wall::build(&whole, &site.places).unwrap();
            let refusal = Err(i32::from(whole.sockets.errno.number()));
            for (word, only, rest) in words(rule) {
                let said = format!("{name}, line {}: {word}", rule.line);
                let mut less = whole.clone();
                match rest {
                    Some(rest) => less.sockets.allow[index] = rest,
                    None => drop(less.sockets.allow.remove(index)),
                }
                let with = confined(&wall, || made(&only));
                // What the kernel makes of nobody's call is no use in a rule.
                assert!(with.contains(&Ok(())), "{said} makes nothing: {with:?}");
                assert!(!with.contains(&refusal), "{said}: {with:?}");
                // Another rule may allow it as well on a kernel of a later ABI.
                if is_covered(&whole, index, &only, abi, site.places.tier) {
                    continue;
                }
                let less = Wall::build(&less, &site.places).unwrap();
                let without = confined(&less, || made(&only));
                assert!(without.contains(&refusal), "{said} is idle");
                tried += 1;
            }
        }
    }
    assert!(tried > 25, "{tried}");
}

/// Whether the other rules that apply allow all that `only` does.
fn is_covered(policy: &Policy, index: usize, only: &SocketRule, abi: u32, tier: Tier) -> bool {
    let others = policy.sockets.allow.iter().enumerate().filter(|(other, _)| *other != index);
    others.map(|(_, other)| other).any(|other| {
        other.family == only.family
            && other.tier <= tier
            && other.landlock_abi <= abi
            && only.calls.iter().all(|call| other.calls.contains(call))
            && only.types.iter().all(|kind| other.types.contains(kind))
            && only.protocols.iter().all(|protocol| other.protocols.contains(protocol))
    })
}
