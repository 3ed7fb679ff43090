//! The allow-list of sockets as a verdict on socket(2) and socketpair(2).
//!
//! A deny-list of sockets leaves open what nobody thought of (UDP-Lite, SMC, XDP, MPTCP, ...), so here what is listed
//! is allowed and everything else refused. Pure.

use casemate_protocol::policy::{Comparison, Condition, SocketRules, Width};

use super::program::{Action, Clause, Verdict};

/// `SOCK_TYPE_MASK`: the rest of the argument is SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h).
const TYPE_MASK: u64 = 0xf;

/// What becomes of a call; the same for both.
pub(super) fn verdict(rules: &SocketRules) -> Verdict {
    let mut clauses = Vec::new();
    for rule in &rules.allow {
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
    Verdict { clauses, otherwise: Action::Errno(rules.errno) }
}

/// All three arguments are `int`.
fn test(argument: u8, comparison: Comparison) -> Condition {
    Condition { argument, width: Width::Bits32, comparison }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::{Errno, SocketFamily, SocketRule, SocketType};

    fn holds(condition: &Condition, arguments: [u64; 3]) -> bool {
        let value = arguments[usize::from(condition.argument)];
        match condition.comparison {
            Comparison::Equal(other) => value == other,
            Comparison::MaskedEqual { mask, value: other } => value & mask == other,
            other => panic!("{other:?} is not used for sockets"),
        }
    }

    #[test]
    fn exactly_the_list_is_allowed() {
        let rule = |family, types: &[SocketType], protocols: &[u32]| SocketRule {
            family,
            types: types.to_vec(),
            protocols: protocols.to_vec(),
            reason: "test".to_owned(),
        };
        let allow = vec![
            rule(SocketFamily::Unix, &[SocketType::Stream, SocketType::Dgram], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[6]),
        ];
        let verdict = verdict(&SocketRules { errno: Errno::Eacces, allow });
        assert_eq!(verdict.otherwise, Action::Errno(Errno::Eacces));
        for family in 0..48_u64 {
            for kind in 0..16_u64 {
                for protocol in [0, 1, 6, 17, 136, 262] {
                    for flags in [0, 0o2_000_000, 0o4000] {
                        let arguments = [family, kind | flags, protocol];
                        let is_allowed = verdict
                            .clauses
                            .iter()
                            .any(|clause| clause.all.iter().all(|one| holds(one, arguments)));
                        let is_listed =
                            matches!((family, kind, protocol), (1, 1 | 2, 0) | (2, 1, 0 | 6));
                        assert_eq!(is_allowed, is_listed, "{arguments:?}");
                    }
                }
            }
        }
    }
}
