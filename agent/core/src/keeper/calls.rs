//! Calls to the upstream: those on their way, and renewals that wait for the next one.

use super::checkpoint::Checkpoints;
use super::command::Command;
use super::history::Records;
use super::map::Map;
use super::missed::Missed;
use super::outbox::Outbox;
use super::request::Ticket;
use super::revoke::Revoking;
use super::settings::BEATS_PER_CALL_MAX;
use crate::model::{CallId, ClaimId, Peer, Request, Resource, SessionId};

/// A call to the upstream whose answer has not come.
#[derive(Debug)]
pub(super) enum Call {
    Claim(ClaimId),
    Renew(Vec<Renewed>),
    /// Any answer will do.
    Look,
    Release(ClaimId),
    Announce(SessionId),
    EndSession(SessionId),
    /// For a caller that asked for it.
    Standing(Ticket, Peer, Resource),
    /// For a caller that tried once while others of this agent wait, with the session it tried for.
    Contended(Ticket, SessionId, Resource),
    /// For the callers of waits whose time is over; the first of those waits.
    HolderOfWait(ClaimId, Resource),
    /// For those who watch it.
    Watch(Resource),
    Routes(Ticket),
    /// Asks for those from whom a resource is to be taken.
    Losers(Box<Revoking>),
    Revoke(Box<Revoking>),
    Resources(Ticket),
    /// Changes of who holds what.
    Record,
    History(Ticket),
    /// The first page of them, or a later one.
    Agents {
        ticket: Ticket,
        is_first: bool,
    },
    /// The agent makes itself known …
    Show,
    /// … and takes its leave.
    Hide,
    /// One of several; the last of them answers the caller.
    RevokeOne,
}

/// The subject of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewed {
    Hold(ClaimId),
    Session(SessionId),
}

/// The keeper's side of the conversation with the upstream.
#[derive(Debug, Default)]
pub(super) struct Calls {
    asked: Map<CallId, Call>,
    last: u64,
    /// Renewals that came due and are not sent.
    due: Vec<Renewed>,
    pub(super) missed: Missed,
    pub(super) checkpoints: Checkpoints,
    /// Changes of who holds what.
    pub(super) records: Records,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.checkpoints.is_empty()
    }

    /// The number of the next call.
    pub(super) fn next(&self) -> CallId {
        CallId(self.last + 1)
    }

    pub(super) fn ask(&mut self, out: &mut Outbox, request: Request, asked: Call) -> CallId {
        let call = self.next();
        self.last += 1;
        self.asked.insert(call, asked);
        out.push(Command::Call { call, request });
        call
    }

    /// Takes the call that is answered.
    pub(super) fn take(&mut self, call: CallId) -> Option<Call> {
        self.asked.remove(&call)
    }

    /// Puts a renewal into the next batch.
    pub(super) fn renew(&mut self, item: Renewed) {
        if self.due.last() != Some(&item) {
            self.due.push(item);
        }
    }

    /// Takes as many renewals as one call has room for.
    pub(super) fn take_due(&mut self) -> Vec<Renewed> {
        let rest = self.due.split_off(self.due.len().min(BEATS_PER_CALL_MAX));
        std::mem::replace(&mut self.due, rest)
    }
}
