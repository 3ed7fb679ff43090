//! Of paths, which no listener sees: a guess from what a program said.
//!
//! Programs name the path beside "Permission denied" and seldom what they wanted of it. So what is told is what the policy refuses there
//! that fits the words, and that it is a guess; where the policy refuses nothing of it, nothing is told. With the lines the policy
//! grants the right that was guessed, at the path or, to make or remove something, at its directory.

use super::super::decide::{Outcome, Setting, path};
use super::super::learn::{misleads, writable};
use super::super::{Access, PathTemplate, Policy};
use super::Refusal;
use crate::tier::Tier;

/// So many guesses from one text.
const MOST: usize = 8;
/// What programs say where errno is EACCES (strerror(3), and runtimes' own words).
const SAYS: [&str; 3] = ["permission denied", "eacces", "permissionerror"];
/// In the same line, of what makes, changes or removes a name: its directory is what it takes.
const MAKES: [&str; 15] = [
    "cannot create",
    "cannot touch",
    "cannot remove",
    "cannot move",
    "cannot rename",
    "cannot link",
    "cannot make",
    "mkdir",
    "unlink",
    "rename",
    "rmdir",
    "symlink",
    "could not create",
    "unable to create",
    "failed to create",
];

/// A path that was said to be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Absolute.
    pub path: String,
    /// It was to be made, removed or renamed.
    pub makes: bool,
}

