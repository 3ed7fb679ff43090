//! Pages: who is let in by which origin and token, and what those who are not find out.

use std::net::SocketAddr;

use casemate_protocol::ids::Generation;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};

use crate::client::Client;
use crate::harness::{Slot, Who, call, raw};
use crate::many::Many;

const APP: &str = "https://app.example";
const PLAIN: &str = "casemate.acp.v1";

fn slot() -> Slot {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.config.origins = vec![APP.parse().unwrap(), "http://localhost:5173".parse().unwrap()];
    slot
}

/// A handshake as a browser sends it: the subprotocol chosen, or the status of the refusal.
fn page(address: SocketAddr, origin: &str, token: &str) -> Result<Option<String>, u16> {
    let offer = format!("{PLAIN}, casemate.bearer.{token}");
    let headers = [("origin", origin), ("sec-websocket-protocol", offer.as_str())];
    Client::attach_with(address, &headers).map(|client| client.chosen)
}

#[test]
fn a_page_of_a_listed_origin_holds_a_conversation_and_its_token_is_told_to_nobody() {
    let slot = slot();
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let offer = format!("casemate.bearer.{token}, {PLAIN}");
    let headers = [("origin", APP), ("sec-websocket-protocol", offer.as_str())];
    let mut client = Client::attach_with(address, &headers).unwrap();
    assert_eq!(client.chosen.as_deref(), Some(PLAIN), "never the token");
    client.initialize();
    let session = client.new_session();
    assert_eq!(client.shell(&session, "echo from $((6 * 7))"), "from 42\n[exit 0]");
    assert_eq!(page(address, "http://localhost:5173", &token), Ok(Some(PLAIN.to_owned())));
    assert!(!worker.log().contains(&token), "a token in the log");
    let audit = std::fs::read_to_string(slot.config.volume.join("state/audit.ndjson")).unwrap();
    assert!(!audit.contains(&token), "a token in the audit log");
    worker.stop();
}

#[test]
fn every_other_origin_is_refused_whatever_its_token() {
    let slot = slot();
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    for origin in [
        "null",
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "https://evil.example/https://app.example",
        "https://APP.example",
        "HTTPS://app.example",
        "https://app.example/",
        "https://app.example.",
        "https://app.example https://evil.example",
        "https://app.example, https://evil.example",
        "http://localhost",
        "http://127.0.0.1:5173",
        "https://",
        "*",
    ] {
        assert_eq!(page(address, origin, &token), Err(403), "{origin}");
        // A program that says where it comes from is held to it.
        let bearer = format!("Bearer {token}");
        let headers = [("origin", origin), ("authorization", bearer.as_str())];
        assert_eq!(Client::attach_with(address, &headers).err(), Some(403), "{origin}");
    }
    // Two origins, one of them good, in either order.
    for (first, second) in [(APP, "https://evil.example"), ("https://evil.example", APP)] {
        let request = format!(
            "GET /acp HTTP/1.1\r\nHost: w\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: {first}\r\nOrigin: {second}\r\n\
             Sec-WebSocket-Protocol: {PLAIN}, casemate.bearer.{token}\r\n\r\n"
        );
        assert_eq!(raw(address, &request).0, 403);
    }
    assert_eq!(slot.status(address).epoch.0, 0, "somebody was let in");
    worker.stop();
}

#[test]
fn a_listed_origin_opens_nothing_without_the_right_token() {
    let slot = slot();
    let (worker, address) = slot.serve();
    let claims = slot.claims(Audience::Attach);
    let sign = |claims: &Claims| slot.secret.sign(claims);
    for (what, token) in [
        ("none", String::new()),
        ("garbage", "cm1.x.y".to_owned()),
        ("another key's", SigningSecret::generate().sign(&claims)),
        ("an earlier generation's", sign(&Claims { generation: Generation(0), ..claims.clone() })),
        ("a later generation's", sign(&Claims { generation: Generation(2), ..claims.clone() })),
        ("an expired one", sign(&Claims { expires: 1, ..claims.clone() })),
        ("one for control", sign(&Claims { audience: Audience::Control, ..claims.clone() })),
        ("one for commands", sign(&Claims { audience: Audience::Exec, ..claims.clone() })),
    ] {
        assert_eq!(page(address, APP, &token), Err(401), "{what}");
    }
    let good = sign(&claims);
    // Cookies open nothing, nor does a query, nor a token that is said twice or in another case.
    let twice = format!("{PLAIN}, casemate.bearer.{good}, casemate.bearer.{good}");
    let upper = format!("{PLAIN}, Casemate.Bearer.{good}");
    for offer in [PLAIN, &twice, &upper] {
        let cookie = format!("token={good}; Authorization=Bearer {good}");
        let headers = [("origin", APP), ("sec-websocket-protocol", offer), ("cookie", &cookie)];
        assert_eq!(Client::attach_with(address, &headers).err(), Some(401), "{offer}");
    }
    // The token alone: the browser would hang up on an answer that chooses nothing.
    let alone = format!("casemate.bearer.{good}");
    let headers = [("origin", APP), ("sec-websocket-protocol", alone.as_str())];
    assert_eq!(Client::attach_with(address, &headers).err(), Some(400));
    assert_eq!(slot.status(address).epoch.0, 0, "somebody was let in");
    worker.stop();
}

#[test]
fn a_token_in_a_subprotocol_is_for_pages_and_a_page_has_one_endpoint() {
    let slot = slot();
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let offer = format!("{PLAIN}, casemate.bearer.{token}");
    let headers = [("sec-websocket-protocol", offer.as_str())];
    assert_eq!(Client::attach_with(address, &headers).err(), Some(401), "without an origin");
    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/v1/status"),
        ("GET", "/metrics"),
        ("POST", "/v1/stop"),
        ("POST", "/v1/quiesce"),
        ("OPTIONS", "/v1/status"),
        ("GET", "/v1/exec"),
        ("GET", "/nothing"),
    ] {
        for audience in [Audience::Attach, Audience::Control, Audience::Exec] {
            let token = slot.token(audience);
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: w\r\nOrigin: {APP}\r\nAuthorization: Bearer {token}\r\n\
                 Connection: close\r\nContent-Length: 0\r\n\r\n"
            );
            assert_eq!(raw(address, &request).0, 403, "{method} {path}");
        }
    }
    // A program that names a subprotocol is answered with it.
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("sec-websocket-protocol", PLAIN)];
    let client = Client::attach_with(address, &headers).unwrap();
    assert_eq!(client.chosen.as_deref(), Some(PLAIN));
    worker.stop();
}

#[test]
fn without_a_list_there_is_no_page_and_each_session_of_a_user_has_its_own() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let mut open = many.session();
    open.origins = vec![APP.parse().unwrap()];
    let closed = many.session();
    many.begin(address, &open);
    assert_eq!(
        page(address, APP, &many.token(&open, Audience::Attach)),
        Ok(Some(PLAIN.to_owned()))
    );
    many.begin(address, &closed);
    assert_eq!(page(address, APP, &many.token(&closed, Audience::Attach)), Err(403));
    assert_eq!(page(address, APP, &many.own_token()), Err(401));
    assert_eq!(page(address, "https://evil.example", &many.own_token()), Err(403));
    let own = many.own_token();
    assert_eq!(call(address, "GET", "/v1/sessions", Some(&own), "").0, 200);
    worker.stop();
}
