//! The shell of a keeper in a run, as `heart/shell.rs` is in a real agent.

mod effects;
mod hear;

use std::time::Duration;

use tenure::wire::{Release, Wait};
use tenure_core::keeper::journal::Entry;
use tenure_core::keeper::{Command, Keeper, Note, Request, StatusPage, StreamTarget, Ticket};
use tenure_core::model::{self, CallId, ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_core::turn::{self, Ending};

use super::agent::{Agent, OpenStream, own_peer, session_of};
use super::core::{Caller, Core, Message, Phase, Told};
use super::invariants::Moment;
use super::planted::Planted;
use super::resource_state::ResourceState;
use super::time::TrueTime;
use super::upstream::Upstream;

/// An agent that is to be killed while it writes does at most so many writes before.
const LAST_WRITES_MAX: u64 = 6;
/// Calls that a planted fault makes come under this one.
pub(super) const UNASKED: Ticket = Ticket(u64::MAX - 1);
/// An agent that is to be killed within a turn does at most so much of it before.
const LAST_DEEDS_MAX: u64 = 10;
/// What a look-up, or an effect, takes.
const WORK: Duration = Duration::from_nanos(400);

/// A turn of an agent, with everything around its keeper.
pub(super) struct Around<'a> {
    agent: &'a mut Agent,
    core: &'a mut Core,
    upstream: &'a mut Upstream,
    /// Entries to be journaled.
    written: Vec<Entry>,
    /// Effects of an upstream within the agent in this turn. They are in the same transaction as the
    /// journal; pages that are voided in the turn count as void before it.
    inner: Vec<Moment>,
    /// The pages when the turn was secured.
    believed: Vec<(SessionId, ClaimId, TrueTime)>,
    /// Look-ups and effects that have taken their time.
    worked: u64,
    /// So much is done before the agent is killed.
    left: Option<u64>,
    is_dead: bool,
    did_anything: bool,
    is_secured: bool,
    /// The agent was killed before the journal had the turn, which so never was.
    never_was: bool,
}

