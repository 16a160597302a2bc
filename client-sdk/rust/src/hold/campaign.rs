//! One term after the other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{AcquireError, Cell, Hold, Resource, Stage};

type Term = Pin<Box<dyn Future<Output = Result<Hold, AcquireError>> + Send>>;

/// A stream of terms; see [`Resource::campaign`].
///
/// It waits for the end of a term before it stands for the next one, so that the holder sees every
/// loss. It ends after an error, which no waiting would cure. Dropping it gives up the wait, but
/// not the term that it has handed out.
#[must_use = "a campaign does nothing unless it is asked for terms"]
pub struct Campaign {
    resource: Resource,
    previous: Option<Arc<Cell>>,
    coming: Option<Term>,
    ended: bool,
}

impl Campaign {
    pub(super) fn new(resource: Resource) -> Campaign {
        Campaign { resource, previous: None, coming: None, ended: false }
    }

    /// The next term; `None` after an error. Dropping the future keeps the place in the queue.
    ///
    /// # Errors
    ///
    /// Those of [`Resource::acquire`].
    pub async fn next(&mut self) -> Option<Result<Hold, AcquireError>> {
        std::future::poll_fn(|context| self.poll_term(context)).await
    }

    fn poll_term(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Hold, AcquireError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let previous = &mut self.previous;
        let resource = &self.resource;
        let coming =
            self.coming.get_or_insert_with(|| Box::pin(term(resource.clone(), previous.take())));
        let result = std::task::ready!(coming.as_mut().poll(context));
        self.coming = None;
        match &result {
            Ok(hold) => self.previous = Some(Arc::clone(&hold.claim.cell)),
            Err(_) => self.ended = true,
        }
        Poll::Ready(Some(result))
    }
}

async fn term(resource: Resource, previous: Option<Arc<Cell>>) -> Result<Hold, AcquireError> {
    resource.alive()?;
    if let Some(previous) = previous {
        // An error means that nobody has the cell any more, which is as good as over.
        let _ = previous.subscribe().wait_for(Stage::is_over).await;
        // The agent was silent at valid-until, and may still think it held.
        if matches!(previous.stage(), Stage::Lost { told: false, .. }) {
            resource.session().core().shared.release_in_background(previous.id);
        }
    }
    resource.acquire().await
}

impl futures_core::Stream for Campaign {
    type Item = Result<Hold, AcquireError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_term(context)
    }
}

impl fmt::Debug for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign").field("resource", &self.resource).finish_non_exhaustive()
    }
}
