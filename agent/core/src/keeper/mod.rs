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
mod checkpoint;
mod claims;
mod command;
mod contest;
mod departure;
mod ends;
mod event;
mod hold;
pub mod journal;
mod lifecycle;
mod loss;
mod map;
mod memory;
mod missed;
mod query;
mod refusal;
mod register;
mod request;
mod revoke;
mod ring;
mod rows;
mod session;
mod settings;
mod slots;
mod streams;
#[cfg(test)]
mod tests;
mod tether;
mod timers;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use checkpoint::Checkpoint;
pub use command::{Command, Note, StreamEnd};
use contest::Contest;
pub use departure::FAREWELLS_MAX;
use departure::{Departure, Farewell};
use ends::Ends;
pub use event::{Numbered, SharedEvent};
use hold::{Hold, HoldCounts};
use map::Map;
pub use map::looked_up;
use memory::Memory;
pub use memory::REMEMBERED_MAX;
use missed::Missed;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
pub use refusal::{Limit, Refusal, Trouble};
pub use request::{
    Reply, Request, SessionFacts, StatusCursor, StatusPage, StatusView, StreamId, StreamTarget,
    Ticket,
};
pub use ring::RING_BYTES_MAX;
use ring::RingBytes;
use session::Session;
pub use settings::{BEAT_MIN, BEATS_PER_CALL_MAX, Rhythm, STREAMS_PER_SESSION_MAX, Settings};
use tenure_wire::Revoked;
use timers::{ContestId, Timer, Timers, WatchId};
use uuid::Uuid;
use watch::Watch;

use crate::model::{self, Answer, CallId, ClaimId, Failure, Resource, SessionId, spare};
pub use crate::model::{Peer, Process, Quota};
use crate::time::Boottime;

/// How many timers one call of [`Keeper::handle_timeout`] does at most: as many as one call renews.
const TIMERS_PER_CALL: usize = BEATS_PER_CALL_MAX;
/// No further timer, and no further end of many, once it has had this much done.
const COMMANDS_PER_CALL: usize = 1024;

/// A call to the upstream whose answer has not come.
#[derive(Debug)]
enum Call {
    Claim(ClaimId),
    Renew(Vec<Renewed>),
    /// Whatever it says.
    Look,
    Release(ClaimId),
    Announce(SessionId),
    Farewell(SessionId),
    /// For a caller that asked for it.
    Standing(Ticket, Peer, Resource),
    /// For a caller that tried once while others of this agent wait, with the session it tried for.
    Contended(Ticket, SessionId, Resource),
    /// For those who watch it.
    Watch(Resource),
    Routes(Ticket),
    /// For a caller that asked for it, after so many were taken away on this host already.
    Revoke(Ticket, Revoked),
    /// Asks for the other holders of what was taken away from these.
    Others(Ticket, Resource, Vec<ClaimId>, Option<u64>),
    /// One of several; the last of them answers the caller.
    RevokeOne,
}

/// The subject of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewed {
    Hold(ClaimId),
    Session(SessionId),
}

/// The phase of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Restarting,
}

/// An open stream.
#[derive(Debug)]
enum Stream {
    Session(SessionId),
    Resource(Resource),
}

