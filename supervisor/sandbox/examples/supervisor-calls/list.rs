//! A list and what was made under it: what is wrong, and the list that is right. Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use casemate_sandbox::shield::calls::{NO_REASON, Rule, Verb};

/// What was made under one list.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// How many processes wore it.
    pub(crate) processes: usize,
    /// How often, by the rule's line.
    pub(crate) used: BTreeMap<usize, u64>,
    /// Calls that no rule is about, as the line that would allow them, with their number and one of them as strace(1) wrote it.
    pub(crate) unlisted: BTreeMap<String, (u64, String)>,
    /// Calls that end the process, by name, with one of them.
    pub(crate) deadly: BTreeMap<String, String>,
}

/// What is wrong with a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nobody wore it, so nothing is known of it.
    Unworn,
    /// A line that says `allow`, and no test makes the call.
    Idle { line: usize, name: String },
    /// A call in no line.
    Missing { call: String, count: u64, example: String },
    /// A call that must not be made at all.
    Deadly { name: String, example: String },
    /// A line that was written by this program and has no reason yet.
    Unexplained { line: usize, name: String },
}

impl Made {
    /// Counts one call; whether it was made, not refused.
    pub(crate) fn count(
        &mut self,
        rules: &[Rule],
        name: &str,
        arguments: &[u64; 6],
        as_written: &str,
    ) -> bool {
        match rules.iter().find(|rule| rule.covers(name, arguments)) {
            Some(rule) if rule.verb == Verb::Kill => {
                self.deadly.entry(name.to_owned()).or_insert_with(|| as_written.to_owned());
                false
            }
            Some(rule) => {
                *self.used.entry(rule.line).or_default() += 1;
                rule.verb.allows()
            }
            None => {
                let entry = self.unlisted.entry(allowing(name, arguments));
                entry.or_insert_with(|| (0, as_written.to_owned())).0 += 1;
                false
            }
        }
    }
}

/// What to say of a rule beside its number; nothing of those that no process survives.
pub(crate) fn remark(rule: &Rule, used: u64) -> Option<&'static str> {
    match rule.verb {
        Verb::Kill => None,
        Verb::Spare if used > 0 => Some("spare, and made here"),
        Verb::Spare => Some("spare"),
        Verb::Allow | Verb::Quiet | Verb::Lacks => Some(""),
    }
}

/// What is wrong, in the order of the list.
pub(crate) fn findings(rules: &[Rule], made: &Made) -> Vec<Finding> {
    if made.processes == 0 {
        return vec![Finding::Unworn];
    }
    let mut found = Vec::new();
    for rule in rules {
        let (line, name) = (rule.line, rule.name.clone());
        if rule.verb == Verb::Allow && !made.used.contains_key(&line) {
            found.push(Finding::Idle { line, name });
        } else if rule.why == NO_REASON {
            found.push(Finding::Unexplained { line, name });
        }
    }
    found.extend(made.unlisted.iter().map(|(call, (count, example))| Finding::Missing {
        call: call.clone(),
        count: *count,
        example: example.clone(),
    }));
    found.extend(
        made.deadly.iter().map(|(name, example)| Finding::Deadly {
            name: name.clone(),
            example: example.clone(),
        }),
    );
    found
}

/// The list without its idle lines and with those that it lacks, before the first that kills. Comments, reasons and what is spared stay.
pub(crate) fn rewritten(text: &str, rules: &[Rule], made: &Made) -> String {
    if made.processes == 0 {
        return text.to_owned();
    }
    let is_idle = |line: usize| {
        let rule = rules.iter().find(|rule| rule.line == line);
        rule.is_some_and(|rule| rule.verb == Verb::Allow && !made.used.contains_key(&line))
    };
    let mut lines: Vec<(usize, &str)> = (1..).zip(text.lines()).collect();
    let first_deadly = rules.iter().find(|rule| rule.verb == Verb::Kill).map(|rule| rule.line);
    // Its section begins behind an empty line.
    let before = first_deadly
        .and_then(|deadly| lines[..deadly].iter().rposition(|(_, text)| text.is_empty()));
    let before = before.map_or(lines.len(), |at| at + 1);
    let behind = lines.split_off(before);
    let mut written = String::new();
    let kept = |lines: Vec<(usize, &str)>, written: &mut String| {
        for (_, text) in lines.into_iter().filter(|(line, _)| !is_idle(*line)) {
            let _ = writeln!(written, "{text}");
        }
    };
    kept(lines, &mut written);
    for call in made.unlisted.keys() {
        let _ = writeln!(written, "{call:29} # {NO_REASON}");
    }
    if !made.unlisted.is_empty() {
        written.push('\n');
    }
    kept(behind, &mut written);
    written
}

