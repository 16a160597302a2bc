//! The rules of the machine over an upgrade: a cluster goes over to later ones once all of its nodes know them.

use std::sync::Arc;

use tracing::{debug, info};

use super::Node;
use crate::machine::Operation;

impl Node {
    /// Has the cluster go by the latest rules that all nodes know, if this node leads and the cluster does not yet.
    pub(super) async fn raise_version(&self) {
        let (known, version) =
            self.0.machine.look(|machine, _| (machine.known(), machine.version()));
        let Some(version) = version.filter(|version| *version < known) else { return };
        let view = self.view();
        if view.leader != Some(self.id()) {
            return;
        }
        // One that is added meanwhile may not know them.
        let Ok(office) = Arc::clone(&self.0.office.versions).try_lock_owned() else { return };
        let others = self.ask_others(view.applied).await;
        let known = common(known, others.into_values().map(|told| told.map(|it| it.known)));
        let Some(known) = known.filter(|known| *known > version) else { return };
        let node = self.clone();
        // Until a majority has it or this node leads no more: nobody waits for that.
        tokio::spawn(async move {
            match node.propose(Operation::Version(known)).await {
                Ok(_) => {
                    info!("all nodes know version {known} of the entries: the cluster goes by it")
                }
                // It is looked at again.
                Err(error) => debug!(%error, "the version stays as it is"),
            }
            drop(office);
        });
    }
}

/// PURE. The latest version that all know; `None` while one is silent.
fn common(own: u32, others: impl IntoIterator<Item = Option<u32>>) -> Option<u32> {
    others.into_iter().try_fold(own, |least, other| Some(least.min(other?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_oldest_program_and_waits_for_the_silent() {
        assert_eq!(common(3, []), Some(3));
        assert_eq!(common(3, [Some(2), Some(4)]), Some(2));
        assert_eq!(common(3, [Some(3), None]), None);
    }
}
