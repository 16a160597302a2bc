//! `POST /v1/acquire`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_bounds::Ask;
use tenure_core::keeper::Refusal;
use tenure_core::model::defaults;
use tenure_wire::{Acquire, Acquired, Code, Kind, Problem, Waiting};
use tokio::time::timeout;

use super::context::Context;
use super::parse::{Ask as Body, Parsed};
use super::respond::{Refused, json};
use super::server::{Connected, Connection};
use super::standing::complete;
use super::validate;
use crate::heart::{Acquisition, CallError};

/// A holder that was renewed within this time has not ended.
const JUST_RENEWED_MS: u64 = 500;
/// Longest time that a refusal waits for the history of its holder.
const PAST_ANSWER_MAX: Duration = Duration::from_millis(250);

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
    if let Err(problem) = check_fleet(context, &ask) {
        // An unknown session is refused as such, before any other reason.
        context.heart.lookup(connection.caller(), ask.session).await?;
        return Err(problem.into());
    }
    let caller = context.with_quota(connection.caller());
    match context.heart.acquire(caller, ask).await {
        Err(CallError::Refused(refusal)) => {
            let refusal = with_its_end(context, connection, refusal).await;
            Err(CallError::Refused(refusal).into())
        }
        answer => Ok(answer?),
    }
}

/// Completes a refusal if its holder, on another host, has ended: until when the hold is kept. The store's history
/// tells; at most [`Context::pasts`] calls ask for one at a time, and none if the holder was renewed just now.
async fn with_its_end(context: &Context, connection: &Connection, mut refusal: Refusal) -> Refusal {
    let (Refusal::Contended { resource, holder: Some(holder), .. }
    | Refusal::WaitTimeout { resource, holder: Some(holder), .. }) = &mut refusal
    else {
        return refusal;
    };
    let is_renewed = holder.last_beat_ms.is_some_and(|ms| ms < JUST_RENEWED_MS);
    let Ok(_place) = context.pasts.try_acquire() else { return refusal };
    if holder.is_of_tenure() && !is_renewed {
        let past = context.heart.history(connection.caller(), resource.clone());
        if let Ok(Ok(changes)) = timeout(PAST_ANSWER_MAX, past).await {
            complete(holder, &changes);
        }
    }
    refusal
}

/// Refuses a hold that has to exclude other hosts, where the store is this agent's own.
fn check_fleet(context: &Context, ask: &Acquire) -> Result<(), Box<Problem>> {
    let is_shared = context.about.address.is_some();
    let wish = match (ask.fleet, context.about.requires_fleet) {
        _ if is_shared => return Ok(()),
        (true, _) => "fleet = true of the request",
        (false, true) => "require = \"fleet\" of its configuration",
        (false, false) => return Ok(()),
    };
    let name = ask.name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let detail = format!(
        "{}{name}: this agent keeps holds on this host alone (upstream embedded), and {wish} wants them kept from \
         all hosts; name the store that they share in its setting upstream, and see whether `tenure agents` lists them",
        ask.kind
    );
    Err(Box::new(Problem::new(Code::Forbidden, detail)))
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
