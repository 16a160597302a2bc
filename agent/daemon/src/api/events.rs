//! `GET /v1/events` and `GET /v1/observe`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tenure_core::keeper::StreamTarget;
use tenure_wire::{Kind, Problem};
use uuid::Uuid;

use super::context::Context;
use super::frames::Frames;
use super::query::{Pairs, Queried, Query, ResourceQuery};
use super::respond::{Refused, text};
use super::server::{Connected, Connection};

/// `?session=…`.
pub(super) struct EventsQuery {
    session: Uuid,
}

impl Query for EventsQuery {
    const KEYS: &'static [&'static str] = &["session"];

    fn from_pairs(mut pairs: Pairs) -> Result<EventsQuery, Box<Problem>> {
        Ok(EventsQuery { session: pairs.required("session", "a UUID as the agent returned it")? })
    }
}

/// Events of a session and its holds, as server-sent events.
///
/// Starts with `snapshot`, or with what came after `Last-Event-ID`; ends with `shutdown`.
#[utoipa::path(get, path = "/v1/events", tag = "session",
    params(
        ("session" = Uuid, Query, description = "The session"),
        ("Last-Event-ID" = Option<String>, Header, description = "The last event seen"),
    ),
    responses(
        (status = 200, description = "Frames of `id`, `event` and `data`; the data of each event is the member of `Event` of that name", body = tenure_wire::Event, content_type = "text/event-stream"),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, response = super::answers::SessionLost),
        super::answers::Common,
    ))]
pub(super) async fn events(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(EventsQuery { session }): Queried<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let last_event_id = last_event_id(&headers);
    open(&context, connection, StreamTarget::Session { session, last_event_id }).await
}

/// Changes of who holds a resource and who waits, as server-sent `standing` events.
#[utoipa::path(get, path = "/v1/observe", tag = "fleet",
    params(
        ("kind" = Kind, Query, description = "The kind"),
        ("name" = String, Query, description = "The name; for a master the project"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
    ),
    responses(
        (status = 200, description = "Frames of `event` and `data`", body = tenure_wire::Standing, content_type = "text/event-stream"),
        (status = 403, response = super::answers::Forbidden),
        super::answers::Common,
    ))]
pub(super) async fn observe(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(ResourceQuery(resource)): Queried<ResourceQuery>,
) -> Result<Response, Refused> {
    context.check_reading(&connection.peer(), &resource)?;
    open(&context, connection, StreamTarget::Resource(resource)).await
}

async fn open(
    context: &Context,
    connection: Arc<Connection>,
    target: StreamTarget,
) -> Result<Response, Refused> {
    let place = context.places.take(connection.peer().uid)?;
    let mut stream = context.heart.open_stream(connection.peer(), target).await?;
    connection.streaming();
    let place = match stream.take_tether() {
        Some(tether) => {
            connection.tie(tether, place);
            None
        }
        None => Some(place),
    };
    let frames = Frames::new(stream, place, context.metrics.clone(), connection.hangup());
    let mut response = text("text/event-stream", Body::new(frames));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The end of the stream is the end of the connection: a reader that ignores the chunks sees it.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// A number that is none means a stream from the start: the header is a hint, and what a proxy or a
/// browser makes of it should not keep a client from its events.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_ids_are_read_leniently() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_event_id(&headers), None);
        let cases: [(&[u8], _); 6] = [
            (b"7", Some(7)),
            (b" 7 ", Some(7)),
            (b"", None),
            (b"-1", None),
            (b"x", None),
            (b"\xff", None),
        ];
        for (value, expected) in cases {
            headers.insert("last-event-id", HeaderValue::from_bytes(value).unwrap());
            assert_eq!(last_event_id(&headers), expected, "{value:?}");
        }
    }
}
