//! Tells a host why nothing can begin, as the answer to its first request: few hosts show anybody what is on stderr.

use std::io::{self, BufReader, IsTerminal as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use casemate_protocol::acp::frame::{Frame, Kind};
use casemate_protocol::codes::{Delivery, rpc};
use serde_json::json;

use crate::acp::host::{Line, read_line};
use crate::failure::Failure;

/// A host asks at once; whoever does not is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers the first request on stdin with the failure. Returns at once where a person types, and at the end of input.
pub(super) fn tell(failure: &Failure) {
    if io::stdin().is_terminal() {
        return;
    }
    let (sender, answer) = mpsc::channel();
    let message = failure.to_string();
    let read = move || {
        let mut reader = BufReader::new(io::stdin());
        loop {
            let answer = match read_line(&mut reader) {
                Ok(Line::Whole(line)) => refusal(&line, &message),
                Ok(Line::Overlong(_)) => None,
                Ok(Line::End) | Err(_) => return,
            };
            if let Some(answer) = answer {
                // Too late for whoever waited.
                let _ = sender.send(answer);
                return;
            }
        }
    };
    // A read of a pipe cannot be cancelled: the thread ends with the process. Without one the failure is on stderr all the same.
    if std::thread::Builder::new().name("stdin".into()).spawn(read).is_ok()
        && let Ok(answer) = answer.recv_timeout(PATIENCE)
    {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(answer.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// The refusal of a line, where it is a request.
fn refusal(line: &[u8], message: &str) -> Option<String> {
    let frame = Frame::parse(line).ok().filter(|frame| frame.kind() == Kind::Request)?;
    let data = json!({"casemate": {"delivery": Delivery::NotDelivered}});
    let error = json!({"code": rpc::WORKER, "message": message, "data": data});
    Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", frame.id()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_refused_under_its_own_id_and_nothing_else_is_answered() {
        let refused =
            refusal(br#"{"jsonrpc":"2.0","id":"a\u0062","method":"initialize"}"#, "\"no\"");
        let refused = refused.unwrap();
        assert!(refused.contains(r#""id":"a\u0062""#) && refused.ends_with("}\n"), "{refused}");
        let refused: serde_json::Value = serde_json::from_str(&refused).unwrap();
        assert_eq!(refused["error"]["message"], "\"no\"");
        for other in
            [&br#"{"jsonrpc":"2.0","method":"x"}"#[..], br#"{"id":1,"result":{}}"#, b"", b"x"]
        {
            assert_eq!(refusal(other, "no"), None);
        }
    }
}
