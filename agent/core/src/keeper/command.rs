//! Commands of the keeper. The shell does them in the order given.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{HoldState, Kind, LostReason, ReleasedCause, Tether};

use super::event::Numbered;
use super::journal::Entry;
use super::refusal::Refusal;
use super::request::{Reply, StreamId, Ticket};
use crate::model::Process;
use crate::model::{self, CallId, ClaimId, Resource, Revocation, SessionId};
use crate::time::Boottime;

/// Why the agent ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The session ended.
    SessionEnded,
    /// The agent is stopping; holds are released.
    Stopping,
    /// The agent restarts; holds survive.
    Restarting,
}

/// Something that the shell must do.
#[derive(Debug)]
pub enum Command {
    /// Answer a caller. Nothing else comes under this ticket.
    Reply {
        ticket: Ticket,
        /// With what.
        reply: Result<Reply, Refusal>,
    },
    /// Ask the upstream. An answer or a failure must come back, with the instant just before the
    /// request was sent.
    Call {
        /// The number under which it comes back.
        call: CallId,
        request: model::Request,
    },
    /// Write to a stream; never waits for a slow reader.
    Send { stream: StreamId, event: Numbered },
    /// Close a stream after what was written to it.
    CloseStream {
        stream: StreamId,
        /// Why.
        end: StreamEnd,
    },
    /// Watch the process of a session; its exit must come back. With the pidfd that came along with
    /// the ticket, or after a restart with the one that was kept, or by number and start time.
    Watch {
        /// The session.
        session: SessionId,
        /// The request that brought the process, if this is not a restart.
        ticket: Option<Ticket>,
        /// The process, where its number is known.
        process: Option<Process>,
    },
    /// Stop watching.
    Unwatch {
        /// The session.
        session: SessionId,
    },
    /// Make the session's page, readable by that user alone. If it is there already, keep those
    /// slots and void the others: the last agent may have died between writing the journal and
    /// writing the page.
    OpenPage {
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        /// How many slots it has.
        slots: u32,
        /// The slots to keep.
        keep: Vec<u32>,
    },
    /// Write a slot. `valid_until` is [`Boottime::ZERO`] for *not held*.
    WritePage {
        /// The session.
        session: SessionId,
        /// 0–62.
        slot: u32,
        /// The hold.
        hold: ClaimId,
        /// Its token; 0 before a grant.
        token: u64,
        /// When its holder must stop.
        valid_until: Boottime,
        /// For people who look at the page.
        state: HoldState,
    },
    /// Remove the session's page, after zeroing it for whoever still maps it.
    ClosePage {
        /// The session.
        session: SessionId,
    },
    /// Write to the journal. Everything of a turn is on disk before any [`Command::Reply`],
    /// [`Command::Send`] or [`Command::WritePage`] of that turn is done.
    Persist(Entry),
    /// Log and count.
    Note(Note),
}

/// One state change, for the log and the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A program registered.
    Registered {
        /// The session.
        session: SessionId,
        /// Its name.
        name: Arc<str>,
        /// Its user.
        uid: u32,
        /// Its process.
        pid: Option<u32>,
        tether: Tether,
        /// True if an earlier session was taken up.
        resumed: bool,
    },
    /// A session ended.
    Ended {
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        /// Its name.
        name: Arc<str>,
        /// Why, in words.
        why: &'static str,
        /// How its process ended: the exit code, or 128 + the signal.
        exit: Option<i32>,
    },
    /// A process exited; what that means for its session depends on the tether.
    Exited {
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        /// Its process.
        pid: Option<u32>,
        /// The exit code, or 128 + the signal, where the kernel tells.
        exit: Option<i32>,
    },
    /// A hold was granted.
    Granted {
        /// The hold.
        hold: ClaimId,
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        resource: Resource,
        /// The fencing token.
        token: u64,
        /// From the request to the grant.
        waited: Duration,
    },
    /// A renewal is unknown.
    Jeopardy {
        /// The hold.
        hold: ClaimId,
        /// The session.
        session: SessionId,
        resource: Resource,
        /// The fencing token.
        token: u64,
        cause: Arc<str>,
    },
    /// Out of danger.
    Safe {
        /// The hold.
        hold: ClaimId,
        /// The session.
        session: SessionId,
        resource: Resource,
        /// The fencing token.
        token: u64,
    },
    /// A hold was lost.
    Lost {
        /// The hold.
        hold: ClaimId,
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        resource: Resource,
        /// The fencing token.
        token: u64,
        /// Why.
        reason: LostReason,
        /// The words of whoever took it away.
        revocation: Option<Arc<Revocation>>,
    },
    /// A hold or a wait ended as wished.
    Released {
        /// The hold.
        hold: ClaimId,
        /// The session.
        session: SessionId,
        /// Its user.
        uid: u32,
        resource: Resource,
        /// The fencing token, if it was granted.
        token: Option<u64>,
        /// Why.
        cause: ReleasedCause,
    },
    /// A beat was sent.
    Beat {
        /// How long after it was due.
        late: Duration,
    },
    /// A request was refused for a limit.
    Refused {
        /// The name of the limit.
        limit: &'static str,
        /// The user.
        uid: u32,
    },
    /// A session's claim changed the limit of a semaphore for everybody.
    LimitChanged {
        /// Whose claim.
        session: SessionId,
        /// Its user.
        uid: u32,
        /// The semaphore.
        resource: Resource,
        /// The limit before.
        from: u32,
        /// The limit from now on.
        to: u32,
    },
    /// Holds of a kind were taken up again after a restart.
    Adopted {
        /// The kind.
        kind: Kind,
        /// How many.
        holds: u64,
    },
}
