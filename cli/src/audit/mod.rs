//! `casemate audit`: whether the audit logs hold, and what is in them. Reads files; needs no allocator.

mod logs;
mod table;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use casemate_protocol::audit::{Head, Report};
use casemate_protocol::codes::exit;
use clap::Subcommand;
use serde_json::json;

use crate::failure::Failure;
use crate::place::Place;
use crate::{output, span};
use logs::Logged;

/// Options of `casemate audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whether logs hold: which line was changed, replaced or moved, what is missing, whether the end was cut off
    ///
    /// Exit code 65 where one does not. The ends of workers' logs are known from the allocator's log, the end of the
    /// allocator's own from `audit.head`; keep a `head` of it on another machine, since all of these are files of yours.
    Verify {
        /// A session, a slot that sessions share, a file, or `allocator` (default: the allocator's log and those of all workers)
        log: Option<String>,
        /// A head that was kept elsewhere; may be repeated
        #[arg(long, value_name = "SEQ:HASH", requires = "log")]
        head: Vec<Head>,
        /// Say it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a log for people
    Show {
        /// A session, a file, or `allocator`
        #[arg(default_value = "allocator")]
        log: String,
        /// Only what is younger: 30m, 2h, 7d
        #[arg(long, value_name = "TIME", value_parser = span::parse)]
        since: Option<Duration>,
        /// Print the lines as they are
        #[arg(long)]
        json: bool,
    },
    /// Print the number and hash of a log's last line, to be kept elsewhere and given to `verify --head`
    Head {
        /// A session, a file, or `allocator`
        #[arg(default_value = "allocator")]
        log: String,
    },
}

/// Looks at logs.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    match args.command {
        Command::Verify { log, head, json } => {
            let logs = match log {
                Some(log) => vec![Logged::named(&log, place)?],
                None => Logged::all(place)?,
            };
            verify(logs, &head, json)
        }
        Command::Show { log, since, json } => show(Logged::named(&log, place)?, since, json),
        Command::Head { log } => {
            let report = Logged::named(&log, place)?.verify(&[])?;
            output::write(format!("{}\n", report.head))?;
            Ok(if report.holds() { exit::OK } else { exit::DATA })
        }
    }
}

fn verify(logs: Vec<Logged>, heads: &[Head], as_json: bool) -> Result<u8, Failure> {
    let mut all_hold = true;
    for log in logs {
        let name = log.name.clone();
        let report = log.verify(heads)?;
        all_hold &= report.holds();
        output::write(if as_json { as_object(&name, &report) } else { in_words(&name, &report) })?;
    }
    Ok(if all_hold { exit::OK } else { exit::DATA })
}

fn as_object(name: &str, report: &Report) -> String {
    format!("{}\n", json!({ "log": name, "holds": report.holds(), "report": report }))
}

fn in_words(name: &str, report: &Report) -> String {
    let verdict = if report.holds() { "holds" } else { "DOES NOT HOLD" };
    let mut words = format!(
        "{name}: {verdict}, {} lines, the last is number {}, compared with heads kept: {}\n",
        report.lines, report.head.seq, report.anchors
    );
    for fault in &report.faults {
        words += &format!("  {fault}\n");
    }
    if report.torn_bytes > 0 {
        words += &format!(
            "  {} bytes of a last line that was never finished: a kill, or a full disk\n",
            report.torn_bytes
        );
    }
    words
}

fn show(log: Logged, since: Option<Duration>, as_is: bool) -> Result<u8, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let from = since.map_or(0, |since| now.saturating_sub(since).as_millis());
    let mut text = Vec::new();
    for line in log.lines()? {
        let row = table::Row::of(&line);
        if u128::from(row.time) < from {
            continue;
        }
        if as_is {
            text.extend_from_slice(&line);
        } else {
            text.extend_from_slice(row.to_string().as_bytes());
        }
        text.push(b'\n');
    }
    output::write(text)?;
    Ok(exit::OK)
}
