//! `casemate run`: one throw-away session.
//!
//! A private allocator in a directory of its own, one session, the prompts, a summary; then everything is removed, also
//! after Ctrl-C. What the agent says goes to stdout, everything else to stderr.

mod conversation;
pub(crate) mod patch;
mod permission;
mod screen;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use casemate_allocator::{Config, Running, Shutdown};
use casemate_protocol::acp::bridge::Want;
use casemate_protocol::api::Intent;
use casemate_protocol::codes::exit;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::attach::{Allocator, AttachError};
use crate::client::Client;
use crate::failure::Failure;
use crate::intent::IntentArgs;
use crate::place::Place;
use crate::run::conversation::Conversation;
use crate::run::patch::Patch;
use crate::run::permission::Permission;
use crate::run::screen::Screen;
use crate::stop::Stop;
use crate::throw_away::ThrowAway;
use crate::{runtime, supervisor, up};

/// Options of `casemate run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    intent: IntentArgs,
    /// Say this to the agent; repeatable; without it, each line of stdin is a prompt
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// Answer the agent's permission requests instead of asking on the terminal
    #[arg(long, value_name = "ANSWER")]
    allow: Option<Permission>,
    /// Save the session's work as a patch
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
}

/// Runs it to its end and removes everything.
pub(crate) fn run(args: Args, verbose: u8) -> Result<u8, Failure> {
    let intent = args.intent.into_intent()?;
    if let Some(file) = &args.patch {
        patch::check_target(file)?;
    }
    runtime::log_to_stderr(verbose);
    let runtime = runtime::start()?;
    let job = Job {
        intent,
        prompts: args.prompt,
        permission: args.allow.unwrap_or(Permission::Ask),
        patch: args.patch,
        screen: Screen::new(verbose > 0),
    };
    let outcome = runtime.block_on(throw_away(job));
    // A read of the terminal may be blocked for ever in its thread: do not wait for it.
    runtime.shutdown_background();
    outcome
}

struct Job {
    intent: Intent,
    prompts: Vec<String>,
    permission: Permission,
    patch: Option<PathBuf>,
    screen: Screen,
}

async fn throw_away(job: Job) -> Result<u8, Failure> {
    // From here on a signal ends the job and not the process, so that what was made is removed.
    let mut stop = Stop::listen()?;
    let directory = ThrowAway::make(&std::env::temp_dir(), "casemate-run-").map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "cannot make a directory for the session", &error)
    })?;
    // Inside, so that the allocator makes it with the mode that it wants.
    let home = directory.path().join("home");
    let place = Place::at(home.clone());
    let config = Config { owned: true, ..Config::new(home, supervisor::program()?) };
    let running = match stop.or(casemate_allocator::start(config)).await {
        Ok(started) => {
            started.map_err(|error| Failure::because(error.exit_code(), "cannot start", &error))?
        }
        Err(signal) => return Ok(128 + signal),
    };
    let outcome = match stop.or(work(job, &running, place)).await {
        Ok(outcome) => outcome,
        Err(signal) => Ok(128 + signal),
    };
    let removed = running.shutdown(Shutdown::StopAllAndDelete).await.map_err(Failure::from);
    let deleted = directory.close().map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "cannot remove the session's directory", &error)
    });
    // The job's own trouble is the one to tell.
    let code = outcome?;
    removed?;
    deleted?;
    Ok(code)
}

async fn work(mut job: Job, running: &Running, place: Place) -> Result<u8, Failure> {
    let client = Client::new(running.endpoint())?;
    let allocator = Allocator::private(place, client);
    job.screen.say(&up::tier_words(running.tier()));
    let (attachment, socket) = allocator
        .attach(&Want::Key(None), None, &job.intent)
        .await
        .map_err(AttachError::into_failure)?;
    let mut conversation = Conversation::open(socket, job.permission, job.screen).await?;
    let mut code = exit::OK;
    let mut given = job.prompts.into_iter();
    let mut typed = given.len() == 0;
    let mut stdin = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let prompt = match given.next() {
            Some(prompt) => prompt,
            None if typed => match typed_prompt(&mut stdin).await? {
                Some(prompt) => prompt,
                None => {
                    typed = false;
                    continue;
                }
            },
            None => break,
        };
        let reason = conversation.prompt(&prompt).await?;
        if reason != "end_turn" {
            conversation.screen().say(&format!("the turn ended early: {reason}"));
            code = exit::FAILED;
        }
    }
    let worker =
        allocator.worker_of(&attachment.session).await.map_err(AttachError::into_failure)?;
    let patch = Patch::of(&worker).await?;
    conversation.screen().say(&patch.summary());
    if let Some(file) = &job.patch {
        patch.save(file)?;
        conversation.screen().say(&format!("saved as {}; `git apply` takes it", file.display()));
    }
    conversation.close().await;
    Ok(code)
}

async fn typed_prompt(stdin: &mut Lines<BufReader<Stdin>>) -> Result<Option<String>, Failure> {
    loop {
        if std::io::stdin().is_terminal() {
            eprint!("> ");
        }
        let line = stdin.next_line().await.map_err(|error| {
            Failure::because(exit::NO_INPUT, "cannot read the next prompt from stdin", &error)
        })?;
        match line {
            Some(line) if line.trim().is_empty() => {}
            line => return Ok(line),
        }
    }
}
