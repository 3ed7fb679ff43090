//! Real agents in sessions of casemate's, driven by the official ACP client library: whole turns with tools, a cancel,
//! a worker that is killed, a conversation that goes on. (`opencode.rs` holds what is asked of opencode alone.)

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acp_host;

use acp_host::Host;
use acp_host::scene::Scene;
use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::real_agent::RealAgent;

async fn set_mode(scene: &Scene, host: &Host, session: &SessionId) {
    if let Some(mode) = scene.agent.mode() {
        host.set_mode(session, mode).await.unwrap();
    }
}

fn lives_through_it(agent: RealAgent) {
    let Some(scene) = Scene::set(agent) else { return };
    acp_host::run(async {
        let cwd = scene.place.path();
        let host = scene.host().await;
        let session = host.new_session(cwd).await.unwrap();
        set_mode(&scene, &host, &session).await;

        let first = "the first words of this conversation";
        assert_eq!(host.prompt(&session, first).await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN), "{}", host.said(&session));
        works(&scene, &host, &session).await;
        scene.is_cancelled(&host, &session).await;

        scene.crash(host, &session).await;

        let host = scene.host().await;
        assert_eq!(host.load(&session, cwd).await.unwrap(), "reloaded");
        set_mode(&scene, &host, &session).await;
        assert!(host.replayed(&session).contains(first), "{}", host.replayed(&session));
        assert_eq!(host.prompt(&session, "and more").await.unwrap(), StopReason::EndTurn);
        let seen = scene.stub.seen();
        let last = seen.iter().rfind(|seen| !seen.tools.is_empty()).unwrap();
        assert!(last.user.iter().any(|text| text.contains(first)), "{:?}", last.user);
        assert_eq!(scene.stub.asked("and more"), 1, "a prompt reaches the model once");
        assert_eq!(scene.stub.asked(first), 1, "a replay is no prompt");
        assert!(scene.worktree(&session).join("made").exists());
        assert_eq!(host.told(&session), [""; 0]);
        scene.is_reset(host, &session).await;
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
