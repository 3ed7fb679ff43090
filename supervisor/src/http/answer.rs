//! Answers to calls.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::{LocalBoxStream, StreamExt as _};
use http_body_util::{BodyExt as _, Either, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::auth::Refusal;
use crate::patch::PatchError;
use crate::words::chain;

/// What a call is answered with: all at once, or as it comes.
pub(super) type Answer = Response<Either<Full<Bytes>, Pieces>>;

/// A body that comes in pieces.
pub(super) type Pieces = StreamBody<LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A body as a whole.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Answer {
    Response::new(Either::Left(Full::new(bytes.into())))
}

/// JSON lines, as they come.
pub(super) fn lines(lines: LocalBoxStream<'static, Bytes>) -> Answer {
    let pieces = lines.map(|line| Ok(Frame::data(line))).boxed_local();
    let mut answer = Response::new(Either::Right(StreamBody::new(pieces)));
    let kind = HeaderValue::from_static("application/x-ndjson");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// How long a body may take to come.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(10);

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
    let mut answer = whole(format!("{words}\n"));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

pub(super) fn patch(made: Result<Vec<u8>, PatchError>) -> Answer {
    match made {
        Ok(bytes) => {
            let mut answer = whole(bytes);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x-patch"));
            answer
        }
        Err(error @ PatchError::TooLong) => text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
        Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, &chain(&error)),
    }
}

pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = whole(Bytes::new());
    *answer.status_mut() = status;
    answer
}

pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut answer = whole(bytes);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Metrics, in the text format 0.0.4.
pub(super) fn prometheus(rendered: String) -> Answer {
    let mut answer = whole(rendered);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
