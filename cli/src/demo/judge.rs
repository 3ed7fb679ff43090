//! What each tier promises, and whether an answer keeps the promise. Words in, verdict out; no IO.
//!
//! A promise names the answers that keep it. Anything else is wrong, also an error that merely happens to be one:
//! `ECONNREFUSED` says that nobody listened, so nothing was proven.

use casemate_inside::SUCCEEDED;
use casemate_protocol::tier::Tier;
use serde::Serialize;

/// What was tried, by what stands in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    /// Another session's file, or one of casemate's own, by its path on this machine.
    File,
    /// The place that holds casemate's own files of this session until the agent starts.
    Walled,
    /// The shared skills, for writing.
    Skills,
    /// Another session's process, or one outside.
    Process,
    /// This session's own supervisor, which it can see.
    Supervisor,
    /// A TCP listener of another session, or a port of its.
    Port,
    /// An abstract unix socket outside.
    AbstractSocket,
    /// A unix socket outside, by path.
    PathSocket,
    /// The kernel's own ways out.
    Kernel,
    /// A search that must come back empty.
    Search,
    /// A command that must fail, for whatever reason it gives.
    Command,
    /// Not a wall: what must work, or the rest would prove nothing.
    Open,
}

/// Whether the promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As promised.
    Ok,
    /// It worked, and this tier says so: a named leak.
    Leak,
    /// The promise is broken, or the check proved nothing.
    Wrong,
}

/// The promise for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    answers: &'static [&'static str],
    leaks: bool,
}

const GONE: &[&str] = &["ENOENT"];
/// EACCES is Landlock's, EXDEV its answer to a link across rules, EPERM that of ownership, where a slot has a user of
/// its own.
const REFUSED: &[&str] = &["EACCES", "EPERM", "EXDEV"];
const NO_PROCESS: &[&str] = &["ESRCH", "ENOENT", "EPERM"];
const NOT_YOURS: &[&str] = &["EPERM", "EACCES"];

/// What Landlock lets through on a path that is known: tier `domain` cannot hide it (see ARCHITECTURE.md).
const METADATA: &[&str] =
    &["stat", "chmod", "set its times", "set an attribute", "watch its folder"];
const PROCESS_METADATA: &[&str] = &[
    "find by its number",
    "find by command line",
    "open /proc/PID/cmdline",
    "open /proc/PID/status",
    "list /proc/PID/fd",
];

/// What `tier` promises about `attack`.
pub(crate) fn promise(wall: Wall, tier: Tier, attack: &str) -> Promise {
    let domain = tier == Tier::Domain;
    let (answers, leaks): (&'static [&'static str], bool) = match wall {
        Wall::File if domain => (REFUSED, METADATA.contains(&attack)),
        Wall::File => (GONE, false),
        Wall::Walled => (GONE, false),
        Wall::Skills if domain => (REFUSED, METADATA.contains(&attack)),
        Wall::Skills => (&["EROFS", "EACCES", "EXDEV"], false),
        Wall::Process if domain => (NOT_YOURS, PROCESS_METADATA.contains(&attack)),
        Wall::Process => (NO_PROCESS, false),
        Wall::Supervisor => (NOT_YOURS, false),
        Wall::Port => (NOT_YOURS, false),
        // EACCES: the socket itself is refused.
        Wall::AbstractSocket if domain => (NOT_YOURS, false),
        Wall::AbstractSocket => (&["EPERM"], false),
        Wall::PathSocket if domain => (&["EACCES"], false),
        Wall::PathSocket => (GONE, false),
        Wall::Kernel => (
            &[
                "EPERM",
                "EACCES",
                "ENOENT",
                "ENOSYS",
                "EAFNOSUPPORT",
                "EPROTONOSUPPORT",
                "ESOCKTNOSUPPORT",
                "EINVAL",
            ],
            false,
        ),
        Wall::Search if domain => (&["nothing found"], PROCESS_METADATA.contains(&attack)),
        Wall::Search => (&["nothing found"], false),
        Wall::Command => (&["refused"], false),
        Wall::Open => (&[SUCCEEDED], false),
    };
    Promise { answers, leaks }
}