/// The agent's mind.
#[derive(Debug)]
pub struct Keeper {
    settings: Settings,
    random: ChaCha12Rng,
    phase: Phase,
    /// Why nothing new can be written down.
    unrecorded: Option<Arc<str>>,
    /// When the machine woke last: holds that were overdue then are lost as `slept`.
    woke: Option<Boottime>,
    sessions: Map<SessionId, Box<Session>>,
    sessions_by_uid: BTreeMap<u32, usize>,
    /// All of them by user and id.
    session_order: BTreeSet<(u32, SessionId)>,
    /// Slots of all pages beyond those that each has anyway.
    extra_slots: usize,
    /// The same of each user's.
    extra_slots_by_uid: BTreeMap<u32, usize>,
    holds: Map<ClaimId, Box<Hold>>,
    /// Exclusive resources that sessions of this agent hold.
    held: BTreeMap<Resource, ClaimId>,
    hold_counts: HoldCounts,
    /// How many holds there are of each user's sessions.
    holds_by_uid: BTreeMap<u32, usize>,
    /// The holder of each exclusive resource.
    occupied: BTreeMap<Resource, ClaimId>,
    /// Releases that the upstream has not confirmed.
    departures: Map<ClaimId, Box<Departure>>,
    /// Ends of sessions that the upstream has not confirmed.
    farewells: Map<SessionId, Farewell>,
    /// How many of both there are of each user.
    departures_by_uid: BTreeMap<u32, usize>,
    farewells_by_uid: BTreeMap<u32, usize>,
    /// Ended sessions and holds that still answer.
    memory: Memory,
    /// Waiters by resource.
    contests: BTreeMap<Resource, Contest>,
    contest_names: Map<ContestId, Resource>,
    /// The watchers of a resource's standing.
    watches: BTreeMap<Resource, Watch>,
    watch_names: Map<WatchId, Resource>,
    missed: Missed,
    ends: Ends,
    ring_bytes: RingBytes,
    streams: Map<StreamId, Stream>,
    blocked: Map<Ticket, ClaimId>,
    /// Checkpoints that wait for the upstream.
    checkpoints: Map<Ticket, Checkpoint>,
    /// The checkpoints that wait for a call.
    awaited: Map<CallId, Vec<Ticket>>,
    calls: Map<CallId, Call>,
    timers: Timers,
    /// Beats that came due in this call of `handle_timeout`.
    due: Vec<Renewed>,
    commands: VecDeque<Command>,
    first_event: u64,
    next_call: u64,
    next_row: u64,
    next_contest: u64,
    next_watch: u64,
}

impl Keeper {
    /// A keeper that knows nothing yet. Ids and secrets are drawn from `seed`, which must come from
    /// the operating system's generator outside of tests.
    pub fn new(settings: Settings, seed: [u8; 32], now: Boottime) -> Keeper {
        let ring_bytes = RingBytes::new(settings.rings_bytes_max);
        Keeper {
            memory: Memory::new(settings.remember, settings.remembered_max),
            settings,
            random: ChaCha12Rng::from_seed(seed),
            phase: Phase::Running,
            unrecorded: None,
            woke: None,
            sessions: Map::default(),
            sessions_by_uid: BTreeMap::new(),
            session_order: BTreeSet::new(),
            extra_slots: 0,
            extra_slots_by_uid: BTreeMap::new(),
            holds: Map::default(),
            held: BTreeMap::new(),
            hold_counts: HoldCounts::default(),
            holds_by_uid: BTreeMap::new(),
            occupied: BTreeMap::new(),
            departures: Map::default(),
            farewells: Map::default(),
            departures_by_uid: BTreeMap::new(),
            farewells_by_uid: BTreeMap::new(),
            contests: BTreeMap::new(),
            contest_names: Map::default(),
            watches: BTreeMap::new(),
            watch_names: Map::default(),
            missed: Missed::default(),
            ends: Ends::default(),
            ring_bytes,
            streams: Map::default(),
            blocked: Map::default(),
            checkpoints: Map::default(),
            awaited: Map::default(),
            calls: Map::default(),
            timers: Timers::default(),
            due: Vec::new(),
            commands: VecDeque::new(),
            // µs since boot: numbers go on growing when the agent is started again.
            first_event: now.as_nanos() / 1000 + 1,
            next_call: 1,
            next_row: 1,
            next_contest: 1,
            next_watch: 1,
        }
    }

