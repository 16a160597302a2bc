//! A call that was let in.

use std::sync::{Arc, OnceLock};

use super::account::CallUnderWay;
use super::reads::Turn;

/// A call. It counts among those of its principal until this is dropped: once it is answered, and the store has answered
/// what was asked for it, even if its caller has given it up before.
#[derive(Debug)]
pub struct Call {
    _under_way: CallUnderWay,
    /// That of its large reads: its answer is being made from what was read.
    turn: OnceLock<Arc<Turn>>,
}

impl Call {
    pub(super) fn new(under_way: CallUnderWay) -> Call {
        Call { _under_way: under_way, turn: OnceLock::new() }
    }

    /// Keeps the turn of a large read until the call is over.
    pub fn keep(&self, turn: Arc<Turn>) {
        // One that it has already serves for all of its reads.
        let _ = self.turn.set(turn);
    }

    /// True if its large reads need to wait no more.
    pub fn has_turn(&self) -> bool {
        self.turn.get().is_some()
    }
}
