//! Revocations from the status page: each has a reason, which the loser and the audit trail are told.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request as Call, State};
use serde::{Deserialize, Serialize};
use tenure_core::model::{Answer, Request, Resource, Revocation};
use tenure_wire::{Code, Kind};
use tracing::warn;

use crate::access::Caller;
use crate::face::refused::Refused;
use crate::face::{Face, calls};
use crate::trail::By;

/// The body of a revocation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    tenant: Arc<str>,
    kind: Kind,
    name: Arc<str>,
    /// The grant to revoke: a later holder keeps its own.
    token: Option<u64>,
    reason: String,
    /// How long the losers may not acquire the resource again, ms.
    #[serde(default)]
    for_ms: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct RevokeAnswer {
    /// Number of grants taken away.
    revoked: u64,
}

/// Revokes grants of a resource. Without the right `revoke` a caller may revoke its own holds alone.
pub(super) async fn revoke(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<RevokeAnswer>, Refused> {
    let caller = face.admit_person(&request)?;
    let revoked = take(&face, &caller, request).await;
    let revoked = revoked.inspect_err(|it| face.note_refusal(By::from(&caller), it))?;
    Ok(Json(RevokeAnswer { revoked }))
}

async fn take(face: &Face, caller: &Caller, request: Call) -> Result<u64, Refused> {
    let wish: Wish = serde_json::from_slice(&calls::body(request).await?)
        .map_err(|error| Refused::new(Code::Invalid, error.to_string()))?;
    let Wish { tenant, kind, name, token, reason, for_ms } = wish;
    let resource = Resource { tenant, kind, name };
    let (by, what) = (caller.name(), resource.to_string());
    let said = Revocation { by: by.clone(), reason: Some(reason.clone()), for_ms };
    let request = Request::Revoke { resource, token, revocation: Some(Arc::new(said)) };
    request.check()?;
    let Answer::Revoked(grants) = face.carry_out(caller, request).await? else { return Ok(0) };
    warn!(by, resource = what, grants, reason, for_ms, "revoked");
    Ok(grants)
}
