//! Programs that have asked an agent for something and wait for it.

use std::collections::BTreeMap;

use tenure_core::keeper::{Process, Reply, StreamId, Ticket};
use tenure_core::model::SessionId;

use super::super::core::Caller;

/// An open stream.
pub(crate) struct OpenStream {
    pub(crate) client: usize,
    pub(crate) life: u64,
    pub(crate) session: Option<SessionId>,
    /// Guarded work hangs on it.
    pub(crate) is_tether: bool,
    /// Its reader takes nothing more.
    pub(crate) is_full: bool,
}

/// Programs that are connected to an agent, and those that it watches.
#[derive(Default)]
pub(crate) struct Callers {
    /// The caller of each request; true if it is blocked until it is granted something.
    pub(crate) tickets: BTreeMap<Ticket, (Caller, bool)>,
    pub(crate) streams: BTreeMap<StreamId, OpenStream>,
    pub(crate) watches: BTreeMap<SessionId, Process>,
    /// Planted: the last answers to checkpoints.
    pub(crate) checkpointed: BTreeMap<Caller, Reply>,
}

impl Callers {
    /// Callers that are blocked until they are granted something.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = Caller> {
        self.tickets.values().filter(|(_, blocks)| *blocks).map(|(caller, _)| *caller)
    }

    /// Streams that observe a resource.
    pub(crate) fn observing(&self) -> usize {
        self.streams.values().filter(|open| open.session.is_none()).count()
    }
}
