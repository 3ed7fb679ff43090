//! The allow-list of sockets as verdicts on socket(2) and socketpair(2).
//!
//! A deny-list of sockets leaves open what nobody thought of (UDP-Lite, SMC, XDP, MPTCP, ...), so here what is listed
//! is allowed and everything else refused. Pure.

use casemate_protocol::policy::{
    Comparison, Condition, Errno, SocketCall, SocketFamily, SocketRule, SocketRules, SocketType,
    Width,
};
use casemate_protocol::tier::Tier;

use super::program::{Action, Clause, Verdict};

/// `SOCK_TYPE_MASK`: the rest of the argument is SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h).
const TYPE_MASK: u64 = 0xf;
/// The first Landlock ABI that restricts connections to pathname sockets (landlock(7), LANDLOCK_ACCESS_FS_RESOLVE_UNIX).
const RESOLVE_UNIX: u32 = 9;
/// And that restricts UDP ports (LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP).
const UDP: u32 = 10;

/// What becomes of one of the calls, given the rules that allow something to it.
pub(super) fn verdict<'a>(allow: impl Iterator<Item = &'a SocketRule>, errno: Errno) -> Verdict {
    let mut clauses = Vec::new();
    for rule in allow {
        for kind in &rule.types {
            for protocol in &rule.protocols {
                let kind = Comparison::MaskedEqual { mask: TYPE_MASK, value: kind.number().into() };
                let all = vec![
                    test(0, Comparison::Equal(rule.family.number().into())),
                    test(1, kind),
                    test(2, Comparison::Equal((*protocol).into())),
                ];
                clauses.push(Clause { all, action: Action::Allow });
            }
        }
    }
    Verdict { clauses, otherwise: Action::Errno(errno) }
}

/// All three arguments are `int`.
fn test(argument: u8, comparison: Comparison) -> Condition {
    Condition { argument, width: Width::Bits32, comparison }
}

/// What stands between an agent and the pathname sockets of others.
pub(super) fn note(rules: &SocketRules, tier: Tier, abi: u32) -> String {
    let reaches = SocketCall::ALL.into_iter().any(|call| {
        rules.allowing(call, tier, abi).any(|rule| {
            rule.family == SocketFamily::Unix
                // Each end of a pair of datagram sockets can be sent to, and connected to, any address.
                && (call == SocketCall::Socket || rule.types.contains(&SocketType::Dgram))
        })
    });
    match (reaches, tier) {
        (false, Tier::Domain) if abi == 0 => {
            "unix sockets are refused, stream pairs aside: nothing restricts the paths that they would connect to".to_owned()
        }
        (false, Tier::Domain) if abi < RESOLVE_UNIX => format!(
            "unix sockets are refused, stream pairs aside: without a namespace landlock abi {abi} would let them connect \
             to any path of this user (abi {RESOLVE_UNIX} restricts it)"
        ),
        (false, _) => "unix sockets that connect to a path are refused".to_owned(),
        (true, _) if abi >= RESOLVE_UNIX => {
            "unix sockets connect to writable paths only, by landlock".to_owned()
        }
        (true, Tier::Domain) => format!(
            "unix sockets are open to any path of this user: the policy allows them in tier domain, and landlock abi \
             {abi} does not restrict it (abi {RESOLVE_UNIX} does)"
        ),
        (true, Tier::Namespace | Tier::Pod) => {
            "unix sockets connect to paths in the session's own mounts only".to_owned()
        }
    }
}

