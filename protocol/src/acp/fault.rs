//! Error answers of casemate's own: what became of a request, for a program to read (`error.data.casemate`).

use serde::{Deserialize, Serialize};

use crate::codes::Delivery;

/// `error.data.casemate` of an error that casemate made, as against one of the agent's that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What happened to the request. Only `not_delivered` may be sent again without asking the user.
    pub delivery: Delivery,
    /// What ended the worker or the agent, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// True: the worker stops for being idle; attach to a new one and send the request again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reattach: bool,
}

#[derive(Serialize, Deserialize)]
struct Data<F> {
    casemate: F,
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    id: &'a serde_json::value::RawValue,
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<&'a Fault>>,
}

// === impl Fault ===

impl Fault {
    /// The fault alone, without a cause.
    #[must_use]
    pub fn new(delivery: Delivery) -> Self {
        Self { delivery, cause: None, reattach: false }
    }

    /// Reads the fault from a response's `error` (raw JSON); `None` where casemate did not make the error.
    #[must_use]
    pub fn of_error(error: &str) -> Option<Self> {
        let data = super::frame::member(error, &["data"])?;
        serde_json::from_str::<Data<Self>>(data).ok().map(|data| data.casemate)
    }
}

/// An error response as one line. `id` is raw JSON (`7`, `"x"`, `null`).
///
/// # Panics
/// Where `id` is not JSON: it was taken from a parsed frame.
#[must_use]
pub fn error_line(id: &str, code: i64, message: &str, fault: Option<&Fault>) -> Vec<u8> {
    let answer = Answer {
        jsonrpc: "2.0",
        id: serde_json::from_str(id).expect("an id is raw JSON of a parsed frame"),
        error: Body { code, message, data: fault.map(|casemate| Data { casemate }) },
    };
    serde_json::to_vec(&answer).expect("text and numbers serialise")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::frame::Frame;

    #[test]
    fn a_fault_is_read_back_from_its_line() {
        let fault = Fault {
            delivery: Delivery::Interrupted,
            cause: Some("signal 9".into()),
            reattach: true,
        };
        let line = error_line("\"a\"", -32050, "gone", Some(&fault));
        let frame = Frame::parse(&line).unwrap();
        assert_eq!(frame.id(), Some("\"a\""));
        assert_eq!(Fault::of_error(frame.part("error").unwrap()), Some(fault));
    }

    #[test]
    fn an_agents_own_error_carries_no_fault() {
        assert_eq!(Fault::of_error(r#"{"code":-32603,"message":"m","data":{"x":1}}"#), None);
        assert_eq!(Fault::of_error(r#"{"code":-32603,"message":"m"}"#), None);
    }
}
