//! `POST /v1/revoke`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_core::model::{Resource, Revocation};
use tenure_wire::rules::{BARRED_MAX, resource_name, scope, token, visible};
use tenure_wire::{DEFAULT_TENANT, Holder, Revoke, Revoked};

use super::validate::within;
use tracing::warn;

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;

impl Ask for Revoke {
    const EXAMPLE: &'static str =
        r#"{"kind":"leader","name":"cleanup","reason":"upgrade of the database"}"#;
}

/// Take a resource away from its holder.
#[utoipa::path(post, path = "/v1/revoke", tag = "fleet", request_body = Revoke,
    responses(
        (status = 200, description = "From whom it was taken", body = Revoked),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn revoke(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Revoke>,
) -> Result<Response, Refused> {
    context.check_administrator(connection.peer().uid, "revoke")?;
    let tenant = ask.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    scope("tenant", tenant)?;
    resource_name(ask.kind, &ask.name)?;
    let resource =
        Resource { tenant: tenant.into(), kind: ask.kind, name: ask.name.as_str().into() };
    if let Some(reason) = &ask.reason {
        visible("reason", reason)?;
    }
    within("for_ms", ask.for_ms, BARRED_MAX)?;
    ask.token.map_or(Ok(()), |it| token("token", it))?;
    let caller = connection.caller();
    let uid = caller.peer.uid;
    let pid = connection.registrant().peer.process.map(|process| process.pid);
    let revocation = Revocation {
        by: format!("{} on {}", name_of(uid).await, context.about.host),
        reason: ask.reason,
        for_ms: ask.for_ms.unwrap_or(0),
    };
    let (by, reason) = (revocation.by.clone(), revocation.reason.clone());
    let what = resource.to_string();
    let revoked = context.heart.revoke(caller, resource, ask.token, revocation).await?;
    let from: Vec<String> = revoked.from.iter().map(named).collect();
    let from = from.join(", ");
    let grants = revoked.revoked;
    warn!(uid, pid, %by, resource = %what, grants, %from, reason, for_ms = ask.for_ms, "revoked");
    Ok(json(StatusCode::OK, &revoked))
}

/// A loser in the log.
fn named(holder: &Holder) -> String {
    format!("{} on {} (token {})", holder.name, holder.host, holder.token)
}

/// The user's name; the number of one without. The directory of users may be on another machine.
async fn name_of(uid: u32) -> String {
    let look = move || nix::unistd::User::from_uid(uid.into()).ok().flatten();
    let user = tokio::task::spawn_blocking(look).await.ok().flatten();
    user.map(|user| user.name)
        .filter(|name| visible("user", name).is_ok())
        .unwrap_or_else(|| format!("uid {uid}"))
}
