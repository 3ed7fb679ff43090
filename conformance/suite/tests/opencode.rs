//! The real opencode, driven by the official ACP client library: alone, then in a session of casemate's.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acp_host;

use acp_host::Host;
use acp_host::scene::Scene;
use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::place::git;
use casemate_suite::real_agent::RealAgent;

#[test]
fn alone_it_holds_turns_with_the_stub() {
    // What fails here is not casemate's doing.
    let Some(scene) = Scene::set(RealAgent::Opencode) else { return };
    acp_host::run(async {
        scene.agent.home_template(&scene.place.home(), &scene.stub).unwrap();
        let repository = scene.place.repository();
        let program = scene.agent.command().unwrap().remove(0);
        let mut command = std::process::Command::new(program);
        command.arg("acp").env_clear().envs(scene.place.environment()).current_dir(&repository);
        let host = Host::start(command).await;
        host.initialize().await.unwrap();
        let session = host.new_session(&repository).await.unwrap();
        assert_eq!(host.prompt(&session, "hello").await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN));
        let order = format!("do: write {} by the agent", repository.join("made").display());
        assert_eq!(host.prompt(&session, &order).await.unwrap(), StopReason::EndTurn);
        assert_eq!(std::fs::read_to_string(repository.join("made")).unwrap(), "by the agent");
        assert_eq!(scene.stub.prompts(), 2);
        host.crash().await;
    });
}

#[test]
fn in_a_session_it_writes_runs_is_cancelled_and_goes_on_after_its_worker_was_killed() {
    let Some(scene) = Scene::set(RealAgent::Opencode) else { return };
    acp_host::run(async {
        let cwd = scene.place.path();
        let host = scene.host().await;
        let session = host.new_session(cwd).await.unwrap();

        let first = "the first words of this conversation";
        assert_eq!(host.prompt(&session, first).await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN));

        writes_and_runs(&scene, &host, &session).await;
        scene.is_cancelled(&host, &session).await;
        scene.is_cancelled_late(&host, &session).await;
        scene.is_prompted_twice(&host, &session).await;
        let host = scene.is_left(host, &session).await;

        scene.crash(host, &session).await;

        let host = scene.host().await;
        assert_eq!(host.load(&session, cwd).await.unwrap(), "reloaded");
        assert!(host.replayed(&session).contains(first), "{}", host.replayed(&session));
        assert!(host.named().iter().all(|named| *named == session), "{:?}", host.named());
        assert_eq!(host.prompt(&session, "do: recall").await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(first), "{}", host.said(&session));
        let seen = scene.stub.seen();
        let last = seen.iter().rfind(|seen| !seen.tools.is_empty()).unwrap();
        assert!(last.user.iter().any(|text| text.contains(first)), "{:?}", last.user);
        assert!(scene.worktree(&session).join("made").exists());
        assert_eq!(host.told(&session), [""; 0]);
        scene.is_reset(host, &session).await;
    });
}

/// A tool call that writes a file, and one that runs commands; the file is in the worktree and in a clone of it.
async fn writes_and_runs(scene: &Scene, host: &Host, session: &SessionId) {
    let order = "do: write made by the agent";
    assert_eq!(host.prompt(session, order).await.unwrap(), StopReason::EndTurn);
    let worktree = scene.worktree(session);
    assert_eq!(std::fs::read_to_string(worktree.join("made")).unwrap(), "by the agent");
    assert!(!scene.place.repository().join("made").exists(), "the clone is private");

    let order = "do: run git add made && git -c user.name=a -c user.email=a@b commit -q -m by-the-agent && pwd";
    assert_eq!(host.prompt(session, order).await.unwrap(), StopReason::EndTurn);
    let copy = scene.place.path().join("copy");
    git(scene.place.path(), &["clone", "-q", worktree.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(copy.join("made")).unwrap(), "by the agent");
    let branch = git(&worktree, &["branch", "--show-current"]);
    assert_eq!(branch.trim(), format!("casemate/{session}"));
}
