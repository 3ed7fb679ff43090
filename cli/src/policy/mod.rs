//! `casemate policy`: reads policies, says which rule decides, compares two.
//!
//! The decisions are the protocol crate's; here are files, the links of this machine and words.

mod answer;
mod learn;
mod question;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_protocol::policy::decide::Setting;
use casemate_protocol::policy::{self, Bounds, Diff, Place as Placeholder, Policy, PolicyError};
use casemate_protocol::ports::{self, PortRange};
use casemate_protocol::tier::Tier;
use casemate_sandbox::Places;
use clap::Subcommand;
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::place::Place;
use question::Question;

/// Options of `casemate policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a policy and say whether it holds
    Check {
        /// A file, or the name of a built-in policy (strict, developer, audit)
        policy: String,
        /// Say it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what a policy answers, and the rule that decides
    ///
    /// Questions: /PATH or {home}/PATH; connect HOST:PORT[/udp]; bind PORT[/udp]; signal; abstract-socket; syscall NAME
    /// [ARGUMENT...] (`_`: any); socket or socketpair FAMILY TYPE [PROTOCOL]; rlimit NAME; bound NAME; env
    /// NAME.
    Explain(Explain),
    /// From the kernel's records of refusals (`[log]`) to the smallest policy that lets them through, for you to accept
    ///
    /// The walls stay up while records are made, so a program that ends at its first refusal shows no second one: accept,
    /// run again, learn again. Keys, state and other sessions are never proposed.
    Learn(learn::Args),
    /// Print the format as a JSON Schema, for editors that check TOML by one
    Schema,
    /// Say what B allows that A does not, and the other way round; exit code 1 where B allows more
    Diff {
        /// A file, or the name of a built-in policy
        a: String,
        /// Another
        b: String,
        /// Say it as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Explain {
    /// A file, or the name of a built-in policy
    policy: String,
    /// The question
    #[arg(required = true, num_args = 1.., allow_negative_numbers = true)]
    question: Vec<String>,
    /// Say it as JSON
    #[arg(long)]
    json: bool,
    /// What a placeholder stands for: work=/home/me/repo; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = placeholder)]
    place: Vec<(Placeholder, String)>,
    /// What {ports} stands for
    #[arg(long, value_name = "FIRST-LAST", value_parser = range)]
    ports: Option<PortRange>,
    /// A port of {connect}; may be repeated
    #[arg(long, value_name = "PORT", value_parser = connected)]
    connect: Vec<u16>,
    /// The worker's tier (default: the weakest that the policy takes)
    #[arg(long, value_parser = tier)]
    tier: Option<Tier>,
    /// The kernel's Landlock ABI (default: the lowest that the policy takes)
    #[arg(long)]
    abi: Option<u32>,
    /// Take paths as they are written instead of following this machine's links
    #[arg(long)]
    as_written: bool,
}

fn placeholder(text: &str) -> Result<(Placeholder, String), String> {
    let (name, directory) = text.split_once('=').ok_or("write NAME=DIR")?;
    let bare = name.trim_start_matches('{').trim_end_matches('}');
    let place =
        Placeholder::named(bare).ok_or("the names are work, home, scratch, skills and programs")?;
    if !directory.starts_with('/') {
        return Err("the directory must be an absolute path".to_owned());
    }
    Ok((place, directory.to_owned()))
}

fn range(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().map_err(|_| "write FIRST-LAST, from 1 to 65535");
    let (first, last) = (number(first)?, number(last)?);
    let count = last.checked_sub(first).and_then(|more| more.checked_add(1));
    match count {
        Some(count) if first > 0 => Ok(PortRange { first, count }),
        _ => Err("write FIRST-LAST, from 1 to 65535".to_owned()),
    }
}

/// What no profile hands out is nothing that `{connect}` stands for.
fn connected(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0).ok_or("write a port, from 1 to 65535")?;
    ports::foreign(port).map_or(Ok(port), Err)
}

fn tier(text: &str) -> Result<Tier, String> {
    [Tier::Domain, Tier::Namespace, Tier::Pod]
        .into_iter()
        .find(|tier| tier.to_string() == text)
        .ok_or_else(|| "the tiers are domain, namespace and pod".to_owned())
}

/// Looks at policies.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    match args.command {
        Command::Check { policy, json } => check(&policy, json, place.home()),
        Command::Learn(args) => learn::run(&args, place.home()),
        Command::Explain(explain) => self::explain(&explain, place.home()),
        Command::Schema => {
            output::write(policy::SCHEMA)?;
            Ok(0)
        }
        Command::Diff { a, b, json } => diff(&a, &b, json),
    }
}

