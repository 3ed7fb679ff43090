//! The agent's environment: named variables of this process, then what the policy sets.

use std::path::Path;

use casemate_protocol::policy::{Policy, TextPiece, TextTemplate};

use super::Places;
use super::grants::stand_for;

/// The environment that the policy gives an agent. Variables that are not set here, or not valid UTF-8, are left out;
/// so is one whose placeholder stands for nothing.
#[must_use]
pub fn environment(policy: &Policy, places: &Places) -> Vec<(String, String)> {
    from_own(policy, places, |name| std::env::var(name).ok())
}

fn from_own(
    policy: &Policy,
    places: &Places,
    own: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let mut environment = Vec::new();
    for rule in &policy.environment {
        let passed = rule.pass.iter().filter_map(|name| Some((name.clone(), own(name)?)));
        environment.extend(passed);
        let set =
            rule.set.iter().filter_map(|(name, value)| Some((name.clone(), fill(value, places)?)));
        environment.extend(set);
    }
    environment
}

fn fill(template: &TextTemplate, places: &Places) -> Option<String> {
    let mut filled = String::new();
    for piece in &template.0 {
        match piece {
            TextPiece::Literal(text) => filled.push_str(text),
            TextPiece::Place(place) => {
                let paths: Vec<_> = stand_for(*place, places)
                    .into_iter()
                    .map(Path::to_str)
                    .collect::<Option<_>>()?;
                if paths.is_empty() {
                    return None;
                }
                filled.push_str(&paths.join(":"));
            }
            TextPiece::ProgramPath => {
                for program in &places.programs {
                    filled.push_str(program_directory(program).to_str()?);
                    filled.push(':');
                }
            }
            TextPiece::Ports => {
                let first = places.ports.iter().next()?;
                let last = places.ports.iter().last()?;
                filled.push_str(&format!("{first}-{last}"));
            }
        }
    }
    Some(filled)
}

/// Where a shell would look: an installation's `bin`, a directory of programs itself, a single program's directory.
fn program_directory(program: &Path) -> std::path::PathBuf {
    let bin = program.join("bin");
    if bin.is_dir() {
        bin
    } else if program.is_dir() {
        program.to_path_buf()
    } else {
        program.parent().unwrap_or(program).to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::tests::places;

    const FRAME: &str = "version = 1\nname = \"t\"\n[landlock]\nabi = 4\nreason = \"r\"\n\
                         [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";

    fn environment_of(rules: &str, places: &Places) -> Vec<(String, String)> {
        let policy = Policy::parse(&format!("{FRAME}{rules}")).unwrap();
        from_own(&policy, places, |name| {
            (name == "LANG" || name == "TOKEN").then(|| "x".to_owned())
        })
    }

    #[test]
    fn only_named_variables_pass() {
        let rules = "[[environment]]\npass = [\"LANG\", \"ABSENT\"]\nreason = \"r\"\n";
        let directory = tempfile::tempdir().unwrap();
        let given = environment_of(rules, &places(directory.path()));
        assert_eq!(given, [("LANG".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn placeholders_stand_for_places() {
        let directory = tempfile::tempdir().unwrap();
        let mut places = places(directory.path());
        std::fs::create_dir_all(directory.path().join("tool/bin")).unwrap();
        places.programs = vec![directory.path().join("tool")];
        let rules = "[[environment]]\nset = { A = \"{home}/x\", P = \"{program-path}/bin\", Q = \"{ports}\", \
                     S = \"{skills}\", B = \"{{}}\" }\nreason = \"r\"\n";
        let root = directory.path().display();
        let given = environment_of(rules, &places);
        let expected = [
            ("A", format!("{root}/home/x")),
            ("B", "{}".to_owned()),
            ("P", format!("{root}/tool/bin:/bin")),
            ("Q", "20000-20003".to_owned()),
        ];
        assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    /// Each variable of each built-in policy is there with its rule and gone without.
    #[test]
    fn no_variable_of_a_built_in_policy_is_idle() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(directory.path());
        let names = |policy: &Policy| -> Vec<String> {
            let all = from_own(policy, &places, |_| Some("x".to_owned()));
            all.into_iter().map(|(name, _)| name).collect()
        };
        for (policy, text) in casemate_protocol::policy::BUILT_IN {
            let whole = Policy::parse(text).unwrap();
            let given = names(&whole);
            assert!(!given.contains(&"TOKEN".to_owned()) && given.len() > 15, "{policy} {given:?}");
            for (index, rule) in whole.environment.iter().enumerate() {
                let set = rule.set.iter().map(|(name, _)| name);
                for name in rule.pass.iter().chain(set) {
                    let mut less = whole.clone();
                    let own = &mut less.environment[index];
                    own.pass.retain(|other| other != name);
                    own.set.retain(|(other, _)| other != name);
                    assert!(given.contains(name), "{policy}: {name}");
                    assert!(!names(&less).contains(name), "{policy}: {name} is idle");
                }
            }
        }
    }
}
