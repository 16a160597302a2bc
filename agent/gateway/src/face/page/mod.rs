//! The status page: plain files, which need no key. The page asks for its data with the reader's key. The document of
//! the calls for programs is such a file, too.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use sha2::{Digest, Sha256};

use super::Face;

/// Nothing runs but these files, and nothing is asked but this gateway: a name that somebody made up is text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

/// Bytes of a hash that tell one version of a file from another.
const TAG_BYTES: usize = 12;

/// Path, media type and content of each file.
const FILES: [(&str, &str, &str); 17] = [
    ("/", HTML, include_str!("index.html")),
    ("/openapi.json", JSON, include_str!("../../../openapi.json")),
    ("/icon.svg", SVG, include_str!("icon.svg")),
    ("/page.css", CSS, include_str!("page.css")),
    ("/page.js", SCRIPT, include_str!("page.js")),
    ("/page/api.js", SCRIPT, include_str!("api.js")),
    ("/page/detail.js", SCRIPT, include_str!("detail.js")),
    ("/page/dom.js", SCRIPT, include_str!("dom.js")),
    ("/page/feed.js", SCRIPT, include_str!("feed.js")),
    ("/page/format.js", SCRIPT, include_str!("format.js")),
    ("/page/keyboard.js", SCRIPT, include_str!("keyboard.js")),
    ("/page/place.js", SCRIPT, include_str!("place.js")),
    ("/page/revoke.js", SCRIPT, include_str!("revoke.js")),
    ("/page/routing.js", SCRIPT, include_str!("routing.js")),
    ("/page/rows.js", SCRIPT, include_str!("rows.js")),
    ("/page/tables.js", SCRIPT, include_str!("tables.js")),
    ("/page/top.js", SCRIPT, include_str!("top.js")),
];

/// The endpoints that have the files.
pub(super) fn routes() -> Router<Arc<Face>> {
    FILES.into_iter().fold(Router::new(), |router, (path, media_type, content)| {
        let tag = tag(content);
        let answer = async move |headers: HeaderMap| answer(&headers, media_type, content, &tag);
        router.route(path, get(answer))
    })
}

fn tag(content: &str) -> HeaderValue {
    let mut tag = String::from("\"");
    for byte in Sha256::digest(content).iter().take(TAG_BYTES) {
        // A text takes all that is written to it.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""))
}

/// A file, or the news that the browser has it already.
fn answer(
    asked: &HeaderMap,
    media_type: &'static str,
    content: &'static str,
    tag: &HeaderValue,
) -> Response {
    let is_known = asked.get_all(header::IF_NONE_MATCH).iter().any(|tags| has(tags, tag));
    let body = if is_known { "" } else { content };
    let mut response = Response::new(Body::from(Bytes::from_static(body.as_bytes())));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag.clone());
    for (name, value) in [
        (header::CONTENT_TYPE, media_type),
        // Asked about each time: after an upgrade no file is older than the others.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// True if a list of tags has this one; a proxy may have made it a weak one.
fn has(tags: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(tags), Ok(tag)) = (tags.to_str(), tag.to_str()) else { return false };
    tags.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
}
