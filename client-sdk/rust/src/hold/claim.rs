//! The means that give a hold back, whatever happens to its owner.

use std::sync::Arc;

use uuid::Uuid;

use super::{Cell, Reason, Stage};
use crate::client::CallError;
use crate::session::Core;
use crate::wire::Code;

/// A hold, or a place in the queue. Dropping it gives it back in the background.
pub(super) struct Claim {
    /// Keeps the session open.
    pub(super) core: Arc<Core>,
    pub(super) cell: Arc<Cell>,
}

impl Claim {
    pub(super) fn new(core: &Arc<Core>, cell: Arc<Cell>) -> Claim {
        Claim { core: Arc::clone(core), cell }
    }

    /// Gives it back and waits for the answer; tried again in the background unless that comes. Returns why there was
    /// nothing to give back, if the agent says so: `Untold` where an event tells the reason.
    pub(super) async fn release(&self) -> Result<Option<Reason>, CallError> {
        let mut unanswered = Unanswered { core: Arc::clone(&self.core), hold: Some(self.cell.id) };
        if !self.end() {
            unanswered.hold = None;
        }
        let shared = &self.core.shared;
        let mut result = shared.client.release_once(shared.session(), self.cell.id).await;
        let is_repeated = matches!(result, Err(CallError::Unreachable { .. }));
        if is_repeated {
            result = shared.client.release(shared.session(), Some(self.cell.id)).await;
        }
        if !result.as_ref().is_err_and(CallError::is_transient) {
            unanswered.hold = None;
        }
        match result {
            // The first call may have given it back, though its answer was lost.
            Ok(is_given_back) if is_given_back || is_repeated => Ok(None),
            Ok(_) => Ok(Some(Reason::Released)),
            Err(error) if error.is_session_gone() => Ok(Some(Reason::SessionGone)),
            Err(error) if error.code() == Some(Code::HoldLost) => Ok(Some(Reason::Untold)),
            Err(error) => Err(error),
        }
    }

    /// Ends it as given back; a hold that is not held any more as lost. Returns whether it was not over.
    fn end(&self) -> bool {
        let (cell, shared) = (&self.cell, &self.core.shared);
        let is_unseen = matches!(cell.stage(), Stage::Held(_)) && !shared.shows(cell);
        if is_unseen && shared.lapse(cell) {
            return true;
        }
        // Without a connection a restarted agent may have it still, and show it in another slot.
        if is_unseen && shared.is_connected() {
            return cell.lose(Reason::Untold, false);
        }
        cell.release()
    }

    /// Waits until it is granted or over.
    pub(super) async fn settled(&self) -> Stage {
        let mut stage = self.cell.subscribe();
        match stage.wait_for(|stage| !matches!(stage, Stage::Waiting { .. })).await {
            Ok(stage) => *stage,
            // Impossible while this owns the cell; what a closed cell would be.
            Err(_) => Stage::Released { token: 0 },
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let shared = &self.core.shared;
        if shared.is_forked() {
            return;
        }
        shared.drop_cell(self.cell.id);
        // Neither what the agent has ended by itself, nor what `release` has taken over.
        if self.end() || matches!(self.cell.stage(), Stage::Lost { told: false, .. }) {
            shared.release_in_background(self.cell.id);
        }
    }
}

/// A release whose answer has not come.
struct Unanswered {
    core: Arc<Core>,
    hold: Option<Uuid>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(hold) = self.hold {
            self.core.shared.release_in_background(hold);
        }
    }
}
