//! One term after the other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::standby::Standby;
use super::{AcquireError, Asker, Cell, Hold, Resource, Stage};

type Term = Pin<Box<dyn Future<Output = Result<Hold, AcquireError>> + Send>>;

/// A stream of terms; see [`Resource::campaign`].
///
/// It waits for the end of a term, so that the holder sees every loss, and hands out the next one only when it is asked
/// for that. While the work of a lost term still ends, it stands in line already: its place in the queue is not lost. A
/// grant that comes meanwhile is kept for one [`ttl`](Hold::ttl) at most. It is given back then, and the campaign stands
/// in line again when it is asked for the next term.
///
/// It ends after an error, which no waiting would cure. Dropping it gives up the wait, but not the term that it has
/// handed out.
#[must_use = "a campaign does nothing unless it is asked for terms"]
pub struct Campaign {
    resource: Resource,
    previous: Option<Previous>,
    coming: Option<Term>,
    ended: bool,
}

/// A term that was handed out, and the standing for the next one, if there is any.
struct Previous {
    cell: Arc<Cell>,
    standby: Option<Standby>,
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
            Ok(hold) => {
                let cell = Arc::clone(&hold.claim.cell);
                // Another task may have stood for it.
                cell.asked_by(Asker::current());
                // With `hold_at_least` a grant that is given back would be kept from others all the same.
                let may_stand = self.resource.want.hold_at_least_ms.is_none();
                let standby = may_stand.then(|| Standby::begin(&self.resource, &cell));
                self.previous = Some(Previous { cell, standby });
            }
            Err(_) => self.ended = true,
        }
        Poll::Ready(Some(result))
    }
}

async fn term(resource: Resource, previous: Option<Previous>) -> Result<Hold, AcquireError> {
    resource.alive()?;
    if let Some(Previous { cell, standby }) = previous {
        // An error means that nobody has the cell any more, which is as good as over.
        let _ = cell.subscribe().wait_for(Stage::is_over).await;
        if let Some(standby) = standby
            && let Some(hold) = standby.end().await
        {
            return Ok(hold);
        }
        // The agent was silent at valid-until, and may still think it held.
        if matches!(cell.stage(), Stage::Lost { told: false, .. }) {
            resource.session().core().shared.release_in_background(cell.id);
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
