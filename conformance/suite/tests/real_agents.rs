//! Real agents in sessions of casemate's, driven by the official ACP client library: whole turns with tools, a cancel,
//! a worker that is killed, a conversation that goes on. (`opencode.rs` holds what is asked of opencode alone.)

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acp_host;

use acp_host::Host;
use acp_host::scene::Scene;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::processes;
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
        let begun = SystemTime::now();
        let session = host.new_session(cwd).await.unwrap();
        set_mode(&scene, &host, &session).await;

        let first = "the first words of this conversation";
        assert_eq!(host.prompt(&session, first).await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN), "{}", host.said(&session));
        works(&scene, &host, &session).await;
        scene.is_cancelled(&host, &session).await;
        scene.is_cancelled_late(&host, &session).await;
        scene.is_prompted_twice(&host, &session).await;
        let host = scene.is_left(host, &session).await;

        scene.crash(host, &session).await;
        if agent == RealAgent::Gemini {
            next_minute(begun).await;
        }

        let host = scene.host().await;
        // Gemini forgets the prompt of a turn that was cancelled, and is found out.
        let forgets = agent == RealAgent::Gemini;
        let outcome = if forgets { "unverified" } else { "reloaded" };
        assert_eq!(host.load(&session, cwd).await.unwrap(), outcome);
        set_mode(&scene, &host, &session).await;
        assert!(host.replayed(&session).contains(first), "{}", host.replayed(&session));
        assert_eq!(host.prompt(&session, "and more").await.unwrap(), StopReason::EndTurn);
        let seen = scene.stub.seen();
        let last = seen.iter().rfind(|seen| !seen.tools.is_empty()).unwrap();
        assert!(last.user.iter().any(|text| text.contains(first)), "{:?}", last.user);
        assert_eq!(scene.stub.asked("and more"), 1, "a prompt reaches the model once");
        assert_eq!(scene.stub.asked(first), 1, "a replay is no prompt");
        assert!(scene.worktree(&session).join("made").exists());
        let told = host.told(&session);
        assert_eq!(told.len(), usize::from(forgets), "{told:?}");
        assert!(
            told.iter()
                .all(|text| text.contains("of 11 prompts that the agent was sent it shows 10")),
            "{told:?}"
        );
        scene.is_reset(host, &session).await;
    });
}

/// Gemini names its files by the minute of the clock: a process that loads a conversation in the minute in which it was begun
/// writes over it.
async fn next_minute(begun: SystemTime) {
    let minute = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs() / 60;
    while minute(SystemTime::now()) == minute(begun) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
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

/// Tools ask in this mode, whatever they would do. Left to itself Gemini had not ended its turn after 40 s.
fn is_cancelled_while_it_waits_for_a_permission(agent: RealAgent) {
    let Some(scene) = Scene::set(agent) else { return };
    acp_host::run(async {
        let cwd = scene.place.path();
        let host = scene.host().await;
        let session = host.new_session(cwd).await.unwrap();
        host.set_mode(&session, "default").await.unwrap();
        host.hold();
        let turn = host.prompt(&session, "do: write /work/refused by the agent");
        let cancel = async {
            assert!(host.is_asked(1).await);
            host.cancel(&session);
            Instant::now()
        };
        let (stop, since) = tokio::join!(turn, cancel);
        assert_eq!(stop.unwrap(), StopReason::Cancelled);
        let took = since.elapsed();
        println!("{agent:?}: cancelled within {took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(host.prompt(&session, "after it").await.unwrap(), StopReason::EndTurn);
        let worktree = scene.worktree(&session);
        assert!(!worktree.join("refused").exists());

        // One that was asked of a host which is gone is asked of the next, once, and its answer is the agent's.
        tokio::select! {
            turn = host.prompt(&session, "do: write /work/granted by the agent") => panic!("{turn:?}"),
            asked = host.is_asked(2) => assert!(asked),
        }
        host.crash().await;
        let host = scene.host().await;
        assert_eq!(host.load(&session, cwd).await.unwrap(), "resumed");
        assert!(host.is_asked(1).await);
        assert_eq!(host.prompt(&session, "and more").await.unwrap(), StopReason::EndTurn);
        assert_eq!(std::fs::read_to_string(worktree.join("granted")).unwrap(), "by the agent");
        assert_eq!((host.asked(), scene.stub.asked("/work/granted")), (1, 1));
        assert!(host.quit().await.success());
    });
}

#[test]
fn claude_is_cancelled_while_it_waits_for_a_permission_that_nobody_answers() {
    is_cancelled_while_it_waits_for_a_permission(RealAgent::Claude);
}

#[test]
fn gemini_is_cancelled_while_it_waits_for_a_permission_that_nobody_answers() {
    is_cancelled_while_it_waits_for_a_permission(RealAgent::Gemini);
}

#[test]
fn claude_goes_on_where_nobody_comes_for_a_permission_in_time() {
    let Some(scene) = Scene::set(RealAgent::Claude) else { return };
    acp_host::run(async {
        // A worker whose turn runs is never idle: once it was stopped for that, the turn has ended.
        scene.profile("hasty", "permission_ttl = '3s'\nidle_ttl = '5s'\n");
        let cwd = scene.place.path();
        let host = scene.host_with(&["--profile", "hasty"]).await;
        let session = host.new_session(cwd).await.unwrap();
        host.set_mode(&session, "default").await.unwrap();
        host.hold();
        tokio::select! {
            turn = host.prompt(&session, "do: write /work/refused by the agent") => panic!("{turn:?}"),
            asked = host.is_asked(1) => assert!(asked),
        }
        // It leaves in order: one that is killed may come back by its ticket, and the permission waits for it.
        assert!(host.quit().await.success());
        let asleep = || {
            let sessions = scene.place.sessions()?;
            sessions.iter().all(|view| view.worker.is_none()).then_some(())
        };
        assert!(processes::until(Duration::from_secs(120), asleep).is_some(), "its turn ends");
        let host = scene.host_with(&["--profile", "hasty"]).await;
        host.load(&session, cwd).await.unwrap();
        assert_eq!(host.prompt(&session, "and more").await.unwrap(), StopReason::EndTurn);
        assert!(!scene.worktree(&session).join("refused").exists());
        assert_eq!((host.asked(), scene.stub.asked("/work/refused")), (0, 1));
        assert!(host.quit().await.success());
    });
}

/// Where it has none it says something else: that is what `is_reset` comes upon.
#[test]
fn gemini_that_has_another_conversation_says_by_its_own_words_that_it_has_lost_this_one() {
    let Some(scene) = Scene::set(RealAgent::Gemini) else { return };
    acp_host::run(async {
        let (cwd, begun) = (scene.place.path(), SystemTime::now());
        let host = scene.host().await;
        let session = host.new_session(cwd).await.unwrap();
        assert_eq!(host.prompt(&session, "to be kept").await.unwrap(), StopReason::EndTurn);
        let home = scene.worktree(&session).parent().unwrap().join("home/.gemini/tmp");
        scene.crash(host, &session).await;
        next_minute(begun).await;
        assert!(
            scene.rename_conversations(&home) > 0,
            "what it has is another conversation's from now on"
        );
        let host = scene.host().await;
        let refused = host.load(&session, cwd).await.unwrap_err();
        assert_eq!(i32::from(refused.code), -32002, "{refused:?}");
        let said = format!("{refused:?}");
        assert!(said.contains("Invalid session identifier"), "{said}");
        assert!(said.contains("reset"), "{said}");
        assert!(host.quit().await.success());
    });
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

#[test]
fn gemini() {
    lives_through_it(RealAgent::Gemini);
}
