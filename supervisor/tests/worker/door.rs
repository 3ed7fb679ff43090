//! The HTTP endpoints and who may use them.

use std::time::Duration;

use casemate_protocol::ids::Generation;
use casemate_protocol::policy::Policy;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use serde_json::json;

use crate::client::{Client, Closed};
use crate::harness::{Slot, Who, call, raw};

#[test]
fn without_the_right_token_nothing_is_upgraded_and_no_agent_starts() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let refused = |token: &str| Client::attach(address, token).err();
    assert_eq!(Client::attach_with(address, &[]).err(), Some(401));
    assert_eq!(refused("cm1.x.y"), Some(401));
    assert_eq!(refused(&SigningSecret::generate().sign(&slot.claims(Audience::Attach))), Some(401));
    assert_eq!(refused(&slot.token(Audience::Control)), Some(401));
    let expired = Claims { expires: 1, ..slot.claims(Audience::Attach) };
    assert_eq!(refused(&slot.secret.sign(&expired)), Some(401));
    let stale = Claims { generation: Generation(0), ..slot.claims(Audience::Attach) };
    assert_eq!(refused(&slot.secret.sign(&stale)), Some(401));

    let bearer = format!("Bearer {}", slot.token(Audience::Attach));
    let headers = [("authorization", bearer.as_str()), ("origin", "http://localhost")];
    assert_eq!(Client::attach_with(address, &headers).err(), Some(403));
    assert_eq!(slot.status(address).epoch.0, 0);
    assert!(!worker.log().contains("cm1."), "a token in the log");
    worker.stop();
}

#[test]
fn the_endpoints_answer_as_documented() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let (attach, control) = (slot.token(Audience::Attach), slot.token(Audience::Control));
    let get = |path: &str, token: Option<&str>| call(address, "GET", path, token, "").0;
    assert_eq!(get("/healthz", None), 200);
    assert_eq!(get("/readyz", None), 200);
    assert_eq!(get("/v1/status", None), 401);
    assert_eq!(get("/v1/status", Some(&attach)), 200);
    assert_eq!(get("/metrics", Some(&attach)), 401);
    assert_eq!(get("/nothing", None), 404);
    assert_eq!(get("/v1/stop", Some(&control)), 405);
    assert_eq!(get("/acp", Some(&attach)), 426);
    let metrics = call(address, "GET", "/metrics", Some(&control), "").1;
    assert!(metrics.contains("\ncasemate_agent_running 0\n"), "{metrics}");
    // Which policy is in force is told by status, metrics and log alike.
    let revision = slot.status(address).policy_revision;
    assert_eq!(revision, Policy::parse(&slot.config.policy).unwrap().revision);
    let line = format!("\ncasemate_policy_info{{revision=\"{revision}\"}} 1\n");
    assert!(metrics.contains(&line), "{metrics}");
    assert!(worker.log().contains(&revision), "{}", worker.log());
    let origin = raw(
        address,
        "GET /healthz HTTP/1.1\r\nHost: w\r\nOrigin: null\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(origin.0, 403);

    let quiesced = call(address, "POST", "/v1/quiesce", Some(&control), "");
    assert_eq!(quiesced.0, 200);
    let evidence = json!({"dirty": 0, "unpushed": 0, "stashes": 0});
    let answer: serde_json::Value = serde_json::from_str(&quiesced.1).unwrap();
    assert_eq!(answer, json!({"outcome": "quiesced", "evidence": evidence}));
    assert_eq!(get("/readyz", None), 503);
    assert_eq!(call(address, "POST", "/v1/reopen", Some(&control), "").0, 204);
    assert_eq!(get("/readyz", None), 200);
    worker.stop();
}

#[test]
fn a_close_is_answered_with_its_code() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    assert_eq!(client.leave(), Closed::With(1000, String::new()));
    worker.stop();
}

#[test]
fn the_stop_call_ends_the_worker_and_tells_the_client_why() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (mut worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let control = slot.token(Audience::Control);
    assert_eq!(
        call(address, "POST", "/v1/stop", Some(&control), r#"{"reason":"nonsense"}"#).0,
        400
    );
    assert_eq!(call(address, "POST", "/v1/stop", Some(&control), r#"{"reason":"idle"}"#).0, 202);
    let closed = client.receive().unwrap_err();
    assert!(matches!(closed, Closed::With(4002, _)), "{closed:?}");
    assert_eq!(worker.wait().code(), Some(0));
}

#[test]
fn a_first_message_that_is_not_initialize_is_refused_and_binary_ones_are_ignored() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.send_binary(br#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#);
    assert!(client.is_quiet(Duration::from_millis(300)));
    client.request("session/new", json!({"cwd": "/", "mcpServers": []}));
    loop {
        match client.receive() {
            Ok(_) => {}
            Err(closed) => {
                assert!(matches!(closed, Closed::With(1002, _)), "{closed:?}");
                break;
            }
        }
    }
    worker.stop();
}

#[test]
fn a_message_over_several_lines_reaches_the_agent_as_one() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.send_text("{\r\n\"jsonrpc\":\"2.0\",\n\"id\":7,\n\"method\":\"initialize\",\n\"params\":{\"protocolVersion\":1,\n\"clientCapabilities\":{}}\n}\n");
    let answer = client.receive().unwrap();
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    worker.stop();
}

/// A client that takes no frame above 1 MiB, as RFC 6455 lets it.
#[test]
fn a_long_message_comes_in_fragments_of_1_mib_at_most() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let headers = [("authorization", &*format!("Bearer {}", slot.token(Audience::Attach)))];
    let mut client = Client::attach_narrow(address, &headers, 1 << 20);
    client.initialize();
    let session = client.new_session();
    for length in [(1 << 20) - 1000, 1 << 20, 5 << 20] {
        let (stop, text) = client.turn(&session, &format!("!updates 1 {length}"));
        assert_eq!((&*stop, text.len()), ("end_turn", length));
    }
    worker.stop();
}
