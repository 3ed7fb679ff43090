//! Answers to calls.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;

use super::auth::Refusal;
use crate::patch::PatchError;
use crate::words::chain;

/// What a call is answered with.
pub(super) type Answer = Response<Full<Bytes>>;

/// How long a body may take to come.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Reads a call's body, one JSON value of at most `most` bytes; the answer to give where it is none.
pub(super) async fn body<T: DeserializeOwned>(
    request: Request<Incoming>,
    most: usize,
) -> Result<T, Answer> {
    let body = Limited::new(request.into_body(), most).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_WITHIN, body).await else {
        return Err(text(StatusCode::BAD_REQUEST, "the body is too long or did not come"));
    };
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| text(StatusCode::BAD_REQUEST, &error.to_string()))
}

pub(super) fn refused(refusal: Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = text(status, &refusal.to_string());
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

pub(super) fn text(status: StatusCode, words: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{words}\n")));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

pub(super) fn patch(made: Result<Vec<u8>, PatchError>) -> Answer {
    match made {
        Ok(bytes) => {
            let mut answer = Response::new(Full::from(bytes));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x-patch"));
            answer
        }
        Err(error @ PatchError::TooLong) => text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
        Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, &chain(&error)),
    }
}

pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut answer = Response::new(Full::from(bytes));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
