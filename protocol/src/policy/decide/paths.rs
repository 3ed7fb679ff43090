//! Paths: the rights of all rules above a path add up, as Landlock adds them (landlock(7)).

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::{Cited, Decision, Outcome, Setting};
use crate::policy::{Access, Errno, PathRule, PathTemplate, Place, Policy, secrets};

/// The answer for a path, one for each right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathDecision {
    /// The path as it was looked for: placeholders filled, links followed.
    pub path: String,
    /// In the order of [`Access::ALL`].
    pub access: Vec<AccessDecision>,
}

/// The answer for one right at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessDecision {
    /// The right.
    pub access: Access,
    /// What becomes of it.
    #[serde(flatten)]
    pub decision: Decision,
}

/// A place in the tree of files; without a place the parts begin at the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Spot {
    place: Option<Place>,
    parts: Vec<String>,
}

// === impl Spot ===

impl Spot {
    fn new(place: Option<Place>, path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self { place, parts }
    }

    fn covers(&self, other: &Self) -> bool {
        self.place == other.place && other.parts.starts_with(&self.parts)
    }
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            None => write!(f, "/{}", self.parts.join("/")),
            Some(place) if self.parts.is_empty() => write!(f, "{place}"),
            Some(place) => write!(f, "{place}/{}", self.parts.join("/")),
        }
    }
}

/// What may be done at a path. `real` says where an absolute path leads when its links are followed; `str::to_owned`
/// takes names as they are.
#[must_use]
pub fn path(
    policy: &Policy,
    setting: &Setting,
    asked: &PathTemplate,
    real: &dyn Fn(&str) -> String,
) -> PathDecision {
    Paths::new(policy, setting, real).ask(setting, asked, real)
}

/// A policy's path rules, found by their place: for many questions about many rules.
pub(in crate::policy) struct Paths<'a> {
    rules: Vec<(&'a PathRule, Vec<Spot>)>,
    at: HashMap<Spot, Vec<usize>>,
    /// Those below a placeholder that stands for nothing known: they may turn out to be anywhere.
    anywhere: Vec<usize>,
}

// === impl Paths ===

impl<'a> Paths<'a> {
    /// Of the setting, the places count.
    pub(in crate::policy) fn new(
        policy: &'a Policy,
        setting: &Setting,
        real: &dyn Fn(&str) -> String,
    ) -> Self {
        let rules: Vec<_> =
            policy.paths.iter().map(|rule| (rule, spots(&rule.path, setting, real))).collect();
        let (mut at, mut anywhere) = (HashMap::<_, Vec<usize>>::new(), Vec::new());
        for (index, (_, spots)) in rules.iter().enumerate() {
            for spot in spots {
                at.entry(spot.clone()).or_default().push(index);
            }
            if spots.iter().any(|spot| spot.place.is_some()) {
                anywhere.push(index);
            }
        }
        Self { rules, at, anywhere }
    }

    /// The setting's places are those that the rules were read with; its tier may be another.
    pub(in crate::policy) fn ask(
        &self,
        setting: &Setting,
        asked: &PathTemplate,
        real: &dyn Fn(&str) -> String,
    ) -> PathDecision {
        let asked = spots(asked, setting, real)
            .into_iter()
            .next()
            .unwrap_or_else(|| Spot::new(asked.place, &asked.rest));
        let mut above = Spot { place: asked.place, parts: Vec::new() };
        let mut near: Vec<usize> = self.anywhere.clone();
        near.extend(self.at.get(&above).into_iter().flatten());
        for part in &asked.parts {
            above.parts.push(part.clone());
            near.extend(self.at.get(&above).into_iter().flatten());
        }
        // In the file's order, each once.
        near.sort_unstable();
        near.dedup();
        if let Some(refused) = closed(&asked) {
            let decided = |access| AccessDecision { access, decision: refused.clone() };
            return PathDecision {
                path: asked.to_string(),
                access: Access::ALL.map(decided).into(),
            };
        }
        let rules: Vec<(&PathRule, &[Spot])> = near
            .iter()
            .filter_map(|index| self.rules.get(*index))
            .map(|(rule, spots)| (*rule, spots.as_slice()))
            .collect();
        let decided = |access| {
            let decision = one(setting, &asked, &rules, access);
            let decision = if is_of_a_process(&asked) { of_a_process(decision) } else { decision };
            AccessDecision { access, decision }
        };
        PathDecision { path: asked.to_string(), access: Access::ALL.map(decided).into() }
    }
}

/// What no policy grants, whatever its rules say: a start with one that would is refused.
fn closed(asked: &Spot) -> Option<Decision> {
    let place = secrets::holding(Path::new(&asked.to_string()))?;
    asked.place.is_none().then(|| {
        let note = format!("keys and tokens are mounted in {place}: no policy grants them");
        Decision::refused(None, Errno::Eacces).note(note)
    })
}

