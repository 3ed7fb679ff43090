//! What the answers amount to. Pure.
//!
//! Nothing holds by default: an attack holds by the very answers that its tier promises. What no answer shows is told from
//! what the machine has nothing to try on.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{Answer, Attack, Defence, Expected, Target, UNTRIED, attacks};
use casemate_protocol::matrix::{Matrix, Row, Verdict};
use casemate_protocol::policy::{BUILT_IN, Diff, Errno, Policy};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::Places;

/// A call that the kernel is built without answers so, or that the volume's file system cannot do; and a link or rename
/// between two mounts, before any wall is asked.
const NOTHING_TO_TRY: [&str; 4] = [UNTRIED, "ENOSYS", "EOPNOTSUPP", "EXDEV"];

/// Where the attackers said nothing of an attack.
const UNANSWERED: &str = "no answer";

/// Refusals of what the tier leaves open: another wall, a setting or the kernel's build closes it.
const CLOSED: [&str; 5] = ["EACCES", "EPERM", "ENOSYS", "EOPNOTSUPP", "SIGSYS"];

/// What was said of the wall that is tried.
#[derive(Debug)]
pub struct Said<'a> {
    /// Whose promises count.
    pub tier: Tier,
    /// The policy in force.
    pub policy: &'a Policy,
    /// What the session may read besides what its policy names: programs and skills.
    pub read: Vec<&'a Path>,
    opened: OnceCell<BTreeSet<&'static str>>,
}

// === impl Said ===

impl<'a> Said<'a> {
    /// Of this wall.
    #[must_use]
    pub fn of(policy: &'a Policy, places: &'a Places) -> Self {
        let read = places.programs.iter().chain(&places.skills).map(PathBuf::as_path).collect();
        Self { tier: places.tier, policy, read, opened: OnceCell::new() }
    }

    /// What became of one attack.
    #[must_use]
    pub fn verdict(&self, attack: &Attack, outcome: &str) -> Verdict {
        let expected = attack.promised(self.tier > Tier::Domain);
        if outcome == SUCCEEDED {
            return match expected {
                Expected::Leaks => Verdict::Leaks,
                Expected::Own => Verdict::Own,
                // The kernel's own refusals differ from machine to machine; none of them is a promise of ours.
                Expected::Refused(_) if !attack.is_ours() => Verdict::Leaks,
                Expected::Refused(_) if self.is_promised(attack) => Verdict::Broken,
                Expected::Refused(_) => Verdict::Open,
            };
        }
        match expected {
            Expected::Refused(names) if names.contains(&outcome) => Verdict::Holds,
            Expected::Refused(_) if self.answers(attack, outcome) => Verdict::Holds,
            Expected::Leaks | Expected::Own if CLOSED.contains(&outcome) => Verdict::Holds,
            Expected::Refused(_)
                if attack.is_ours()
                    && is_of_the_tier(attack.target)
                    && !NOTHING_TO_TRY.contains(&outcome) =>
            {
                Verdict::Unproven
            }
            _ => Verdict::Untried,
        }
    }

    /// A policy may give its own errno for a call or a socket. The catalogue knows those of the built-in ones.
    fn answers(&self, attack: &Attack, outcome: &str) -> bool {
        let is_it = |text| Policy::parse(text).is_ok_and(|it| it.revision == self.policy.revision);
        if BUILT_IN.iter().any(|(_, text)| is_it(text)) {
            return false;
        }
        let is = |errno: Errno| errno.to_string() == outcome;
        attack.defences.iter().any(|defence| match defence {
            Defence::CallRules => self.policy.syscalls.iter().any(|rule| is(rule.errno)),
            Defence::SocketList => is(self.policy.sockets.errno),
            _ => false,
        })
    }

    /// Either no policy is to open it, or the one in force does not.
    fn is_promised(&self, attack: &Attack) -> bool {
        // What is found by a number or in a keyring is of the namespaces that the session has in the other tiers.
        let another =
            attack.reaches_another() && (self.tier == Tier::Domain || attack.target != Target::Ipc);
        is_of_the_tier(attack.target)
            || another
            || attack.defences.iter().any(|defence| !self.opens(attack, *defence))
    }

