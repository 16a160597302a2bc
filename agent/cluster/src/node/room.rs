//! The bound of what a cluster keeps: all of it must fit into an image that other nodes are given, and into a backup.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{Denial, DenialRule, Failure};
use tenure_core::time::Boottime;
use tracing::{info, warn};

use super::Node;
use crate::machine::Operation;
use crate::size::asks_for_more;

/// The default of `cluster.bytes_max`.
pub const BYTES_MAX: u64 = 256 << 20;
/// Operators are warned from here on, in percent of it, until it is less than the other.
const WARN_AT: u64 = 80;
const WARN_OVER_AT: u64 = 70;
/// The rest between two counts, and the part of the time that they may take.
const COUNT_EVERY: Duration = Duration::from_secs(3);
const COUNT_REST: u32 = 20;
/// The time after which whoever was refused may ask again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The room for what a cluster keeps.
pub(super) struct Room {
    bytes_max: u64,
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    is_scarce: bool,
    /// The latest entry that was counted.
    counted: u64,
    /// No count before that.
    next: Boottime,
}

impl Room {
    pub(super) fn of(bytes_max: u64) -> Room {
        Room { bytes_max, looked: Mutex::default() }
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_scarce(&self, bytes: u64, percent: u64) -> bool {
        bytes >= self.bytes_max / 100 * percent
    }
}

impl Node {
    /// The bytes that the cluster keeps, about, and those that it may.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.0.machine.bytes(), self.0.office.room.bytes_max)
    }

    /// True if there is little room left.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.0.office.room.is_scarce(self.bytes().0, WARN_AT)
    }

    /// Refuses what asks for more than the cluster has room for.
    pub(super) fn make_room(&self, operation: &Operation) -> Result<(), Failure> {
        let (bytes, bytes_max) = self.bytes();
        if bytes < bytes_max || !self.0.machine.look(|it, _| asks_for_more(it, operation)) {
            return Ok(());
        }
        let rule = DenialRule::Quota(ASK_AGAIN);
        let detail = format!(
            "the cluster holds {bytes} of {bytes_max} bytes (cluster.bytes_max), and takes nothing more: release holds or end \
             sessions, or have its administrator raise that on all nodes"
        );
        Err(Failure::Denied(Denial { rule, detail }))
    }

    /// Warns where there is little room, and counts then what is there: the guess is too high.
    pub(super) async fn look_at_room(&self) {
        let (bytes, bytes_max) = self.bytes();
        let room = &self.0.office.room;
        let (now, applied) = ((self.0.clock)(), self.view().applied);
        if room.is_scarce(bytes, WARN_AT) && self.is_due(now, applied) {
            let machine = self.0.machine.clone();
            // It takes as long as an image takes.
            let counted = tokio::task::spawn_blocking(move || machine.count()).await;
            let after = (self.0.clock)();
            let rest = COUNT_EVERY.max(after.since(now) * COUNT_REST);
            let mut looked = room.looked();
            looked.next = after + rest;
            if counted.is_ok() {
                looked.counted = applied;
            }
        }
        let bytes = self.bytes().0.min(bytes);
        let mut looked = room.looked();
        if !looked.is_scarce && room.is_scarce(bytes, WARN_AT) {
            looked.is_scarce = true;
            warn!(
                "the cluster holds {bytes} of {bytes_max} bytes (cluster.bytes_max): beyond that it takes no more sessions and \
                 claims"
            );
        } else if looked.is_scarce && !room.is_scarce(bytes, WARN_OVER_AT) {
            looked.is_scarce = false;
            info!("the cluster holds {bytes} of {bytes_max} bytes again");
        }
    }

    fn is_due(&self, now: Boottime, applied: u64) -> bool {
        let looked = self.0.office.room.looked();
        looked.counted < applied && looked.next <= now
    }
}