/// The line that allows a call, and of calls that do many things only this one. Its reason is a person's to write.
fn allowing(name: &str, arguments: &[u64; 6]) -> String {
    let int = |at: usize| arguments[at] & 0xffff_ffff;
    let when = match name {
        "ioctl" | "fcntl" => format!(" int1={:#x}", int(1)),
        "prctl" => format!(" int0={}", int(0)),
        "socket" | "socketpair" => format!(" int0={}", int(0)),
        "getsockopt" | "setsockopt" => format!(" int1={} int2={}", int(1), int(2)),
        "clone" => format!(" long0={:#x}", arguments[0]),
        // PROT_EXEC
        "mmap" | "mprotect" if arguments[2] & 4 == 0 => " long2&4=0".to_owned(),
        "mmap" | "mprotect" => format!(" long2={}", arguments[2]),
        "prlimit64" if arguments[0] == 0 && arguments[2] == 0 => " int0=0 long2=0".to_owned(),
        "kill" => " int0!=0xffffffff".to_owned(),
        "tgkill" => format!(" int2={}", int(2)),
        _ => String::new(),
    };
    format!("allow {name}{when}")
}

impl Finding {
    /// Whether [`rewritten`] takes it away.
    pub(crate) fn is_mended_by_writing(&self) -> bool {
        matches!(self, Self::Idle { .. } | Self::Missing { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unworn => f.write_str(": no process wore it"),
            Self::Idle { line, name } => write!(
                f,
                ":{line}: {name} is idle: `--write` takes it out; or call it `spare` and say who needs it"
            ),
            Self::Missing { call, count, example } => {
                write!(
                    f,
                    ": `{call}` is missing: made {count} times, as in {example}; `--write` adds it"
                )
            }
            Self::Deadly { name, example } => {
                write!(f, ": {name} is deadly and was made: {example}; mend the code that makes it")
            }
            Self::Unexplained { line, name } => {
                write!(
                    f,
                    ":{line}: {name} has no reason: write it in place of `{NO_REASON}`, in the section where it belongs"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use casemate_sandbox::shield::calls::parse;

    use super::*;

    const LIST: &str = "# Head\n\nallow read # why\nallow write # why\nspare brk # who\nlacks clone3 # why\n\n# Never\nkill execve # why\n";

    fn made(calls: &[(&str, [u64; 6])]) -> (Vec<Rule>, Made) {
        let rules = parse(LIST).unwrap();
        let mut made = Made { processes: 1, ..Made::default() };
        for (name, arguments) in calls {
            made.count(&rules, name, arguments, &format!("{name}(...)"));
        }
        (rules, made)
    }

    #[test]
    fn a_list_that_is_made_whole_is_right_and_stays_as_it_is() {
        let (rules, made) = made(&[("read", [0; 6]), ("write", [0; 6])]);
        assert_eq!(findings(&rules, &made), []);
        assert_eq!(rewritten(LIST, &rules, &made), LIST);
    }

    #[test]
    fn what_is_idle_goes_what_is_missing_comes_and_what_is_spared_stays() {
        let ioctl = [3, 0xffff_ffff_0000_5421, 0, 0, 0, 0];
        let (rules, made) =
            made(&[("read", [0; 6]), ("ioctl", ioctl), ("mmap", [0, 0, 5, 0, 0, 0])]);
        let found: Vec<String> = findings(&rules, &made).iter().map(Finding::to_string).collect();
        assert!(found[0].starts_with(":4: write is idle"), "{found:?}");
        assert!(found[1].contains("`allow ioctl int1=0x5421` is missing"), "{found:?}");
        assert!(
            found[2].contains("`allow mmap long2=5` is missing") && found.len() == 3,
            "{found:?}"
        );
        let text = rewritten(LIST, &rules, &made);
        assert_eq!(
            text,
            "# Head\n\nallow read # why\nspare brk # who\nlacks clone3 # why\n\n\
             allow ioctl int1=0x5421       # ?\nallow mmap long2=5            # ?\n\n# Never\nkill execve # why\n"
        );
        // What was added is worn from then on, and is not right before it has a reason.
        let rules = parse(&text).unwrap();
        assert!(rules.iter().any(|rule| rule.covers("ioctl", &ioctl)));
        let mut again = Made { processes: 1, ..Made::default() };
        for (name, arguments) in [("read", [0; 6]), ("ioctl", ioctl), ("mmap", [0, 0, 5, 0, 0, 0])]
        {
            assert!(again.count(&rules, name, &arguments, ""));
        }
        let found = findings(&rules, &again);
        assert!(matches!(
            found.as_slice(),
            [Finding::Unexplained { line: 7, .. }, Finding::Unexplained { line: 8, .. }]
        ));
        assert_eq!(rewritten(&text, &rules, &again), text);
    }

    #[test]
    fn what_kills_is_told_and_never_written_and_a_refusal_is_no_call() {
        let (rules, mut made) = made(&[("execve", [0; 6]), ("read", [0; 6]), ("write", [0; 6])]);
        assert!(!made.count(&rules, "clone3", &[0; 6], ""));
        let found = findings(&rules, &made);
        assert!(
            matches!(found.as_slice(), [Finding::Deadly { .. }])
                && !found[0].is_mended_by_writing()
        );
        assert_eq!(rewritten(LIST, &rules, &made), LIST);
    }

    #[test]
    fn of_a_list_that_nobody_wore_nothing_is_known() {
        let (rules, _) = made(&[]);
        assert_eq!(findings(&rules, &Made::default()), [Finding::Unworn]);
        assert_eq!(rewritten(LIST, &rules, &Made::default()), LIST);
    }
}
