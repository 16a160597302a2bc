//! An agent on its host: what reaches it, and its turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tenure_core::keeper::{
    self, Keeper, PENDING_ENDS_MAX, Process, REMEMBERED_MAX, RING_BYTES_MAX, Reply, Request,
    STREAMS_PER_SESSION_MAX, StreamId, Ticket,
};
use tenure_core::model::{self, ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_core::turn::{Budget, Standstills, Turn};

use super::commands::{Around, UNASKED, own_peer};
use super::core::{Caller, Core, Happening, Message, Report};
use super::invariants::Invariant;
use super::link::Link;
use super::planted::Planted;
use super::rows::AgentRows;
use super::storage::Storage;
use super::store::Store;
use super::time::{Clock, TrueTime};
use super::upstream::Upstream;

/// Small, so that runs see what waits for the next turn.
const BUDGET: Budget =
    Budget { reports: 16, endings: 4, messages: 8, time: Duration::from_millis(2), told: 8 };
/// The agent's own user.
pub(crate) const AGENT_UID: u32 = 990;

/// An open stream.
pub(super) struct OpenStream {
    pub(super) client: usize,
    pub(super) life: u64,
    pub(super) session: Option<SessionId>,
    /// Guarded work hangs on it.
    pub(super) is_tether: bool,
    /// Its reader takes nothing more.
    pub(super) is_full: bool,
}

/// The content of a slot of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSlot {
    pub(crate) hold: ClaimId,
    /// Until when.
    pub(crate) valid_until: Boottime,
}

/// An agent on its host.
pub(crate) struct Agent {
    pub(super) host: usize,
    pub(super) clock: Clock,
    pub(super) keeper: Option<Keeper>,
    pub(super) turn: Turn,
    pub(super) standstills: Standstills,
    /// Grows with every start.
    pub(super) incarnation: u64,
    pub(super) frozen: bool,
    /// The machine slept, and the keeper does not know yet.
    pub(super) slept: bool,
    /// This is the first turn after a sleep.
    pub(super) waking: bool,
    /// Since when it does not run.
    pub(super) idle_since: Boottime,
    /// To be killed when it has written its journal next time.
    pub(super) crash_at_commit: bool,
    pub(super) stopping: bool,
    /// The rows that its journal must have.
    pub(super) rows: AgentRows,
    /// The directories of its host.
    pub(super) storage: Storage,
    /// The number of its process there.
    pub(super) process: u64,
    /// Grows with everything that is wrong with its disks.
    pub(super) ails: u64,
    /// Its own store, if the upstream is embedded.
    pub(super) store: Option<Store>,
    /// Holds may be valid longer than the journal says: it had no space for their renewals.
    pub(super) lacks_renewals: bool,
    /// Planted: entries that are written late.
    pub(super) unwritten: Vec<tenure_core::keeper::journal::Entry>,
    /// Planted: the last answers to checkpoints.
    pub(super) checkpointed: BTreeMap<Caller, Reply>,
    /// Pages by session. They are files, and outlive the agent.
    pub(crate) pages: BTreeMap<SessionId, BTreeMap<u32, PageSlot>>,
    pub(super) link: Link,
    pub(super) reports: VecDeque<Report>,
    /// Reports as the keeper hears them.
    pub(super) heard: VecDeque<model::Report>,
    pub(super) exits: VecDeque<SessionId>,
    /// Grants whose callers were gone before they read of them.
    pub(super) undelivered: Vec<ClaimId>,
    pub(super) messages: VecDeque<(Caller, Message)>,
    /// The caller of each request; true if it is blocked until it is granted something.
    pub(super) tickets: BTreeMap<Ticket, (Caller, bool)>,
    /// When it was started.
    pub(super) started_at: TrueTime,
    pub(super) streams: BTreeMap<StreamId, OpenStream>,
    pub(super) watches: BTreeMap<SessionId, Process>,
    /// Processes of the host that live.
    pub(super) processes: BTreeSet<u32>,
    /// When it wants its next turn.
    pub(super) due: Option<TrueTime>,
    /// Replies to the harness itself.
    pub(super) inspected: Option<Reply>,
    /// Turns since something came from outside.
    pub(super) idle_turns: u32,
    pub(super) done: u64,
}

/// Longer than any linger: by then a wait whose caller went with the last agent has ended.
const ORPHANED: Duration = Duration::from_secs(2);
/// More turns than this without anything from outside within a second mean that timers spin.
const IDLE_TURNS_MAX: u32 = 2000;

impl Agent {
    /// An agent that is not started yet.
    pub(crate) fn new(host: usize, clock: Clock, storage: Storage) -> Agent {
        Agent {
            host,
            clock,
            keeper: None,
            turn: Turn::new(BUDGET),
            standstills: Standstills::new(Boottime::ZERO),
            incarnation: 0,
            frozen: false,
            slept: false,
            waking: false,
            idle_since: Boottime::ZERO,
            crash_at_commit: false,
            stopping: false,
            rows: AgentRows::default(),
            storage,
            process: 0,
            ails: 0,
            store: None,
            lacks_renewals: false,
            unwritten: Vec::new(),
            checkpointed: BTreeMap::new(),
            pages: BTreeMap::new(),
            link: Link::new(),
            reports: VecDeque::new(),
            heard: VecDeque::new(),
            exits: VecDeque::new(),
            undelivered: Vec::new(),
            messages: VecDeque::new(),
            tickets: BTreeMap::new(),
            started_at: TrueTime::default(),
            streams: BTreeMap::new(),
            watches: BTreeMap::new(),
            processes: BTreeSet::new(),
            due: None,
            inspected: None,
            idle_turns: 0,
            done: 0,
        }
    }

