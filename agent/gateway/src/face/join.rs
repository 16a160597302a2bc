//! The exchange of a join key for a key of an agent's own, whose secret the gateway never sees.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;
use tenure_stores::gateway::key::{KeyId, SecretHash};
use tenure_stores::keyring::Joined;
use tenure_wire::Code;

use super::Face;
use super::budget::Visit;
use super::calls::{body, json};
use super::refused::Refused;
use crate::access::{Caller, EditError, Event, Fact, Peer, StoreKeysError};
use crate::trail::By;

/// Adds an agent's own key.
pub(super) async fn join(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let caller = face.access.joining(&request).map_err(Refused::from);
    let caller = caller.inspect_err(|refused| {
        face.note_refusal(By { peer, ..By::default() }, refused);
    })?;
    if let Some(visit) = request.extensions().get::<Arc<Visit>>() {
        visit.let_in(caller.principal.mark);
    }
    let outcome = exchange(&face, &caller, request).await;
    outcome.inspect_err(|refused| face.note_refusal(By::from(&caller), refused))
}

async fn exchange(face: &Face, caller: &Caller, request: Request) -> Result<Response, Refused> {
    let join = join_key(caller)?;
    caller.pace(false).map_err(|wait| Refused::too_fast(caller, wait))?;
    let Some(keys) = &face.keys else {
        let detail = "this gateway reads its keys from a file, and adds none: have its administrator run `keys add` \
                      without --once, or keep keys in the store (keys_in_store)";
        return Err(Refused::new(Code::Forbidden, detail));
    };
    let (id, hash) = wanted(&body(request).await?)?;
    let refused = |why: &str| {
        let detail = format!("join key {join} {why}; ask the gateway's administrator for another");
        Err(Refused::new(Code::Forbidden, detail))
    };
    match keys.join(join, id, hash).await {
        Ok(Joined::Done) => {
            let told = Fact::new(Event::Key, &format!("exchanged for {id}"));
            face.trail.tell(By::from(caller), told);
        }
        Ok(Joined::Again) => {}
        Ok(Joined::Used) => {
            return refused(
                "was used by another agent already, or by this one, whose state_dir was lost",
            );
        }
        Ok(Joined::Revoked) => {
            return refused("was exchanged for this agent's key, which was revoked");
        }
        Ok(Joined::Taken) => {
            return refused("cannot be exchanged for a key with this id, which is taken");
        }
        Ok(Joined::Gone) => return refused("was revoked"),
        Ok(Joined::Full) => return Err(Refused::new(Code::Forbidden, EditError::Full.to_string())),
        Err(StoreKeysError::Store(failure)) => return Err(failure.into()),
        Err(StoreKeysError::Edit(error)) => return refused(&format!("cannot be read: {error}")),
    }
    // Others are let in by it within a second.
    face.read_keys(keys, false).await?;
    json(&serde_json::Map::new())
}

/// The id of the key that is wanted, and the hash of its secret.
fn wanted(body: &[u8]) -> Result<(KeyId, SecretHash), Refused> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| Refused::new(Code::Invalid, format!("the body is no JSON: {error}")))?;
    let text = |field: &str| body.get(field).and_then(Value::as_str);
    let id = text("id").and_then(KeyId::parse);
    let hash = text("sha256").and_then(SecretHash::parse);
    Ok((
        id.ok_or_else(|| Refused::field("id", "must be 8 characters a to z and 2 to 7"))?,
        hash.ok_or_else(|| Refused::field("sha256", "must be 64 hexadecimal digits"))?,
    ))
}

/// The key that a caller shows, if it is one to be exchanged.
fn join_key(caller: &Caller) -> Result<KeyId, Refused> {
    let key = caller.key.filter(|_| caller.bounds.is_once);
    key.ok_or_else(|| {
        let detail = "this is no join key: it lets its agent in as it is, or none is needed";
        Refused::new(Code::Forbidden, detail)
    })
}
