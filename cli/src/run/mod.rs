//! `casemate run`: one throw-away session.
//!
//! A private allocator in a directory of its own, one session, the prompts, a summary; then everything is removed, also
//! after Ctrl-C. Work that was to be saved and could not be is the exception: it stays where it is, and the person hears
//! where. What the agent says goes to stdout, everything else to stderr.

mod conversation;
mod harvest;
mod learn;
pub(crate) mod patch;
mod permission;
mod screen;

use std::cell::OnceCell;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use casemate_allocator::{Config, Running, Shutdown};
use casemate_protocol::acp::bridge::Want;
use casemate_protocol::api::{Attached, Intent};
use casemate_protocol::codes::exit;
use casemate_protocol::ids::SessionId;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::attach::{Allocator, AttachError};
use crate::client::Client;
use crate::failure::Failure;
use crate::intent::IntentArgs;
use crate::place::Place;
use crate::run::conversation::Conversation;
use crate::run::harvest::{Ending, harvest};
use crate::run::learn::Learn;
use crate::run::patch::Target;
use crate::run::permission::Permission;
use crate::run::screen::Screen;
use crate::socket::{self, Door};
use crate::stop::Stop;
use crate::throw_away::ThrowAway;
use crate::{notice, runtime, supervisor, up};

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
    /// Save the session's work as a patch, however the session ends
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// Replace the patch's file where it exists
    #[arg(long, requires = "patch")]
    force: bool,
    /// NO WALL: let the agent do whatever you may, and write to this new file the policy that would have let it, for you to read and accept
    #[arg(long, value_name = "FILE")]
    learn: Option<PathBuf>,
}

/// Runs it to its end and removes everything. Of the `own` place only the profiles are used.
pub(crate) fn run(args: Args, own: &Place, verbose: u8) -> Result<u8, Failure> {
    let intent = args.intent.into_intent()?;
    let target = args.patch.map(|file| Target::check("--patch", file, args.force)).transpose()?;
    let learn = args.learn.map(|file| Learn::check(file, own)).transpose()?;
    notice::say(&intent);
    runtime::log_to_stderr(verbose);
    let runtime = runtime::start()?;
    let job = Job {
        intent,
        prompts: args.prompt,
        permission: args.allow.unwrap_or(Permission::Ask),
        screen: Screen::new(verbose > 0),
    };
    let outcome = runtime.block_on(throw_away(job, target, learn, own));
    // A read of the terminal may be blocked for ever in its thread: do not wait for it.
    runtime.shutdown_background();
    outcome
}

struct Job {
    intent: Intent,
    prompts: Vec<String>,
    permission: Permission,
    screen: Screen,
}

async fn throw_away(
    job: Job,
    target: Option<Target>,
    learn: Option<Learn>,
    own: &Place,
) -> Result<u8, Failure> {
    // From here on a signal ends the job and not the process, so that what was made is removed.
    let mut stop = Stop::listen()?;
    let directory = ThrowAway::make(&std::env::temp_dir(), "casemate-run-").map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "cannot make a directory for the session", &error)
    })?;
    // Inside, so that the allocator makes it with the mode that it wants.
    let home = directory.path().join("home");
    let place = Place::at(home.clone());
    let config = Config {
        owned: true,
        profiles: Some(own.profiles()),
        beside: Some(own.home().to_owned()),
        learn: learn.as_ref().map(Learn::kept),
        ..Config::new(home, supervisor::program()?)
    };
    let running = match stop.or(casemate_allocator::start(config)).await {
        Ok(started) => {
            started.map_err(|error| Failure::because(error.exit_code(), "cannot start", &error))?
        }
        Err(signal) => return Ok(128 + signal),
    };
    let allocator = Allocator::private(place, Client::new(running.endpoint())?);
    let session = OnceCell::new();
    let outcome = match stop.or(work(job, &allocator, &session)).await {
        Ok(outcome) => outcome,
        Err(signal) => Ok(128 + signal),
    };
    // Before the worker ends, which keeps it in memory.
    let learned = match (&learn, session.get()) {
        (Some(learn), Some(session)) => {
            stop.or(learn.save(&allocator, session)).await.unwrap_or_else(|signal| {
                Err(Failure::new(128 + signal, "interrupted: nothing is learned"))
            })
        }
        _ => Ok(()),
    };
    let ending =
        if matches!(outcome, Ok(exit::OK | exit::FAILED)) { Ending::Whole } else { Ending::Cut };
    // Without a target a summary is all that there is to gain, and not worth a wait after Ctrl-C.
    let wanted = session.get().filter(|_| target.is_some() || ending == Ending::Whole);
    let harvested = match wanted {
        Some(session) => {
            let mut screen = Screen::new(false);
            let harvest = harvest(&allocator, session, target.as_ref(), ending, &mut screen);
            stop.or(harvest).await.unwrap_or_else(|signal| {
                Err(Failure::new(128 + signal, "interrupted before the work was saved"))
            })
        }
        None => Ok(()),
    };
    if let (Err(failure), Some(_)) = (&harvested, &target) {
        return keep(running, directory, failure, outcome).await;
    }
    let removed = running.shutdown(Shutdown::StopAllAndDelete).await.map_err(Failure::from);
    let deleted = directory.close().map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "cannot remove the session's directory", &error)
    });
    // The job's own trouble is the one to tell.
    let code = outcome?;
    learned?;
    harvested?;
    removed?;
    deleted?;
    Ok(code)
}

/// The work was to be saved and is not: its session stays.
async fn keep(
    running: Running,
    directory: ThrowAway,
    failure: &Failure,
    outcome: Result<u8, Failure>,
) -> Result<u8, Failure> {
    // It stays whatever becomes of its workers.
    let stopped = running.shutdown(Shutdown::StopAll).await;
    let directory = directory.keep();
    let home = directory.join("home");
    let mut text = format!(
        "{failure}; nothing is lost: the session is kept; `casemate --home {} sessions` shows it and \
         `sessions patch` takes its work; when you are done, run `casemate --home {} up --stop` and remove {}",
        home.display(),
        home.display(),
        directory.display()
    );
    if let Err(error) = stopped {
        text = format!("{text}; its worker may still run: {error}");
    }
    // A signal's number, or the job's own trouble, before ours.
    let code = match outcome {
        Ok(exit::OK) => failure.code(),
        Ok(code) => code,
        Err(first) => {
            text = format!("{first}; {text}");
            first.code()
        }
    };
    Err(Failure::new(code, text))
}

/// The session's id is told as soon as there may be work in it.
async fn work(
    mut job: Job,
    allocator: &Allocator,
    session: &OnceCell<SessionId>,
) -> Result<u8, Failure> {
    let (attachment, socket) = allocator
        .attach(&Want::Key(None), None, &job.intent, async |attached: &Attached| {
            socket::open(attached, Door::Acp).await
        })
        .await
        .map_err(AttachError::into_failure)?;
    session.get_or_init(|| attachment.session);
    // The session's own, as its worker measured it: the machine's may be better (`sharing`).
    job.screen.say(&up::tier_words(attachment.tier));
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
