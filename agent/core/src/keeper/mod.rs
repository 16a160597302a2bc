//! PURE. The agent's mind: local sessions, holds, waiters, timers, which beat is due, what to tell
//! whom.
//!
//! [`Keeper`] has four kinds of method:
//!
//! - *inputs* that bring news, each with `now`: [`Keeper::handle_timeout`],
//!   [`Keeper::handle_answer`], [`Keeper::handle_change`], [`Keeper::handle_exit`],
//!   [`Keeper::open_stream`], [`Keeper::handle_request`] and their like;
//! - [`Keeper::poll_command`], which must be drained after every input, or after the inputs of one
//!   turn; the commands are to be done in the order in which they come;
//! - [`Keeper::poll_timeout`], which says when [`Keeper::handle_timeout`] wants to be called, and may
//!   have changed after every input;
//! - questions that change nothing, such as [`Keeper::stopped`].
//!
//! Within a turn timers come first, then answers, then exits and closed streams, then requests: a
//! hold whose valid-until has passed is lost before anybody can be told otherwise. After a sleep
//! of the machine [`Keeper::handle_wake`] comes before everything.
//!
//! Invariant: nothing here reads a clock, draws from the operating system's randomness, or waits.

mod acquire;
mod beats;
mod calls;
mod checkpoint;
mod claims;
mod command;
mod ended;
mod ends;
mod event;
mod history;
mod hold;
mod holds;
pub mod journal;
mod lifecycle;
mod loss;
mod losses;
mod map;
mod missed;
mod outbox;
mod patience;
mod pending;
mod presence;
mod query;
mod queue;
mod refusal;
mod refused;
mod register;
mod request;
mod revoke;
mod ring;
mod rows;
mod session;
mod sessions;
mod settings;
mod slots;
mod streams;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod tether;
mod timers;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use calls::{Call, Calls};
pub use command::{Command, Note, StreamEnd};
use ended::Ended;
pub use ended::REMEMBERED_MAX;
pub use event::{Numbered, SharedEvent};
pub use history::RECORDS_WAITING_MAX;
use holds::Holds;
pub use losses::LOSSES_BYTES_MAX;
pub use map::looked_up;
use outbox::Outbox;
pub use pending::PENDING_ENDS_MAX;
use pending::Pending;
pub use presence::Presence;
use presence::Showing;
use queue::Queues;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
pub use refusal::{Limit, Refusal, UpstreamError};
pub use request::{
    Reply, Request, SessionFacts, StatusCursor, StatusPage, StatusView, StreamId, StreamTarget,
    Ticket,
};
pub use ring::RING_BYTES_MAX;
use sessions::Sessions;
pub use settings::{BEAT_MIN, BEATS_PER_CALL_MAX, Rhythm, STREAMS_PER_SESSION_MAX, Settings};
use streams::Streams;
use timers::{Timer, Timers};
use uuid::Uuid;
use watch::Watches;

use crate::model::{self, Answer, CallId, ClaimId, Failure, SessionId};
pub use crate::model::{Peer, Process, Quota};
use crate::time::Boottime;

/// Longer than any grid.
const PHASE_MAX_MS: u64 = 1 << 20;
/// How many timers one call of [`Keeper::handle_timeout`] does at most: as many as one call renews.
const TIMERS_PER_CALL: usize = BEATS_PER_CALL_MAX;
/// No further timer, and no further end of many, once it has had this much done.
const COMMANDS_PER_CALL: usize = 1024;

/// The phase of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Restarting,
}

/// The state of the agent itself.
#[derive(Debug)]
struct Agent {
    phase: Phase,
    /// Why nothing new can be written down.
    unrecorded: Option<Arc<str>>,
    /// When the machine woke last, and how long it had slept: holds that were overdue then are lost as `slept`.
    woke: Option<(Boottime, Duration)>,
    random: ChaCha12Rng,
    /// Beats, and looks at queues, are due on grids that begin so late: agents whose clocks are the same, as those
    /// of all containers of a machine, do not call all at once.
    phase_ms: u64,
    showing: Showing,
}

/// The agent's mind.
#[derive(Debug)]
pub struct Keeper {
    settings: Settings,
    agent: Agent,
    sessions: Sessions,
    holds: Holds,
    queues: Queues,
    pending: Pending,
    ended: Ended,
    watches: Watches,
    streams: Streams,
    calls: Calls,
    timers: Timers,
    out: Outbox,
}

