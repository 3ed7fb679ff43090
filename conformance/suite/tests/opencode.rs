//! opencode against the stub without casemate: what fails here is not casemate's doing.

mod acp_host;

use agent_client_protocol::v1::schema::StopReason;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::llm_stub::plan::PLAIN;
use casemate_suite::place::Place;
use casemate_suite::{opencode, skip};

#[test]
fn opencode_holds_a_turn_with_the_stub_and_writes_a_file() {
    let Some(program) = opencode::installed() else {
        return skip::skip("opencode-ai in conformance/.cache/npm");
    };
    acp_host::run(async {
        let place = Place::new();
        let stub = LlmStub::start().unwrap();
        opencode::home_template(&place.home(), &stub).unwrap();
        let mut command = std::process::Command::new(program);
        command.arg("acp").env_clear().envs(place.environment()).current_dir(place.repository());
        let host = acp_host::Host::start(command).await;
        host.initialize().await.unwrap();
        let session = host.new_session(&place.repository()).await.unwrap();
        assert_eq!(host.prompt(&session, "hello").await.unwrap(), StopReason::EndTurn);
        assert!(host.said(&session).contains(PLAIN));
        let file = place.repository().join("made.txt");
        let order = format!("do: write {} by the agent", file.display());
        assert_eq!(host.prompt(&session, &order).await.unwrap(), StopReason::EndTurn);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "by the agent");
        host.prompt(&session, "do: run echo made by a command > run.txt").await.unwrap();
        let run = std::fs::read_to_string(place.repository().join("run.txt"));
        assert_eq!(run.unwrap(), "made by a command\n");
        assert_eq!(stub.prompts(), 3);
        host.crash().await;
    });
}