    /// Whether what the worker was told opens this defence, each of which alone stops the attack.
    fn opens(&self, attack: &Attack, defence: Defence) -> bool {
        let opened = |kinds: &[&str]| kinds.iter().any(|kind| self.opened().contains(kind));
        match defence {
            Defence::FileRules => opened(&["path"]) || self.reads_the_machine(attack),
            Defence::PortRules => opened(&["tcp", "egress"]),
            Defence::SocketList => opened(&["socket", "tcp", "udp", "egress"]),
            Defence::CallRules => opened(&["syscall"]),
            Defence::SignalScope | Defence::SocketScope => opened(&["scope"]),
            Defence::Limit => opened(&["rlimit"]),
            Defence::DomainBorder
            | Defence::Architecture
            | Defence::NoNewPrivileges
            | Defence::CleanStart
            | Defence::Namespace => false,
            Defence::Kernel | Defence::Nothing => true,
        }
    }

    /// Kinds of rules that allow something that each built-in policy refuses.
    fn opened(&self) -> &BTreeSet<&'static str> {
        self.opened.get_or_init(|| {
            let built_in = BUILT_IN.iter().filter_map(|(_, text)| Policy::parse(text).ok());
            let wider = built_in.map(|built_in| {
                // The text itself: nothing to compare.
                if built_in.revision == self.policy.revision {
                    return BTreeSet::new();
                }
                Diff::between(&built_in, self.policy).only_b.iter().map(|more| more.kind).collect()
            });
            wider.reduce(|a: BTreeSet<_>, b| &a & &b).unwrap_or_default()
        })
    }

    /// Whether a program or skill is a folder in which the machine's own places lie.
    fn reads_the_machine(&self, attack: &Attack) -> bool {
        const PLACES: [&str; 10] = [
            "/var/tmp",
            "/var/log",
            "/run",
            "/home",
            "/dev/pts",
            "/dev/shm",
            "/dev/autofs",
            "/sys/block",
            "/sys/class/net",
            "/sys/module",
        ];
        let holds = |read: &&Path| PLACES.iter().any(|place| Path::new(place).starts_with(read));
        matches!(attack.target, Target::Machine | Target::Ipc) && self.read.iter().any(holds)
    }
}

/// The tier is what stands between sessions, and before the supervisor; the rest is the policy's to open.
fn is_of_the_tier(target: Target) -> bool {
    match target {
        Target::Files | Target::Git | Target::House | Target::Processes | Target::Supervisor => {
            true
        }
        Target::Network | Target::Ipc | Target::Kernel | Target::Machine => false,
    }
}

/// Puts answers in order.
#[must_use]
pub fn matrix(answers: &[Answer], said: &Said<'_>, took_ms: u64) -> Matrix {
    let told: BTreeMap<&str, &str> =
        answers.iter().map(|answer| (answer.id.as_str(), answer.outcome.as_str())).collect();
    let mut rows: BTreeMap<(Target, Verdict, &str), Vec<&str>> = BTreeMap::new();
    for attack in attacks() {
        let outcome = told.get(attack.id).copied().unwrap_or(UNANSWERED);
        let verdict = said.verdict(attack, outcome);
        rows.entry((attack.target, verdict, outcome)).or_default().push(attack.id);
    }
    let rows = rows.into_iter().map(|((target, verdict, answer), ids)| Row {
        target: target.word().to_owned(),
        verdict,
        answer: answer.to_owned(),
        count: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        attacks: match verdict {
            Verdict::Holds => Vec::new(),
            _ => ids.into_iter().map(str::to_owned).collect(),
        },
    });
    Matrix { tier: said.tier, took_ms, rows: rows.collect() }
}

/// Refuses a wall that does not keep the tier's promise.
///
/// # Errors
/// [`StartError::Shield`] naming the attacks.
pub fn keeps_its_promise(matrix: &Matrix) -> Result<(), StartError> {
    let broken: Vec<&str> = matrix.named(Verdict::Broken).collect();
    if !broken.is_empty() {
        return Err(StartError::Shield {
            message: format!(
                "tier {} does not hold here: {} succeeded behind the agent's wall; take out of the policy what lets it, or \
                 report this with `casemate doctor --json`",
                matrix.tier,
                broken.join(", ")
            ),
        });
    }
    let unproven = matrix.rows.iter().filter(|row| row.verdict == Verdict::Unproven);
    let unproven: Vec<String> =
        unproven.map(|row| format!("{} ({})", row.attacks.join(", "), row.answer)).collect();
    if unproven.is_empty() {
        return Ok(());
    }
    Err(StartError::Shield {
        message: format!(
            "tier {} is not shown to hold here: no answer that it promises to {}; start the worker again, or report \
             this with `casemate doctor --json`",
            matrix.tier,
            unproven.join(", ")
        ),
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
