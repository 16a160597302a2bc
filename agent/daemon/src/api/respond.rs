//! Responses: JSON with a length, and problems.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure_wire::rules::Invalid;
use tenure_wire::{Code, Problem};

use super::refusals;
use crate::heart::{Budget, CallError, Charge, HeartGone, OverBudget};

/// The media type of problems.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// When somebody whose bytes did not fit should come again.
const RETRY_AFTER_MS: u64 = 1000;

/// A request that was refused.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Box<Problem>);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        Refused(Box::new(problem))
    }
}

impl From<Box<Problem>> for Refused {
    fn from(problem: Box<Problem>) -> Refused {
        Refused(problem)
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Refused {
        Problem::from(invalid).into()
    }
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Refused {
        refusals::problem(&error).into()
    }
}

impl From<HeartGone> for Refused {
    fn from(gone: HeartGone) -> Refused {
        Problem::new(Code::Stopping, gone.to_string()).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = body(status, PROBLEM_JSON, &*self.0);
        if let Some(ms) = self.0.retry_after_ms {
            let seconds = HeaderValue::from(retry_after_seconds(ms));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if self.0.code == Code::TooLarge {
            // Bytes that the client still sends would be taken for its next request.
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

/// A JSON response that may be long: it counts for its reader until it is written.
pub(super) fn long_json(
    budget: &Arc<Budget>,
    uid: u32,
    value: &impl Serialize,
) -> Result<Response, Refused> {
    // No reply has a map with keys that are not strings, nor a Serialize that fails.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let charge = budget.take(uid, bytes.len()).map_err(|over| over_budget(over, uid))?;
    Ok(text("application/json", Bytes::from_owner(Charged { bytes, _charge: charge })))
}

/// Bytes that count for their reader.
struct Charged {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The refusal of a request whose bytes do not fit.
pub(in crate::api) fn over_budget(over: OverBudget, uid: u32) -> Box<Problem> {
    let OverBudget { limit, max } = over;
    let detail = format!(
        "what uid {uid} sends and does not read would take more than {limit}, {max} bytes; read the \
         answers, and send bodies at once"
    );
    Box::new(Problem::new(Code::QuotaExceeded, detail).retry_after_ms(RETRY_AFTER_MS))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(ms), seconds, "{ms} ms");
        }
    }
}
