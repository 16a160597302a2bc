//! The means that give a hold back, whatever happens to its owner.

use std::sync::Arc;

use uuid::Uuid;

use super::{Cell, Stage};
use crate::client::CallError;
use crate::session::Core;

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

    /// Gives it back and waits for the answer; tried again in the background unless that comes.
    pub(super) async fn release(self) -> Result<(), CallError> {
        let mut unanswered = Unanswered { core: Arc::clone(&self.core), hold: Some(self.cell.id) };
        if !self.cell.release() {
            unanswered.hold = None;
        }
        let shared = &self.core.shared;
        let result = shared.client.release(shared.session(), Some(self.cell.id)).await;
        match result {
            Err(error) if error.is_transient() => Err(error),
            Err(error) if !error.is_session_gone() => {
                unanswered.hold = None;
                Err(error)
            }
            _ => {
                unanswered.hold = None;
                Ok(())
            }
        }
    }

    /// Waits until it is granted or over.
    pub(super) async fn settled(&self) -> Stage {
        let mut stage = self.cell.subscribe();
        match stage.wait_for(|stage| !matches!(stage, Stage::Waiting { .. })).await {
            Ok(stage) => *stage,
            // Impossible while this owns the cell; what a closed cell would be.
            Err(_) => Stage::Released,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let shared = &self.core.shared;
        shared.drop_cell(self.cell.id);
        // Neither what the agent has ended by itself, nor what `release` has taken over.
        if self.cell.release() || matches!(self.cell.stage(), Stage::Lost { told: false, .. }) {
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
