//! A program: what it knows, and what it makes of what it hears.

mod process;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure::wire::{Code, Event, HoldState, Tether};
use tenure_core::keeper::{Refusal, Reply, StreamEnd, StreamId};
use tenure_core::model::ClaimId;
use uuid::Uuid;

use process::ClientProcess;
pub(super) use requests::{Asked, Asking, Requests};

use super::core::{Core, Message, Phase, Told};
use super::invariants::Invariant;
use super::time::TrueTime;

/// Events that a stopped program's socket takes. Few, so that runs see it fill up.
const EVENTS_MAX: usize = 8;

/// A session as its program knows it.
#[derive(Debug, Clone)]
pub(crate) struct MySession {
    pub(super) id: Uuid,
    pub(super) secret: String,
    pub(super) tether: Tether,
    /// How often it has promised to call.
    pub(super) beat_every: Option<Duration>,
    pub(super) next_beat: TrueTime,
    pub(super) guarded: bool,
    pub(super) last_event_id: Option<u64>,
    /// The connection broke: it must be taken up again.
    pub(super) broken: bool,
}

/// A hold as its program knows it.
#[derive(Debug, Clone)]
pub(crate) struct MyHold {
    pub(super) held: bool,
    /// A call was answered with it, or with its place in a queue.
    pub(super) answered: bool,
    /// When it is given back.
    pub(super) release_at: TrueTime,
}

/// A program.
pub(crate) struct Client {
    pub(super) id: usize,
    pub(super) host: usize,
    pub(super) process: ClientProcess,
    pub(super) backlog: VecDeque<Told>,
    pub(super) session: Option<MySession>,
    pub(super) holds: BTreeMap<Uuid, MyHold>,
    pub(super) requests: Requests,
    /// Answers that came when nobody waited for them any more.
    pub(super) unread: Vec<Reply>,
    pub(super) stream: Option<StreamId>,
    /// In a crowd: how many waits it wants.
    pub(super) waits_wanted: usize,
}

impl Client {
    /// A program that has not started.
    pub(crate) fn new(id: usize, host: usize) -> Client {
        Client {
            id,
            host,
            process: ClientProcess::new(id),
            backlog: VecDeque::new(),
            session: None,
            holds: BTreeMap::new(),
            requests: Requests::default(),
            unread: Vec::new(),
            stream: None,
            waits_wanted: 0,
        }
    }

    /// Forgets its session and everything in it.
    pub(super) fn forget(&mut self) {
        self.session = None;
        self.holds.clear();
        self.requests.forget();
    }

    /// A message has arrived. Gives the stream whose reader is too slow.
    pub(crate) fn hear(&mut self, core: &mut Core, told: Told) -> Option<StreamId> {
        if self.process.frozen {
            self.backlog.push_back(told);
            let waits = |told: &&Told| matches!(told, Told::Event(stream, _) if self.stream == Some(*stream));
            let is_full = self.backlog.iter().filter(waits).count() > EVENTS_MAX;
            return self.stream.filter(|_| is_full);
        }
        core.line(|| format!("client {}: hears {told:?}", self.id));
        match told {
            Told::Reply(ticket, reply) => {
                let Some(asked) = self.requests.asked.remove(&ticket) else {
                    self.unread.extend(reply);
                    return None;
                };
                self.compare(core, &asked, &reply);
                match reply {
                    Ok(reply) => self.accepted(core, asked, reply),
                    Err(refusal) => self.refused(&asked, &refusal),
                }
            }
            Told::Broken(ticket) => {
                if let Some(asked) = self.requests.asked.remove(&ticket)
                    && let Asking::Acquire(acquire) = asked.what
                    && core.random.per_mille(700)
                {
                    self.requests.again = Some(*acquire);
                }
                self.mark_broken();
            }
            Told::Refused(stream, refusal) => {
                if self.stream == Some(stream) {
                    self.stream = None;
                    self.session_refused(&refusal);
                }
            }
            Told::Event(stream, numbered) => {
                if self.stream == Some(stream) {
                    if let Some(session) = &mut self.session {
                        session.last_event_id = Some(numbered.id);
                    }
                    self.event(core, &numbered.event);
                }
            }
            Told::Closed(stream, end) => {
                if self.stream == Some(stream) {
                    self.stream = None;
                    self.say(core, Message::CloseStream(stream));
                    match end {
                        Some(StreamEnd::SessionEnded | StreamEnd::Stopping) => self.forget(),
                        Some(StreamEnd::Restarting) | None => self.mark_broken(),
                    }
                }
            }
        }
        None
    }

