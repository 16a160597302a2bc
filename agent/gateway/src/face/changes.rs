//! The change stream of an agent.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use tenure_core::model::Failure;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;

use super::refused::Refused;
use super::stream::Source;
use super::{Face, owners, stream};
use crate::access::Right;
use crate::store::{Listener, Missed};

/// Tells an agent what changes, from now on, until the gateway ends.
pub(super) async fn changes(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.let_in(&request)?;
    // Before the first byte: what changes after it is told.
    let place = face.budgets.stream(&caller)?;
    let listener = face.store.listen(caller.principal.mark).await;
    let listener = listener.map_err(|gone| Failure::Unavailable(gone.to_string()))?;
    let hides_from = (!caller.has(Right::Owners)).then_some(caller.principal.mark);
    Ok(stream::open(face, caller, place, Told { listener, hides_from }))
}

/// The news for an agent.
struct Told {
    listener: Listener,
    /// The mark of a principal that is not told who others are.
    hides_from: Option<Mark>,
}

impl Source for Told {
    /// The next event; `None` when the store has ended.
    async fn next(&mut self) -> Option<Bytes> {
        match self.listener.next().await {
            Ok(line) => line.map(|line| match self.hides_from {
                Some(mark) => owners::hide_news(mark, &line).map_or(line, Bytes::from),
                None => line,
            }),
            Err(Missed) => News::Reset.line().ok().map(Bytes::from),
        }
    }
}
