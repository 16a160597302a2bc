//! Inputs that wait for an agent's next turn.

use std::collections::VecDeque;

use tenure_core::model::{self, ClaimId, SessionId};

use super::super::core::{Caller, Message, Report};

/// Inputs in the order of their arrival.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) reports: VecDeque<Report>,
    /// Reports as the keeper hears them.
    pub(crate) heard: VecDeque<model::Report>,
    pub(crate) exits: VecDeque<SessionId>,
    /// Grants whose callers were gone before they read of them.
    pub(crate) undelivered: Vec<ClaimId>,
    pub(crate) messages: VecDeque<(Caller, Message)>,
}

impl Inbox {
    /// True if no turn is needed for what came.
    pub(crate) fn is_empty(&self) -> bool {
        self.reports.is_empty()
            && self.heard.is_empty()
            && self.exits.is_empty()
            && self.undelivered.is_empty()
            && self.messages.is_empty()
    }

    /// Drops everything, as the death of the agent does; the messages, whose senders are to be told.
    pub(crate) fn take_messages(&mut self) -> VecDeque<(Caller, Message)> {
        std::mem::take(self).messages
    }
}
