//! Runs the attackers in a session of their own behind the wall, and a decoy in another.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use casemate_inside::catalogue::{Answer, Decoys, outsider};
use casemate_protocol::matrix::Matrix;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::{Command, Spawner, Wall};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::child::Part;
use super::judge::{self, Said};
use super::range::Range;
use crate::hosted::ready;
use crate::process::reaper::{Reaper, Session};
use crate::words::chain;

/// Some ten times what it takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Part of the decoy's command line, and of the launcher's.
const MARK: &str = "casemate-supervisor";

/// Where it is measured.
#[derive(Debug)]
pub struct Place<'a> {
    /// Gives the attackers and the decoy a session each.
    pub spawner: &'a Spawner,
    /// Waits for both.
    pub reaper: &'a Rc<Reaper>,
    /// The wall that the agent will get.
    pub wall: &'a Wall,
    /// The environment that the policy gives, `NAME` and value.
    pub env: &'a [(String, String)],
    /// A directory of the session's own.
    pub cwd: &'a Path,
    /// Whose promises count.
    pub tier: Tier,
}

/// Tries everything, and puts it in order. The range is gone afterwards.
///
/// # Errors
/// [`StartError::Shield`] where nothing could be tried; a broken promise is in the matrix.
pub async fn measure(
    place: Place<'_>,
    said: &Said<'_>,
    range: Range,
) -> Result<Matrix, StartError> {
    let began = Instant::now();
    let answers = try_all(place, range).await?;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(judge::matrix(&answers, said, took))
}

/// Tries everything: the answers one by one.
///
/// # Errors
/// As [`measure`]'s.
pub async fn try_all(place: Place<'_>, range: Range) -> Result<Vec<Answer>, StartError> {
    let session = || place.spawner.session().map_err(|error| ready::no_session(&error));
    let attackers = Session::new(session()?, Rc::clone(place.reaper));
    let others = Session::new(session()?, Rc::clone(place.reaper));
    let answers = shoot(&place, &range, &attackers, &others).await;
    let (gone, others_gone) = (attackers.close().await, others.close().await);
    let answers = answers?;
    if !gone || !others_gone {
        return Err(unproven("processes of the probe hang in the kernel"));
    }
    Ok(answers)
}

async fn shoot(
    place: &Place<'_>,
    range: &Range,
    attackers: &Session,
    others: &Session,
) -> Result<Vec<Answer>, StartError> {
    let null = || File::options().read(true).write(true).open("/dev/null");
    let trouble = |error: io::Error| unproven(&error.to_string());
    // In a namespace of its own the other session's process is one outside.
    let victim = if place.tier > Tier::Domain {
        outsider(range.outside)
    } else {
        let [input, output] = [null().map_err(trouble)?, null().map_err(trouble)?];
        start(place, range, others, &["decoy"], input.into(), output.into())?
    };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let decoys =
        Decoys { process: victim, mark: MARK.to_owned(), supervisor: own, ..range.decoys.clone() };
    let decoys = serde_json::to_string(&decoys).map_err(|error| unproven(&error.to_string()))?;
    let (git, rest) = tokio::join!(
        answers(place, range, attackers, Part::Git, &decoys),
        answers(place, range, attackers, Part::Rest, &decoys)
    );
    let mut all = git?;
    all.extend(rest?);
    Ok(all)
}

/// One attacker's.
async fn answers(
    place: &Place<'_>,
    range: &Range,
    attackers: &Session,
    part: Part,
    decoys: &str,
) -> Result<Vec<Answer>, StartError> {
    let trouble = |error: io::Error| unproven(&error.to_string());
    // Not by its arguments, which every other agent of its user can read: what lies in a pipe has no name.
    let (described, mut describe) = io::pipe().map_err(trouble)?;
    describe.write_all(decoys.as_bytes()).map_err(trouble)?;
    drop(describe);
    let (reader, writer) = io::pipe().map_err(trouble)?;
    let arguments = &["attack", part.word()];
    let pid = start(place, range, attackers, arguments, described.into(), writer.into())?;
    let end = attackers.end_of(pid);
    let mut said = Vec::new();
    let mut reader = pipe::Receiver::from_owned_fd(reader.into()).map_err(trouble)?;
    let all = async {
        reader.read_to_end(&mut said).await?;
        end.await.map_err(|_| io::Error::other("its end was not seen"))
    };
    match tokio::time::timeout(LIMIT, all).await {
        Ok(Ok(exit)) => serde_json::from_slice(&said)
            .map_err(|_| unproven(&format!("an attacker ended with {exit} and no answers"))),
        Ok(Err(error)) => Err(trouble(error)),
        Err(_) => Err(unproven("no answer in time")),
    }
}

/// The program is its own descriptor 2, to which nobody can write.
fn start(
    place: &Place<'_>,
    range: &Range,
    session: &Session,
    arguments: &[&str],
    stdin: OwnedFd,
    stdout: OwnedFd,
) -> Result<i32, StartError> {
    let text = |text: &str| CString::new(text).map_err(|error| unproven(&error.to_string()));
    let argv = [MARK, "probe"].iter().chain(arguments).map(|word| text(word));
    let env = place.env.iter().map(|(name, value)| text(&format!("{name}={value}")));
    let program = range.program.try_clone().map_err(|error| unproven(&error.to_string()))?;
    let command = Command {
        program: "/proc/self/fd/2".into(),
        argv: argv.collect::<Result<_, _>>()?,
        env: env.collect::<Result<_, _>>()?,
        cwd: place.cwd.to_owned(),
        stdin,
        stdout,
        stderr: program.into(),
        terminal: false,
    };
    session.spawner.spawn(command, place.wall).map_err(|error| unproven(&chain(&error)))
}

fn unproven(why: &str) -> StartError {
    StartError::Shield {
        message: format!("the walls could not be tried from inside: {why}: start the worker again"),
    }
}
