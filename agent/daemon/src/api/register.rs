//! `POST /v1/register`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_bounds::Ask;
use tenure_host::machine::has_free_descriptor;
use tenure_host::peer::TieError;
use tenure_host::program;
use tenure_wire::rules::Invalid;
use tenure_wire::{Code, DEFAULT_TENANT, Problem, Register, Registered, Release, Tether};

use super::context::Context;
use super::parse::{Ask as Body, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;
use super::validate;
use crate::heart::Registration;

impl Body for Register {
    const EXAMPLE: &'static str = r#"{"name":"nightly","tether":"keepalive"}"#;

    fn from_nothing() -> Option<Register> {
        Some(Register::default())
    }
}

/// Register a program, or resume an earlier registration.
///
/// Every field is optional; so is the body.
#[utoipa::path(post, path = "/v1/register", tag = "session", request_body = Option<Register>,
    responses(
        (status = 201, description = "Registered, or an earlier registration resumed", body = Registered),
        (status = 401, description = "`unauthorized`: the secret is not that of the session to resume", body = Problem, content_type = "application/problem+json"),
        (status = 403, response = super::answers::Forbidden),
        (status = 404, description = "`session_unknown`: nothing to resume; `not_found`: no process has this `pid`", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`session_lost`: the session to resume has ended", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`upstream_unavailable`: no page could be made, or no descriptor is left", body = Problem, content_type = "application/problem+json"),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn register(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Register>,
) -> Result<Response, Refused> {
    validate::register(&ask, &context.settings)?;
    let registrant = match ask.pid {
        Some(pid) => connection.registrant_for(pid).map_err(|error| not_tied(pid, &error))?,
        None => connection.registrant(),
    };
    let caller = context.with_quota(registrant);
    // A resumption was allowed when the session was made, and is proved by its secret.
    if ask.resume.is_none() {
        let tenant = ask.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        let project = ask.project.as_deref();
        context.check(&caller.peer, &Ask { tenant, project, ..Ask::default() })?;
    }
    if ask.tether == Some(Tether::Process) && !caller.peer.watchable && !has_free_descriptor() {
        return Err(no_room("its process cannot be watched"));
    }
    let pid = caller.peer.process.map(|process| process.pid);
    let program = program::describe(pid, caller.peer.uid);
    let later = connection.caller();
    let Registration { session, secret, ttl_ms, beat_ms, resumed } =
        context.heart.register(caller, ask, program).await?;
    let page = context.about.pages.join(session.to_string());
    if !resumed && is_missing(&page) {
        let release = Release { session: session.0, hold: None, exit_status: None, stopped: None };
        context.heart.release(later, release).await?;
        return Err(no_room("it would have no page"));
    }
    let mut agent = context.about.agent.clone();
    if context.about.finds_guarantee
        && let Some(found) = context.heart.probe().await?.health.guarantee
    {
        found.clone_into(&mut agent.guarantee);
    }
    let registered = Registered {
        session: session.0,
        secret,
        ttl_ms,
        beat_ms,
        page: page.to_string_lossy().into_owned(),
        boot_id: context.about.boot_id,
        resumed,
        agent,
    };
    Ok(json(StatusCode::CREATED, &registered))
}

/// True for a session that the heart could make no page for.
fn is_missing(page: &Path) -> bool {
    page.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn not_tied(pid: u32, error: &TieError) -> Refused {
    if matches!(error, TieError::System(_)) && !has_free_descriptor() {
        return no_room("its process cannot be watched");
    }
    let way_out = "name another, or have the process register itself";
    let code = match error {
        TieError::Ended => Code::NotFound,
        TieError::Foreign => Code::Forbidden,
        TieError::OtherNamespace | TieError::Hidden | TieError::System(_) => {
            let rule = format!("a process that the agent can see and watch ({error})");
            return Invalid::new("pid", &pid.to_string(), &rule, way_out).into();
        }
    };
    Problem::new(code, format!("pid is {pid}, but {error}; {way_out}")).into()
}

fn no_room(what: &str) -> Refused {
    let cause = if has_free_descriptor() {
        "the agent's log says why: its runtime directory is full, or not writable"
    } else {
        "the agent has no descriptor left: end sessions or connections, or raise its limit of open \
         files (LimitNOFILE=, ulimit -n)"
    };
    let detail = format!("a session cannot be registered, as {what}: {cause}");
    Problem::new(Code::UpstreamUnavailable, detail).retry_after_ms(1000).into()
}
