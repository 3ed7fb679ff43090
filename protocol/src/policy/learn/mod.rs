//! From what was refused to the fewest rules that would let it through, for a person to accept.
//!
//! Pure. What always holds of a [`Proposal`]: with its rules the policy allows every refusal that a rule can allow, and
//! with any one of them left out it does not. Nothing is applied anywhere.

mod record;
#[cfg(test)]
mod tests;
mod wish;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use record::Denials;
pub use write::{WriteError, write};

use super::decide::Setting;
use super::told::{Kind, socket_lines};
use super::{Access, PathRule, PathTemplate, Policy, Port, PortRule, SocketRule, secrets};
use crate::ports::OURS;
use crate::tier::Tier;
use wish::{Wish, allowed, socket_call};

/// So many neighbours in one directory, with the same rights, become a rule for the directory.
const NEIGHBOURS: usize = 3;

/// Below a home: what opens other doors, and is never learned. Agents' own logins and conversations too; of `.claude` by name, since a program
/// of that agent's may lie there.
const CREDENTIALS: [&str; 70] = [
    ".ssh",
    ".gnupg",
    ".pki",
    ".netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".git-credentials",
    ".config/git/credentials",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/op",
    ".vault-token",
    ".config/sops",
    ".aws",
    ".azure",
    ".oci",
    ".boto",
    ".s3cfg",
    ".kube",
    ".config/gcloud",
    ".config/doctl",
    ".config/rclone",
    ".terraform.d",
    ".terraformrc",
    ".docker",
    ".config/containers",
    ".config/helm",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip",
    ".pip",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget",
    ".pgpass",
    ".my.cnf",
    ".claude.json",
    ".claude/.credentials.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/projects",
    ".claude/history.jsonl",
    ".codex",
    ".gemini",
    ".qwen",
    ".config/opencode",
    ".local/share/opencode",
    ".config/github-copilot",
    ".copilot",
    ".config/goose",
    ".config/anthropic",
    ".cache/huggingface/token",
    ".huggingface",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/Code",
    ".cursor",
    ".local/state/casemate",
];
/// What stays closed while a run is learned from, whether it is there or not. `home`: whose machine it is.
pub fn kept(home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let below = home.into_iter().flat_map(|home| CREDENTIALS.map(|name| home.join(name)));
    below.chain(secrets::all().map(PathBuf::from))
}

/// Why no rule is proposed for a path, whosever home it lies in: it opens other doors, or is a directory that has something which
/// does. A rule for a directory goes for all below it.
fn opens_doors(path: &str) -> Option<String> {
    let within = format!("{path}/");
    let is_credential = CREDENTIALS.iter().any(|name| within.contains(&format!("/{name}/")));
    let path = Path::new(path);
    let is_home = ["/root", "/home"].iter().any(|home| path == Path::new(home))
        || path.parent() == Some(Path::new("/home"));
    if is_credential || secrets::meets(path) {
        Some("credentials: no rule is proposed for what opens other doors".to_owned())
    } else {
        is_home.then(|| "a home, which has credentials: name what is needed of it".to_owned())
    }
}

/// One rule to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// As it stands in a policy file, its reason included; of a name that is taken out of a table, a comment that says so.
    pub text: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Path(PathRule),
    Tcp(PortRule),
    /// More rights in the `[[path]]` table of this line: a path is named once.
    Wider {
        line: usize,
        access: Vec<Access>,
    },
    Socket(SocketRule),
    /// A name less in the `[[syscall]]` table of this line.
    Without {
        line: usize,
        name: String,
    },
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The rules.
    pub rules: Vec<Learned>,
    /// What no rule is proposed for, and why.
    pub kept_out: Vec<(String, String)>,
    /// What the policy allows as it is: refused by another one, or by the file system's own permissions.
    pub allowed: Vec<String>,
}

