//! `casemate policy learn`: from the kernel's records of what was refused to a policy for a person to accept.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_protocol::policy::decide::Setting;
use casemate_protocol::policy::learn::{Denials, Proposal, misleads, propose, write};
use casemate_protocol::policy::{Place as Placeholder, Policy};
use casemate_protocol::tier::Tier;
use serde_json::json;

use super::{checked, follow_links, load, placeholder, text_of, tier};
use crate::failure::Failure;
use crate::output;

/// What a session sees in tier `namespace` (ARCHITECTURE.md).
const INSIDE: [(Placeholder, &str); 4] = [
    (Placeholder::Work, "/work"),
    (Placeholder::Home, "/home/agent"),
    (Placeholder::Scratch, "/tmp"),
    (Placeholder::Skills, "/skills"),
];

/// Options of `casemate policy learn`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The policy that was in force: a file, or the name of a built-in policy. It needs `[log]`; `audit` has it
    policy: String,
    /// The kernel's records (default: stdin)
    records: Option<PathBuf>,
    /// Only those of this Landlock domain; seccomp's records name none and are left out then
    #[arg(long, value_name = "ID")]
    domain: Option<String>,
    /// The worker's tier
    #[arg(long, value_parser = tier, default_value = "namespace")]
    tier: Tier,
    /// What a placeholder stood for, in tier domain: work=/home/me/repo; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = placeholder)]
    place: Vec<(Placeholder, String)>,
    /// Say it as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the proposed policy; what is no policy's to grant goes to stderr.
pub(super) fn run(args: &Args, home: &Path) -> Result<u8, Failure> {
    let policy = load(&args.policy)?;
    let denials = read(args)?;
    if denials.is_empty() {
        return Err(Failure::new(
            exit::NO_INPUT,
            "no record of a refusal: give what `ausearch -m LANDLOCK_ACCESS -m SECCOMP --raw` or dmesg shows",
        ));
    }
    let mut setting = Setting::symbolic(&policy);
    setting.tier = args.tier;
    let inside = INSIDE.map(|(place, path)| (place, path.to_owned()));
    let places = if args.tier == Tier::Domain { &[][..] } else { &inside };
    for (place, directory) in places.iter().chain(&args.place) {
        setting.places.entry(*place).or_default().push(directory.clone());
    }
    let mut proposal =
        propose(&policy, &setting, &denials, &follow_links, &|path| closed(path, home));
    proposal.kept_out.extend(calls(&policy, &denials));
    let text = write(&text_of(&args.policy)?, &proposal)
        .map_err(|error| Failure::because(exit::DATA, "the proposal", &error))?;
    // What a proposal may not do, whatever the records say.
    checked(&text, home).map_err(|error| Failure::because(exit::DATA, "the proposal", &error))?;
    if args.json {
        let rules: Vec<&str> = proposal.rules.iter().map(|rule| rule.text.as_str()).collect();
        output::write(format!(
            "{}\n",
            json!({
                "policy": text, "rules": rules, "kept_out": proposal.kept_out,
                "allowed": proposal.allowed,
            })
        ))?;
    } else {
        eprint!("{}", in_words(&proposal));
        output::write(text)?;
    }
    Ok(exit::OK)
}

fn read(args: &Args) -> Result<Denials, Failure> {
    let unreadable = |error: &io::Error| Failure::because(exit::NO_INPUT, "the records", error);
    let input: Box<dyn io::Read> = match &args.records {
        Some(path) => Box::new(fs::File::open(path).map_err(|error| unreadable(&error))?),
        None => Box::new(io::stdin()),
    };
    let wanted = args.domain.as_ref().map(|domain| format!(" domain={domain} "));
    let mut denials = Denials::default();
    for line in BufReader::new(input).split(b'\n') {
        let line = line.map_err(|error| unreadable(&error))?;
        let line = String::from_utf8_lossy(&line);
        if wanted.as_ref().is_none_or(|wanted| line.contains(wanted)) {
            denials.take(&line);
        }
    }
    Ok(denials)
}

fn closed(path: &str, home: &Path) -> Option<String> {
    let asked = Path::new(path);
    if asked.starts_with(home) || home.starts_with(asked) || asked.starts_with("/casemate") {
        return Some("keys, state and other sessions: no policy can grant it".to_owned());
    }
    let of_a_process = path.strip_prefix("/proc/").and_then(|rest| rest.bytes().next());
    let is_of_a_process = of_a_process.is_some_and(|first| first.is_ascii_digit());
    is_of_a_process.then(|| "a process of that run: the next one has another number".to_owned())
}

/// A refused system call is in a list of what is refused: nothing can be added.
fn calls(policy: &Policy, denials: &Denials) -> Vec<(String, String)> {
    let named = |number: i64| {
        let names = policy
            .syscalls
            .iter()
            .flat_map(|rule| rule.names.iter().map(move |name| (rule.line, name)));
        names.into_iter().find(|(_, name)| casemate_sandbox::syscall_number(name) == Some(number))
    };
    let tell = |number: &i64| match named(*number) {
        Some((line, name)) => (
            format!("syscall {name}"),
            format!(
                "the rule in line {line} refuses it: take the name out there, if it is worth it"
            ),
        ),
        None => (format!("syscall {number}"), "no rule names it by itself".to_owned()),
    };
    denials.calls.keys().map(tell).collect()
}

fn in_words(proposal: &Proposal) -> String {
    let mut words = format!(
        "{} rules are added at the end: read them, compare with `casemate policy diff`, and name the file in a profile\n",
        proposal.rules.len()
    );
    for (what, why) in &proposal.kept_out {
        words += &format!("not proposed: {what}: {why}\n");
    }
    for what in &proposal.allowed {
        words += &format!("allowed already: {what}: see the permissions of the file itself\n");
    }
    words.chars().map(|one| if misleads(one) && one != '\n' { '?' } else { one }).collect()
}
