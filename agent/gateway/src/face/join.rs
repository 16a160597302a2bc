//! The exchange of a join key for a key of an agent's own, whose secret the gateway never sees.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use tenure_stores::gateway::key::{KeyId, SecretHash};
use tenure_stores::gateway::wire::Join;
use tenure_stores::keyring::Joined;
use tenure_wire::Code;

use super::Face;
use super::calls::{body, json};
use super::refused::Refused;
use crate::access::{Caller, Peer, StoreKeysError};
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
    let outcome = exchange(&face, &caller, request).await;
    outcome.inspect_err(|refused| face.note_refusal(By::from(&caller), refused))
}

async fn exchange(face: &Face, caller: &Caller, request: Request) -> Result<Response, Refused> {
    let join = join_key(caller)?;
    let Some(keys) = &face.keys else {
        let detail = "this gateway reads its keys from a file, and adds none: have its administrator run `keys add` \
                      without --once, or keep keys in the store (keys_in_store)";
        return Err(Refused::new(Code::Forbidden, detail));
    };
    let wanted: Join = serde_json::from_slice(&body(request).await?)
        .map_err(|error| Refused::new(Code::Invalid, error.to_string()))?;
    let id = KeyId::parse(&wanted.id)
        .ok_or_else(|| Refused::field("id", "must be 8 characters a to z and 2 to 7"))?;
    let hash = SecretHash::parse(&wanted.sha256)
        .ok_or_else(|| Refused::field("sha256", "must be 64 hexadecimal digits"))?;
    let refused = |why: &str| {
        let detail = format!("join key {join} {why}; ask the gateway's administrator for another");
        Err(Refused::new(Code::Forbidden, detail))
    };
    match keys.join(join, id, hash).await {
        Ok(Joined::Done) => {}
        Ok(Joined::Used) => return refused("was used by another agent already"),
        Ok(Joined::Revoked) => {
            return refused("was exchanged for this agent's key, which was revoked");
        }
        Ok(Joined::Taken) => {
            return refused("cannot be exchanged for a key with this id, which is taken");
        }
        Err(StoreKeysError::Store(failure)) => return Err(failure.into()),
        Err(StoreKeysError::Edit(error)) => return refused(&format!("cannot be read: {error}")),
    }
    // Others are let in by it within a second.
    face.take_keys(keys.read().await?);
    json(&serde_json::Map::new())
}

/// The key that a caller shows, if it is one to be exchanged.
fn join_key(caller: &Caller) -> Result<KeyId, Refused> {
    let key = caller.key.filter(|_| caller.bounds.is_once);
    key.ok_or_else(|| {
        let detail = "this is no join key: it lets its agent in as it is, or none is needed";
        Refused::new(Code::Forbidden, detail)
    })
}
