//! A place in line for the next term, while the work of a lost one still ends.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Cell, Hold, Reason, Resource, Stage};
use crate::wire::LostReason;

/// A task that stands for the next term as soon as the loss of the former one is known. Dropping this gives up the place,
/// or gives back what was granted.
pub(super) struct Standby {
    /// Tells the task that the work of the former term has ended.
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<Option<Hold>>,
}

impl Standby {
    pub(super) fn begin(resource: &Resource, former: &Arc<Cell>) -> Standby {
        let (end, ended) = oneshot::channel();
        let runtime = &resource.session().core().shared.runtime;
        let task = runtime.spawn(stand(resource.clone(), Arc::clone(former), ended));
        Standby { end: Some(end), task }
    }

    /// The work of the former term has ended: waits for the next one, if there is a place in line for it. Dropping the
    /// future gives up that place.
    pub(super) async fn end(mut self) -> Option<Hold> {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        (&mut self.task).await.ok().flatten()
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An error is for the caller that asks for the next term: its own attempt meets it again.
async fn stand(
    resource: Resource,
    former: Arc<Cell>,
    mut ended: oneshot::Receiver<()>,
) -> Option<Hold> {
    tokio::select! {
        biased;
        is_lost = is_lost(&former) => is_lost.then_some(())?,
        _ = &mut ended => return None,
    }
    drop(former);
    let acquired = resource.acquire();
    tokio::pin!(acquired);
    let hold = tokio::select! {
        biased;
        hold = &mut acquired => hold.ok()?,
        // The place in line is kept.
        _ = &mut ended => return acquired.await.ok(),
    };
    #[expect(clippy::disallowed_methods, reason = "a hold does not outlast a sleep of the machine")]
    let patience = tokio::time::sleep(hold.ttl());
    let is_wanted = tokio::select! {
        biased;
        told = &mut ended => told.is_ok(),
        // Others would wait for work that may never end, as they wait for a holder that has died.
        () = patience => false,
        _ = hold.lost() => false,
    };
    (is_wanted && (hold.is_held() || hold.is_shown())).then_some(hold)
}

/// Waits until the agent says that a hold is lost. Then true, unless its program does not get on, or it was given back.
async fn is_lost(cell: &Cell) -> bool {
    // The agent may think a hold held that is over by the page alone: the work must end before it is told otherwise.
    let is_known =
        |stage: &Stage| matches!(stage, Stage::Released { .. } | Stage::Lost { told: true, .. });
    let mut stage = cell.subscribe();
    let Ok(stage) = stage.wait_for(is_known).await else { return false };
    match *stage {
        Stage::Lost { lost, .. } => match lost.reason {
            Reason::Lost(LostReason::Stalled | LostReason::AgentStopping) => false,
            reason => matches!(reason, Reason::Lost(_)),
        },
        _ => false,
    }
}