impl<'a> Around<'a> {
    pub(super) fn new(
        agent: &'a mut Agent,
        core: &'a mut Core,
        upstream: &'a mut Upstream,
    ) -> Around<'a> {
        let worked = agent.worked();
        Around {
            agent,
            core,
            upstream,
            inner: Vec::new(),
            written: Vec::new(),
            believed: Vec::new(),
            worked,
            left: None,
            is_dead: false,
            did_anything: false,
            is_secured: false,
            never_was: false,
        }
    }

    /// The turn is over; whether the agent was killed in it.
    pub(super) fn end(mut self) -> bool {
        if !self.is_dead {
            self.judge_inner();
        }
        if self.never_was {
            return true;
        }
        if self.left.is_some() && self.did_anything {
            self.agent.life.crash_at_commit = false;
            return true;
        }
        false
    }

    fn clock(&self) -> Boottime {
        self.agent.boottime(self.core)
    }

    /// The effects of the store within the agent in this turn; none if the turn never was.
    fn secure_store(&mut self) -> Option<Vec<Vec<ResourceState>>> {
        let now = self.clock();
        let agent = &mut *self.agent;
        let Some(store) = &mut agent.store else { return Some(Vec::new()) };
        if agent.life.crash_at_commit && self.core.random.per_mille(500) {
            agent.life.crash_at_commit = false;
            let writes = self.core.random.below(LAST_WRITES_MAX);
            agent.machine.storage.die_at(agent.life.process, Some(writes));
        }
        store.secure(now)
    }

    fn judge_inner(&mut self) {
        let inner = std::mem::take(&mut self.inner);
        self.core.judge_moments(inner);
    }

    fn write_journal(&mut self) {
        for entry in std::mem::take(&mut self.written) {
            self.core.line(|| format!("agent {}: journal {entry:?}", self.agent.host));
            if let Entry::Session(saved) = &entry {
                self.core.checks.tied.written(self.core.now, self.agent.host, saved);
            }
            self.agent.journal.rows.write(entry);
        }
    }

    /// True if the agent lives long enough to do one thing more.
    fn may_do(&mut self) -> bool {
        self.did_anything = true;
        match &mut self.left {
            _ if self.is_dead => {}
            Some(0) => {
                self.is_dead = true;
                self.core.line(|| format!("agent {}: is killed within a turn", self.agent.host));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        !self.is_dead
    }

    fn do_now(&mut self, command: Command) {
        // A page that is opened loses what it is not to keep, and comes before others are written.
        let is_void = matches!(
            command,
            Command::OpenPage { .. } | Command::WritePage { valid_until: Boottime::ZERO, .. }
        );
        if self.is_secured && !is_void {
            self.judge_inner();
        }
        let now = self.clock();
        self.agent.command(self.core, now, command);
    }
}

impl turn::Shell for Around<'_> {
    type Message = (Caller, Message);

    fn now(&mut self) -> Boottime {
        let worked = self.agent.worked();
        let work = worked.saturating_sub(std::mem::replace(&mut self.worked, worked));
        self.core.now = self.core.now + WORK * u32::try_from(work).unwrap_or(u32::MAX);
        let random = &mut self.core.random;
        // A busy machine takes the processor away now and then.
        let takes = if random.per_mille(2) { random.us(0, 8000) } else { random.us(0, 3) };
        self.core.now = self.core.now + takes;
        self.agent.machine.storage.set_now(self.core.now);
        self.clock()
    }

    fn next_report(&mut self) -> Option<model::Report> {
        let report = self.hear_next();
        if let Some(model::Report::Answer { call, result, .. }) = &report
            && let Some(claims) = self.agent.link.asked.remove(call)
            && result.is_ok()
        {
            self.core.checks.truth.heard(self.core.now, claims.into_iter().flatten());
        }
        report
    }

    fn next_ending(&mut self) -> Option<Ending> {
        if let Some(hold) = self.agent.inbox.undelivered.pop() {
            return Some(Ending::Undelivered(hold));
        }
        let session = self.agent.inbox.exits.pop_front()?;
        self.core
            .line(|| format!("agent {}: process of session {session} exited", self.agent.host));
        Some(Ending::Process { session, status: None })
    }

    fn next_message(&mut self) -> Option<(Caller, Message)> {
        self.agent.inbox.messages.pop_front()
    }

    fn wake_upstream(&mut self, now: Boottime) {
        if let Some(store) = &mut self.agent.store {
            store.handle_timeout(now);
        }
    }

    fn receive(
        &mut self,
        keeper: &mut Keeper,
        now: Boottime,
        ((client, life), message): (Caller, Message),
    ) {
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: client {client} says {message:?}", agent.host));
        match message {
            Message::Request { ticket, peer, request } => {
                let blocks = match &*request {
                    Request::Acquire(acquire) => acquire.wait == Wait::Block,
                    _ => false,
                };
                if self.core.has(Planted::WalksAll) {
                    let page = StatusPage::first(usize::MAX);
                    keeper.handle_request(now, UNASKED, own_peer(), Request::Status(page));
                }
                if let Request::Release(Release { session, hold: None, .. }) = &*request {
                    self.core.checks.tied.leaves(SessionId(*session));
                }
                if let Some((session, false)) = session_of(&request)
                    && self.core.has(Planted::AnyCallIsProgress)
                {
                    keeper.handle_request(now, UNASKED, peer, Request::Beat(session.0));
                }
                agent.callers.tickets.insert(ticket, ((client, life), blocks));
                if let Request::Checkpoint(_) = *request {
                    self.core.checks.truth.checkpoint(self.core.now, ticket);
                    let is_beating = !agent.link.in_flight.is_empty();
                    let last =
                        agent.callers.checkpointed.get(&(client, life)).filter(|_| is_beating);
                    if let Some(last) = last.cloned() {
                        let command = Command::Reply { ticket, reply: Ok(last) };
                        return agent.command(self.core, now, command);
                    }
                }
                keeper.handle_request(now, ticket, peer, *request);
            }
            Message::Cancel(ticket) => {
                if agent.callers.tickets.remove(&ticket).is_some() {
                    self.core.checks.tied.answered(self.core.now, (client, life));
                    keeper.handle_cancel(now, ticket);
                }
            }
            Message::OpenStream { stream, peer, target } => {
                let session = match &target {
                    StreamTarget::Session { session, .. } => Some(SessionId(*session)),
                    StreamTarget::Resource(_) => None,
                };
                match keeper.open_stream(now, stream, peer, target) {
                    Ok(()) => {
                        if let Some(session) = session {
                            self.core.checks.tied.opened(self.core.now, stream, session);
                        }
                        let is_tether = keeper.is_tether_of_work(stream);
                        let open = OpenStream { client, life, session, is_tether, is_full: false };
                        agent.callers.streams.insert(stream, open);
                    }
                    Err(refusal) => {
                        let told = Told::Refused(stream, refusal);
                        self.core.tell(client, life, told);
                    }
                }
            }
            Message::CloseStream(stream) => {
                let open = agent.callers.streams.remove(&stream);
                let noticed = !self.core.has(Planted::DeafToClose);
                if open.is_some_and(|open| noticed || !open.is_tether) {
                    keeper.handle_stream_closed(now, stream);
                }
            }
        }
    }

    fn shares_journal(&self) -> bool {
        self.agent.store.is_some()
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        self.agent.done += 1;
        // The effects of an upstream within the agent are part of the turn.
        if self.core.plan.embedded || self.may_do() {
            self.call(call, request);
        }
        let random = &mut self.core.random;
        if self.core.plan.embedded && self.core.phase == Phase::Storm && random.per_mille(1) {
            // The whole machine stands still.
            let from = self.clock();
            let random = &mut self.core.random;
            let lasts = random.ms(10, 1500);
            self.core.now = self.core.now + lasts;
            // What is due by then is done in its next turn.
            let started_at = &mut self.agent.life.started_at;
            *started_at = *started_at + lasts;
            let to = self.clock();
            self.core.interrupted(self.agent.host, from, to);
            self.core.checks.truth.stood_still(self.agent.host, from, to);
            self.core.seen("machine stood still within a turn");
        }
    }

    fn write(&mut self, entry: Entry) {
        self.agent.done += 1;
        if self.core.has(Planted::ForgetRequests) && matches!(entry, Entry::Remembered(_)) {
            return;
        }
        if let Some(store) = &mut self.agent.store {
            store.write(entry.clone());
        }
        self.written.push(entry);
    }

    fn secure(&mut self) {
        self.believed = self.core.checks.exclusion.believed_until(self.core.now, self.agent.host);
        self.is_secured = true;
        if self.did_anything && self.agent.life.crash_at_commit {
            // Only in an order that has a fault.
            (self.is_dead, self.never_was) = (true, true);
            return;
        }
        if let Some(steps) = self.secure_store() {
            for step in steps {
                let moments = self.core.take_down(step);
                self.inner.extend(moments);
            }
        } else {
            self.core.line(|| format!("agent {}: is killed while it writes", self.agent.host));
            self.core.seen("agent killed while it wrote");
            (self.is_dead, self.never_was) = (true, true);
            return;
        }
        self.write_journal();
        if self.agent.life.crash_at_commit {
            self.left = Some(self.core.random.below(LAST_DEEDS_MAX));
        }
    }

    fn perform(&mut self, command: Command) {
        self.agent.done += 1;
        if self.may_do() {
            self.do_now(command);
        }
    }

    /// A noted event has happened, even if the agent dies before it says so.
    fn note(&mut self, note: &Note) {
        self.agent.done += 1;
        if self.never_was {
            return;
        }
        let now = self.clock();
        let believed = std::mem::take(&mut self.believed);
        self.agent.note(self.core, now, note, &believed);
        self.believed = believed;
    }
}