    /// When [`Keeper::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        self.timers.next()
    }

    /// The next thing to do.
    pub fn poll_command(&mut self) -> Option<Command> {
        let command = self.commands.pop_front();
        spare::shrink_queue(&mut self.commands);
        command
    }

    /// True if nothing is left of any client, and nothing is owed to the upstream.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.sessions_by_uid.is_empty()
            && self.session_order.is_empty()
            && self.hold_counts == HoldCounts::default()
            && self.extra_slots == 0
            && self.extra_slots_by_uid.is_empty()
            && self.holds.is_empty()
            && self.held.is_empty()
            && self.holds_by_uid.is_empty()
            && self.occupied.is_empty()
            && self.departures.is_empty()
            && self.farewells.is_empty()
            && self.departures_by_uid.is_empty()
            && self.farewells_by_uid.is_empty()
            && self.contests.is_empty()
            && self.blocked.is_empty()
            && self.checkpoints.is_empty()
            && self.awaited.is_empty()
            && self.streams.is_empty()
            && self.watches.is_empty()
            && self.watch_names.is_empty()
            && self.ends.is_empty()
            && self.ring_bytes.all() == 0
            && self.calls.is_empty()
    }

    /// How many entries each of its tables has, by name: what memory depends on.
    pub fn sizes(&self) -> [(&'static str, usize); 12] {
        [
            ("sessions", self.sessions.len()),
            ("holds", self.holds.len()),
            ("departures", self.departures.len()),
            ("farewells", self.farewells.len()),
            ("contests", self.contests.len()),
            ("streams", self.streams.len()),
            ("calls", self.calls.len()),
            ("timers", self.timers.len()),
            ("remembered", self.memory.len()),
            ("watches", self.watches.len()),
            ("events", self.sessions.values().map(|session| session.ring.len()).sum()),
            ("bytes of events", self.ring_bytes.all()),
        ]
    }

    /// Takes over bounds and defaults for requests from now on.
    pub fn reload(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// True if something is due on which holds depend: until [`Keeper::handle_timeout`] has done
    /// it, nothing else may be handled.
    pub fn is_overdue(&self, now: Boottime) -> bool {
        self.timers.next_urgent().is_some_and(|due| due <= now)
    }

    /// Does what is due, a bounded part at a time: what is left is due still.
    pub fn handle_timeout(&mut self, now: Boottime) {
        let enough = self.commands.len() + COMMANDS_PER_CALL;
        for _ in 0..TIMERS_PER_CALL {
            if self.commands.len() >= enough {
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
                Timer::Departure(hold) => self.departure_fired(now, hold),
                Timer::Contest(contest) => self.contest_fired(now, contest),
                Timer::Places(contest) => self.places_fired(now, contest),
                Timer::Watch(watch) => self.watch_fired(now, watch),
                Timer::Farewell(session) => self.farewell_fired(now, session),
                Timer::Missed => self.missed_fired(now),
                Timer::Ends => self.ends_fired(now),
                Timer::Forget => self.forget_fired(now),
            }
        }
        self.flush_beats();
    }

    /// The machine slept: holds that are overdue are lost for that reason, before anything else is
    /// served.
    pub fn handle_wake(&mut self, now: Boottime) {
        self.woke = Some(now);
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
        let Some(asked) = self.calls.remove(&call) else { return };
        let awaiting = self.take_awaiting(call, &result);
        match asked {
            Call::Claim(hold) => self.claim_answered(now, call, hold, sent_at, result),
            Call::Renew(items) => self.renew_answered(now, call, items, sent_at, result),
            Call::Look => {}
            Call::Release(hold) => self.release_answered(now, hold, result),
            Call::Announce(session) => self.announce_answered(now, session, result),
            Call::Farewell(session) => self.farewell_answered(now, session, result),
            Call::Standing(ticket, peer, resource) => {
                self.standing_answered(ticket, peer, &resource, result);
            }
            Call::Contended(ticket, session, resource) => {
                self.contended_answered(ticket, session, &resource, result);
            }
            Call::Watch(resource) => self.watch_answered(now, &resource, result),
            Call::Routes(ticket) => self.routes_answered(ticket, result),
            Call::Revoke(ticket, already) => self.revoke_answered(ticket, already, result),
            Call::Others(ticket, resource, taken, kept_ms) => {
                self.others_answered(ticket, &resource, &taken, kept_ms, result);
            }
            Call::RevokeOne => {}
        }
        if let Some((tickets, failure)) = awaiting {
            self.checkpoints_answered(now, tickets, failure.as_deref());
        }
        self.flush_beats();
    }

    /// A client asks. The reply comes as [`Command::Reply`] under the same ticket, at once or later.
    pub fn handle_request(&mut self, now: Boottime, ticket: Ticket, peer: Peer, request: Request) {
        if self.phase != Phase::Running
            && !matches!(request, Request::Status(_) | Request::Release(_))
        {
            self.refuse(ticket, Refusal::Stopping);
            return;
        }
        match request {
            Request::Register(register) => self.register(now, ticket, peer, register),
            Request::Acquire(acquire) => self.acquire(now, ticket, peer, acquire),
            Request::Release(release) => self.release(now, ticket, peer, release),
            Request::Checkpoint(session) => self.checkpoint(now, ticket, peer, session),
            Request::Beat(session) => self.beat(now, ticket, peer, session),
            Request::Revoke { resource, token } => {
                self.revoke(now, ticket, resource, token);
            }
            Request::Standing(resource) => {
                let request = model::Request::Inspect(resource.clone());
                self.ask(request, Call::Standing(ticket, peer, resource));
            }
            Request::Routes { tenant, name, page } => {
                self.ask(model::Request::Routes { tenant, name, page }, Call::Routes(ticket));
            }
            Request::Status(page) => self.status(now, ticket, peer, page),
            Request::Lookup(session) => self.lookup(ticket, peer, session),
        }
        self.flush_beats();
    }

    /// Says why nothing new can be written down, or that it can: new sessions and holds are refused
    /// meanwhile, as a restart would forget them.
    pub fn set_unrecorded(&mut self, cause: Option<&Arc<str>>) {
        if self.unrecorded.as_ref() != cause {
            self.unrecorded = cause.cloned();
        }
    }

    fn check_recorded(&self) -> Result<(), Refusal> {
        match &self.unrecorded {
            Some(cause) => Err(Refusal::Unrecorded(Arc::clone(cause))),
            None => Ok(()),
        }
    }

    fn ask(&mut self, request: model::Request, asked: Call) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, asked);
        self.commands.push_back(Command::Call { call, request });
        call
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        self.commands.push_back(Command::Reply { ticket, reply: Ok(reply) });
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.commands.push_back(Command::Reply { ticket, reply: Err(refusal) });
    }

    fn note(&mut self, note: Note) {
        self.commands.push_back(Command::Note(note));
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
        } else if let Some((uid, why)) = self.memory.session(id)
            && (self.sees_all(peer) || uid == peer.uid)
        {
            return Err(Refusal::SessionEnded { session, why: why.clone() });
        }
        Err(Refusal::SessionUnknown { session, uid: peer.uid })
    }

    fn sees_all(&self, peer: Peer) -> bool {
        peer.uid == 0 || peer.uid == self.settings.agent_uid
    }

    fn back_off(&self, failures: u32) -> std::time::Duration {
        let doubled = self.settings.retry_min.saturating_mul(1 << failures.min(16));
        doubled.min(self.settings.retry_max)
    }
}

/// The user of a session; root's for one that is gone, of which nobody else is told.
fn user_of(sessions: &Map<SessionId, Box<Session>>, session: SessionId) -> u32 {
    sessions.get(&session).map_or(0, |session| session.saved.uid)
}

/// Counts one less of a user's.
fn one_less(counts: &mut BTreeMap<u32, usize>, uid: u32) {
    less(counts, uid, 1);
}

/// Counts so many less of a user's.
fn less(counts: &mut BTreeMap<u32, usize>, uid: u32, by: usize) {
    if let Some(count) = counts.get_mut(&uid) {
        *count -= by;
        if *count == 0 {
            counts.remove(&uid);
        }
    }
}
