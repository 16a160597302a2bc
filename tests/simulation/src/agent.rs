//! An agent on its host: what reaches it, and its turns.

mod callers;
mod inbox;
mod inspect;
mod machine;
mod schedule;
mod sizes;

use std::time::Duration;

use tenure_core::keeper::{self, Keeper, Reply, Request, StreamId};
use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_core::turn::{Budget, Turn};

pub(super) use callers::{Callers, OpenStream};
pub(super) use inbox::Inbox;
pub(super) use inspect::own_peer;
pub(crate) use machine::{Machine, PageSlot};
use schedule::Schedule;

use super::core::{Caller, Core, Happening, Message, Report};
use super::invariants::Invariant;
use super::life::Life;
use super::link::Link;
use super::planted::{Planted, PlantedOrder};
use super::rows::AgentJournal;
use super::shell::{Around, UNASKED};
use super::storage::Storage;
use super::store::Store;
use super::time::{Clock, TrueTime};
use super::upstream::Upstream;

/// Small, so that runs see what waits for the next turn.
const BUDGET: Budget =
    Budget { reports: 16, endings: 4, messages: 8, time: Duration::from_millis(2), told: 8 };
/// The agent's own user.
pub(crate) const AGENT_UID: u32 = 990;

/// An agent on its host.
pub(crate) struct Agent {
    pub(super) host: usize,
    pub(super) machine: Machine,
    pub(super) life: Life,
    pub(super) keeper: Option<Box<Keeper>>,
    pub(super) turn: Turn<PlantedOrder>,
    /// Its own store, if the upstream is embedded.
    pub(super) store: Option<Store>,
    pub(super) journal: AgentJournal,
    pub(super) link: Link,
    pub(super) inbox: Inbox,
    pub(super) callers: Callers,
    schedule: Schedule,
    /// Effects of this turn so far.
    pub(super) done: u64,
}

/// Longer than any linger: by then a wait whose caller went with the last agent has ended.
const ORPHANED: Duration = Duration::from_secs(2);

impl Agent {
    /// An agent that is not started yet.
    pub(crate) fn new(
        host: usize,
        clock: Clock,
        storage: Storage,
        planted: Option<Planted>,
    ) -> Agent {
        Agent {
            host,
            machine: Machine::new(clock, storage),
            life: Life::default(),
            keeper: None,
            turn: Turn::in_order(BUDGET, PlantedOrder(planted)),
            store: None,
            journal: AgentJournal::default(),
            link: Link::new(),
            inbox: Inbox::default(),
            callers: Callers::default(),
            schedule: Schedule::default(),
            done: 0,
        }
    }

    /// The time of the host's clock.
    pub(crate) fn boottime(&self, core: &Core) -> Boottime {
        self.machine.clock.at(core.now)
    }

    /// True if there is a process.
    pub(crate) fn is_up(&self) -> bool {
        self.keeper.is_some()
    }

    /// A program's message has arrived.
    pub(crate) fn receive(&mut self, core: &mut Core, sender: Caller, message: Message) {
        if let Message::Request { request, .. } = &message
            && let Some((session, is_beat)) = session_of(request)
        {
            core.checks.tied.called(core.now, sender, session, is_beat);
        }
        self.inbox.messages.push_back((sender, message));
        self.wake(core);
    }

    /// The reader of a stream takes nothing more; as `heart/effects.rs` has it. Whether the stream is
    /// still open, though it gets nothing more.
    pub(crate) fn fill(&mut self, core: &mut Core, sender: Caller, stream: StreamId) -> bool {
        let Some(open) = self.callers.streams.get_mut(&stream) else { return false };
        if open.is_full {
            return true;
        }
        core.line(|| format!("agent {}: {stream:?} is full", self.host));
        open.is_full = open.is_tether && !core.has(Planted::FullStreamEnds);
        if open.is_full {
            core.seen("stream of guarded work is full");
            return true;
        }
        core.checks.tied.cut_off(core.now, stream);
        self.receive(core, sender, Message::CloseStream(stream));
        false
    }

    /// A report of the upstream has arrived.
    pub(crate) fn receive_report(&mut self, core: &mut Core, report: Report) {
        self.inbox.reports.push_back(report);
        self.wake(core);
    }

