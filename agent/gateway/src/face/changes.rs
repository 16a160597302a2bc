//! The change stream of an agent.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use tenure_core::model::Failure;
use tenure_stores::gateway::wire::News;

use super::refused::Refused;
use super::stream::Source;
use super::{Face, stream};
use crate::store::{Listener, Missed};

/// Tells an agent what changes, from now on, until the gateway ends.
pub(super) async fn changes(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.let_in(&request)?;
    // Before the first byte: what changes after it is told.
    let place = face.streams.take(caller.principal.mark)?;
    let listener = face.store.listen(caller.principal.mark).await;
    let listener = listener.map_err(|gone| Failure::Unavailable(gone.to_string()))?;
    Ok(stream::open(face, caller, place, listener))
}

impl Source for Listener {
    /// The next event; `None` when the store has ended.
    async fn next(&mut self) -> Option<Bytes> {
        match Listener::next(self).await {
            Ok(line) => line,
            Err(Missed) => News::Reset.line().ok().map(Bytes::from),
        }
    }
}
