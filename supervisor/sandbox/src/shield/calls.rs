//! The lists of calls that a process of ours may make, as they are written in `*.calls`.
//!
//! Pure: text in, rules out. The texts are part of the program; [`super::filter`] makes a seccomp program of them, and
//! `conformance/supervisor-calls` compares them with what was made, and writes them.

use casemate_protocol::policy::{Comparison, Condition, Width};

/// Stands for the reason in a line that `conformance/supervisor-calls --write` added, until a person writes it. A list with one is not done.
pub const NO_REASON: &str = "?";

/// A process of ours that wears a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Provisions, relays, reports; what agents and clients talk to.
    Supervisor,
    /// Waits outside of the namespaces.
    Launcher,
    /// Looks up names and makes sockets for a supervisor of many sessions.
    Porter,
    /// Starts one command, waits for it and ends it: `casemate-supervisor exec`.
    Init,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Allowed; the tests make it.
    Allow,
    /// Allowed; the tests do not make it, for the reason that the rule gives.
    Spare,
    /// Refused with EPERM and without a line in the log.
    Quiet,
    /// Refused with ENOSYS, as if the kernel did not have it.
    Lacks,
    /// The process ends.
    Kill,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub verb: Verb,
    /// As in syscalls(2).
    pub name: String,
    /// All have to hold.
    pub when: Vec<Condition>,
    /// Why it is there.
    pub why: String,
    /// Of the file, from 1.
    pub line: usize,
}

/// A line that is none. The lists are part of the program, so this is a mistake of whoever changed one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the list of calls is not `VERB NAME [CONDITION...] # why`: {text}")]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
}

// === impl Verb ===

impl Verb {
    /// Whether the call is made.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::Allow | Self::Spare)
    }
}

// === impl Role ===

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Supervisor, Self::Launcher, Self::Porter, Self::Init];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Launcher => "launcher",
            Self::Porter => "porter",
            Self::Init => "init",
        }
    }

    /// Its rules, in the order of the file.
    ///
    /// # Errors
    /// [`BadLine`].
    pub fn rules(self) -> Result<Vec<Rule>, BadLine> {
        parse(match self {
            Self::Supervisor => include_str!("supervisor.calls"),
            Self::Launcher => include_str!("launcher.calls"),
            Self::Porter => include_str!("porter.calls"),
            Self::Init => include_str!("init.calls"),
        })
    }
}

// === impl Rule ===

impl Rule {
    /// Whether the line is about this call with these arguments.
    #[must_use]
    pub fn covers(&self, name: &str, arguments: &[u64]) -> bool {
        self.name == name
            && self.when.iter().all(|condition| {
                let value = arguments.get(usize::from(condition.argument)).copied().unwrap_or(0);
                condition.comparison.holds(match condition.width {
                    Width::Bits32 => value & 0xffff_ffff,
                    Width::Bits64 => value,
                })
            })
    }
}

/// The rules of a list's text.
///
/// # Errors
/// [`BadLine`].
pub fn parse(text: &str) -> Result<Vec<Rule>, BadLine> {
    let mut rules = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if !text.is_empty() && !text.starts_with('#') {
            let bad = || BadLine { line, text: text.to_owned() };
            rules.push(rule(text, line).ok_or_else(bad)?);
        }
    }
    Ok(rules)
}

fn rule(text: &str, line: usize) -> Option<Rule> {
    let (call, why) = text.split_once(" # ")?;
    let mut words = call.split_ascii_whitespace();
    let verb = match words.next()? {
        "allow" => Verb::Allow,
        "spare" => Verb::Spare,
        "quiet" => Verb::Quiet,
        "lacks" => Verb::Lacks,
        "kill" => Verb::Kill,
        _ => return None,
    };
    let name = words.next()?.to_owned();
    let when = words.map(condition).collect::<Option<Vec<_>>>()?;
    let is_whole = !why.trim().is_empty() && (verb.allows() || when.is_empty());
    is_whole.then(|| Rule { verb, name, when, why: why.trim().to_owned(), line })
}

/// `int1=5`, `int0!=1`, `long2&4=0`.
fn condition(word: &str) -> Option<Condition> {
    let (place, value) = word.split_once('=')?;
    let value = number(value)?;
    let (width, rest) = match place.strip_prefix("int") {
        Some(rest) => (Width::Bits32, rest),
        None => (Width::Bits64, place.strip_prefix("long")?),
    };
    let (argument, comparison) = if let Some(argument) = rest.strip_suffix('!') {
        (argument, Comparison::NotEqual(value))
    } else if let Some((argument, mask)) = rest.split_once('&') {
        (argument, Comparison::MaskedEqual { mask: number(mask)?, value })
    } else {
        (rest, Comparison::Equal(value))
    };
    let argument = argument.parse().ok().filter(|argument| *argument < 6)?;
    Some(Condition { argument, width, comparison })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::syscalls;

    #[test]
    fn a_line_says_verb_name_conditions_and_why() {
        let rules = parse("# a comment\n\nallow mmap long2&4=0 int0!=0x10 # no code\n").unwrap();
        let [rule] = rules.as_slice() else { panic!("{rules:?}") };
        assert_eq!((rule.verb, rule.name.as_str(), rule.line), (Verb::Allow, "mmap", 3));
        assert_eq!(rule.why, "no code");
        assert!(rule.covers("mmap", &[0, 0, 3]) && rule.covers("mmap", &[0x11, 0, 0x100]));
        // The upper half of an `int` is not looked at, as the kernel does not look at it.
        assert!(!rule.covers("mmap", &[0xffff_0000_0000_0010, 0, 3]));
        assert!(!rule.covers("mmap", &[0, 0, 7]) && !rule.covers("munmap", &[0, 0, 3]));
    }

    #[test]
    fn what_is_no_line_is_refused_with_its_number() {
        for text in [
            "read",
            "allow read",
            "allow read # ",
            "permit read # why",
            "allow read int6=1 # why",
            "allow read int0=x # why",
            "allow read short0=1 # why",
            "kill read int0=1 # why",
        ] {
            let whole = format!("allow write # why\n{text}\n");
            assert_eq!(parse(&whole).unwrap_err().line, 2, "{text}");
        }
    }

    #[test]
    fn each_list_names_real_calls_once_and_contradicts_itself_nowhere() {
        for role in Role::ALL {
            let rules = role.rules().unwrap();
            for (at, rule) in rules.iter().enumerate() {
                assert!(syscalls::find(&rule.name).is_some(), "{rule:?}");
                assert_ne!(rule.why, NO_REASON, "say why: {rule:?}");
                for earlier in &rules[..at] {
                    let same = earlier.name == rule.name;
                    assert!(!same || earlier.when != rule.when, "twice: {rule:?}");
                    let both_allow = earlier.verb.allows() && rule.verb.allows();
                    assert!(!same || both_allow, "allowed and not: {rule:?}");
                    let one_is_open = earlier.when.is_empty() || rule.when.is_empty();
                    assert!(!(same && one_is_open), "an idle condition: {rule:?}");
                }
            }
        }
    }
}