    /// A watched process has ended.
    pub(crate) fn receive_exit(&mut self, core: &mut Core, session: SessionId) {
        self.inbox.exits.push_back(session);
        self.wake(core);
    }

    /// A caller was answered, and has gone without reading it.
    pub(crate) fn unread(&mut self, core: &mut Core, reply: Option<&Reply>) {
        let Some(Reply::Acquired(acquired)) = reply else { return };
        let hold = ClaimId(acquired.hold);
        core.line(|| format!("agent {}: nobody has read of {hold}", self.host));
        if !self.journal.rows.is_told_by_event(hold) {
            core.checks.left.unread(core.now, self.host, hold);
        }
        core.seen("grant that nobody read");
        if !core.has(Planted::UnreadKept) {
            self.inbox.undelivered.push(hold);
        }
        self.wake(core);
    }

    /// Something is there to be done.
    pub(super) fn wake(&mut self, core: &mut Core) {
        self.schedule.wake();
        let at = core.now + core.random.us(5, 120);
        self.plan(core, at);
    }

    fn plan(&mut self, core: &mut Core, at: TrueTime) {
        if self.schedule.plan(at) {
            core.queue.push(at, Happening::Turn(self.host));
        }
    }

    /// Look-ups and effects so far in this turn, counted from some number.
    pub(super) fn worked(&self) -> u64 {
        self.done + keeper::looked_up()
    }

