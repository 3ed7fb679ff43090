//! `casemate doctor`: what this machine's kernel offers, the tier that results, and how to get a better one.
//!
//! Measuring is the supervisor's work (`casemate-supervisor check`): each mechanism is tried there, not guessed from a
//! version. This module asks, adds what is not the kernel's (git, the allocator), and prints.

use std::fmt::Write as _;
use std::process::Command;

use casemate_protocol::codes::exit;
use casemate_protocol::kernel::{Check, KernelReport};
use casemate_protocol::matrix::{Matrix, Verdict};
use casemate_protocol::tier::Tier;
use serde::Serialize;

use crate::failure::Failure;
use crate::place::Place;
use crate::{measured, output, runtime, start, supervisor, up};

/// Options of `casemate doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Succeed where this tier is to be had
    #[arg(long, value_name = "TIER", default_value = "namespace", value_parser = up::tier)]
    tier: Tier,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Everything that is known.
#[derive(Debug, Serialize)]
struct Report {
    /// The kernel's part.
    kernel: KernelReport,
    /// The attacks of the catalogue, tried in a session of that tier under the policy `developer`; `None` where there is no
    /// tier.
    matrix: Option<Matrix>,
    /// What is not the kernel's.
    others: Vec<Check>,
    /// The tier that was asked for.
    wanted: Tier,
    /// Whether it is to be had.
    ok: bool,
}

/// Prints the report; fails where the wanted tier is not to be had.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    let report = runtime::start()?.block_on(examine(args.tier, place))?;
    if args.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::because(exit::SOFTWARE, "cannot print the report", &error))?;
        output::write(json + "\n")?;
    } else {
        output::write(render(&report))?;
    }
    Ok(if report.ok { exit::OK } else { exit::FAILED })
}

async fn examine(wanted: Tier, place: &Place) -> Result<Report, Failure> {
    let program = supervisor::program()?;
    let kernel = casemate_allocator::check(&program).await.map_err(|error| {
        Failure::because(exit::UNAVAILABLE, "cannot measure this machine", &error)
    })?;
    let matrix = match kernel.tier {
        Some(tier) => Some(measured::matrix(&program, tier).await?),
        None => None,
    };
    let git = git(Command::new("git").arg("--version").output());
    let others = vec![git, allocator(place).await, ports()];
    let holds = matrix.as_ref().is_some_and(|matrix| not_held(matrix).next().is_none());
    let ok = kernel.tier.is_some_and(|tier| tier >= wanted) && others[0].ok && holds;
    Ok(Report { kernel, matrix, others, wanted, ok })
}

fn git(answer: std::io::Result<std::process::Output>) -> Check {
    let version = answer.ok().filter(|output| output.status.success());
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Check {
        name: "git".into(),
        ok: version.is_some(),
        found: version.unwrap_or_else(|| "not found".into()),
        fix: Some("install git: sessions work in clones".into()),
    }
}

/// Not needed: the other commands start one by themselves.
async fn allocator(place: &Place) -> Check {
    let found = match start::pid(place).await {
        Ok(Some(pid)) => format!("serves {} (pid {pid})", place.home().display()),
        Ok(None) => "not running; started when needed".to_owned(),
        Err(failure) => failure.to_string(),
    };
    Check { name: "allocator".into(), ok: true, found, fix: None }
}

/// Whether the kernel keeps casemate's ports for casemate.
fn ports() -> Check {
    let exposed = casemate_allocator::exposed_ports();
    Check {
        name: "ports".into(),
        ok: exposed.is_none(),
        found: exposed.as_ref().map_or_else(
            || "20000-31999 are given to nobody by chance".into(),
            ToString::to_string,
        ),
        fix: exposed.map(|exposed| exposed.fix()),
    }
}

