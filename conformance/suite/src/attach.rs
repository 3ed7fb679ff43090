//! What a client of a worker's door needs first: an attachment, from the allocator.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use casemate_protocol::api::Attached;

use crate::place::Place;

/// The status line and body that an HTTP request gets; the status, and all of the answer.
///
/// # Panics
/// Where nobody listens.
#[must_use]
pub fn http(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("ten seconds is a time-out");
    stream.write_all(request.as_bytes()).expect("somebody reads");
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..length]);
        if is_whole(&String::from_utf8_lossy(&answer)) {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, answer)
}

/// Connections stay open: an answer ends with its headers where it has no body, else after `Content-Length` bytes.
fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    match length {
        Some(length) => body.len() >= length,
        None => !head.contains("transfer-encoding"),
    }
}

/// A fresh attachment to a session, from the allocator.
///
/// # Panics
/// Where no allocator runs here or it refuses.
#[must_use]
pub fn resume(place: &Place, session: &str) -> Attached {
    let endpoint = place.endpoint().expect("an allocator runs");
    let request = format!(
        "POST /v1/sessions/{session}/resume HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n",
        endpoint.token
    );
    let (status, answer) = http(endpoint.address, &request);
    assert_eq!(status, 200, "{answer}");
    let body = answer.split_once("\r\n\r\n").expect("an answer has a body").1;
    let start = body.find('{').expect("the body is JSON");
    let end = body.rfind('}').expect("the body is JSON");
    serde_json::from_str(&body[start..=end]).expect("the body is an attachment")
}
