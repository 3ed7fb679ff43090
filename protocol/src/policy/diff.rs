//! Two policies compared: what each allows that the other does not.
//!
//! Pure, and on the rules' meaning instead of their text: a narrower path under a wider one, a rule split in two or
//! another order of rules is no difference. System calls are compared by calls that both rules' tests tell apart.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::decide::{self, Outcome, Paths, Setting};
use super::egress::{Host, HostPattern, Mode, Reach};
use super::{Comparison, Learning, LogSource, Policy, Port, RlimitRule, Scope};

/// Calls tried for one name.
const MAX_CALLS: usize = 100_000;

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The kind of rule: `path`, `tcp`, `udp`, `egress`, `scope`, `socket`, `syscall`, `environment`, `rlimit`, `bounds`,
    /// `log`, `denials`, `learning`, `tier`, `landlock`.
    pub kind: &'static str,
    /// In words.
    pub text: String,
    /// The line of the rule, in the policy that has one.
    pub line: Option<usize>,
}

/// The comparison of A with B.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// What A allows and B does not.
    pub only_a: Vec<Difference>,
    /// What B allows and A does not.
    pub only_b: Vec<Difference>,
    /// What both allow or both refuse, but otherwise: another errno, another value.
    pub otherwise: Vec<Difference>,
}

// === impl Diff ===

impl Diff {
    /// Compares.
    #[must_use]
    pub fn between(a: &Policy, b: &Policy) -> Self {
        let (mut only_a, mut only_b, mut otherwise) = (more(b, a), more(a, b), Vec::new());
        calls(a, b, &mut only_a, &mut only_b, &mut otherwise);
        if a.sockets.errno != b.sockets.errno {
            let text =
                format!("other sockets get {} in A, {} in B", a.sockets.errno, b.sockets.errno);
            otherwise.push(Difference { kind: "socket", text, line: Some(b.sockets.line) });
        }
        for source in [LogSource::Landlock, LogSource::Seccomp] {
            if a.logs(source) != b.logs(source) {
                let (who, other) = if a.logs(source) { ("A", a) } else { ("B", b) };
                let text = format!("what {source} refuses is logged in {who} only");
                let line = other.log.as_ref().map(|log| log.line);
                otherwise.push(Difference { kind: "log", text, line });
            }
        }
        let need = |policy: &Policy| policy.log.as_ref().is_some_and(|log| log.required);
        if need(a) != need(b) {
            let (who, line) = if need(a) { ("A", None) } else { ("B", b.log.as_ref()) };
            let text = format!("a kernel that cannot log is refused in {who} only");
            otherwise.push(Difference { kind: "log", text, line: line.map(|log| log.line) });
        }
        otherwise.extend(required(a, b));
        otherwise.extend(soft_limits(a, b));
        if a.denials != b.denials {
            let text = format!("refusals are {} in A, {} in B", a.denials, b.denials);
            otherwise.push(Difference { kind: "denials", text, line: None });
        }
        if a.learning != b.learning {
            let more = if a.learning == Learning::Allowed { &mut only_a } else { &mut only_b };
            let text = "a run with the walls open, to learn".to_owned();
            more.push(Difference { kind: "learning", text, line: None });
        }
        let (ours, theirs) = (variables(a), variables(b));
        for (name, (theirs, line)) in &theirs {
            if let Some((ours, _)) = ours.get(name).filter(|(ours, _)| ours != theirs) {
                let text = format!("{name} is {ours} in A, {theirs} in B");
                otherwise.push(Difference { kind: "environment", text, line: Some(*line) });
            }
        }
        Self { only_a, only_b, otherwise }
    }

    /// Nothing that the two decide differently. Texts, and with them revisions, may differ all the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.only_a.is_empty() && self.only_b.is_empty() && self.otherwise.is_empty()
    }
}

