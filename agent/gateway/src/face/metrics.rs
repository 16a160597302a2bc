//! Numbers, for operators.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tokio::time::timeout;

use super::Face;
use super::refused::Refused;
use crate::access::Right;

/// How long the store's thread may take to say how it does.
const WITHIN: Duration = Duration::from_secs(2);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Requests for what there is not.
const OTHER: &str = "other";

/// All numbers. They have no names in them, and yet are for those who have a key: the listener may be open to
/// everybody.
pub(super) async fn metrics(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.access.caller(&request)?;
    caller.needs(Right::Metrics, || "/metrics".to_owned())?;
    let health = timeout(WITHIN, face.store.health()).await;
    face.metrics.set_store(health.ok().and_then(Result::ok).as_ref());
    face.metrics.mailboxes.set(face.control.tally(clock::now()));
    let mut response = face.metrics.encode().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
    Ok(response)
}

/// The clock of a request, from its head to its answer.
pub(super) struct RequestTimer {
    /// The route, never the path as it came: the number of series must be bounded.
    matched: Option<MatchedPath>,
    began: Boottime,
}

impl RequestTimer {
    pub(super) fn start(request: &Request) -> RequestTimer {
        RequestTimer { matched: request.extensions().get().cloned(), began: clock::now() }
    }

    /// Counts the answer, which has this status.
    pub(super) fn finish(self, face: &Face, status: StatusCode) {
        let took = clock::now().since(self.began);
        let endpoint = self.matched.as_ref().map_or(OTHER, MatchedPath::as_str);
        face.metrics.answered(endpoint, status.as_u16(), took);
    }
}