    /// One turn.
    pub(crate) fn turn(&mut self, core: &mut Core, upstream: &mut Upstream) {
        if self.life.frozen || !self.schedule.take_due(core.now) {
            return;
        }
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return };
        if let Some(standstill) = self.life.standstills.turn_begins(now) {
            core.seen("standstill");
            if !core.has(Planted::StandstillCounts) {
                keeper.handle_standstill(now, standstill.length);
            }
        }
        self.life.waking = std::mem::take(&mut self.life.slept);
        if self.life.waking {
            core.line(|| format!("agent {}: wakes", self.host));
            // The duration of the sleep is only reported.
            keeper.handle_wake(now, Duration::from_secs(1));
        }
        if core.has(Planted::WaitingIsLiving) {
            let waiting = self.callers.blocked();
            for session in waiting.flat_map(|caller| core.checks.tied.sessions_of(caller)) {
                keeper.handle_request(now, UNASKED, own_peer(), Request::Beat(session.0));
            }
        }
        self.done = 0;
        let worked = self.worked();
        self.drive(core, upstream, |turn, keeper, around| {
            turn.take(keeper, around);
        });
        let verdict = core.checks.bounded.works(self.host, self.worked() - worked);
        core.judge(Invariant::BoundedWork, verdict);
        let verdict = core.checks.exclusion.turn_ended(core.now, self.host);
        core.judge(Invariant::Exclusion, verdict);
        if core.is_calm() {
            let verdict = core.checks.exclusion.caught_up(core.now, &core.checks.ledger);
            core.judge(Invariant::Exclusion, verdict);
        }
        self.check_sizes(core);
        if self.keeper.as_ref().is_some_and(|keeper| keeper.stopped()) {
            self.end(core, upstream);
        }
        self.tend(core);
        self.plan_next(core);
    }

    /// Runs the keeper with this host around it, unless there is none.
    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        upstream: &mut Upstream,
        how: impl FnOnce(&mut Turn<PlantedOrder>, &mut Keeper, &mut Around<'_>),
    ) {
        let Some(mut keeper) = self.keeper.take() else { return };
        let mut turn = std::mem::take(&mut self.turn);
        let mut around = Around::new(self, core, upstream);
        how(&mut turn, &mut keeper, &mut around);
        let is_dead = around.end();
        self.keeper = Some(keeper);
        self.turn = turn;
        if is_dead {
            self.crash(core);
        }
    }

    /// Tends the journal after each turn, as the heart does.
    pub(super) fn tend(&mut self, core: &mut Core) {
        let now = self.boottime(core);
        let (Some(keeper), Some(store)) = (&mut self.keeper, &mut self.store) else { return };
        store.tend(now, keeper);
        if store.is_recorded() {
            self.machine.storage.mend();
        }
        if !self.machine.storage.is_alive(self.life.process) {
            core.line(|| format!("agent {}: is killed while it tends the journal", self.host));
            self.crash(core);
        }
    }

    /// Looks for something that the store has to say, as the heart does before it waits.
    fn look_at_store(&mut self, core: &Core) {
        let now = self.boottime(core);
        self.machine.storage.set_now(core.now);
        if let Some(store) = &mut self.store
            && self.inbox.heard.is_empty()
        {
            self.inbox.heard.extend(store.next_report(now));
        }
    }

    /// Is another process, which knows nothing of the last one's turn.
    pub(super) fn forget_turn(&mut self, planted: Option<Planted>) {
        self.turn = Turn::in_order(BUDGET, PlantedOrder(planted));
        self.forget_plan();
    }

    /// Has no turn planned.
    pub(super) fn forget_plan(&mut self) {
        self.schedule.clear();
    }

    /// Plans the next turn: soon if something waits, else when a timer is due.
    pub(super) fn plan_next(&mut self, core: &mut Core) {
        self.look_at_store(core);
        let Some(keeper) = &self.keeper else { return };
        let inner = self.store.as_ref().and_then(|store| store.due(&self.machine.clock));
        let inner = inner.map(|at| self.machine.clock.at(at));
        let due = keeper.poll_timeout().into_iter().chain(inner).min();
        let due = self.life.standstills.wait(due, keeper.count_sessions() > 0);
        if self.turn.has_more() || !self.inbox.is_empty() {
            let at = core.now + core.random.us(5, 60);
            self.plan(core, at);
            return;
        }
        if self.schedule.spins() {
            let what = format!("agent {} turns without end and does nothing", self.host);
            core.judge(Invariant::Bounded, Err(what));
        }
        if let Some(due) = due.map(|at| self.machine.clock.when(at)) {
            // A busy machine lets a thread wait now and then, but not for 50 ms.
            let late = if core.random.per_mille(10) {
                core.random.us(0, 30_000)
            } else {
                core.random.us(0, 800)
            };
            let at = due.max(core.now) + late + Duration::from_micros(1);
            self.plan(core, at);
        }
    }

    /// Waits in its journal whose callers are gone, and have had time to come back after a start. An agent that was
    /// stopped meanwhile has had none to notice.
    pub(crate) fn abandoned(&self, core: &Core) -> usize {
        let runs_since = self.life.started_at.max(self.life.thawed_at);
        if !self.is_attentive() || core.now.since(runs_since) < ORPHANED {
            return 0;
        }
        self.journal.rows.blocked().saturating_sub(self.callers.blocked().count())
    }

    /// True if it runs and will go on to.
    pub(crate) fn is_attentive(&self) -> bool {
        self.is_up() && self.life.is_attentive()
    }

    /// True if it runs, reaches its upstream, and has released all that it wants to.
    pub(crate) fn is_settled(&self) -> bool {
        let departing = self.keeper.as_ref().is_none_or(|keeper| {
            keeper.sizes().iter().any(|(name, count)| *name == "pending releases" && *count > 0)
        });
        !departing && !self.life.frozen && self.link.works()
    }

    /// The claims that a request renews or makes, in order.
    pub(super) fn claims_of(request: &tenure_core::model::Request) -> Vec<Option<ClaimId>> {
        match request {
            tenure_core::model::Request::Renew(beats) => beats
                .iter()
                .map(|beat| match &beat.subject {
                    tenure_core::model::Subject::Claim { claim, .. } => Some(*claim),
                    tenure_core::model::Subject::Session { .. } => None,
                })
                .collect(),
            tenure_core::model::Request::Claim(claim) => vec![Some(claim.id)],
            _ => Vec::new(),
        }
    }
}

/// The session of a request that shows that its program lives; true if it is a beat.
pub(super) fn session_of(request: &Request) -> Option<(SessionId, bool)> {
    let session = match request {
        Request::Register(register, _) => register.resume.as_ref()?.session,
        Request::Acquire(acquire) => acquire.session,
        Request::Release(release) => release.session,
        Request::Checkpoint(session)
        | Request::Beat(session)
        | Request::BeatHold { session, .. } => *session,
        Request::Leftovers(leftovers) => leftovers.session,
        _ => return None,
    };
    Some((SessionId(session), matches!(request, Request::Beat(_) | Request::BeatHold { .. })))
}