impl Keeper {
    /// A keeper that knows nothing yet. Ids and secrets are drawn from `seed`, which must come from
    /// the operating system's generator outside of tests.
    pub fn new(settings: Settings, seed: [u8; 32], now: Boottime) -> Keeper {
        let mut random = ChaCha12Rng::from_seed(seed);
        let phase_ms = random.next_u64() % PHASE_MAX_MS;
        Keeper {
            agent: Agent {
                phase: Phase::Running,
                unrecorded: None,
                woke: None,
                random,
                phase_ms,
                showing: Showing::default(),
            },
            sessions: Sessions::new(now),
            holds: Holds::default(),
            queues: Queues::new(),
            pending: Pending::default(),
            ended: Ended::new(settings.remember, settings.remembered_max),
            watches: Watches::new(),
            streams: Streams::new(settings.rings_bytes_max),
            calls: Calls::default(),
            timers: Timers::default(),
            out: Outbox::default(),
            settings,
        }
    }

    /// When [`Keeper::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        self.timers.next()
    }

    /// The next thing to do.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.out.pop()
    }

    /// True if nothing is left of any client, and nothing is owed to the upstream.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.holds.is_empty()
            && self.queues.is_empty()
            && self.pending.is_empty()
            && self.watches.is_empty()
            && self.streams.is_empty()
            && self.calls.is_empty()
            && self.calls.records.len() == 0
    }

    /// How many entries each of its tables has, by name: what memory depends on.
    pub fn sizes(&self) -> [(&'static str, usize); 13] {
        [
            ("sessions", self.sessions.len()),
            ("holds", self.holds.len()),
            ("pending releases", self.pending.releases()),
            ("pending ends", self.pending.ends()),
            ("queues", self.queues.len()),
            ("streams", self.streams.len()),
            ("calls", self.calls.len()),
            ("changes to record", self.calls.records.len()),
            ("timers", self.timers.len()),
            ("remembered", self.ended.len()),
            ("watches", self.watches.len()),
            ("events", self.sessions.values().map(|session| session.events.ring.len()).sum()),
            ("bytes of events", self.streams.ring_bytes.all()),
        ]
    }

    /// Takes over bounds and defaults for requests from now on.
    pub fn reload(&mut self, settings: Settings) {
        let presence = self.settings.presence.take();
        self.settings = Settings { presence, ..settings };
    }

    /// True if something is due on which holds depend: until [`Keeper::handle_timeout`] has done
    /// it, nothing else may be handled.
    pub fn is_overdue(&self, now: Boottime) -> bool {
        self.timers.next_urgent().is_some_and(|due| due <= now)
    }

    /// Does what is due, a bounded part at a time: what is left is due still.
    pub fn handle_timeout(&mut self, now: Boottime) {
        let enough = self.out.len() + COMMANDS_PER_CALL;
        for _ in 0..TIMERS_PER_CALL {
            if self.out.len() >= enough {
                break;
            }
            let Some((_, timer)) = self.timers.pop(now) else { break };
            match timer {
                Timer::Deadline(hold) => self.deadline_fired(now, hold),
                Timer::Tether(session) => self.tether_fired(now, session),
                Timer::Progress(session) => self.progress_fired(now, session),
                Timer::Patience(hold) => self.patience_fired(now, hold),
                Timer::Beat(hold) => self.beat_fired(now, hold),
                Timer::SessionBeat(session) => self.session_beat_fired(now, session),
                Timer::Release(hold) => self.release_fired(now, hold),
                Timer::Places(queue) => self.places_fired(now, queue),
                Timer::Watch(watch) => self.watch_fired(now, watch),
                Timer::SessionEnd(session) => self.end_fired(now, session),
                Timer::Records => self.records_fired(now),
                Timer::Missed => self.missed_fired(now),
                Timer::Ends => self.ends_fired(now),
                Timer::Forget => self.forget_fired(now),
                Timer::Show => self.show_fired(now),
            }
        }
        self.flush_beats();
    }

    /// The machine slept: holds that are overdue are lost for that reason, before anything else is
    /// served.
    pub fn handle_wake(&mut self, now: Boottime, slept: Duration) {
        self.agent.woke = Some((now, slept));
    }

    /// The upstream answered, or did not. `sent_at` is the instant just before the request, or its
    /// last repetition, was sent.
    pub fn handle_answer(
        &mut self,
        now: Boottime,
        call: CallId,
        sent_at: Boottime,
        result: Result<Answer, Failure>,
    ) {
        let Some(asked) = self.calls.take(call) else { return };
        let awaiting = self.calls.checkpoints.take(call, &result);
        match asked {
            Call::Claim(hold) => self.claim_answered(now, call, hold, sent_at, result),
            Call::Renew(items) => self.renew_answered(now, call, items, sent_at, result),
            Call::Look => {}
            Call::Release(hold) => self.release_answered(now, hold, &result),
            Call::Announce(session) => self.announce_answered(now, session, result),
            Call::EndSession(session) => self.end_answered(now, session, &result),
            Call::Standing(ticket, peer, resource) => {
                self.standing_answered(ticket, peer, &resource, result);
            }
            Call::Contended(ticket, session, resource) => {
                self.contended_answered(ticket, session, &resource, result);
            }
            Call::Watch(resource) => self.watch_answered(now, &resource, result),
            Call::Routes(ticket) => self.routes_answered(ticket, result),
            Call::Resources(ticket) => self.resources_answered(ticket, result),
            Call::HolderOfWait(id, resource) => {
                self.holder_of_wait_answered(now, id, &resource, result);
            }
            Call::Losers(revoking) => self.losers_answered(*revoking, result),
            Call::Revoke(revoking) => self.revoke_answered(*revoking, result),
            Call::RevokeOne => {}
            Call::Record => self.record_answered(now, &result),
            Call::History(ticket) => self.history_answered(ticket, result),
            Call::Agents { ticket, is_first } => {
                self.agents_answered(now, (ticket, is_first), result);
            }
            Call::Show => self.show_answered(now, &result),
            Call::Hide => self.hide_answered(),
        }
        if let Some((tickets, failure)) = awaiting {
            self.checkpoints_answered(now, tickets, failure.as_ref());
        }
        self.flush_beats();
    }

    /// A client asks. The reply comes as [`Command::Reply`] under the same ticket, at once or later.
    pub fn handle_request(&mut self, now: Boottime, ticket: Ticket, peer: Peer, request: Request) {
        if self.agent.phase != Phase::Running
            && !matches!(request, Request::Status(_) | Request::Release(_))
        {
            self.out.refuse(ticket, Refusal::Stopping);
            return;
        }
        match request {
            Request::Register(register, program) => {
                self.register(now, ticket, peer, (register, program));
            }
            Request::Acquire(acquire) => self.acquire(now, ticket, peer, acquire),
            Request::Release(release) => self.release(now, ticket, peer, release),
            Request::Checkpoint(session) => self.checkpoint(now, ticket, peer, session),
            Request::Beat(session) => self.beat(now, ticket, peer, session),
            Request::BeatHold { session, hold } => {
                self.beat_hold(now, ticket, peer, session, ClaimId(hold));
            }
            Request::Leftovers(leftovers) => self.note_leftovers(now, ticket, peer, leftovers),
            Request::Revoke { resource, token, revocation } => {
                self.revoke(now, ticket, resource, token, revocation);
            }
            Request::Standing(resource) => {
                let request = model::Request::Inspect(resource.clone());
                self.ask(request, Call::Standing(ticket, peer, resource));
            }
            Request::History(resource) => {
                self.ask(model::Request::History(resource), Call::History(ticket));
            }
            Request::Resources(page) => {
                self.ask(model::Request::Resources { page }, Call::Resources(ticket));
            }
            Request::Routes { tenant, name, page } => {
                self.ask(model::Request::Routes { tenant, name, page }, Call::Routes(ticket));
            }
            Request::Agents(page) => self.agents(now, ticket, page),
            Request::Status(page) => self.status(now, ticket, peer, page),
            Request::Lookup(session) => self.lookup(ticket, peer, session),
        }
        self.flush_beats();
    }

    /// Says why nothing new can be written down, or that it can: new sessions and holds are refused
    /// meanwhile, as a restart would forget them.
    pub fn set_unrecorded(&mut self, cause: Option<&Arc<str>>) {
        if self.agent.unrecorded.as_ref() != cause {
            self.agent.unrecorded = cause.cloned();
        }
    }

    fn check_recorded(&self) -> Result<(), Refusal> {
        match &self.agent.unrecorded {
            Some(cause) => Err(Refusal::Unrecorded(Arc::clone(cause))),
            None => Ok(()),
        }
    }

    fn ask(&mut self, request: model::Request, asked: Call) -> CallId {
        self.calls.ask(&mut self.out, request, asked)
    }

    /// The peer's session of that id. Another user's session is as unknown as one that never was.
    fn session_of(&self, peer: Peer, session: Uuid) -> Result<SessionId, Refusal> {
        let id = SessionId(session);
        if let Some(found) = self.sessions.get(&id) {
            if self.sees_all(peer) || found.saved.uid == peer.uid {
                return match &found.leaving {
                    None => Ok(id),
                    Some(leaving) => {
                        Err(Refusal::SessionEnded { session, why: leaving.why.into() })
                    }
                };
            }
        } else if let Some((uid, why)) = self.ended.session(id)
            && (self.sees_all(peer) || uid == peer.uid)
        {
            return Err(Refusal::SessionEnded { session, why: why.clone() });
        }
        Err(Refusal::SessionUnknown { session, uid: peer.uid })
    }

    fn sees_all(&self, peer: Peer) -> bool {
        peer.uid == 0 || peer.uid == self.settings.agent_uid
    }
}