    /// Holds the answer to a request against what it was answered before.
    fn compare(&mut self, core: &mut Core, asked: &Asked, reply: &Result<Reply, Refusal>) {
        let Asking::Acquire(acquire) = &asked.what else { return };
        let Some(request) = &acquire.request else { return };
        let key = (acquire.session, request.as_str());
        let hold = match reply {
            Ok(Reply::Acquired(acquired)) => acquired.hold,
            Ok(Reply::Waiting(waiting)) => waiting.hold,
            Err(refusal) => {
                if let (Code::HoldLost, Some(hold)) = (refusal.code(), refusal.hold()) {
                    core.checks.one_answer.has_ended(key, hold);
                }
                return;
            }
            _ => return,
        };
        // Its clock and the way to its program count.
        let remember = core.plan.settings.remember * 9 / 10;
        let times = (asked.at, core.now);
        let verdict = core.checks.one_answer.has(times, key, ClaimId(hold), remember);
        core.judge(Invariant::OneAnswer, verdict);
        self.requests.note_answered(acquire);
    }

    fn mark_broken(&mut self) {
        if let Some(session) = &mut self.session {
            session.broken = true;
        }
    }

    fn accepted(&mut self, core: &mut Core, asked: Asked, reply: Reply) {
        match (asked.what, reply) {
            (Asking::Register(mut mine), Reply::Registered { session, secret, .. }) => {
                mine.id = session.0;
                mine.secret = secret;
                mine.next_beat = core.now;
                self.holds.clear();
                self.session = Some(*mine);
            }
            (Asking::Resume, Reply::Registered { .. }) => {
                if let Some(session) = &mut self.session {
                    session.broken = false;
                }
            }
            (_, Reply::Acquired(acquired)) => {
                self.granted(core, acquired.hold);
                if let Some(hold) = self.holds.get_mut(&acquired.hold) {
                    hold.answered = true;
                }
            }
            (_, Reply::Waiting(waiting)) => {
                let release_at = core.now;
                let hold = MyHold { held: false, answered: true, release_at };
                self.holds.entry(waiting.hold).or_insert(hold);
            }
            (Asking::Release(None), Reply::Released(_)) => self.forget(),
            (_, Reply::Checkpointed(checked)) => self.reconcile(core, &checked.holds),
            _ => {}
        }
    }

    fn refused(&mut self, asked: &Asked, refusal: &Refusal) {
        if let Asking::Register(_) = asked.what {
            return;
        }
        if let Asking::Resume = asked.what
            && refusal.code() == Code::Unauthorized
        {
            self.forget();
        }
        if let Some(hold) = refusal.hold() {
            self.holds.remove(&hold.0);
        }
        self.session_refused(refusal);
    }

    fn session_refused(&mut self, refusal: &Refusal) {
        if matches!(refusal.code(), Code::SessionUnknown | Code::SessionLost) {
            self.forget();
        }
    }

    fn event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::Snapshot(snapshot) => self.reconcile(core, &snapshot.holds),
            Event::Granted(granted) => self.granted(core, granted.of.hold),
            Event::Lost(lost) => {
                self.holds.remove(&lost.of.hold);
            }
            Event::Released(released) => {
                self.holds.remove(&released.of.hold);
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, core: &mut Core, views: &[tenure::wire::HoldView]) {
        self.holds.retain(|id, _| views.iter().any(|view| view.hold == *id));
        for view in views {
            if matches!(view.state, HoldState::Held | HoldState::Jeopardy) {
                self.granted(core, view.hold);
            }
        }
    }

    fn granted(&mut self, core: &mut Core, id: Uuid) {
        core.checks.left.read(ClaimId(id));
        let known = self.holds.get(&id);
        if known.is_some_and(|hold| hold.held) {
            return;
        }
        let answered = known.is_some_and(|hold| hold.answered);
        let longest = if core.phase == Phase::Storm { 4000 } else { 250 };
        let release_at = core.now + core.random.ms(5, longest);
        self.holds.insert(id, MyHold { held: true, answered, release_at });
    }
}
