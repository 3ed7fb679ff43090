//! Makes the session's HOME and private clone, once; on resume keeps what is there.
//!
//! Every git runs behind the session's wall. The marker in `state/` is written last: as long as it is missing no agent
//! has ever run here, and whatever lies about is half made and is made anew.

mod explain;
mod git;
mod home;
mod marker;
mod remote;
mod seed;

use std::cell::OnceCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_protocol::policy::Policy;
use casemate_protocol::worker::{Repository, StartError, WorkerConfig};
use casemate_sandbox::beneath::BeneathError;
use casemate_sandbox::{Places, Wall};

pub use git::Resolved;
pub use marker::Marker;
pub use remote::Remote;
pub use seed::Seed;

use crate::durable::Flush;
use crate::layout::Layout;
use crate::process::confined::{self, Job, Output};
use crate::process::reaper::Session;
use crate::report::Report;
use crate::walls;
use crate::words::chain;

use git::Git;

/// A clone may take long; a stalled transfer is ended by git itself (http.lowSpeedTime).
const CLONE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Every other git command of provisioning.
const STEP_LIMIT: Duration = Duration::from_secs(120);
/// How long a remote has to take a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// The remote that a session is to be cloned from, if that is its source.
///
/// # Errors
/// [`StartError::Repository`] where the URL is wrong.
pub fn remote(config: &WorkerConfig) -> Result<Option<Remote>, StartError> {
    match &config.repository {
        Some(Repository::Remote(url)) => Remote::parse(url)
            .map(Some)
            .map_err(|error| StartError::Repository { message: error.to_string() }),
        _ => Ok(None),
    }
}

/// Finds the addresses of a remote's name and tries them. Blocks; to be called outside of namespaces, where the
/// machine's resolver works, and where nobody else is held up.
///
/// # Errors
/// [`StartError::Repository`] where the name is unknown or nothing answers.
pub fn resolve(remote: Remote) -> Result<Resolved, StartError> {
    let answers = reach(&remote.url, &remote.host, remote.port)?;
    Ok(Resolved::at(remote, answers))
}

/// The first address of a host that takes a connection. `shown` is the URL for messages.
///
/// # Errors
/// [`StartError::Repository`] where the name is unknown or nothing answers.
pub fn reach(shown: &str, host: &str, port: u16) -> Result<IpAddr, StartError> {
    use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};

    let wrong = |message| StartError::Repository { message };
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| {
            wrong(format!(
                "{shown}: the name {host} is not to be resolved ({error}): check the URL and DNS",
            ))
        })?
        .collect();
    let mut last = None;
    let answers = found.iter().find(|address| {
        TcpStream::connect_timeout(address, CONNECT_LIMIT)
            .map_err(|error| last = Some(error))
            .is_ok()
    });
    answers.map(SocketAddr::ip).ok_or_else(|| {
        let why = last.map_or_else(|| "no address".to_owned(), |error| error.to_string());
        wrong(format!(
            "{shown}: port {port} is not to be reached ({why}): check the URL and the network",
        ))
    })
}

/// Whether provisioning has come to its end in an earlier start.
///
/// # Errors
/// As [`Marker::read`].
pub fn is_done(state: &Path, config: &WorkerConfig) -> Result<bool, StartError> {
    Marker::read(state, config).map(|marker| marker.is_some())
}

/// Everything that provisioning works with.
#[derive(Debug)]
pub struct Provisioner<'a> {
    /// The configuration.
    pub config: &'a WorkerConfig,
    /// Where everything is.
    pub layout: &'a Layout,
    /// The session that git runs in.
    pub session: &'a Session,
    /// What git may do is built from this, and from
    pub policy: &'a Policy,
    /// these places of the agent's.
    pub places: &'a Places,
    /// How many processes and threads the kernel is to allow it, where that is counted for the session alone.
    pub tasks: Option<u32>,
    /// The wall around git, once it is needed.
    pub wall: OnceCell<Wall>,
    /// Where the worker keeps an empty repository.
    pub seed: Option<&'a Seed>,
    /// What has to be on the disk before the marker.
    pub placed: Option<Flush>,
    /// PATH inside.
    pub path: &'a str,
    /// git inside, if there is one.
    pub git: Option<&'a Path>,
    /// The remote, if that is the source.
    pub resolved: Option<&'a Resolved>,
    /// The session will be able to fetch from the remote later, so contents may be left for then.
    pub blobless: bool,
    /// Who hears how it goes.
    pub report: &'a dyn Report,
}

