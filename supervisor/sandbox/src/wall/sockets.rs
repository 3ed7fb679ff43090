//! The allow-list of sockets, turned into what is refused.
//!
//! A deny-list of sockets leaves open what nobody thought of (UDP-Lite, SMC, XDP, MPTCP, ...). A filter with the
//! default "allow" can only refuse, so the list is turned round here: every family that is not named, every other
//! type of a named family, every other protocol of a named type. Pure.

use std::collections::{BTreeMap, BTreeSet};

use casemate_protocol::policy::{Comparison, Condition, SocketRule, Width};

use super::seccomp::All;

/// `SOCK_TYPE_MASK`: the rest of the argument is SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h).
const TYPE_MASK: u64 = 0xf;

type Protocols = BTreeSet<u64>;
type Families = BTreeMap<u64, BTreeMap<u64, Protocols>>;

/// When socket(2) and socketpair(2) are refused; `None`: always.
pub(super) fn refused(allow: &[SocketRule]) -> Option<Vec<All>> {
    let families = families(allow);
    if families.is_empty() {
        return None;
    }
    let mut refused =
        vec![families.keys().map(|family| test(0, Comparison::NotEqual(*family))).collect()];
    for (family, types) in &families {
        let family = test(0, Comparison::Equal(*family));
        for kind in 0..=TYPE_MASK {
            let same_type = test(1, Comparison::MaskedEqual { mask: TYPE_MASK, value: kind });
            let mut all = vec![family, same_type];
            if let Some(protocols) = types.get(&kind) {
                all.extend(
                    protocols.iter().map(|protocol| test(2, Comparison::NotEqual(*protocol))),
                );
            }
            refused.push(all);
        }
    }
    Some(refused)
}

fn families(allow: &[SocketRule]) -> Families {
    let mut families = Families::new();
    for rule in allow {
        let types = families.entry(rule.family.number().into()).or_default();
        for kind in &rule.types {
            let protocols = rule.protocols.iter().map(|protocol| u64::from(*protocol));
            types.entry(kind.number().into()).or_default().extend(protocols);
        }
    }
    families
}

/// All three arguments are `int`.
fn test(argument: u8, comparison: Comparison) -> Condition {
    Condition { argument, width: Width::Bits32, comparison }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::{SocketFamily, SocketType};

    fn holds(condition: &Condition, arguments: [u64; 3]) -> bool {
        let value = arguments[usize::from(condition.argument)];
        match condition.comparison {
            Comparison::Equal(other) => value == other,
            Comparison::NotEqual(other) => value != other,
            Comparison::MaskedEqual { mask, value: other } => value & mask == other,
            other => panic!("{other:?} is not used for sockets"),
        }
    }

    #[test]
    fn exactly_the_list_is_left() {
        let rule = |family, types: &[SocketType], protocols: &[u32]| SocketRule {
            family,
            types: types.to_vec(),
            protocols: protocols.to_vec(),
            reason: "test".to_owned(),
        };
        let allow = [
            rule(SocketFamily::Unix, &[SocketType::Stream, SocketType::Dgram], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[0]),
            rule(SocketFamily::Inet, &[SocketType::Stream], &[6]),
        ];
        let refused = refused(&allow).unwrap();
        for family in 0..48_u64 {
            for kind in 0..16_u64 {
                for protocol in [0, 1, 6, 17, 136, 262] {
                    for flags in [0, 0o2_000_000, 0o4000] {
                        let arguments = [family, kind | flags, protocol];
                        let is_refused =
                            refused.iter().any(|all| all.iter().all(|one| holds(one, arguments)));
                        let is_listed =
                            matches!((family, kind, protocol), (1, 1 | 2, 0) | (2, 1, 0 | 6));
                        assert_eq!(is_refused, !is_listed, "{arguments:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_list_refuses_everything() {
        assert_eq!(refused(&[]), None);
    }
}
