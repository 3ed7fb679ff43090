//! A real agent in a place of its own, with the stub model, and what is done with each of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_protocol::api::WorkerView;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::place::Place;
use casemate_suite::real_agent::RealAgent;
use casemate_suite::{processes, skip};
use nix::sys::signal::Signal;

use super::Host;

pub(crate) struct Scene {
    pub(crate) agent: RealAgent,
    pub(crate) place: Place,
    pub(crate) stub: LlmStub,
}

// === impl Scene ===

impl Scene {
    /// Nothing where the agent is not installed; the skip is told.
    pub(crate) fn set(agent: RealAgent) -> Option<Self> {
        if agent.command().is_none() {
            skip::skip(&format!("npm: {} in conformance/.cache/npm", agent.package()));
            return None;
        }
        let (place, stub) = (Place::new(), LlmStub::start().unwrap());
        agent.home_template(&place.path().join("template"), &stub).unwrap();
        Some(Self { agent, place, stub })
    }

    /// A host of `casemate acp` with the agent, introduced.
    pub(crate) async fn host(&self) -> Host {
        self.host_with(&[]).await
    }

    /// The same with options of the bridge's.
    pub(crate) async fn host_with(&self, options: &[&str]) -> Host {
        let bridge = self.agent.bridge_with(&self.place, &self.stub, options);
        let host = Host::start(bridge.unwrap()).await;
        let hello = host.initialize().await.unwrap();
        assert!(hello.agent_capabilities.load_session, "{hello:?}");
        host
    }

    /// Writes a profile.
    #[allow(dead_code, reason = "not every test that has this scene needs one")]
    pub(crate) fn profile(&self, name: &str, text: &str) {
        let directory = self.place.casemate_home().join("profiles");
        // The allocator refuses a home that others may enter.
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.recursive(true).create(&directory).unwrap();
        std::fs::write(directory.join(format!("{name}.toml")), text).unwrap();
    }

    pub(crate) fn worker(&self, session: &SessionId) -> WorkerView {
        let sessions = self.place.sessions().expect("the allocator answers");
        let view = sessions.into_iter().find(|view| view.id.as_str() == session.0.as_ref());
        view.expect("the session is listed").worker.expect("its worker lives")
    }

    pub(crate) fn worktree(&self, session: &SessionId) -> PathBuf {
        self.worker(session).worktree
    }

    /// A slow turn is cancelled, and the next one is whole.
    pub(crate) async fn is_cancelled(&self, host: &Host, session: &SessionId) {
        let slow = host.prompt(session, "do: trickle 600 100");
        let cancel = async {
            assert!(host.wait_for(session, "piece3").await);
            host.cancel(session);
        };
        let (stop, ()) = tokio::join!(slow, cancel);
        assert_eq!(stop.unwrap(), StopReason::Cancelled);
        assert!(!host.said(session).contains("piece500"));
        assert_eq!(host.prompt(session, "after it").await.unwrap(), StopReason::EndTurn);
        assert_eq!(self.stub.asked("after it"), 1, "a prompt reaches the model once");
    }

    /// A cancel that comes when its turn is over has none to end.
    pub(crate) async fn is_cancelled_late(&self, host: &Host, session: &SessionId) {
        assert_eq!(host.prompt(session, "before it").await.unwrap(), StopReason::EndTurn);
        host.cancel(session);
        assert_eq!(host.prompt(session, "in spite of it").await.unwrap(), StopReason::EndTurn);
        assert_eq!(self.stub.asked("in spite of it"), 1);
    }

    /// A prompt that comes during a turn has its own turn after it, which not every agent gives it.
    pub(crate) async fn is_prompted_twice(&self, host: &Host, session: &SessionId) {
        let before = host.said(session).matches("piece1 ").count();
        let front = host.prompt(session, "do: trickle 20 50 in front");
        let behind = async {
            assert!(host.wait_for_more(session, "piece1 ", before).await);
            host.prompt(session, "behind it").await
        };
        let (front, behind) = tokio::join!(front, behind);
        assert_eq!((front.unwrap(), behind.unwrap()), (StopReason::EndTurn, StopReason::EndTurn));
        assert_eq!((self.stub.asked("in front"), self.stub.asked("behind it")), (1, 1));
        assert!(host.told(session).iter().any(|told| told.contains("waiting")));
    }