    /// The time of the host's clock.
    pub(crate) fn boottime(&self, core: &Core) -> Boottime {
        self.clock.at(core.now)
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
        self.messages.push_back((sender, message));
        self.wake(core);
    }

    /// The reader of a stream takes nothing more; as `heart/effects.rs` has it. Whether the stream is
    /// still open, though it gets nothing more.
    pub(crate) fn fill(&mut self, core: &mut Core, sender: Caller, stream: StreamId) -> bool {
        let Some(open) = self.streams.get_mut(&stream) else { return false };
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
        self.reports.push_back(report);
        self.wake(core);
    }

    /// A watched process has ended.
    pub(crate) fn receive_exit(&mut self, core: &mut Core, session: SessionId) {
        self.exits.push_back(session);
        self.wake(core);
    }

    /// A caller was answered, and has gone without reading it.
    pub(crate) fn unread(&mut self, core: &mut Core, reply: Option<&Reply>) {
        let Some(Reply::Acquired(acquired)) = reply else { return };
        let hold = ClaimId(acquired.hold);
        core.line(|| format!("agent {}: nobody has read of {hold}", self.host));
        if !self.rows.is_told_by_event(hold) {
            core.checks.left.unread(core.now, self.host, hold);
        }
        core.seen("grant that nobody read");
        if !core.has(Planted::UnreadKept) {
            self.undelivered.push(hold);
        }
        self.wake(core);
    }

    /// Something is there to be done.
    pub(super) fn wake(&mut self, core: &mut Core) {
        self.idle_turns = 0;
        let at = core.now + core.random.us(5, 120);
        self.plan(core, at);
    }

    fn plan(&mut self, core: &mut Core, at: TrueTime) {
        if self.due.is_none_or(|due| at < due) {
            self.due = Some(at);
            core.queue.push(at, Happening::Turn(self.host));
        }
    }

    /// One turn.
    pub(crate) fn turn(&mut self, core: &mut Core, upstream: &mut Upstream) {
        if self.frozen || self.due.is_none_or(|due| due > core.now) {
            return;
        }
        self.due = None;
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return };
        if let Some(standstill) = self.standstills.turn_begins(now) {
            core.seen("standstill");
            if !core.has(Planted::StandstillCounts) {
                keeper.handle_standstill(now, standstill.length);
            }
        }
        self.waking = std::mem::take(&mut self.slept);
        if self.waking {
            core.line(|| format!("agent {}: wakes", self.host));
            keeper.handle_wake(now);
        }
        if core.has(Planted::WaitingIsLiving) {
            let waiting = self.tickets.values().filter(|(_, blocks)| *blocks);
            for session in waiting.flat_map(|(caller, _)| core.checks.tied.sessions_of(*caller)) {
                keeper.handle_request(now, UNASKED, own_peer(), Request::Beat(session.0));
            }
        }
        self.done = 0;
        let looked_up = keeper::looked_up();
        self.drive(core, upstream, |turn, keeper, around| {
            turn.take(keeper, around);
        });
        let work = self.done + (keeper::looked_up() - looked_up);
        let verdict = core.checks.bounded.works(self.host, work);
        core.judge(Invariant::BoundedWork, verdict);
        let verdict = core.checks.exclusion.turn_ended(core.now, self.host);
        core.judge(Invariant::Exclusion, verdict);
        if core.is_calm() {
            let verdict = core.checks.exclusion.caught_up(core.now, &core.checks.ledger);
            core.judge(Invariant::Exclusion, verdict);
        }
        self.check_sizes(core);
        if self.keeper.as_ref().is_some_and(Keeper::stopped) {
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
        how: impl FnOnce(&mut Turn, &mut Keeper, &mut Around<'_>),
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
            self.storage.mend();
        }
        if !self.storage.is_alive(self.process) {
            core.line(|| format!("agent {}: is killed while it tends the journal", self.host));
            self.crash(core);
        }
    }

    /// Looks for something that the store has to say, as the heart does before it waits.
    fn look_at_store(&mut self, core: &Core) {
        let now = self.boottime(core);
        self.storage.set_now(core.now);
        if let Some(store) = &mut self.store
            && self.heard.is_empty()
        {
            self.heard.extend(store.next_report(now));
        }
    }

    /// Is another process, which knows nothing of the last one's turn.
    pub(super) fn forget_turn(&mut self) {
        self.turn = Turn::new(BUDGET);
        self.heard.clear();
    }

