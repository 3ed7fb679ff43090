//! Real agents in sessions of casemate's, driven by the official ACP client library: whole turns with tools, a cancel,
//! a worker that is killed, a conversation that goes on. (`opencode.rs` holds what is asked of opencode alone.)

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acp_host;

use std::path::{Path, PathBuf};
use std::time::Duration;

use acp_host::Host;
use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_protocol::api::WorkerView;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::place::Place;
use casemate_suite::real_agent::RealAgent;
use casemate_suite::{processes, skip};
use nix::sys::signal::Signal;

struct Scene {
    agent: RealAgent,
    place: Place,
    stub: LlmStub,
}

// === impl Scene ===

impl Scene {
    /// Nothing where the agent is not installed; the skip is told.
    fn set(agent: RealAgent) -> Option<Self> {
        if agent.command().is_none() {
            skip::skip(&format!("npm: {} in conformance/.cache/npm", agent.package()));
            return None;
        }
        let (place, stub) = (Place::new(), LlmStub::start().unwrap());
        agent.home_template(&place.path().join("template"), &stub).unwrap();
        Some(Self { agent, place, stub })
    }

    async fn host(&self) -> Host {
        let host = Host::start(self.agent.bridge(&self.place, &self.stub).unwrap()).await;
        let hello = host.initialize().await.unwrap();
        assert!(hello.agent_capabilities.load_session, "{hello:?}");
        host
    }

    async fn set_mode(&self, host: &Host, session: &SessionId) {
        if let Some(mode) = self.agent.mode() {
            host.set_mode(session, mode).await.unwrap();
        }
    }

    fn worker(&self, session: &SessionId) -> WorkerView {
        let sessions = self.place.sessions().expect("the allocator answers");
        let view = sessions.into_iter().find(|view| view.id.as_str() == session.0.as_ref());
        view.expect("the session is listed").worker.expect("its worker lives")
    }

    fn worktree(&self, session: &SessionId) -> PathBuf {
        self.worker(session).worktree
    }
}

fn lives_through_it(agent: RealAgent) {
    let Some(scene) = Scene::set(agent) else { return };
    acp_host::run(async {
        let cwd = scene.place.path();
        let host = scene.host().await;
        let session = host.new_session(cwd).await.unwrap();
        scene.set_mode(&host, &session).await;

        let first = "the first words of this conversation";
        assert_eq!(host.prompt(&session, first).await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN), "{}", host.said(&session));
        works(&scene, &host, &session).await;
        is_cancelled(&scene, &host, &session).await;

        let pid = i32::try_from(scene.worker(&session).pid).unwrap();
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

        let host = scene.host().await;
        host.load(&session, cwd).await.unwrap();
        scene.set_mode(&host, &session).await;
        assert!(host.replayed(&session).contains(first), "{}", host.replayed(&session));
        assert_eq!(host.prompt(&session, "and more").await.unwrap(), StopReason::EndTurn);
        let seen = scene.stub.seen();
        let last = seen.iter().rfind(|seen| !seen.tools.is_empty()).unwrap();
        assert!(last.user.iter().any(|text| text.contains(first)), "{:?}", last.user);
        assert_eq!(scene.stub.asked("and more"), 1, "a prompt reaches the model once");
        assert_eq!(scene.stub.asked(first), 1, "a replay is no prompt");
        assert!(scene.worktree(&session).join("made").exists());
        assert!(host.quit().await.success());
    });
}

/// A file is written and a command run, in the private clone.
async fn works(scene: &Scene, host: &Host, session: &SessionId) {
    let worktree = scene.worktree(session);
    // As the agent sees it: some take absolute paths only.
    let order = "do: write /work/made by the agent";
    assert_eq!(host.prompt(session, order).await.unwrap(), StopReason::EndTurn);
    let read = |name| std::fs::read_to_string(worktree.join(name)).unwrap_or_default();
    assert_eq!(read("made"), "by the agent", "{}", host.said(session));
    assert!(!scene.place.repository().join("made").exists(), "the clone is private");
    let order = "do: run git rev-parse --show-toplevel > ran";
    assert_eq!(host.prompt(session, order).await.unwrap(), StopReason::EndTurn);
    assert_eq!(read("ran").trim(), "/work", "{}", host.said(session));
}

/// A slow turn is cancelled, and the next one is whole.
async fn is_cancelled(scene: &Scene, host: &Host, session: &SessionId) {
    let slow = host.prompt(session, "do: trickle 600 100");
    let cancel = async {
        assert!(host.wait_for(session, "piece3").await);
        host.cancel(session);
    };
    let (stop, ()) = tokio::join!(slow, cancel);
    assert_eq!(stop.unwrap(), StopReason::Cancelled);
    assert!(!host.said(session).contains("piece500"));
    assert_eq!(host.prompt(session, "after it").await.unwrap(), StopReason::EndTurn);
    assert_eq!(scene.stub.asked("after it"), 1, "a prompt reaches the model once");
}

#[test]
fn claude() {
    lives_through_it(RealAgent::Claude);
}

#[test]
fn codex() {
    lives_through_it(RealAgent::Codex);
}

#[test]
fn codex_over_its_server() {
    lives_through_it(RealAgent::CodexServer);
}
