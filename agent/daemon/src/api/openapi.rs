//! `GET /openapi.json`: the API as the code has it.

use std::sync::LazyLock;

use axum::response::Response;
use tenure_wire::Problem;
use utoipa::{IntoResponses, OpenApi};

use super::bounds;
use super::query::{NoQuery, Queried};
use super::respond::text;
use super::{
    acquire, beat, checkpoint, doctor, events, health, log, metrics, quarantine, register, release,
    revoke, routes, standing, status,
};

/// Answers that every endpoint has which takes input and asks the heart.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum Common {
    /// `invalid`: a field is wrong, unknown or missing; the detail names it
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(#[to_schema] Problem),
    /// `quota_exceeded`: the detail names the limit, `Retry-After` says when to come again
    #[response(status = 429, content_type = "application/problem+json")]
    QuotaExceeded(#[to_schema] Problem),
    /// `upstream_unavailable` or `stopping`; `Retry-After` says when to come again
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] Problem),
}

/// Further answers of an endpoint that takes no input and asks nobody.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum NoInput {
    /// `invalid`: there are no query parameters
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(#[to_schema] Problem),
    /// `quota_exceeded`: the detail names the limit, `Retry-After` says when to come again
    #[response(status = 429, content_type = "application/problem+json")]
    QuotaExceeded(#[to_schema] Problem),
}

/// Further answers of every endpoint with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum BadBody {
    /// `too_large`: the body is larger than 64 KiB
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(#[to_schema] Problem),
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tenure",
        version = "1",
        description = "The local API of tenured, on a Unix socket. Times are integers with the unit last in \
                       the name. Unknown request fields are refused; clients ignore unknown reply fields. \
                       Bounds of times are those of the default configuration. What is not HTTP is \
                       answered with 400, a head of more than 16 KiB with 431, both without a body; an \
                       unknown path with 404, another method with 405, each with a problem."
    ),
    paths(
        register::register,
        acquire::acquire,
        release::release,
        checkpoint::checkpoint,
        beat::beat,
        revoke::revoke,
        quarantine::end,
        events::events,
        events::observe,
        standing::standing,
        routes::routes,
        status::status,
        doctor::doctor,
        log::read_log,
        log::set_log,
        health::healthz,
        health::readyz,
        metrics::metrics,
        openapi,
    ),
    tags(
        (name = "session", description = "A program's registration, its life and its events"),
        (name = "hold", description = "What a session holds or waits for"),
        (name = "fleet", description = "Who holds what, across all agents"),
        (name = "agent", description = "The agent itself"),
    )
)]
struct Document;

/// The document, as it is committed in `agent/openapi.json`.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    bounds::add(&mut document);
    format!("{document:#}\n")
});

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "agent",
    responses(
        (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
        NoInput,
    ))]
pub(super) async fn openapi(Queried(NoQuery): Queried<NoQuery>) -> Response {
    text("application/json", DOCUMENT.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ENDPOINTS;

    #[test]
    fn the_committed_document_is_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, DOCUMENT.as_str()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let differs = committed.lines().zip(DOCUMENT.lines()).find(|(old, new)| old != new);
        assert!(
            committed == *DOCUMENT,
            "agent/openapi.json is not what the code says, first here: {differs:?}; if the change is \
             meant, run `UPDATE_OPENAPI=1 cargo test -p tenured openapi` and commit the file"
        );
    }

    #[test]
    fn every_endpoint_is_documented() {
        let document = Document::openapi();
        let mut documented: Vec<String> = document.paths.paths.keys().cloned().collect();
        let mut routed: Vec<String> =
            ENDPOINTS.iter().map(|(_, path)| (*path).to_owned()).collect();
        documented.sort();
        routed.sort();
        routed.dedup();
        assert_eq!(documented, routed);
    }
}
