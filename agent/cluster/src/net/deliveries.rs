//! Images that could not be given to nodes: told once, and tried again after pauses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use super::wire::IMAGE_MAX;

/// The pause after the first failure, and the longest one. Each try reads the whole image.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The nodes whose last image failed. Cheap to clone: all are the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deliveries(Arc<Mutex<BTreeMap<u64, Failed>>>);

#[derive(Debug)]
struct Failed {
    cause: String,
    count: u32,
    is_lasting: bool,
}

/// An image that nodes do not take.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cluster's image has {bytes} bytes, and nodes take {IMAGE_MAX} at most: release holds, end sessions or wait until \
     they have run out, and lower cluster.bytes_max"
)]
pub(crate) struct TooLarge {
    bytes: u64,
}

impl TooLarge {
    /// Looks whether nodes take an image of so many bytes.
    pub(crate) fn check(bytes: u64) -> Result<(), TooLarge> {
        if bytes > IMAGE_MAX as u64 { Err(TooLarge { bytes }) } else { Ok(()) }
    }
}

impl Deliveries {
    fn failed(&self) -> MutexGuard<'_, BTreeMap<u64, Failed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image for a node failed; the pause before the next try.
    pub(super) fn fail(
        &self,
        node: u64,
        address: &str,
        cause: String,
        is_lasting: bool,
    ) -> Duration {
        let mut all = self.failed();
        let known = all.get(&node);
        if known.is_none_or(|known| known.cause != cause) {
            warn!(
                "node {node:x} at {address} cannot be given an image, and is tried again: {cause}"
            );
        }
        let count = known.map_or(0, |known| known.count);
        all.insert(node, Failed { cause, count: count.saturating_add(1), is_lasting });
        let [first, longest] = PAUSES;
        first.saturating_mul(2_u32.saturating_pow(count.min(16))).min(longest)
    }

    /// The node has its image.
    pub(super) fn succeed(&self, node: u64, address: &str) {
        if self.failed().remove(&node).is_some() {
            info!("node {node:x} at {address} has taken an image");
        }
    }

    /// The reason for which a node has not taken its image.
    pub(crate) fn cause(&self, node: u64) -> Option<String> {
        self.failed().get(&node).map(|failed| failed.cause.clone())
    }

    /// The reason, if trying again does not help.
    pub(crate) fn lasting_cause(&self, node: u64) -> Option<String> {
        self.failed()
            .get(&node)
            .filter(|failed| failed.is_lasting)
            .map(|failed| failed.cause.clone())
    }
}