/// Proposes rules. `closed` says why a path is no policy's to grant; `real` follows links, as in [`super::decide::path`].
#[must_use]
pub fn propose(
    policy: &Policy,
    setting: &Setting,
    denials: &Denials,
    real: &dyn Fn(&str) -> String,
    closed: &dyn Fn(&str) -> Option<String>,
) -> Proposal {
    let mut proposal = Proposal::default();
    let mut wishes = BTreeMap::new();
    let closed = &|path: &str| closed(path).or_else(|| opens_doors(path));
    for ((path, access), times) in &denials.paths {
        let what = format!("{access} {path}");
        // Noted as the kernel found it: what is a link by now, the run may have made one.
        let moved = || (real(path) != *path).then(|| "it leads elsewhere by now".to_owned());
        if let Some(why) = closed(path).or_else(|| odd(path)).or_else(moved) {
            proposal.kept_out.push((what, why));
        } else {
            *wishes.entry(Wish::Path(path.clone(), *access)).or_insert(0) += times;
            // The kernel opens what it runs.
            if *access == Access::Execute {
                wishes.entry(Wish::Path(path.clone(), Access::Read)).or_insert(0);
            }
        }
    }
    for (connects, ports) in [(true, &denials.connect), (false, &denials.bind)] {
        for (port, times) in ports {
            if OURS.contains(port) {
                let why = "casemate's own ports: a session gets some as {ports}".to_owned();
                proposal.kept_out.push((Wish::Port(connects, *port).to_string(), why));
            } else {
                wishes.insert(Wish::Port(connects, *port), *times);
            }
        }
    }
    for ((name, arguments), times) in &denials.asked {
        let wish = Wish::call(policy, name, arguments);
        let kind = socket_call(name).map(|_| Kind::of(arguments));
        match kind.and_then(|kind| kind.words(policy).err()) {
            Some(why) => proposal.kept_out.push((wish.to_string(), why.to_owned())),
            None => *wishes.entry(wish).or_insert(0) += times,
        }
    }
    for blocker in denials.other.keys() {
        let why = "no rule of a policy grants it: look at its [[scope]] and [[path]] tables";
        proposal.kept_out.push((blocker.clone(), why.to_owned()));
    }
    let granted = allowed(policy, &[], setting, real, wishes.keys());
    for wish in granted {
        wishes.remove(&wish);
        proposal.allowed.push(wish.to_string());
    }
    let candidates = candidates(policy, setting, &wishes, closed);
    proposal.rules = merged(fewest(policy, setting, real, &wishes, candidates));
    // What is still not allowed needs more than a rule of its own (no socket of that kind can be made).
    let granted = allowed(policy, &proposal.rules, setting, real, wishes.keys());
    for wish in wishes.keys().filter(|wish| !granted.contains(wish)) {
        let why = "a rule for it alone would not let it through: see `casemate policy explain`";
        proposal.kept_out.push((wish.to_string(), why.to_owned()));
    }
    proposal
}

