//! `GET /v1/log` and `PUT /v1/log`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_wire::rules::quote;
use tenure_wire::{LogFilter, Problem, SetLog};
use tracing::{Level, enabled, info};

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::query::{NoQuery, Queried};
use super::respond::{Refused, json};
use super::server::{Connected, Connection};

use crate::telemetry::log;

impl Ask for SetLog {
    const EXAMPLE: &'static str = r#"{"filter":"debug"}"#;

    fn from_nothing() -> Option<SetLog> {
        Some(SetLog::default())
    }
}

/// The filter of the agent's log.
///
/// Only for root and the agent's own user.
#[utoipa::path(get, path = "/v1/log", tag = "agent",
    responses(
        (status = 200, description = "The filter in effect, and the configured one", body = LogFilter),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common,
    ))]
pub(super) async fn read_log(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(NoQuery): Queried<NoQuery>,
) -> Result<Response, Refused> {
    permit(&context, &connection)?;
    Ok(json(StatusCode::OK, &present(&context)))
}

/// Log something else for the time being: until it is set again, the configured filter changes, or the
/// agent restarts. Without a filter, or with null, what is configured again.
///
/// Only for root and the agent's own user.
#[utoipa::path(put, path = "/v1/log", tag = "agent", request_body = Option<SetLog>,
    responses(
        (status = 200, description = "The filter in effect, and the configured one", body = LogFilter),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn set_log(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(NoQuery): Queried<NoQuery>,
    Parsed(ask): Parsed<SetLog>,
) -> Result<Response, Refused> {
    permit(&context, &connection)?;
    let uid = connection.peer().uid;
    let filter = ask.filter.as_deref();
    let tell = || {
        let filter = filter.unwrap_or("as configured");
        info!(uid, filter, "what is logged was changed for the time being");
    };
    let invalid = |rule: String| {
        let detail =
            format!("filter is {}, but {rule}; correct it", quote(filter.unwrap_or_default()));
        Problem::invalid("filter", detail)
    };
    filter.map_or(Ok(()), log::check).map_err(invalid)?;
    // Told under whichever of the two filters lets it through.
    let is_told = enabled!(Level::INFO);
    if is_told {
        tell();
    }
    context.log.want(filter).map_err(|wrong| invalid(wrong.to_string()))?;
    if !is_told {
        tell();
    }
    Ok(json(StatusCode::OK, &present(&context)))
}

fn present(context: &Context) -> LogFilter {
    let (filter, configured) = context.log.current();
    LogFilter { filter, configured }
}

fn permit(context: &Context, connection: &Connection) -> Result<(), Box<Problem>> {
    context.check_administrator(connection.peer().uid, "see or change what the agent logs")
}
