//! Responses: JSON with a length, and problems.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure::wire::{Code, Problem};

use crate::keeper::Reply;

/// The media type of problems.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// A request that was refused.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Box<Problem>);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(Box::new(problem))
    }
}

impl From<Box<Problem>> for Refusal {
    fn from(problem: Box<Problem>) -> Refusal {
        Refusal(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = body(status, PROBLEM_JSON, &*self.0);
        if let Some(ms) = self.0.retry_after_ms {
            let seconds = HeaderValue::from(retry_after_seconds(ms));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if self.0.code == Code::TooLarge {
            // What the client still sends would be taken for its next request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Rounded up, as a client that comes too early is refused again.
pub(super) fn retry_after_seconds(ms: u64) -> u64 {
    ms.div_ceil(1000).max(1)
}

/// A JSON response, small enough to be written at once.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    body(status, "application/json", value)
}

/// Text that was made before.
pub(super) fn text(content_type: &'static str, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn body(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(256);
    let (status, bytes) = match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => (status, bytes),
        // No reply has a map with keys that are not strings, nor a Serialize that fails.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    };
    let mut response = text(content_type, bytes);
    *response.status_mut() = status;
    response
}

/// The keeper answered something else than what it was asked: a fault of the agent, told as such.
pub(super) fn mismatch(asked: &'static str, reply: &Reply) -> Response {
    let reply = name(reply);
    tracing::error!(asked, reply, "the keeper answered another question");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Which reply it is. The rest of it may be a secret.
fn name(reply: &Reply) -> String {
    let text = format!("{reply:?}");
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_nobody_expected_is_logged_without_its_secret() {
        let secret = Reply::Registered {
            session: crate::model::SessionId(uuid::Uuid::nil()),
            secret: "5ec1e7".into(),
            ttl_ms: 1,
            beat_ms: 1,
            resumed: false,
        };
        assert_eq!(name(&secret), "Registered");
        assert_eq!(name(&Reply::Released(true)), "Released");
    }

    #[test]
    fn retry_after_is_rounded_up() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(ms), seconds, "{ms} ms");
        }
    }
}