    /// The host is gone in the middle of a turn, which goes on; the next one has a prompt of its own.
    pub(crate) async fn is_left(&self, host: Host, session: &SessionId) -> Host {
        let before = host.said(session).matches("piece0 ").count();
        tokio::select! {
            turn = host.prompt(session, "do: trickle 40 100 detached") => panic!("{turn:?}"),
            begun = host.wait_for_more(session, "piece0 ", before) => assert!(begun),
        }
        host.crash().await;
        let host = self.host().await;
        assert_eq!(host.load(session, self.place.path()).await.unwrap(), "resumed");
        assert_eq!(host.prompt(session, "back again").await.unwrap(), StopReason::EndTurn);
        let said = host.said(session);
        assert_eq!(said.matches("piece39 ").count(), 1, "{said}");
        assert_eq!((self.stub.asked("detached"), self.stub.asked("back again")), (1, 1));
        host
    }

    /// The conversation is taken from the agent: its host is told as ACP has it, the user in the next turn.
    pub(crate) async fn is_reset(&self, host: Host, session: &SessionId) {
        let (cwd, worktree) = (self.place.path(), self.worktree(session));
        self.crash(host, session).await;
        self.forget(&worktree);
        let host = self.host().await;
        // Whatever code the agent has for it: the rows of `continuity::quirks` are held against the agents here.
        let refused = host.load(session, cwd).await.unwrap_err();
        assert_eq!(i32::from(refused.code), -32002, "{refused:?}");
        let data = refused.data.unwrap_or_default();
        assert_eq!(data["casemate"]["continuity"], "reset", "{data}");
        assert_eq!(host.new_session(cwd).await.unwrap(), *session, "the files are the same");
        let stop = host.prompt(session, "anybody there?").await.unwrap();
        assert_eq!(stop, StopReason::EndTurn);
        let told = host.told(session);
        assert!(told.len() == 1 && told[0].contains("context reset"), "{told:?}");
        assert!(host.quit().await.success());
    }

    /// Takes from the agent all that it remembers: its HOME is as it was made. `worktree` is its session's.
    fn forget(&self, worktree: &Path) {
        let home = worktree.parent().expect("it lies in the session's tree").join("home");
        remove_beside(&self.place.path().join("template"), &home);
    }

    /// Gives each conversation that Gemini has written down below this directory another id; how many there were.
    #[allow(dead_code, reason = "not every test that has this scene needs it")]
    pub(crate) fn rename_conversations(&self, directory: &Path) -> usize {
        let mut renamed = 0;
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                renamed += self.rename_conversations(&path);
                continue;
            }
            // session-DATE-ID, of which the name has the first part.
            let name = entry.file_name().into_string().unwrap();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let id = text.split_once("\"sessionId\":").and_then(|(_, rest)| rest.split('"').nth(1));
            let Some(id) = id.filter(|_| name.starts_with("session-")) else { continue };
            let other = format!("{}{}", if id.starts_with('0') { '1' } else { '0' }, &id[1..]);
            std::fs::write(&path, text.replace(id, &other)).unwrap();
            std::fs::rename(&path, path.with_file_name(name.replace(&id[..8], &other[..8])))
                .unwrap();
            renamed += 1;
        }
        renamed
    }

    /// Kills the session's worker, whose processes must all be gone then, and the host.
    pub(crate) async fn crash(&self, host: Host, session: &SessionId) {
        let pid = i32::try_from(self.worker(session).pid).unwrap();
        let mut family = processes::below(pid);
        assert!(!family.is_empty(), "the agent runs below its worker");
        assert!(processes::signal(pid, Signal::SIGKILL));
        let gone = processes::until(Duration::from_secs(10), || {
            family.retain(|process| Path::new(&format!("/proc/{}", process.pid)).exists());
            processes::reap(&[host.pid()].into());
            family.is_empty().then_some(())
        });
        assert!(gone.is_some(), "outlived their killed worker: {family:?}");
        host.crash().await;
    }
}

/// Leaves in a directory what its template has.
fn remove_beside(template: &Path, directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, kept) = (entry.path(), template.join(entry.file_name()));
        match (entry.file_type().unwrap().is_dir(), kept.exists()) {
            (true, true) => remove_beside(&kept, &path),
            (true, false) => std::fs::remove_dir_all(path).unwrap(),
            (false, true) => {}
            (false, false) => std::fs::remove_file(path).unwrap(),
        }
    }
}