/// The text of a built-in policy or of a file.
fn text_of(named: &str) -> Result<String, Failure> {
    if let Some(text) = policy::built_in(named) {
        return Ok(text.to_owned());
    }
    fs::read_to_string(named).map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return Failure::new(
                exit::DATA,
                format!("{named}: a policy is UTF-8 text: convert it"),
            );
        }
        let known = policy::BUILT_IN.map(|(name, _)| name).join(", ");
        let what = format!("{named} (no file, and the built-in policies are {known})");
        Failure::because(exit::NO_INPUT, what, &error)
    })
}

fn load(named: &str) -> Result<Policy, Failure> {
    parse(named, &text_of(named)?)
}

fn parse(named: &str, text: &str) -> Result<Policy, Failure> {
    Policy::parse(text).map_err(|error| Failure::because(exit::DATA, named, &error))
}

fn check(named: &str, as_json: bool, home: &Path) -> Result<u8, Failure> {
    match checked(&text_of(named)?, home) {
        Ok(policy) if as_json => {
            let rules = json!({
                "path": policy.paths.len(), "tcp": policy.tcp.len(), "udp": policy.udp.len(),
                "host": policy.egress.as_ref().map_or(0, |egress| egress.hosts.len()),
                "scope": policy.scopes.len(),
                "socket": policy.sockets.allow.len(), "syscall": policy.syscalls.len(),
                "environment": policy.environment.len(), "rlimit": policy.rlimits.len(),
            });
            let Bounds { processes, disk, files, line: _ } = policy.bounds;
            let bounds = json!({"processes": processes, "disk": disk, "files": files});
            output::write(format!(
                "{}\n",
                json!({
                    "ok": true, "policy": named, "name": policy.name, "revision": policy.revision,
                    "tier": policy.tier, "landlock_abi": policy.landlock_abi, "rules": rules,
                    "bounds": bounds,
                })
            ))?;
            Ok(exit::OK)
        }
        Ok(policy) => {
            output::write(format!(
                "{named}: ok, revision {}\n{} rules, tier {} or stronger, Landlock ABI {} or later\nbounds of a session: {}{}\n",
                policy.revision,
                policy.rule_count(),
                policy.tier,
                policy.landlock_abi,
                policy.bounds,
                if policy.bounds.line.is_some() { "" } else { " (defaults: no [bounds])" },
            ))?;
            Ok(exit::OK)
        }
        Err(error) if as_json => {
            let (line, column) = error.position.unzip();
            output::write(format!(
                "{}\n",
                json!({
                    "ok": false, "policy": named, "line": line, "column": column, "message": error.message,
                })
            ))?;
            Ok(exit::DATA)
        }
        Err(error) => Err(Failure::because(exit::DATA, named, &error)),
    }
}

/// What can be said of a policy without a session: its text, the names of its system calls, that this build holds its
/// egress, that it leaves casemate's own home closed, and that a start would not refuse it for where its paths lead on this machine.
fn checked(text: &str, home: &Path) -> Result<Policy, PolicyError> {
    let policy = Policy::parse(text)?;
    casemate_sandbox::check_calls(&policy).map_err(|error| error.in_text(text))?;
    casemate_sandbox::check_egress(&policy).map_err(|error| error.in_text(text))?;
    let setting = Setting { tier: Tier::Pod, ..Setting::symbolic(&policy) };
    is_startable(&policy, text, &setting, home)?;
    Ok(policy)
}

/// Whether a start would refuse the policy for what its paths are on this machine; with its words.
fn is_startable(
    policy: &Policy,
    text: &str,
    setting: &Setting,
    home: &Path,
) -> Result<(), PolicyError> {
    casemate_allocator::leaves_closed(policy, text, home)?;
    casemate_sandbox::check_paths(policy, &places(setting)).map_err(|error| error.in_text(text))
}

/// What placeholders stand for, as far as it is said; the others are nowhere.
fn places(setting: &Setting) -> Places {
    let all = |place| setting.places.get(&place).into_iter().flatten().map(PathBuf::from);
    let one = |place| all(place).next().unwrap_or_else(|| "/nonexistent".into());
    let (work, home) = (one(Placeholder::Work), one(Placeholder::Home));
    Places {
        skills: all(Placeholder::Skills).next(),
        programs: all(Placeholder::Programs).collect(),
        ..Places::new(work, home, one(Placeholder::Scratch), setting.tier)
    }
}

