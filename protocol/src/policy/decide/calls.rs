//! System calls and sockets: the first rule in the file that matches decides, and what no rule names is allowed;
//! for sockets it is refused.

use super::{Cited, Decision, Outcome, Setting};
use crate::policy::{Policy, SocketCall, SocketRule, SyscallRule};

/// `SOCK_TYPE_MASK`: the rest of the argument is SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h).
const TYPE_MASK: u64 = 0xf;

/// What becomes of a call by its name. Arguments that are not given, or `None`, are not known.
#[must_use]
pub fn syscall(
    policy: &Policy,
    setting: &Setting,
    name: &str,
    arguments: &[Option<u64>],
) -> Decision {
    if let Some(call) = SocketCall::ALL.into_iter().find(|call| call.name() == name) {
        let argument = |index: usize| arguments.get(index).copied().flatten();
        return socket(policy, setting, call, [argument(0), argument(1), argument(2)]);
    }
    let mut open: Vec<&SyscallRule> = Vec::new();
    let mut last = None;
    for rule in policy.syscalls.iter().filter(|rule| rule.names.iter().any(|own| own == name)) {
        let answers: Vec<_> = rule.when.iter().map(|test| test.holds(arguments)).collect();
        if answers.contains(&Some(false)) {
            continue;
        }
        if answers.contains(&None) {
            open.push(rule);
        } else {
            last = Some(rule);
            break;
        }
    }
    let cited =
        |rule: &SyscallRule| Cited::new(rule.line, format!("[[syscall]] {name}"), &rule.reason);
    let mut decision = match (last, open.first()) {
        (Some(rule), _) => Decision::refused(Some(cited(rule)), rule.errno),
        (None, Some(rule)) => Decision {
            outcome: Outcome::Depends,
            rule: Some(cited(rule)),
            errno: Some(rule.errno),
            notes: Vec::new(),
        },
        (None, None) => {
            Decision::allowed(None).note("no rule refuses it; the kernel's own checks hold")
        }
    };
    for rule in open {
        let tests: Vec<_> = rule.when.iter().map(ToString::to_string).collect();
        decision = decision.note(format!(
            "line {} answers {} if {}",
            rule.line,
            rule.errno,
            tests.join(" and ")
        ));
    }
    decision
}

/// What becomes of socket(2) or socketpair(2): family, type and protocol as the kernel's numbers, `None` where one is
/// not known.
#[must_use]
pub fn socket(
    policy: &Policy,
    setting: &Setting,
    call: SocketCall,
    [family, kind, protocol]: [Option<u64>; 3],
) -> Decision {
    // All three are `int`.
    let cut = |value: Option<u64>| value.map(|value| value & 0xffff_ffff);
    let (family, kind, protocol) =
        (cut(family), cut(kind).map(|kind| kind & TYPE_MASK), cut(protocol));
    // Whether one of the numbers is the one asked for; `None`: not known.
    let among = |asked: Option<u64>, numbers: &[u32]| {
        asked.map(|asked| numbers.iter().any(|number| u64::from(*number) == asked))
    };
    let rules = &policy.sockets;
    let applies = |rule: &SocketRule| {
        rule.calls.contains(&call)
            && rule.tier <= setting.tier
            && rule.landlock_abi <= setting.landlock_abi
    };
    let (mut open, mut elsewhere): (Vec<&SocketRule>, Vec<&SocketRule>) = (Vec::new(), Vec::new());
    for rule in &rules.allow {
        let types: Vec<u32> = rule.types.iter().map(|kind| kind.number()).collect();
        let answers = [
            among(family, &[rule.family.number()]),
            among(kind, &types),
            among(protocol, &rule.protocols),
        ];
        if answers.contains(&Some(false)) {
            continue;
        }
        if !applies(rule) {
            elsewhere.push(rule);
        } else if answers.contains(&None) {
            open.push(rule);
        } else {
            return Decision::allowed(Some(cite(rule)));
        }
    }
    let otherwise = Cited::new(rules.line, "[sockets]", &rules.reason);
    let mut decision = Decision::refused(Some(otherwise), rules.errno);
    for rule in elsewhere {
        let calls: Vec<_> = rule.calls.iter().map(|call| call.name()).collect();
        decision = decision.note(format!(
            "line {} allows it to {} in tier {} or stronger, from Landlock ABI {} on",
            rule.line,
            calls.join(" and "),
            rule.tier.max(policy.tier),
            rule.landlock_abi.max(policy.landlock_abi)
        ));
    }
    if open.is_empty() {
        return decision.note("no [[socket]] rule that applies here lists it");
    }
    decision.outcome = Outcome::Depends;
    for rule in open {
        let protocols: Vec<_> = rule.protocols.iter().map(u32::to_string).collect();
        decision = decision.note(format!(
            "line {} allows {}, protocol {}",
            rule.line,
            cite(rule).what,
            protocols.join(" or ")
        ));
    }
    decision
}

fn cite(rule: &SocketRule) -> Cited {
    let types: Vec<_> = rule.types.iter().map(ToString::to_string).collect();
    let what = format!("[[socket]] {} {}", rule.family, types.join("|"));
    Cited::new(rule.line, what, &rule.reason)
}