/// What the kernel shows of a process to whoever may trace it: `/proc/PID/environ` and the like (proc(5), ptrace(2),
/// PTRACE_MODE_READ and PTRACE_MODE_ATTACH).
fn is_of_a_process(asked: &Spot) -> bool {
    const TRACED: [&str; 19] = [
        "auxv",
        "cwd",
        "environ",
        "exe",
        "fd",
        "fdinfo",
        "io",
        "map_files",
        "maps",
        "mem",
        "ns",
        "numa_maps",
        "pagemap",
        "personality",
        "root",
        "smaps",
        "smaps_rollup",
        "stack",
        "syscall",
    ];
    let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
    let (process, what) = match parts.as_slice() {
        ["proc", process, "task", _, what, ..] | ["proc", process, what, ..] => (process, what),
        _ => return false,
    };
    let is_one = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    asked.place.is_none() && is_one && TRACED.contains(what)
}

/// Landlock lets a session trace its own processes alone, so that a rule for /proc opens theirs and nobody else's.
fn of_a_process(decision: Decision) -> Decision {
    if decision.outcome != Outcome::Allowed {
        return decision;
    }
    Decision { outcome: Outcome::Depends, errno: Some(Errno::Eacces), ..decision }.note(
        "of a process of the session's own: allowed; of any other, pid 1 and the supervisor too: refused, for Landlock keeps a session from \
         looking into processes outside of it",
    )
}

fn spots(template: &PathTemplate, setting: &Setting, real: &dyn Fn(&str) -> String) -> Vec<Spot> {
    let Some(place) = template.place else {
        return vec![Spot::new(None, &real(&template.rest))];
    };
    match setting.places.get(&place) {
        None => vec![Spot::new(Some(place), &template.rest)],
        Some(roots) => roots
            .iter()
            .map(|root| Spot::new(None, &real(&format!("{root}/{}", template.rest))))
            .collect(),
    }
}

fn one(
    setting: &Setting,
    asked: &Spot,
    rules: &[(&PathRule, &[Spot])],
    access: Access,
) -> Decision {
    let depth = |spots: &[Spot]| {
        spots.iter().filter(|spot| spot.covers(asked)).map(|spot| spot.parts.len()).max()
    };
    let granting = |rule: &PathRule| rule.access.contains(&access);
    let cited = |rule: &PathRule| cite(rule);
    // The narrowest rule that grants it; of two for one place, the first in the file.
    let mut best: Option<(usize, &PathRule)> = None;
    for (rule, spots) in
        rules.iter().filter(|(rule, _)| granting(rule) && rule.tier <= setting.tier)
    {
        if let Some(found) = depth(spots).filter(|found| best.is_none_or(|(b, _)| *found > b)) {
            best = Some((found, rule));
        }
    }
    if let Some((found, rule)) = best {
        let decision = Decision::allowed(Some(cited(rule)));
        // execve(2) opens the file for reading as well.
        if access == Access::Execute {
            let read = one(setting, asked, rules, Access::Read);
            if read.outcome != Outcome::Allowed {
                return Decision::refused(read.rule, Errno::Eacces).note(format!(
                    "line {} grants execute, but running a file needs read too",
                    rule.line
                ));
            }
        }
        return if access == Access::Write && found == asked.parts.len() {
            decision.note("if this is a file: making, renaming or deleting it needs its directory")
        } else {
            decision
        };
    }
    let nearest = rules
        .iter()
        .filter(|(rule, _)| rule.tier <= setting.tier)
        .filter_map(|(rule, spots)| depth(spots).map(|found| (found, *rule)))
        .max_by_key(|(found, _)| *found)
        .map(|(_, rule)| rule);
    let mut decision = Decision::refused(nearest.map(cited), Errno::Eacces);
    decision = match nearest {
        Some(_) => decision.note(format!("the rule does not grant {access}")),
        None => decision.note("no rule names it"),
    };
    for (rule, spots) in rules.iter().filter(|(rule, _)| granting(rule)) {
        if rule.tier > setting.tier && depth(spots).is_some() {
            decision = decision
                .note(format!("line {} would grant it from tier {} on", rule.line, rule.tier));
        }
    }
    let unknown: Vec<String> = rules
        .iter()
        .filter(|(rule, _)| asked.place.is_none() && granting(rule) && rule.tier <= setting.tier)
        .filter(|(_, spots)| spots.iter().any(|spot| spot.place.is_some()))
        .map(|(rule, _)| format!("{} in line {}", rule.path, rule.line))
        .collect();
    // Where a rule of a concrete path covers it, it is no session's place.
    if nearest.is_none() && !unknown.is_empty() {
        decision = decision.note(format!(
            "granted where one of these stands for a place above it: {}",
            unknown.join(", ")
        ));
    }
    debug_assert_eq!(decision.outcome, Outcome::Refused);
    decision
}

fn cite(rule: &PathRule) -> Cited {
    let rights: Vec<_> = rule.access.iter().map(Access::to_string).collect();
    Cited::new(rule.line, format!("[[path]] {} ({})", rule.path, rights.join(", ")), &rule.reason)
}