/// What the second allows and the first does not, but for system calls.
fn more(narrow: &Policy, wide: &Policy) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |kind, text: String, line| found.push(Difference { kind, text, line });
    if wide.tier < narrow.tier {
        add("tier", format!("a worker of tier {}", wide.tier), None);
    }
    if wide.landlock_abi < narrow.landlock_abi {
        add("landlock", format!("a kernel with Landlock ABI {}", wide.landlock_abi), None);
    }
    let [ours, theirs] =
        [narrow, wide].map(|policy| Paths::new(policy, &Setting::symbolic(narrow), &str::to_owned));
    for rule in &wide.paths {
        let tier = rule.tier.max(wide.tier);
        let setting = Setting { tier, ..Setting::symbolic(narrow) };
        let ask = |paths: &Paths<'_>| paths.ask(&setting, &rule.path, &str::to_owned).access;
        let more: Vec<String> = ask(&ours)
            .iter()
            .zip(ask(&theirs))
            .filter(|(_, wide)| wide.decision.outcome == Outcome::Allowed)
            .map(|(narrow, _)| narrow)
            .filter(|one| rule.access.contains(&one.access))
            .filter(|one| one.decision.outcome != Outcome::Allowed)
            .map(|one| one.access.to_string())
            .collect();
        if !more.is_empty() {
            let from =
                if rule.tier > wide.tier { format!(" from tier {tier} on") } else { String::new() };
            add("path", format!("{} {}{from}", more.join(", "), rule.path), Some(rule.line));
        }
    }
    let ports = ports(narrow);
    for (named, line) in self::ports(wide) {
        if !ports.contains_key(&named) {
            let (table, way, port) = named;
            add(table, format!("{way} {port}"), Some(line));
        }
    }
    for (text, line) in hosts(narrow, wide) {
        add("egress", text, line);
    }
    for rule in &narrow.scopes {
        if !wide.scopes.iter().any(|own| own.kind == rule.kind) {
            let text = match rule.kind {
                Scope::Signal => "signals to processes outside the session",
                Scope::AbstractUnixSocket => "abstract UNIX sockets made outside the session",
            };
            add("scope", text.to_owned(), None);
        }
    }
    for (text, line) in sockets(narrow, wide) {
        add("socket", text, Some(line));
    }
    let variables = variables(narrow);
    for (name, (value, line)) in self::variables(wide) {
        if !variables.contains_key(name) {
            add("environment", format!("{name}, {value}"), Some(line));
        }
    }
    for rule in &narrow.rlimits {
        let other = wide.rlimits.iter().find(|other| other.resource == rule.resource);
        let reach =
            |rule: Option<&RlimitRule>| rule.map_or(u64::MAX, |rule| rule.hard.unwrap_or(u64::MAX));
        if reach(other) > reach(Some(rule)) {
            let limit = other.and_then(|other| other.hard);
            let limit = limit.map_or("no limit".to_owned(), |limit| format!("up to {limit}"));
            add("rlimit", format!("{} {limit}", rule.resource), other.map(|other| other.line));
        }
    }
    let (ours, theirs) = (narrow.bounds.named(), wide.bounds.named());
    for ((name, ours, _), (_, theirs, words)) in ours.iter().zip(&theirs) {
        if theirs > ours {
            add("bounds", format!("{name} {words}"), wide.bounds.line);
        }
    }
    found
}

fn ports(policy: &Policy) -> BTreeMap<(&'static str, &'static str, Port), usize> {
    let mut ports = BTreeMap::new();
    for (table, rules) in [("tcp", &policy.tcp), ("udp", &policy.udp)] {
        for rule in rules {
            for port in &rule.connect {
                ports.entry((table, "connect", *port)).or_insert(rule.line);
            }
            for port in &rule.bind {
                ports.entry((table, "bind", *port)).or_insert(rule.line);
            }
        }
    }
    ports
}

/// What the second lets be spoken to and the first does not. Both may have ports for it or not: those are compared by
/// themselves.
fn hosts(narrow: &Policy, wide: &Policy) -> Vec<(String, Option<usize>)> {
    let mode = |policy: &Policy| policy.egress.as_ref().map_or(Mode::Open, |egress| egress.mode);
    let line = wide.egress.as_ref().map(|egress| egress.line);
    match (mode(narrow), mode(wide)) {
        (Mode::Open, _) | (_, Mode::None) => Vec::new(),
        (_, Mode::Open) => vec![("every host".to_owned(), line)],
        (_, Mode::AllowList) => {
            let (ours, theirs) = (reaches(narrow), reaches(wide));
            theirs
                .into_iter()
                .filter(|((pattern, reach), _)| {
                    !ours.keys().any(|(own, kind)| own.contains(pattern) && kind == reach)
                })
                .map(|((pattern, reach), line)| {
                    let reach =
                        reach.map_or_else(String::new, |reach| format!(", {reach} addresses"));
                    (format!("{pattern}{reach}"), Some(line))
                })
                .collect()
        }
    }
}