    /// Plans the next turn: soon if something waits, else when a timer is due.
    pub(super) fn plan_next(&mut self, core: &mut Core) {
        self.look_at_store(core);
        let Some(keeper) = &self.keeper else { return };
        let inner = self.store.as_ref().and_then(|store| store.due(&self.clock));
        let inner = inner.map(|at| self.clock.at(at));
        let due = keeper.poll_timeout().into_iter().chain(inner).min();
        let due = self.standstills.wait(due, keeper.count_sessions() > 0);
        let waits = self.turn.has_more()
            || !(self.messages.is_empty() && self.reports.is_empty() && self.exits.is_empty())
            || !self.heard.is_empty();
        if waits || !self.undelivered.is_empty() {
            let at = core.now + core.random.us(5, 60);
            self.plan(core, at);
            return;
        }
        self.idle_turns += 1;
        if self.idle_turns > IDLE_TURNS_MAX {
            let what = format!("agent {} turns without end and does nothing", self.host);
            core.judge(Invariant::Bounded, Err(what));
        }
        if let Some(due) = due.map(|at| self.clock.when(at)) {
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

    /// Waits in its journal whose callers are gone, and have had time to come back after a start.
    pub(crate) fn abandoned(&self, core: &Core) -> usize {
        if !self.is_attentive() || core.now.since(self.started_at) < ORPHANED {
            return 0;
        }
        let callers = self.tickets.values().filter(|(_, blocks)| *blocks).count();
        self.rows.blocked().saturating_sub(callers)
    }

    /// True if it runs and will go on to.
    pub(crate) fn is_attentive(&self) -> bool {
        self.is_up() && !self.frozen && !self.slept && !self.stopping
    }

    /// True if it runs, reaches its upstream, and has released all that it wants to.
    pub(crate) fn is_settled(&self) -> bool {
        let departing = self.keeper.as_ref().is_none_or(|keeper| {
            keeper.sizes().iter().any(|(name, count)| *name == "pending releases" && *count > 0)
        });
        !departing && !self.frozen && self.link.works()
    }

    fn check_sizes(&self, core: &mut Core) {
        let Some(keeper) = &self.keeper else { return };
        let settings = &core.plan.settings;
        let sizes: BTreeMap<_, _> = keeper.sizes().into_iter().collect();
        let of = |name: &str| sizes.get(name).copied().unwrap_or(0);
        let (sessions, holds, departures) = (of("sessions"), of("holds"), of("pending releases"));
        // Every alarm has one entry at most: of a hold its deadline, its patience and its beat, of a session
        // its tether, its progress and its beat, of a contest its next attempt and its next telling.
        let alarms = 3 * (holds + sessions) + 2 * of("queues") + departures;
        let alarms = alarms + of("watches") + of("pending ends") + 3;
        let observed = self.streams.values().filter(|open| open.session.is_none()).count();
        let (sessions_saved, holds_saved) = self.rows.len();
        let bounds = [
            ("sessions", sessions, settings.sessions_max),
            ("holds, those that leave counted,", holds + departures, settings.holds_max),
            ("pending ends", of("pending ends"), PENDING_ENDS_MAX),
            // A master may be of three projects, and everything of two tenants.
            ("queues", of("queues"), (core.plan.prizes.len() + 2) * 2),
            ("streams", of("streams"), sessions * STREAMS_PER_SESSION_MAX + observed),
            ("watches", of("watches"), of("streams") + sessions),
            ("events", of("events"), sessions * (settings.ring_max + 1)),
            ("bytes of events", of("bytes of events"), sessions * RING_BYTES_MAX),
            ("remembered", of("remembered"), REMEMBERED_MAX),
            ("timers", of("timers"), alarms),
            ("sessions in its journal", sessions_saved, sessions),
            ("holds in its journal", holds_saved, holds + departures),
        ];
        for (name, count, max) in bounds {
            let verdict = core.checks.bounded.within(self.host, name, count, max);
            core.judge(Invariant::Bounded, verdict);
        }
        // Every request is answered, and forgotten then.
        let unanswered = match &self.store {
            Some(store) => store.unanswered(),
            None => self.link.in_flight.len(),
        };
        if !self.turn.has_more() {
            let unanswered = unanswered + self.heard.len();
            let verdict = core.checks.bounded.within(self.host, "calls", of("calls"), unanswered);
            core.judge(Invariant::Bounded, verdict);
        }
    }

    /// The claims that a request renews or makes, in order.
    pub(super) fn claims_of(request: &tenure_core::model::Request) -> Vec<Option<ClaimId>> {
        match request {
            tenure_core::model::Request::Renew(beats) => beats
                .iter()
                .map(|beat| match &beat.subject {
                    tenure_core::model::Subject::Claim { claim, .. } => Some(*claim),
                    tenure_core::model::Subject::Session(_) => None,
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
        Request::Register(register) => register.resume.as_ref()?.session,
        Request::Acquire(acquire) => acquire.session,
        Request::Release(release) => release.session,
        Request::Checkpoint(session) | Request::Beat(session) => *session,
        _ => return None,
    };
    Some((SessionId(session), matches!(request, Request::Beat(_))))
}