/// Does something else to a terminal or an editor than being shown, such as turning round what follows: whoever reads a proposal is to
/// see what it says.
#[must_use]
pub fn misleads(one: char) -> bool {
    let is_unseen = matches!(one,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    one.is_control() || is_unseen
}

/// What cannot stand in a policy, or would mean something else there.
fn odd(path: &str) -> Option<String> {
    (!writable(path)).then(|| "its name cannot stand in a policy".to_owned())
}

/// Can stand in a policy and mean what it says there.
pub(super) fn writable(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains(['{', '}'])
        && !path.contains(misleads)
        && !path.split('/').any(|part| part == "..")
}

/// Single paths, and directories of which several entries are wished for with the same rights.
fn candidates(
    policy: &Policy,
    setting: &Setting,
    wishes: &BTreeMap<Wish, u64>,
    closed: &dyn Fn(&str) -> Option<String>,
) -> Vec<Learned> {
    let mut paths: BTreeMap<&str, (BTreeSet<Access>, u64)> = BTreeMap::new();
    let mut others = Vec::new();
    let mut less: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for (wish, times) in wishes {
        match wish {
            Wish::Path(path, access) => {
                let entry = paths.entry(path).or_default();
                entry.0.insert(*access);
                entry.1 += times;
            }
            Wish::Port(connects, port) => others.push(port_rule(*connects, *port, *times)),
            Wish::Call(name, arguments) => match socket_call(name) {
                Some(_) => others.extend(socket_rule(policy, setting, name, arguments, *times)),
                None => {
                    for rule in policy.syscalls.iter().filter(|rule| rule.names.contains(name)) {
                        *less.entry((rule.line, name)).or_default() += times;
                    }
                }
            },
        }
    }
    let mut by_directory: BTreeMap<(&str, &BTreeSet<Access>), (usize, u64)> = BTreeMap::new();
    for (path, (access, times)) in &paths {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let entry = by_directory.entry((above, access)).or_default();
        entry.0 += 1;
        entry.1 += times;
    }
    // A directory of the root's is never opened for a few files of it.
    let wide = by_directory.into_iter().filter(|((above, _), (count, _))| {
        *count >= NEIGHBOURS && above.matches('/').count() >= 2 && closed(above).is_none()
    });
    // Wide ones last: what is tried first is what is left out first.
    let mut all: Vec<Learned> = paths
        .iter()
        .map(|(path, (access, times))| path_rule(policy, setting, path, access, *times))
        .collect();
    all.extend(
        wide.map(|((above, access), (_, times))| path_rule(policy, setting, above, access, times)),
    );
    all.extend(others);
    all.extend(less.into_iter().map(|((line, name), times)| without(policy, line, name, times)));
    all
}

fn path_rule(
    policy: &Policy,
    setting: &Setting,
    path: &str,
    access: &BTreeSet<Access>,
    times: u64,
) -> Learned {
    let template = templated(setting, path);
    let reason = learned(times);
    let same = policy.paths.iter().find(|rule| rule.path == template && rule.tier == Tier::Domain);
    if let Some(rule) = same {
        let access: Vec<Access> =
            access.iter().copied().filter(|access| !rule.access.contains(access)).collect();
        let words: Vec<String> = access.iter().map(ToString::to_string).collect();
        let text = format!(
            "# A [[path]] table (line {} before) has more rights: {}: {reason}\n",
            rule.line,
            words.join(", ")
        );
        return Learned { text, rule: Rule::Wider { line: rule.line, access } };
    }
    let access = access.iter().copied().collect();
    table(template, access, reason)
}

/// A path is named once: what is wished for at a directory, and what its neighbours led to, are one table.
fn merged(rules: Vec<Learned>) -> Vec<Learned> {
    let mut out: Vec<Learned> = Vec::new();
    for learned in rules {
        let same = out.iter_mut().find(|known| match (&known.rule, &learned.rule) {
            (Rule::Path(known), Rule::Path(rule)) => known.path == rule.path,
            _ => false,
        });
        match (same, &learned.rule) {
            (Some(known), Rule::Path(rule)) => {
                let Rule::Path(before) = &known.rule else { continue };
                let mut access = [before.access.as_slice(), &rule.access].concat();
                access.sort_unstable();
                access.dedup();
                *known = table(rule.path.clone(), access, before.reason.clone());
            }
            _ => out.push(learned),
        }
    }
    out
}

fn table(template: PathTemplate, access: Vec<Access>, reason: String) -> Learned {
    let words: Vec<String> = access.iter().map(|access| format!("\"{access}\"")).collect();
    let shown = match template.place {
        Some(place) => format!("{place}{}", template.rest),
        None => template.rest.clone(),
    };
    let text = format!(
        "[[path]]\npath = {}\naccess = [{}]\nreason = \"{reason}\"\n",
        serde_json::Value::from(shown),
        words.join(", ")
    );
    let tier = Tier::Domain;
    let rule = PathRule { path: template, access, required: false, tier, reason, line: 0 };
    Learned { text, rule: Rule::Path(rule) }
}

/// A learned rule's reason, until a person writes a better one.
fn learned(times: u64) -> String {
    match times {
        1 => "learned: refused once".to_owned(),
        _ => format!("learned: refused {times} times"),
    }
}

fn port_rule(connects: bool, port: u16, times: u64) -> Learned {
    let reason = learned(times);
    let way = if connects { "connect" } else { "bind" };
    let text = format!("[[tcp]]\n{way} = [{port}]\nreason = \"{reason}\"\n");
    let ports = vec![Port::Number(port)];
    let (connect, bind) = if connects { (ports, Vec::new()) } else { (Vec::new(), ports) };
    Learned { text, rule: Rule::Tcp(PortRule { connect, bind, reason, line: 0 }) }
}

fn socket_rule(
    policy: &Policy,
    setting: &Setting,
    name: &str,
    arguments: &[u64; 6],
    times: u64,
) -> Option<Learned> {
    let (call, asked) = (socket_call(name)?, Kind::of(arguments));
    let (family, kind) = asked.words(policy).ok()?;
    let reason = learned(times);
    let mut text = socket_lines(call, (family, kind), asked.protocol, &reason);
    if let Some(risk) = asked.risk(setting) {
        text.insert_str(0, &format!("# {risk}\n"));
    }
    let rule = SocketRule {
        family,
        types: vec![kind],
        protocols: vec![u32::try_from(asked.protocol).ok()?],
        calls: vec![call],
        tier: Tier::Domain,
        landlock_abi: 0,
        reason,
        line: 0,
    };
    Some(Learned { text, rule: Rule::Socket(rule) })
}

fn without(policy: &Policy, line: usize, name: &str, times: u64) -> Learned {
    let reason = policy.syscalls.iter().find(|rule| rule.line == line).map(|rule| &rule.reason);
    let reason: String = reason
        .into_iter()
        .flat_map(|reason| reason.chars())
        .filter(|one| !misleads(*one))
        .collect();
    let text = format!(
        "# \"{name}\" is taken out of a [[syscall]] table (line {line} before): {}.\n# It stood there because: {reason}\n",
        learned(times)
    );
    Learned { text, rule: Rule::Without { line, name: name.to_owned() } }
}

/// The path by the longest placeholder that it lies below.
fn templated(setting: &Setting, path: &str) -> PathTemplate {
    let below = setting.places.iter().flat_map(|(place, directories)| {
        directories.iter().filter_map(move |directory| {
            let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then_some((*place, rest))
        })
    });
    match below.min_by_key(|(_, rest)| rest.len()) {
        Some((place, rest)) => PathTemplate { place: Some(place), rest: rest.to_owned() },
        None => PathTemplate { place: None, rest: path.to_owned() },
    }
}

/// Leaves out what is not needed, one after the other.
fn fewest(
    policy: &Policy,
    setting: &Setting,
    real: &dyn Fn(&str) -> String,
    wishes: &BTreeMap<Wish, u64>,
    mut rules: Vec<Learned>,
) -> Vec<Learned> {
    let most = allowed(policy, &rules, setting, real, wishes.keys()).len();
    let mut at = 0;
    while at < rules.len() {
        let rule = rules.remove(at);
        if allowed(policy, &rules, setting, real, wishes.keys()).len() < most {
            rules.insert(at, rule);
            at += 1;
        }
    }
    rules
}