// === impl Promise ===

impl Promise {
    /// Judges what was answered.
    pub(crate) fn judge(&self, answer: &str) -> Verdict {
        if self.answers.contains(&answer) {
            Verdict::Ok
        } else if self.leaks && answer == SUCCEEDED {
            Verdict::Leak
        } else {
            Verdict::Wrong
        }
    }

    /// For people: `EACCES or EXDEV`.
    pub(crate) fn words(&self) -> String {
        match self.answers {
            [all @ .., last] if all.len() > 3 => format!("{}, ... or {last}", all[..2].join(", ")),
            [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
            answers => answers.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLS: &[Wall] = &[
        Wall::File,
        Wall::Walled,
        Wall::Skills,
        Wall::Process,
        Wall::Supervisor,
        Wall::Port,
        Wall::AbstractSocket,
        Wall::PathSocket,
        Wall::Kernel,
        Wall::Search,
        Wall::Command,
    ];

    #[test]
    fn no_wall_takes_success_for_an_answer() {
        for wall in WALLS {
            for tier in [Tier::Domain, Tier::Namespace] {
                for attack in ["read", "overwrite", "kill", "connect", "scan by content"] {
                    let verdict = promise(*wall, tier, attack).judge(SUCCEEDED);
                    assert_eq!(verdict, Verdict::Wrong, "{wall:?} {tier} {attack}");
                }
            }
        }
    }

    #[test]
    fn metadata_is_a_named_leak_of_the_domain_tier_and_a_hole_of_the_other() {
        for attack in METADATA {
            let judged = |tier| promise(Wall::File, tier, attack).judge(SUCCEEDED);
            assert_eq!(judged(Tier::Domain), Verdict::Leak, "{attack}");
            assert_eq!(judged(Tier::Namespace), Verdict::Wrong, "{attack}");
        }
        for attack in PROCESS_METADATA {
            let judged = |tier| promise(Wall::Process, tier, attack).judge(SUCCEEDED);
            assert_eq!(judged(Tier::Domain), Verdict::Leak, "{attack}");
            assert_eq!(judged(Tier::Namespace), Verdict::Wrong, "{attack}");
        }
    }

    #[test]
    fn a_file_that_is_only_refused_breaks_the_promise_that_it_does_not_exist() {
        assert_eq!(promise(Wall::File, Tier::Namespace, "read").judge("EACCES"), Verdict::Wrong);
        assert_eq!(promise(Wall::File, Tier::Domain, "read").judge("EACCES"), Verdict::Ok);
        assert_eq!(promise(Wall::File, Tier::Domain, "read").judge("ENOENT"), Verdict::Wrong);
    }

    #[test]
    fn an_error_that_proves_nothing_is_wrong() {
        for (wall, attack, answer) in [
            (Wall::Port, "connect", "ECONNREFUSED"),
            (Wall::AbstractSocket, "connect", "ECONNREFUSED"),
            (Wall::PathSocket, "send a datagram", "EPROTOTYPE"),
            (Wall::Process, "read its memory", "EFAULT"),
            (Wall::Search, "scan by name", "out of time"),
            (Wall::Open, "scan for its own", "nothing found"),
            (Wall::Skills, "overwrite", "ENOSPC"),
        ] {
            for tier in [Tier::Domain, Tier::Namespace] {
                assert_eq!(promise(wall, tier, attack).judge(answer), Verdict::Wrong, "{wall:?}");
            }
        }
    }

    #[test]
    fn words_name_the_answers() {
        assert_eq!(promise(Wall::File, Tier::Domain, "read").words(), "EACCES, EPERM or EXDEV");
        assert_eq!(promise(Wall::File, Tier::Namespace, "read").words(), "ENOENT");
    }
}
