//! The real opencode, driven by the official ACP client library: alone, then in a session of casemate's.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod acp_host;

use std::path::{Path, PathBuf};
use std::time::Duration;

use acp_host::Host;
use agent_client_protocol::v1::schema::{SessionId, StopReason};
use casemate_protocol::api::SessionView;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::place::{Place, git};
use casemate_suite::{opencode, processes, skip};
use nix::sys::signal::Signal;

/// A place, a stub, a HOME template for it, and opencode's program.
struct Scene {
    place: Place,
    stub: LlmStub,
    program: PathBuf,
}

// === impl Scene ===

impl Scene {
    /// Nothing where opencode is not installed; the skip is told.
    fn set() -> Option<Self> {
        let Some(program) = opencode::installed() else {
            skip::skip("opencode-ai in conformance/.cache/npm");
            return None;
        };
        let (place, stub) = (Place::new(), LlmStub::start().unwrap());
        opencode::home_template(&place.path().join("template"), &stub).unwrap();
        Some(Self { place, stub, program })
    }

    /// `casemate acp` with opencode as its agent.
    fn bridge(&self) -> std::process::Command {
        let port = self.stub.port().to_string();
        self.place.casemate(&[
            "acp".as_ref(),
            "--repo".as_ref(),
            self.place.repository().as_os_str(),
            "--home-template".as_ref(),
            self.place.path().join("template").as_os_str(),
            "--connect".as_ref(),
            port.as_ref(),
            "--program".as_ref(),
            self.program.parent().unwrap().as_os_str(),
            "--".as_ref(),
            self.program.as_os_str(),
            "acp".as_ref(),
            // Left to itself it takes 4096, which the session may not listen on.
            "--port".as_ref(),
            "{port}".as_ref(),
        ])
    }

    /// What the allocator knows of a session.
    fn view(&self, session: &SessionId) -> SessionView {
        let sessions = self.place.sessions().expect("the allocator answers");
        sessions
            .into_iter()
            .find(|view| view.id.as_str() == session.0.as_ref())
            .expect("the allocator lists the session that the host was told")
    }

    fn worktree(&self, session: &SessionId) -> PathBuf {
        self.view(session).worker.expect("its worker lives").worktree
    }
}

#[test]
fn alone_it_holds_turns_with_the_stub() {
    // What fails here is not casemate's doing.
    let Some(scene) = Scene::set() else { return };
    acp_host::run(async {
        opencode::home_template(&scene.place.home(), &scene.stub).unwrap();
        let repository = scene.place.repository();
        let mut command = std::process::Command::new(&scene.program);
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
    let Some(scene) = Scene::set() else { return };
    acp_host::run(async {
        let cwd = scene.place.path();
        let host = Host::start(scene.bridge()).await;
        let hello = host.initialize().await.unwrap();
        assert!(hello.agent_capabilities.load_session, "{hello:?}");
        let session = host.new_session(cwd).await.unwrap();

        let first = "the first words of this conversation";
        assert_eq!(host.prompt(&session, first).await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN));

        writes_and_runs(&scene, &host, &session).await;
        is_cancelled(&scene, &host, &session).await;

        let worker = scene.view(&session).worker.expect("its worker lives");
        let pid = i32::try_from(worker.pid).unwrap();
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

        let host = Host::start(scene.bridge()).await;
        host.initialize().await.unwrap();
        host.load(&session, cwd).await.unwrap();
        assert!(host.replayed(&session).contains(first), "{}", host.replayed(&session));
        assert!(host.named().iter().all(|named| *named == session), "{:?}", host.named());
        assert_eq!(host.prompt(&session, "do: recall").await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(first), "{}", host.said(&session));
        let seen = scene.stub.seen();
        let last = seen.iter().rfind(|seen| !seen.tools.is_empty()).unwrap();
        assert!(last.user.iter().any(|text| text.contains(first)), "{:?}", last.user);
        assert!(scene.worktree(&session).join("made").exists());
        assert!(host.quit().await.success());
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

/// A slow turn is cancelled, and the next one is whole.
async fn is_cancelled(scene: &Scene, host: &Host, session: &SessionId) {
    let prompts = scene.stub.prompts();
    let slow = host.prompt(session, "do: trickle 600 100");
    let cancel = async {
        assert!(host.wait_for(session, "piece3").await);
        host.cancel(session);
    };
    let (stop, ()) = tokio::join!(slow, cancel);
    assert_eq!(stop.unwrap(), StopReason::Cancelled);
    assert!(!host.said(session).contains("piece500"));
    assert_eq!(host.prompt(session, "do: recall").await.unwrap(), StopReason::EndTurn);
    assert_eq!(scene.stub.prompts(), prompts + 2);
}
