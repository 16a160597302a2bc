//! The process that runs a program.

use tenure_core::keeper::{Peer, Process};
use tenure_core::model::Quota;

/// A process, and what befalls it.
pub(crate) struct ClientProcess {
    /// Grows with every process of the program.
    pub(crate) life: u64,
    pub(crate) peer: Peer,
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// It reads what it is told, and does nothing.
    pub(crate) hung: bool,
    /// The program has ended for good.
    pub(crate) done: bool,
    pub(crate) thoughts: u64,
}

impl ClientProcess {
    /// None yet.
    pub(crate) fn new(id: usize) -> ClientProcess {
        ClientProcess {
            life: 0,
            peer: Peer {
                uid: 1000 + (id % 2) as u32,
                gid: 1000,
                process: None,
                watchable: false,
                quota: Quota::default(),
            },
            alive: false,
            frozen: false,
            hung: false,
            done: false,
            thoughts: 0,
        }
    }

    /// The next process begins.
    pub(crate) fn begin(&mut self, process: Process, watchable: bool) {
        (self.peer.process, self.peer.watchable) = (Some(process), watchable);
        (self.alive, self.frozen, self.hung) = (true, false, false);
        self.life += 1;
    }

    /// True if it reads and acts.
    pub(crate) fn is_running(&self) -> bool {
        self.alive && !self.frozen && !self.hung
    }

    /// Is stopped, or hangs; false if it does not run anyway.
    pub(crate) fn hold_up(&mut self, stopped: bool) -> bool {
        if !self.is_running() {
            return false;
        }
        (self.frozen, self.hung) = (stopped, !stopped);
        true
    }
}