/// Said where datagram sockets reach everybody.
pub(super) fn udp_note(rules: &SocketRules, tier: Tier, abi: u32) -> Option<String> {
    let made = rules.allowing(SocketCall::Socket, tier, abi).any(|rule| {
        matches!(rule.family, SocketFamily::Inet | SocketFamily::Inet6)
            && rule.types.contains(&SocketType::Dgram)
    });
    (made && abi < UDP).then(|| {
        format!(
            "udp is open to every address and port: the policy makes datagram sockets, and landlock abi {abi} does not \
             restrict them (abi {UDP} does)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::{DEVELOPER, Policy};

    fn holds(condition: &Condition, arguments: [u64; 3]) -> bool {
        let value = arguments[usize::from(condition.argument)];
        match condition.comparison {
            Comparison::Equal(other) => value == other,
            Comparison::MaskedEqual { mask, value: other } => value & mask == other,
            other => panic!("{other:?} is not used for sockets"),
        }
    }

    fn is_allowed(verdict: &Verdict, arguments: [u64; 3]) -> bool {
        verdict.clauses.iter().any(|clause| clause.all.iter().all(|one| holds(one, arguments)))
    }

    #[test]
    fn exactly_the_list_is_allowed() {
        let rule = |family, types: &[SocketType], protocols: &[u32]| SocketRule {
            family,
            types: types.to_vec(),
            protocols: protocols.to_vec(),
            calls: SocketCall::ALL.to_vec(),
            tier: Tier::Domain,
            landlock_abi: 0,
            reason: "test".to_owned(),
            line: 1,
        };
        let allow = [
            rule(SocketFamily::Unix, &[SocketType::Stream, SocketType::Dgram], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[6]),
        ];
        let verdict = verdict(allow.iter(), Errno::Eacces);
        assert_eq!(verdict.otherwise, Action::Errno(Errno::Eacces));
        for family in 0..48_u64 {
            for kind in 0..16_u64 {
                for protocol in [0, 1, 6, 17, 136, 262] {
                    for flags in [0, 0o2_000_000, 0o4000] {
                        let arguments = [family, kind | flags, protocol];
                        let is_listed =
                            matches!((family, kind, protocol), (1, 1 | 2, 0) | (2, 1, 0 | 6));
                        assert_eq!(is_allowed(&verdict, arguments), is_listed, "{arguments:?}");
                    }
                }
            }
        }
    }

    /// No built-in policy makes a socket that can reach a path, unless something restricts which.
    #[test]
    fn unix_sockets_wait_for_a_wall_around_paths() {
        const UNIX: u64 = 1;
        const DGRAM: u64 = 2;
        let policy = Policy::parse(DEVELOPER).unwrap();
        let sockets = &policy.sockets;
        for (tier, abi, restricted) in [
            (Tier::Domain, 6, false),
            (Tier::Domain, 8, false),
            (Tier::Domain, 9, true),
            (Tier::Domain, 10, true),
            (Tier::Namespace, 6, true),
            (Tier::Pod, 6, true),
        ] {
            let of = |call| verdict(sockets.allowing(call, tier, abi), sockets.errno);
            let (one, pair) = (of(SocketCall::Socket), of(SocketCall::Socketpair));
            for kind in [1, DGRAM, 5] {
                assert_eq!(is_allowed(&one, [UNIX, kind, 0]), restricted, "{tier} {abi} {kind}");
                let harmless = restricted || kind != DGRAM;
                assert_eq!(is_allowed(&pair, [UNIX, kind, 0]), harmless, "{tier} {abi} {kind}");
            }
            let note = note(sockets, tier, abi);
            assert_eq!(note.contains("refused"), !restricted, "{note}");
            assert!(!note.contains("open to any path"), "{note}");
        }
    }

    #[test]
    fn no_built_in_policy_opens_every_path() {
        for (name, text) in casemate_protocol::policy::BUILT_IN {
            let sockets = Policy::parse(text).unwrap().sockets;
            for abi in 6..12 {
                assert!(!note(&sockets, Tier::Domain, abi).contains("open to any path"), "{name}");
            }
        }
    }

    #[test]
    fn a_policy_that_opens_udp_is_reported() {
        let mut rules = Policy::parse(DEVELOPER).unwrap().sockets;
        assert_eq!(udp_note(&rules, Tier::Pod, 7), None);
        rules.allow[4].types.push(SocketType::Dgram);
        assert!(udp_note(&rules, Tier::Domain, 9).unwrap().contains("open to every address"));
        assert_eq!(udp_note(&rules, Tier::Domain, 10), None);
    }

    #[test]
    fn a_policy_that_opens_every_path_is_reported() {
        let mut rules = Policy::parse(DEVELOPER).unwrap().sockets;
        rules.allow.iter_mut().for_each(|rule| (rule.tier, rule.landlock_abi) = (Tier::Domain, 0));
        assert!(note(&rules, Tier::Domain, 8).contains("open to any path"));
        // A datagram pair alone is enough.
        rules.allow.iter_mut().for_each(|rule| rule.calls = vec![SocketCall::Socketpair]);
        assert!(note(&rules, Tier::Domain, 8).contains("open to any path"));
    }
}