/// What was made, now or earlier.
#[derive(Debug)]
#[must_use = "what is not kept is made anew"]
pub struct Made {
    /// The commit that the session's branch began at.
    pub base: Option<String>,
    unkept: Option<(Marker, PathBuf, Option<Flush>)>,
}

// === impl Made ===

impl Made {
    /// Returns when it is kept; no agent may run before.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub async fn keep(self) -> Result<(), StartError> {
        let Some((marker, state, placed)) = self.unkept else { return Ok(()) };
        if let Some(placed) = placed {
            placed.done().await.map_err(|error| StartError::Volume {
                message: format!("cannot write the session's place: {error}"),
            })?;
        }
        marker.write(&state).await
    }
}

// === impl Provisioner ===

impl Provisioner<'_> {
    /// Makes what is not there yet.
    ///
    /// # Errors
    /// [`StartError`] naming the step and the fix; the next start does it again from the beginning.
    pub async fn provision(mut self) -> Result<Made, StartError> {
        let inside = &self.layout.inside;
        if let Some(marker) = Marker::read(&inside.state, self.config)? {
            return Ok(Made { base: marker.base, unkept: None });
        }
        let placed = self.placed.take();
        self.report.progress("making the session's HOME".to_owned());
        let (trees, template) = (inside.clone(), self.layout.template.clone());
        // A template may be large, and other sessions may be served beside this start.
        aside(move || {
            [&trees.home, &trees.work].into_iter().try_for_each(|tree| home::empty(tree))?;
            home::fill(&trees.home, template.as_ref().map(|(_, inside)| inside.as_path()))
        })
        .await?;
        let base = self.make_worktree().await?;
        let marker = Marker {
            session: self.config.session.clone(),
            incarnation: self.config.incarnation,
            tier: self.config.tier,
            base: Some(base),
        };
        let base = marker.base.clone();
        Ok(Made { base, unkept: Some((marker, inside.state.clone(), placed)) })
    }

    async fn make_worktree(&self) -> Result<String, StartError> {
        let git = Git {
            program: self.git.map(Path::to_owned).ok_or_else(|| self.no_git())?,
            path: self.path.to_owned(),
            work: self.layout.inside.work.clone(),
            home: self.layout.inside.scratch.clone(),
        };
        let branch = format!("casemate/{}", self.config.session);
        let head = match (&self.layout.source, self.resolved) {
            (Some((outside, inside)), _) => {
                report_cloning(self.report, outside.display());
                let origin = self.clone_local(&git, inside).await?;
                let set = self.step(git.set_origin(origin.as_deref()), STEP_LIMIT);
                let (set, head) = tokio::join!(set, self.onto_branch(&git, &branch));
                set?;
                head?
            }
            (None, Some(from)) => {
                self.clone_remote(&git, from).await?;
                self.onto_branch(&git, &branch).await?
            }
            (None, None) => return self.make_empty(&git, &branch).await,
        };
        if head.exit.is_success() {
            return Ok(commit(&head));
        }
        self.step(git.name_unborn(&branch), STEP_LIMIT).await?;
        self.first_commit(&git).await
    }

    /// What does not depend on each other runs at the same time: each git is a process, and a session waits for all of them.
    /// The address that `origin` is to have.
    async fn clone_local(&self, git: &Git, source: &Path) -> Result<Option<String>, StartError> {
        let (cloned, origin) = tokio::join!(
            self.step(git.clone_local(source), CLONE_LIMIT),
            self.run(git.read_origin(source), STEP_LIMIT)
        );
        cloned?;
        let origin = String::from_utf8_lossy(&origin?.stdout).into_owned();
        Ok(remote::origin_to_keep(&origin))
    }

    /// Moves a clone onto the session's branch, which leaves its commit as it is; what git says of that. A clone without a commit
    /// has no branch to move from, and fails at both.
    async fn onto_branch(&self, git: &Git, branch: &str) -> Result<Output, StartError> {
        let (moved, head) = tokio::join!(
            self.step(git.checkout_new(branch), STEP_LIMIT),
            self.run(git.head(), STEP_LIMIT)
        );
        let head = head?;
        if head.exit.is_success() {
            moved?;
        }
        Ok(head)
    }

    async fn make_empty(&self, git: &Git, branch: &str) -> Result<String, StartError> {
        self.report.progress("making an empty repository".to_owned());
        let volume = |error: BeneathError| StartError::Volume { message: chain(&error) };
        let planted = self.seed.map(|seed| seed.plant(&git.work, branch)).transpose();
        if let Some(base) = planted.map_err(volume)?.flatten() {
            return Ok(base);
        }
        self.step(git.init(branch), STEP_LIMIT).await?;
        let base = self.first_commit(git).await?;
        if let Some(Err(error)) = self.seed.map(|seed| seed.keep(&git.work, &base)) {
            tracing::warn!(%error, "no empty repository is kept: git makes each anew");
        }
        Ok(base)
    }

    async fn first_commit(&self, git: &Git) -> Result<String, StartError> {
        self.step(git.first_commit(), STEP_LIMIT).await?;
        Ok(commit(&self.step(git.head(), STEP_LIMIT).await?))
    }

    async fn clone_remote(&self, git: &Git, from: &Resolved) -> Result<(), StartError> {
        report_cloning(self.report, &from.remote.url);
        if self.blobless {
            match self.step(git.clone_remote(from, true), CLONE_LIMIT).await {
                Ok(_) => return Ok(()),
                Err(error @ StartError::Volume { .. }) => return Err(error),
                // Some servers refuse a partial clone outright instead of ignoring the wish.
                Err(error) => tracing::warn!(%error, "no blobless clone; cloning whole"),
            }
            let work = git.work.clone();
            aside(move || home::empty(&work)).await?;
        }
        self.step(git.clone_remote(from, false), CLONE_LIMIT).await?;
        Ok(())
    }

    fn no_git(&self) -> StartError {
        StartError::Repository {
            message: format!("git is not installed inside (looked in {}): install it", self.path),
        }
    }

    /// The wall around git: a session that needs no git needs none.
    fn wall(&self) -> Result<&Wall, StartError> {
        if self.wall.get().is_none() {
            let port = self.resolved.map(|from| from.remote.port);
            let places = self.layout.cloning_places(self.places.clone(), port);
            // Whoever was faster has built the same.
            let _ = self.wall.set(walls::build(self.policy, &places, self.tasks)?);
        }
        self.wall.get().ok_or_else(|| StartError::Other { message: "no wall for git".into() })
    }

    /// Runs a command that has to succeed.
    async fn step(&self, job: Job, limit: Duration) -> Result<Output, StartError> {
        let what = job.args.first().cloned().unwrap_or_default();
        let output = self.run(job, limit).await?;
        if output.exit.is_success() {
            return Ok(output);
        }
        let source = match (&self.layout.source, self.resolved) {
            (Some((outside, _)), _) => outside.display().to_string(),
            (None, Some(from)) => from.remote.url.clone(),
            (None, None) => "the empty repository".to_owned(),
        };
        Err(explain::git_failed(&what, &source, output.exit, &output.stderr))
    }

    async fn run(&self, job: Job, limit: Duration) -> Result<Output, StartError> {
        let what = job.args.first().cloned().unwrap_or_default();
        confined::run(self.session, self.wall()?, job, limit).await.map_err(|error| {
            StartError::Repository { message: format!("git {what}: {}", chain(&error)) }
        })
    }
}

fn report_cloning(report: &dyn Report, what: impl std::fmt::Display) {
    report.progress(format!("cloning {what}"));
}

/// What `rev-parse` said.
fn commit(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Does what blocks on a thread of its own.
async fn aside(
    work: impl FnOnce() -> Result<(), BeneathError> + Send + 'static,
) -> Result<(), StartError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| StartError::Volume { message: chain(&error) }),
        Err(error) => Err(StartError::Other { message: error.to_string() }),
    }
}
