//! `GET /openapi.json`: the API as the code has it.

use std::sync::LazyLock;

use axum::response::Response;
use utoipa::OpenApi;

use super::bounds;
use super::endpoints::Document;
use super::query::{NoQuery, Queried};
use super::respond::text;
use super::{examples, generators};

/// The document, as it is committed in `agent/openapi.json`.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    bounds::add(&mut document);
    generators::prepare(&mut document);
    examples::add(&mut document);
    format!("{document:#}\n")
});

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "agent",
    responses(
        (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
        super::answers::NoInput,
    ))]
pub(super) async fn openapi(Queried(NoQuery): Queried<NoQuery>) -> Response {
    text("application/json", DOCUMENT.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
