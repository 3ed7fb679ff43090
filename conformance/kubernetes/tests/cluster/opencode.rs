//! The image of `images/build opencode` in a slot's Pod: the real agent holds turns with a model that the slot's NetworkPolicy
//! lets it reach, and nobody else does.

use casemate_cluster::Cluster;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::AgentCommand;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::opencode;
use casemate_suite::skip::skip;
use serde_json::json;

use crate::slot::{Scene, policy};

#[test]
fn the_image_of_opencode_serves_turns() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let image = std::env::var("CASEMATE_OPENCODE_IMAGE").unwrap_or_default();
    if image.is_empty() {
        skip(
            "the image of opencode on the Kubernetes (CASEMATE_OPENCODE_IMAGE; conformance/README.md)",
        );
        return;
    }
    let Some((address, stub)) = cluster.beside(|address| LlmStub::start_at(address).unwrap())
    else {
        skip("a Kubernetes on this machine, for the model server beside it (conformance/cluster)");
        return;
    };
    let model = json!([{
        "to": [{"ipBlock": {"cidr": format!("{address}/32")}}],
        "ports": [{"port": stub.port(), "protocol": "TCP"}],
    }]);
    let Some(scene) = Scene::of("opencode", &image, 30, Some(&policy(&model))) else { return };
    let mut bind = scene.bind();
    bind.terms.agent = AgentCommand {
        argv: ["opencode", "acp", "--port", "{port}"].map(str::to_owned).into(),
        env: [("OPENCODE_CONFIG_CONTENT".to_owned(), opencode::settings(&stub).to_string())].into(),
    };
    bind.terms.connect = vec![stub.port()];
    let events = scene.events(&bind);

    let mut acp = scene.connect();
    acp.upgrade(&scene.token(&bind, Audience::Attach));
    let capabilities = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let (answer, _) = acp.request(1, "initialize", &capabilities);
    assert_eq!(answer["result"]["agentInfo"]["version"], opencode::VERSION, "{answer} {events:?}");
    let (opened, _) = acp.request(2, "session/new", &json!({"cwd": "/host", "mcpServers": []}));
    let conversation =
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    let mut turn = |id: u64, order: &str| {
        let prompt = json!([{"type": "text", "text": order}]);
        let params = json!({"sessionId": conversation, "prompt": prompt});
        let (answer, text) = acp.request(id, "session/prompt", &params);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        text
    };
    turn(3, "do: write made by the agent");
    let said = turn(4, "do: run cat made && git status --porcelain && id -u && rg --files");
    for part in ["by the agent", "?? made", "1000"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert_eq!(stub.prompts(), 2);
}