/// Each host with each kind of address that it may lead to; a host that is an address is of no kind.
fn reaches(policy: &Policy) -> BTreeMap<(&HostPattern, Option<Reach>), usize> {
    let mut found = BTreeMap::new();
    for rule in policy.egress.iter().flat_map(|egress| &egress.hosts) {
        for pattern in &rule.names {
            let kinds: Vec<Option<Reach>> = match pattern.host {
                Host::Address(_) => vec![None],
                Host::Name(_) | Host::Below(_) => rule.reach.iter().copied().map(Some).collect(),
            };
            for kind in kinds {
                found.entry((pattern, kind)).or_insert(rule.line);
            }
        }
    }
    found
}

/// What the second lets be made and the first does not, where the second's rule applies.
fn sockets(narrow: &Policy, wide: &Policy) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for rule in &wide.sockets.allow {
        let (tier, abi) = (rule.tier.max(wide.tier), rule.landlock_abi.max(wide.landlock_abi));
        let mut from = String::new();
        if tier > wide.tier {
            from.push_str(&format!(" from tier {tier} on"));
        }
        if abi > wide.landlock_abi {
            from.push_str(&format!(" from Landlock ABI {abi} on"));
        }
        for call in &rule.calls {
            for kind in &rule.types {
                for protocol in &rule.protocols {
                    let is_known = narrow.sockets.allowing(*call, tier, abi).any(|own| {
                        own.family == rule.family
                            && own.types.contains(kind)
                            && own.protocols.contains(protocol)
                    });
                    if !is_known {
                        let name = call.name();
                        let text =
                            format!("{name} {} {kind}, protocol {protocol}{from}", rule.family);
                        found.entry(text).or_insert(rule.line);
                    }
                }
            }
        }
    }
    found
}

/// Paths without which one policy starts no worker and the other does.
fn required(a: &Policy, b: &Policy) -> Vec<Difference> {
    let [ours, theirs] = [a, b].map(|policy| {
        let rules = policy.paths.iter().filter(|rule| rule.required);
        rules.map(|rule| (rule.path.to_string(), rule.line)).collect::<BTreeMap<_, _>>()
    });
    let only =
        |own: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>, who: &str, here: bool| {
            own.iter()
                .filter(|(path, _)| !other.contains_key(*path))
                .map(|(path, line)| Difference {
                    kind: "path",
                    text: format!("{path} has to be there in {who} only"),
                    line: here.then_some(*line),
                })
                .collect::<Vec<_>>()
        };
    [only(&ours, &theirs, "A", false), only(&theirs, &ours, "B", true)].concat()
}

/// Limits that a session begins with; it may raise them up to the hard ones, which are compared as what is allowed.
fn soft_limits(a: &Policy, b: &Policy) -> Vec<Difference> {
    let rule = |policy: &Policy, like: &RlimitRule| {
        policy.rlimits.iter().find(|rule| rule.resource == like.resource).cloned()
    };
    let words = |rule: Option<&RlimitRule>| match rule.map(|rule| rule.soft) {
        Some(Some(soft)) => soft.to_string(),
        Some(None) => "without limit".to_owned(),
        None => "as its supervisor does".to_owned(),
    };
    let named = a.rlimits.iter().chain(b.rlimits.iter().filter(|own| rule(a, own).is_none()));
    named
        .filter_map(|one| {
            let (ours, theirs) = (rule(a, one), rule(b, one));
            let [ours, text] = [ours.as_ref(), theirs.as_ref()].map(words);
            (ours != text).then(|| Difference {
                kind: "rlimit",
                text: format!("{} begins {ours} in A, {text} in B", one.resource),
                line: theirs.map(|rule| rule.line),
            })
        })
        .collect()
}

fn variables(policy: &Policy) -> BTreeMap<&str, (String, usize)> {
    let mut variables = BTreeMap::new();
    for rule in &policy.environment {
        for name in &rule.pass {
            variables.insert(name.as_str(), ("passed on".to_owned(), rule.line));
        }
        for (name, value) in &rule.set {
            variables.insert(name.as_str(), (format!("\"{value}\""), rule.line));
        }
    }
    variables
}