fn explain(asked: &Explain, home: &Path) -> Result<u8, Failure> {
    let text = text_of(&asked.policy)?;
    let policy = parse(&asked.policy, &text)?;
    let question =
        Question::parse(&asked.question).map_err(|message| Failure::new(exit::USAGE, message))?;
    let mut setting = Setting::symbolic(&policy);
    let tier = asked.tier.unwrap_or(policy.tier);
    setting.tier = tier.wall();
    setting.landlock_abi = asked.abi.unwrap_or(policy.landlock_abi);
    setting.ports = asked.ports;
    setting.connect = (!asked.connect.is_empty()).then(|| asked.connect.clone());
    for (place, directory) in &asked.place {
        setting.places.entry(*place).or_default().push(directory.clone());
    }
    // Where no start is, no rule decides.
    if matches!(question, Question::Path(_)) && !asked.as_written {
        is_startable(&policy, &text, &setting, home)
            .map_err(|why| Failure::because(exit::DATA, &asked.policy, &why))?;
    }
    let real: &dyn Fn(&str) -> String =
        if asked.as_written { &str::to_owned } else { &follow_links };
    let answer = answer::give(&policy, &setting, &question, real, home)
        .map_err(|message| Failure::new(exit::USAGE, message))?;
    if asked.json {
        let question = asked.question.join(" ");
        let mut object = json!({
            "policy": asked.policy, "revision": policy.revision, "tier": tier,
            "landlock_abi": setting.landlock_abi,
            "question": question,
        });
        if let Some(object) = object.as_object_mut() {
            object.extend(answer.to_json());
        }
        output::write(format!("{object}\n"))?;
    } else {
        output::write(answer.to_string())?;
    }
    Ok(exit::OK)
}

/// Where a path leads; of one that does not exist, what of it exists is followed.
fn follow_links(path: &str) -> String {
    let path = Path::new(path);
    let found = path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        let rest = path.strip_prefix(above).ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    // What is not UTF-8 cannot stand in a policy either.
    found.unwrap_or_else(|| PathBuf::from(path)).to_string_lossy().into_owned()
}

fn diff(a: &str, b: &str, as_json: bool) -> Result<u8, Failure> {
    let (ours, theirs) = (load(a)?, load(b)?);
    let diff = Diff::between(&ours, &theirs);
    if as_json {
        output::write(format!(
            "{}\n",
            json!({
                "a": a, "a_revision": ours.revision, "b": b, "b_revision": theirs.revision,
                "only_a": diff.only_a, "only_b": diff.only_b, "otherwise": diff.otherwise,
            })
        ))?;
    } else {
        output::write(in_words(a, b, &diff))?;
    }
    Ok(if diff.only_b.is_empty() { exit::OK } else { exit::FAILED })
}