/// The absolute paths in the lines that say so.
#[must_use]
pub fn said(text: &str) -> Vec<Said> {
    let mut found: Vec<Said> = Vec::new();
    for line in text.lines() {
        let lower = line.to_lowercase();
        if !SAYS.iter().any(|words| lower.contains(words)) {
            continue;
        }
        let makes = MAKES.iter().any(|words| lower.contains(words));
        for path in paths(line) {
            let one = Said { path, makes };
            if found.len() < MOST && !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// In quotes as a whole; else up to a blank, or to a colon that ends a word.
fn paths(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        let quote = before.chars().next_back();
        let begins = quote.is_none_or(|one| one.is_whitespace() || "'\"`‘“(=".contains(one));
        let close = match quote {
            Some(one @ ('\'' | '"' | '`')) => Some(one),
            Some('‘') => Some('’'),
            Some('“') => Some('”'),
            _ => None,
        };
        let end = match close.and_then(|close| path.find(close)) {
            Some(end) => end,
            None => path
                .find(|one: char| one.is_whitespace() || "'\"`,;)".contains(one))
                .unwrap_or(path.len()),
        };
        let (path, after) = path.split_at(end.max(1));
        if begins {
            let path = path.trim_end_matches([':', '.']);
            if path.len() > 1 {
                found.push(path.to_owned());
            }
        }
        rest = after;
    }
    found
}

/// A guess; `None`: the policy grants whatever the words may mean, or nothing can be said of that path. `real` follows links, `closed` says
/// why a path is no policy's to grant.
#[must_use]
pub fn guess(
    policy: &Policy,
    setting: &Setting,
    said: &Said,
    real: &dyn Fn(&str) -> String,
    closed: &dyn Fn(&str) -> Option<String>,
) -> Option<Refusal> {
    if !writable(&said.path) {
        return None;
    }
    let trimmed = said.path.trim_end_matches('/');
    let at = match said.makes {
        true => {
            trimmed.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())?
        }
        false => trimmed,
    };
    let asked = PathTemplate { place: None, rest: at.to_owned() };
    let answer = path(policy, setting, &asked, real);
    // To make something takes write; to name a file may be meant for anything, and reading comes first.
    let likely: &[Access] = match said.makes {
        true => &[Access::Write],
        false => &[Access::Read, Access::Write, Access::Execute],
    };
    let refused = likely.iter().find_map(|access| {
        let found = answer.access.iter().find(|one| one.access == *access)?;
        (found.decision.outcome == Outcome::Refused).then_some(found)
    })?;
    let mut words = vec![refused.access];
    if refused.access == Access::Execute {
        words.insert(0, Access::Read);
    }
    let words: Vec<String> = words.iter().map(|access| format!("\"{access}\"")).collect();
    let what = format!("perhaps refused: {} {at}", refused.access);
    let mut why = "A guess: a tool of the agent's said so, and no one asked the kernel; the file's own permissions refuse as well. ".to_owned();
    why += &match &refused.decision.rule {
        Some(rule) => format!(
            "The nearest rule of policy {}, line {} ({}), does not grant it. ",
            policy.name, rule.line, rule.what
        ),
        None => format!("No [[path]] rule of policy {} names it. ", policy.name),
    };
    if let Some(closed) = closed(at) {
        return Some(Refusal::new(what, why + &closed, None));
    }
    // A path is named once.
    let same = policy.paths.iter().find(|rule| rule.path == asked && rule.tier == Tier::Domain);
    if let Some(rule) = same {
        let mut all: Vec<String> =
            rule.access.iter().map(|access| format!("\"{access}\"")).collect();
        all.extend(
            words
                .into_iter()
                .filter(|word| !rule.access.iter().any(|own| format!("\"{own}\"") == *word)),
        );
        why += &format!(
            "In the table of line {}, this would grant it:\n\naccess = [{}]\n",
            rule.line,
            all.join(", ")
        );
        return Some(Refusal::new(what, why, None));
    }
    let allow = format!(
        "[[path]]\npath = {}\naccess = [{}]\nreason = \"...\"\n",
        serde_json::Value::from(at),
        words.join(", ")
    );
    why += &format!("In the policy, this would grant it:\n\n{allow}");
    debug_assert!(!at.contains(misleads), "what misleads is not writable");
    Some(Refusal::new(what, why, Some(allow)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::setting;
    use super::*;
    use crate::policy::{BUILT_IN, DEVELOPER, Place};

    #[test]
    fn paths_are_found_in_what_programs_say() {
        for (text, path, makes) in [
            ("cat: /srv/x: Permission denied", "/srv/x", false),
            (
                "ls: cannot open directory '/srv/my files': Permission denied",
                "/srv/my files",
                false,
            ),
            ("mkdir: cannot create directory ‘/srv/x’: Permission denied", "/srv/x", true),
            ("sh: 1: cannot create /srv/x: Permission denied", "/srv/x", true),
            ("bash: /srv/x: Permission denied", "/srv/x", false),
            ("Error: EACCES: permission denied, open '/srv/x'", "/srv/x", false),
            ("Error: EACCES: permission denied, mkdir '/srv/x'", "/srv/x", true),
            ("PermissionError: [Errno 13] Permission denied: '/srv/x'", "/srv/x", false),
            ("open /srv/x: permission denied", "/srv/x", false),
            ("fatal: could not create work tree dir \"/srv/x\": Permission denied", "/srv/x", true),
        ] {
            let expected = Said { path: path.to_owned(), makes };
            assert_eq!(said(text), [expected], "{text}");
        }
        for text in [
            "cat: /srv/x: No such file or directory",
            "cat: x: Permission denied",
            "https://srv/x: permission denied",
            "/srv/x\nPermission denied (os error 13)",
            "permission denied / and nothing",
        ] {
            assert_eq!(said(text), [], "{text}");
        }
        let many: String = (0..99).map(|n| format!("cat: /srv/{n}: Permission denied\n")).collect();
        assert_eq!(said(&many).len(), MOST);
    }

    fn told(text: &str, words: &str) -> Option<Refusal> {
        let policy = Policy::parse(text).unwrap();
        let mut setting = setting(&policy);
        setting.tier = Tier::Namespace;
        setting.places.insert(Place::Work, vec!["/work".to_owned()]);
        let closed = |path: &str| path.starts_with("/keys").then(|| "No policy can.".to_owned());
        guess(&policy, &setting, said(words).first()?, &str::to_owned, &closed)
    }

    #[test]
    fn the_lines_that_are_guessed_grant_what_was_guessed() {
        for (name, text) in BUILT_IN {
            for (words, what) in [
                ("cat: /srv/x: Permission denied", "read /srv/x"),
                ("bash: /usr/lib/x: Permission denied", "write /usr/lib/x"),
                ("mkdir: cannot create directory '/usr/y/x': Permission denied", "write /usr/y"),
                ("touch: cannot touch '/srv/a\"b': Permission denied", "write /srv"),
            ] {
                let refusal = told(text, words).unwrap_or_else(|| panic!("{name} {words}"));
                assert_eq!(refusal.what, format!("perhaps refused: {what}"), "{name}");
                assert!(refusal.why.starts_with("A guess"));
                let allowed = format!("{text}\n{}", refusal.allow.unwrap());
                let after = told(&allowed, words);
                assert!(after.is_none_or(|next| next.what != refusal.what), "{name} {words}");
            }
        }
    }

    #[test]
    fn a_path_that_is_named_already_is_told_with_its_whole_list() {
        let words = "mkdir: cannot create directory '/usr/x': Permission denied";
        let refusal = told(DEVELOPER, words).unwrap();
        assert_eq!(refusal.allow, None);
        let (before, list) = refusal.why.split_once("this would grant it:\n\n").unwrap();
        assert_eq!(list, "access = [\"read\", \"execute\", \"write\"]\n");
        let rule = Policy::parse(DEVELOPER).unwrap().paths;
        let rule = rule.iter().find(|rule| rule.path.rest == "/usr").unwrap();
        assert!(before.ends_with(&format!("line {}, ", rule.line)), "{before}");
        let head: String =
            DEVELOPER.lines().take(rule.line - 1).map(|line| format!("{line}\n")).collect();
        let table = &DEVELOPER[head.len()..];
        let end = table.find("reason").unwrap();
        let edited = format!("{head}[[path]]\npath = \"/usr\"\n{list}{}", &table[end..]);
        assert_eq!(told(&edited, words), None);
    }

    #[test]
    fn what_the_policy_grants_or_nobody_may_is_not_guessed() {
        assert_eq!(told(DEVELOPER, "cat: /work/x: Permission denied"), None);
        assert_eq!(told(DEVELOPER, "rm: cannot remove '/work/x': Permission denied"), None);
        assert_eq!(told(DEVELOPER, "mkdir: cannot create directory '/x': Permission denied"), None);
        assert_eq!(told(DEVELOPER, "cat: /srv/\u{202e}x: Permission denied"), None);
        assert_eq!(told(DEVELOPER, "cat: /srv/../x: Permission denied"), None);
        let keys = told(DEVELOPER, "cat: /keys/x: Permission denied").unwrap();
        assert!(keys.allow.is_none() && keys.why.ends_with("No policy can."));
    }
}
