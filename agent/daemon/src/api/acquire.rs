//! `POST /v1/acquire`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_bounds::Ask;
use tenure_core::model::defaults;
use tenure_wire::{Acquire, Acquired, Code, Kind, Problem, Waiting};

use super::context::Context;
use super::parse::{Ask as Body, Parsed};
use super::respond::{Refused, json};
use super::server::{Connected, Connection};
use super::validate;
use crate::heart::Acquisition;

impl Body for Acquire {
    const EXAMPLE: &'static str = r#"{"session":"…","kind":"leader","name":"cleanup"}"#;
}

/// Ask for a hold.
///
/// A caller that disconnects, or closes its writing half, before the answer cancels.
#[utoipa::path(post, path = "/v1/acquire", tag = "hold", request_body = Acquire,
    responses(
        (status = 200, description = "Granted", body = Acquired),
        (status = 202, description = "In the queue; `granted` comes as an event", body = Waiting),
        (status = 403, response = super::answers::Forbidden),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 409, description = "`contended`, with the holder, or `wait_timeout`", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`session_lost`, or `hold_lost` for a repeated request", body = Problem, content_type = "application/problem+json"),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn acquire(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Acquire>,
) -> Result<Response, Refused> {
    validate::acquire(&ask, &context.settings)?;
    let reply = tokio::select! {
        biased;
        reply = ask_keeper(&context, &connection, ask) => reply?,
        () = connection.hung_up() => return Err(cancelled().into()),
    };
    match reply {
        Acquisition::Granted(acquired) => {
            connection.owes(context.heart.delivery(acquired.hold));
            Ok(json(StatusCode::OK, &acquired))
        }
        Acquisition::Waiting(waiting) => Ok(json(StatusCode::ACCEPTED, &waiting)),
    }
}

async fn ask_keeper(
    context: &Context,
    connection: &Connection,
    ask: Acquire,
) -> Result<Acquisition, Refused> {
    if !context.policy.current().is_open() {
        check_policy(context, connection, &ask).await?;
    }
    let caller = context.with_quota(connection.caller());
    Ok(context.heart.acquire(caller, ask).await?)
}

/// Asks the policy, which judges by the session too.
async fn check_policy(
    context: &Context,
    connection: &Connection,
    ask: &Acquire,
) -> Result<(), Refused> {
    let facts = context.heart.lookup(connection.caller(), ask.session).await?;
    let is_master = ask.kind == Kind::Master;
    let default = is_master.then(|| defaults::priority(&facts.surface));
    let wish = Ask {
        tenant: &facts.tenant,
        // A master is the only resource that belongs to a project.
        project: is_master.then_some(&facts.project),
        kind: Some(ask.kind),
        name: ask.name.as_deref(),
        priority: ask.priority.or(default),
    };
    Ok(context.check(&connection.peer(), &wish)?)
}

/// Seen only by a client that has closed just its writing half.
fn cancelled() -> Problem {
    Problem::new(
        Code::WaitTimeout,
        "the wait is cancelled because the caller closed its writing half; keep it open until the answer",
    )
}