/// What a person reads of a comparison.
fn in_words(a: &str, b: &str, diff: &Diff) -> String {
    let parts = [
        ("B allows, A does not", &diff.only_b),
        ("A allows, B does not", &diff.only_a),
        ("otherwise different", &diff.otherwise),
    ];
    let mut words = format!("A is {a}, B is {b}\n");
    for (title, list) in parts {
        words += &format!("{title}:{}\n", if list.is_empty() { " nothing" } else { "" });
        for one in list {
            let line = one.line.map_or_else(String::new, |line| format!(" (line {line})"));
            words += &format!("  {:<12} {}{line}\n", one.kind, one.text);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_a_path_are_followed_as_far_as_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let ask = |path: &str| follow_links(&root.join(path).display().to_string());
        assert_eq!(ask("link"), root.join("real").display().to_string());
        assert_eq!(ask("link/a/b"), root.join("real/a/b").display().to_string());
        assert_eq!(follow_links("/"), "/");
    }

    #[test]
    fn a_policy_whose_path_a_session_has_turned_elsewhere_is_no_good() {
        let directory = tempfile::tempdir().unwrap();
        let written = directory.path().join("written");
        fs::create_dir_all(written.join("learned")).unwrap();
        let rule = |path: &Path, access: &str| {
            format!(
                "[[path]]\npath = \"{}\"\naccess = [\"{access}\"]\nreason = \"r\"\n",
                path.display()
            )
        };
        let text = format!(
            "{}\n{}{}",
            policy::DEVELOPER,
            rule(&written, "write"),
            rule(&written.join("learned"), "read")
        );
        let home = directory.path().join("casemate");
        checked(&text, &home).unwrap();
        fs::remove_dir(written.join("learned")).unwrap();
        std::os::unix::fs::symlink("/etc", written.join("learned")).unwrap();
        let error = checked(&text, &home).unwrap_err();
        assert!(error.message.contains("a session may write there"), "{error}");
        // What no start follows, no answer follows either; and only the start's own words are told.
        let file = directory.path().join("policy.toml");
        fs::write(&file, &text).unwrap();
        let explain = |question: &str, as_written| Explain {
            policy: file.display().to_string(),
            question: question.split(' ').map(str::to_owned).collect(),
            json: true,
            place: Vec::new(),
            ports: None,
            connect: Vec::new(),
            tier: None,
            abi: None,
            as_written,
        };
        let refused = super::explain(&explain("/etc/shadow", false), &home).unwrap_err();
        assert_eq!(refused.code(), exit::DATA);
        assert!(refused.to_string().ends_with(&error.to_string()), "{refused}");
        for asked in [explain("/etc/shadow", true), explain("connect 443", false)] {
            assert_eq!(super::explain(&asked, &home).unwrap(), exit::OK);
        }
        // The same of a place that is told.
        let rule = "[[path]]\npath = \"{home}/learned\"\naccess = [\"read\"]\nreason = \"r\"\n";
        fs::write(&file, format!("{}\n{rule}", policy::DEVELOPER)).unwrap();
        let mut asked = explain("/etc/shadow", false);
        super::explain(&asked, &home).unwrap();
        asked.place = vec![(Placeholder::Home, written.display().to_string())];
        let refused = super::explain(&asked, &home).unwrap_err().to_string();
        assert!(refused.contains("leads through") && refused.contains("learned"), "{refused}");
    }

    #[test]
    fn a_policy_that_names_mounted_secrets_is_no_good() {
        let rule = |path: &str| {
            format!(
                "{}\n[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n",
                policy::DEVELOPER
            )
        };
        let home = Path::new("/nonexistent");
        let error = checked(&rule("/run/secrets/kubernetes.io"), home).unwrap_err();
        assert!(error.position.is_some(), "{error}");
        assert!(error.message.contains("which lie in /run/secrets"), "{error}");
        // Whether there is anything yet, or not.
        for above in ["/run", "/", "/vault"] {
            let error = checked(&rule(above), home).unwrap_err();
            assert_eq!(error.position, Some((policy::DEVELOPER.lines().count() + 3, 8)), "{error}");
            assert!(error.message.contains("where secrets are mounted"), "{error}");
        }
        checked(&rule("/run/lock"), home).unwrap();
    }

    #[test]
    fn a_policy_that_would_grant_casemates_home_or_names_no_call_is_no_good() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        for (_, text) in policy::BUILT_IN {
            checked(text, home).unwrap();
        }
        let open = format!(
            "{}\n[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"r\"\n",
            policy::DEVELOPER,
            home.join("run").display()
        );
        let error = checked(&open, home).unwrap_err();
        assert!(error.message.contains("would grant the keys"), "{error}");
        assert_eq!(error.position, Some((policy::DEVELOPER.lines().count() + 3, 8)), "{error}");
        let unknown = policy::DEVELOPER.replace("\"setns\"", "\"setnss\"");
        let error = checked(&unknown, home).unwrap_err();
        assert!(error.message.contains("there is no system call \"setnss\""), "{error}");
        let (line, column) = error.position.unwrap();
        let there = unknown.lines().nth(line - 1).unwrap().get(column - 1..).unwrap();
        assert!(there.starts_with("\"setnss\""), "{there}");
        assert!(!error.message.contains("policy line"), "{error}");
        let hosts = policy::DEVELOPER.replace("mode = \"open\"", "mode = \"allow-list\"");
        let error = checked(&hosts, home).unwrap_err();
        assert!(error.message.contains("allow-list is not enforced by this build"), "{error}");
        assert!(error.position.is_some(), "{error}");
        let twice = format!("{}\n[egress]\nmode = \"open\"\nreason = \"r\"\n", policy::DEVELOPER);
        let error = checked(&twice, home).unwrap_err();
        assert_eq!(error.position, Some((policy::DEVELOPER.lines().count() + 2, 2)), "{error}");
        assert!(
            error.message.contains("`egress` is there twice") && error.message.contains("merge"),
            "{error}"
        );
        for way in ["connect", "bind"] {
            let ours =
                format!("{}\n[[tcp]]\n{way} = [80, 31999]\nreason = \"r\"\n", policy::DEVELOPER);
            let error = checked(&ours, home).unwrap_err();
            assert!(error.position.is_some() && error.message.contains("port 31999"), "{error}");
        }
    }

    #[test]
    fn a_policy_that_is_no_text_is_no_missing_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"version = 1\nname = \"\xe9\"\n").unwrap();
        let error = text_of(file.path().to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("UTF-8 text") && !error.contains("no file"), "{error}");
        let missing = text_of("/nowhere/policy.toml").unwrap_err().to_string();
        assert!(missing.contains("no file, and the built-in policies are strict"), "{missing}");
    }

    #[test]
    fn options_are_read_as_written() {
        assert_eq!(range("20000-20003"), Ok(PortRange { first: 20_000, count: 4 }));
        assert_eq!(range("80"), Ok(PortRange { first: 80, count: 1 }));
        for wrong in ["", "0-5", "9-5", "1-65536", "a-b"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert_eq!(placeholder("{work}=/w"), Ok((Placeholder::Work, "/w".to_owned())));
        assert!(placeholder("work").is_err() && placeholder("x=/w").is_err());
        assert!(placeholder("work=w").is_err());
        assert_eq!((connected("443"), connected("32000")), (Ok(443), Ok(32_000)));
        assert!(connected("0").is_err() && connected("20000").unwrap_err().contains("gives out"));
    }
}