fn calls(
    a: &Policy,
    b: &Policy,
    only_a: &mut Vec<Difference>,
    only_b: &mut Vec<Difference>,
    otherwise: &mut Vec<Difference>,
) {
    // The rules for calls depend on nothing.
    let setting = Setting::symbolic(a);
    let rules = || a.syscalls.iter().chain(&b.syscalls);
    let names: BTreeSet<&str> = rules().flat_map(|rule| &rule.names).map(String::as_str).collect();
    for name in names {
        let tests = rules()
            .filter(|rule| rule.names.iter().any(|own| own == name))
            .flat_map(|rule| &rule.when)
            .map(|test| (test.argument, test.comparison));
        let Some(calls) = telling(tests) else {
            let text =
                format!("{name} has too many tests to be compared: compare its rules by eye");
            otherwise.push(Difference { kind: "syscall", text, line: None });
            continue;
        };
        // One line for each rule that refuses what the other policy lets through.
        let mut seen = BTreeSet::new();
        for call in calls {
            let call = call.map(Some);
            let (ours, theirs) = (
                decide::syscall(a, &setting, name, &call),
                decide::syscall(b, &setting, name, &call),
            );
            let (list, refusing, policy, who) = match (ours.outcome, theirs.outcome) {
                (Outcome::Refused, Outcome::Allowed) => (&mut *only_b, ours, a, "A"),
                (Outcome::Allowed, Outcome::Refused) => (&mut *only_a, theirs, b, "B"),
                (Outcome::Refused, Outcome::Refused) if ours.errno != theirs.errno => {
                    let line = theirs.rule.map(|rule| rule.line);
                    let [ours, theirs] = [ours.errno, theirs.errno]
                        .map(|errno| errno.map_or_else(String::new, |errno| errno.to_string()));
                    let text = format!("{name} gets {ours} in A, {theirs} in B");
                    if seen.insert((text.clone(), line)) {
                        otherwise.push(Difference { kind: "syscall", text, line });
                    }
                    continue;
                }
                _ => continue,
            };
            let line = refusing.rule.map_or(0, |rule| rule.line);
            let tests =
                policy.syscalls.iter().find(|rule| rule.line == line).map(|rule| &rule.when);
            let tests: Vec<String> = tests.into_iter().flatten().map(ToString::to_string).collect();
            let when = if tests.is_empty() {
                String::new()
            } else {
                format!(" where {}", tests.join(" and "))
            };
            let text = format!("{name}, which {who} refuses in line {line}{when}");
            if seen.insert((text.clone(), None)) {
                list.push(Difference { kind: "syscall", text, line: None });
            }
        }
    }
}

/// Arguments on both sides of every test, combined; `None`: too many.
fn telling(tests: impl Iterator<Item = (u8, Comparison)>) -> Option<Vec<[u64; 6]>> {
    let mut values: [BTreeSet<u64>; 6] = std::array::from_fn(|_| BTreeSet::from([0]));
    for (argument, comparison) in tests {
        let (value, bits) = match comparison {
            Comparison::AnyBits(bits) => (0, bits),
            Comparison::MaskedEqual { mask, value } => (value, mask),
            Comparison::Equal(value)
            | Comparison::NotEqual(value)
            | Comparison::Less(value)
            | Comparison::Greater(value) => (value, 0),
        };
        let own = &mut values[usize::from(argument)];
        own.extend([
            value,
            value.wrapping_add(1),
            value.wrapping_sub(1),
            value | 1 << 40,
            value | !bits,
        ]);
        let single = (0..64).map(|shift| 1_u64 << shift).filter(|bit| bits & bit != 0);
        own.extend(single.flat_map(|bit| [bit, value ^ bit]));
    }
    let mut calls = vec![[0; 6]];
    for (argument, values) in values.iter().enumerate() {
        if calls.len().checked_mul(values.len())? > MAX_CALLS {
            return None;
        }
        calls = calls
            .iter()
            .flat_map(|call| {
                values.iter().map(move |value| {
                    let mut call = *call;
                    call[argument] = *value;
                    call
                })
            })
            .collect();
    }
    Some(calls)
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