fn render(report: &Report) -> String {
    let mut text = format!("kernel {}\n", report.kernel.release);
    let all = report.kernel.checks.iter().chain(&report.others);
    let width = all.clone().map(|check| check.name.len()).max().unwrap_or(0);
    for check in all.clone() {
        let mark = if check.ok { "ok     " } else { "missing" };
        let _ = writeln!(text, "  {mark}  {:<width$}  {}", check.name, check.found);
    }
    let tier = report.kernel.tier.map_or("none".to_owned(), |tier| tier.to_string());
    let _ = writeln!(text, "\ntier: {tier} ({})", meaning(report.kernel.tier));
    if let Some(matrix) = &report.matrix {
        let _ = write!(text, "\n{}\n{}", matrix.summary(), matrix.table());
    }
    let fixes: Vec<String> = all
        .filter(|check| !check.ok)
        .filter_map(|check| Some(format!("  {}: {}\n", check.name, check.fix.as_ref()?)))
        .collect();
    if !fixes.is_empty() {
        let _ = write!(text, "\nto get more:\n{}", fixes.concat());
    }
    let broken: Vec<&str> = report.matrix.iter().flat_map(not_held).collect();
    if !broken.is_empty() {
        let _ = writeln!(text, "\nthe tier does not hold here: {}; report this", broken.join(", "));
    } else if !report.ok {
        let _ = writeln!(text, "\ntier {} was asked for and is not to be had", report.wanted);
    }
    text
}

/// The attacks for which no worker starts.
fn not_held(matrix: &Matrix) -> impl Iterator<Item = &str> {
    matrix.named(Verdict::Broken).chain(matrix.named(Verdict::Unproven))
}

fn meaning(tier: Option<Tier>) -> &'static str {
    match tier {
        None => "no session can be isolated here",
        Some(Tier::Domain) => {
            "other sessions' files cannot be opened; metadata of known paths leaks (SECURITY.md); no unix sockets before \
             Linux 7.1"
        }
        Some(Tier::Namespace) => {
            "other sessions' files and processes do not exist; domain where a profile has sessions share a worker"
        }
        Some(Tier::Pod) => "a Pod for each session",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, answer: &str) -> casemate_protocol::matrix::Row {
        casemate_protocol::matrix::Row {
            target: "files".into(),
            verdict,
            answer: answer.into(),
            count: 1,
            attacks: vec!["file-chmod".into()],
        }
    }

    fn report(tier: Option<Tier>, ok: bool) -> Report {
        let check = |name: &str, ok| Check {
            name: name.into(),
            ok,
            found: "found this".into(),
            fix: Some(format!("mend {name}")),
        };
        Report {
            kernel: KernelReport {
                release: "6.18".into(),
                landlock_abi: 7,
                checks: vec![check("landlock", true), check("user namespaces", ok)],
                tier,
            },
            matrix: tier.map(|tier| Matrix {
                tier,
                took_ms: 80,
                rows: vec![row(Verdict::Holds, "EACCES"), row(Verdict::Leaks, "succeeded")],
            }),
            others: vec![check("git", true)],
            wanted: Tier::Namespace,
            ok,
        }
    }

    #[test]
    fn only_what_is_missing_is_to_be_mended() {
        let text = render(&report(Some(Tier::Domain), false));
        assert!(text.contains("missing  user namespaces"), "{text}");
        assert!(text.contains("user namespaces: mend user namespaces"), "{text}");
        assert!(!text.contains("mend landlock"), "{text}");
        assert!(text.contains("tier namespace was asked for"), "{text}");
    }

    #[test]
    fn a_good_machine_is_told_nothing_to_do() {
        let text = render(&report(Some(Tier::Namespace), true));
        assert!(
            text.contains("tier: namespace (other sessions' files and processes do not exist;")
        );
        assert!(!text.contains("to get more"), "{text}");
    }

    #[test]
    fn a_wall_that_does_not_hold_is_named() {
        let mut broken = report(Some(Tier::Namespace), false);
        let text = render(&broken);
        assert!(text.contains("2 attacks in tier namespace: 1 hold, 1 leak"), "{text}");
        broken.matrix.as_mut().unwrap().rows.push(row(Verdict::Broken, "succeeded"));
        assert!(render(&broken).contains("does not hold here: file-chmod"));
    }

    #[test]
    fn a_git_that_cannot_be_run_is_missing() {
        assert!(!git(Err(std::io::ErrorKind::NotFound.into())).ok);
        assert!(git(Command::new("git").arg("--version").output()).ok);
        assert!(!git(Command::new("git").arg("--no-such-option").output()).ok);
    }
}
