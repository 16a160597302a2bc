//! The session plane: programs register, show that they live, and hear of each other (SPEC-032).

mod beat;
mod churn;
mod events;
mod register;
mod status;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use tenure_core::model::{Answer, Members, Request, SessionId, Within};
use tenure_wire::Code;
use uuid::{Builder, Uuid};

use self::churn::Churn;
pub(super) use self::register::default_tenant;
use super::Face;
use super::refused::Refused;
use crate::access::Caller;
use crate::trail::By;

/// The header with the session that a request is about.
const SESSION: &str = "x-prism-session-id";

/// What the session plane has of its own.
#[derive(Debug)]
pub struct Plane {
    ttl: Duration,
    churn: Churn,
}

impl Plane {
    /// With sessions that outlive their last heartbeat by `ttl`.
    pub fn new(ttl: Duration) -> Plane {
        Plane { ttl, churn: Churn::default() }
    }

    /// How long a session of a caller outlives its last heartbeat.
    fn ttl(&self, caller: &Caller) -> Duration {
        caller.bounds.ttl_max.map_or(self.ttl, |max| self.ttl.min(max))
    }
}

/// The endpoints.
pub(super) fn router() -> Router<Arc<Face>> {
    Router::new()
        .route("/api/v1/controller/register", post(register::register))
        .route("/api/v1/controller/heartbeat", post(beat::heartbeat))
        .route("/api/v1/controller/release", post(beat::release))
        .route("/api/v1/controller/status", get(status::status))
        .route("/api/v1/controller/events", get(events::events))
}

impl Face {
    /// A project as its store knows it; `None` if the session that is asked about is not there.
    async fn members(
        &self,
        caller: &Caller,
        within: Within,
        listed: bool,
    ) -> Result<Option<Members>, Refused> {
        match self.carry_out(caller, Request::Members { within, listed, page: None }).await? {
            Answer::Members(members) => Ok(members),
            _ => Err(strange()),
        }
    }

    /// Writes down what was refused to a caller.
    fn noting<T>(&self, caller: &Caller, outcome: Result<T, Refused>) -> Result<T, Refused> {
        outcome.inspect_err(|refused| self.note_refusal(By::from(caller), refused))
    }
}

/// An instant of µs since 1970, as SPEC-032 writes it.
pub(super) fn iso8601(wall_us: u64) -> Arc<str> {
    let text = humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(wall_us));
    format!("{}+00:00", text.to_string().trim_end_matches('Z')).into()
}

/// What the seed's client takes as the order to register again.
fn expired() -> Refused {
    Refused::new(Code::SessionLost, "session expired, re-register via prism_start")
}

/// An answer to another question, which no store gives.
fn strange() -> Refused {
    Refused::new(Code::UpstreamUnavailable, "the store did not answer the question")
}

/// The session that a request is about. One of somebody else is as good as none.
fn session(headers: &HeaderMap, caller: &Caller) -> Result<SessionId, Refused> {
    let shown = headers.get(SESSION).ok_or_else(|| {
        let detail =
            "X-Prism-Session-Id: the header is missing; send the session_id that register answered";
        Refused::new(Code::Invalid, detail)
    })?;
    let id = shown.to_str().ok().and_then(|text| text.parse::<Uuid>().ok());
    id.filter(|id| caller.principal.mark.is_of(*id)).map(SessionId).ok_or_else(expired)
}

/// A new id of a caller's.
fn new_id(caller: &Caller) -> Result<Uuid, Refused> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Refused::new(Code::UpstreamUnavailable, error.to_string()))?;
    Ok(caller.principal.mark.scoped(Builder::from_random_bytes(bytes).into_uuid()))
}

/// Reads a body. Fields that are not known are ignored, as the seed's backend does.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the body is not what this endpoint takes: {error}");
        Refused::new(Code::Invalid, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_as_in_a_redis() {
        assert_eq!(&*iso8601(1_796_076_434_529_811), "2026-11-30T22:07:14.529811+00:00");
        assert_eq!(&*iso8601(1_796_076_434_000_000), "2026-11-30T22:07:14.000000+00:00");
    }
}
