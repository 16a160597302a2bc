//! The message of a call, read whole before anybody looks at it, so that neither its length nor its slowness costs much.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tonic::Status;

use super::status::as_expected;
use crate::face::budget::{self, NotRead};
use crate::face::refused::Refused;

/// Most bytes of a call's message: 64 of them, the most of a connection, have 4 MiB.
pub(in crate::face) const MESSAGE_MAX: usize = 64 << 10;
/// Bytes before a message: whether it is compressed, and its length.
const FRAME: usize = 5;
/// How long a message may take to arrive.
const WITHIN: Duration = Duration::from_secs(10);

/// Hands a call on once its message is there.
pub(super) async fn read_whole(request: Request, next: Next) -> Response {
    if let Some(refused) = refuse_kind(&request) {
        return refused;
    }
    match read(request).await {
        Ok(request) => as_expected(next.run(request).await),
        Err(refused) => refused.into_http::<Body>(),
    }
}

/// The request with its message.
///
/// # Errors
///
/// When it is too long or too slow.
async fn read(request: Request) -> Result<Request, Status> {
    let (head, body) = request.into_parts();
    // The extensions go with the body as well: its bytes are counted for its caller.
    let mut of_body = Request::new(body);
    *of_body.extensions_mut() = head.extensions.clone();
    match budget::read(of_body, MESSAGE_MAX + FRAME, WITHIN).await {
        Ok(bytes) => Ok(Request::from_parts(head, Body::from(bytes))),
        Err(NotRead::Over(over)) => Err(Refused::from(over).into()),
        // Or it was cut off; then nobody waits for this.
        Err(NotRead::TooLong | NotRead::Broken) => {
            let rule = format!("the message must have {MESSAGE_MAX} bytes at most");
            Err(Status::resource_exhausted(rule))
        }
        Err(NotRead::Late) => {
            let rule = format!("the message must be there within {} s", WITHIN.as_secs());
            Err(Status::deadline_exceeded(rule))
        }
    }
}

/// The refusal of a call that is not of gRPC: 415, as its specification says.
fn refuse_kind(request: &Request) -> Option<Response> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind_alone = kind.split(';').next().unwrap_or_default().trim();
    if matches!(kind_alone, "application/grpc" | "application/grpc+proto") {
        return None;
    }
    let rule = format!("content-type: must be application/grpc, not {kind:?}");
    let mut refused = Status::invalid_argument(rule).into_http::<Body>();
    *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Some(refused)
}
