//! How an agent starts, stops, is stopped and dies.

use std::sync::Arc;

use tenure::wire::HoldState;
use tenure_core::keeper::Keeper;
use tenure_core::keeper::journal::Saved;
use tenure_core::model::ClaimId;
use tenure_core::time::Boottime;
use tenure_core::turn::Standstills;

use super::agent::{AGENT_UID, Agent};
use super::core::{Caller, Core, Happening, Report, Told};
use super::invariants::{End, Invariant};
use super::planted::Planted;
use super::rows::AgentRows;
use super::store::Store;
use super::time::TrueTime;
use super::upstream::Upstream;

/// The process of an agent, and what befalls it.
pub(crate) struct Life {
    /// Grows with every start.
    pub(super) incarnation: u64,
    /// Its number for the directories of its host.
    pub(super) process: u64,
    /// When it was started.
    pub(super) started_at: TrueTime,
    /// When it went on last after it was stopped, or its machine woke.
    pub(super) thawed_at: TrueTime,
    /// Since when it does not run.
    pub(super) idle_since: Boottime,
    pub(super) frozen: bool,
    /// The machine slept, and the keeper does not know yet.
    pub(super) slept: bool,
    /// This is the first turn after a sleep.
    pub(super) waking: bool,
    pub(super) stopping: bool,
    /// To be killed when it has written its journal next time.
    pub(super) crash_at_commit: bool,
    pub(super) standstills: Standstills,
}

impl Default for Life {
    fn default() -> Life {
        Life {
            incarnation: 0,
            process: 0,
            started_at: TrueTime::default(),
            thawed_at: TrueTime::default(),
            idle_since: Boottime::ZERO,
            frozen: false,
            slept: false,
            waking: false,
            stopping: false,
            crash_at_commit: false,
            standstills: Standstills::new(Boottime::ZERO),
        }
    }
}

impl Life {
    /// A process begins; how it was stopped does not change with that.
    fn begin(&mut self, now: TrueTime) {
        self.incarnation += 1;
        self.started_at = now;
        (self.slept, self.waking, self.stopping, self.crash_at_commit) =
            (false, false, false, false);
    }

    /// True if the process, if there is one, runs and will go on to.
    pub(super) fn is_attentive(&self) -> bool {
        !self.frozen && !self.slept && !self.stopping
    }
}

impl Agent {
    /// Starts from the journal.
    pub(crate) fn start(&mut self, core: &mut Core, upstream: &mut Upstream) {
        if self.is_up() {
            return;
        }
        let now = self.boottime(core);
        self.machine.storage.set_now(core.now);
        let Some(opened) = self.open(core) else { return };
        self.life.begin(core.now);
        core.line(|| format!("agent {}: starts, {now:?}", self.host));
        core.interrupted(self.host, self.life.idle_since, now);
        let saved = self.take_up(core, now, opened);
        let rows = &self.journal.rows;
        core.checks.tied.started(core.now, self.host, |session| rows.has_session(session));
        self.remove_strays(core);
        let mut settings = tenure_core::keeper::Settings {
            host: Arc::from(format!("host{}", self.host)),
            agent_uid: AGENT_UID,
            ..core.plan.settings.clone()
        };
        if core.has(Planted::RingUnbounded) {
            settings.ring_max = usize::MAX;
        }
        let mut believed = core.checks.exclusion.believed_until(core.now, self.host);
        // The last agent may have died when the end of a hold was in the journal and not on the
        // page yet.
        believed.retain(|(_, claim, _)| core.checks.one_end.is_open(*claim));
        self.life.standstills = Standstills::new(now);
        let mut keeper = Keeper::new(settings, core.random.seed(), now);
        keeper.adopt(now, saved);
        self.keeper = Some(Box::new(keeper));
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        self.tend(core);
        // The machine may have stood still in the first turn, and a master come that goes before: what
        // ran out or was taken away meanwhile is rightly lost.
        let valid = believed.into_iter().filter(|(_, claim, until)| {
            *until > core.now && !core.checks.one_end.was_taken_away(*claim)
        });
        let believed: Vec<_> = valid.map(|(session, claim, _)| (session, claim)).collect();
        self.check_kept(core, &believed);
        for _ in &believed {
            core.seen("hold kept over a start");
        }
        if core.random.per_mille(500) && self.store.is_none() {
            self.receive_report(core, Report::Connected(upstream.epoch));
        }
        self.plan_next(core);
    }

    /// Opens the store within the agent, where there is one; nothing, if the agent cannot start.
    fn open(&mut self, core: &mut Core) -> Option<Option<(Store, Saved)>> {
        if !core.plan.embedded {
            return Some(None);
        }
        self.life.process = self.machine.storage.begin();
        if !self.machine.storage.lock(self.life.process) {
            core.line(|| format!("agent {}: another one has its directories", self.host));
            self.machine.storage.end(self.life.process, false);
            return None;
        }
        let stale = core.has(Planted::ForgetEnded);
        let now = if stale { self.life.idle_since } else { self.boottime(core) };
        let mut only_shown = false;
        let catch_up = |saved: &mut Saved| {
            saved.catch_up(now, |hold, _| {
                let page = self.machine.pages.get(&hold.claim.owner.session)?;
                let shown = page.get(&hold.slot).filter(|it| it.hold == hold.claim.id)?;
                only_shown |= shown.valid_until > hold.valid_until;
                Some(shown.valid_until)
            });
        };
        let opened =
            Store::open(&core.plan, &self.machine.storage, self.life.process, now, catch_up);
        if only_shown {
            core.seen("renewal that only a page shows");
        }
        match opened {
            Ok(opened) => Some(Some(opened)),
            Err(error) => {
                core.line(|| format!("agent {}: cannot start: {error}", self.host));
                core.seen("agent that could not start");
                self.machine.storage.end(self.life.process, true);
                let after = core.random.ms(20, 500);
                core.after(after, Happening::Start(self.host));
                None
            }
        }
    }

    /// The rows that the keeper takes up. They must be all that was written, unless the journal was lost.
    fn take_up(&mut self, core: &mut Core, now: Boottime, opened: Option<(Store, Saved)>) -> Saved {
        let Some((mut store, saved)) = opened else { return self.journal.rows.saved() };
        if let Some(why) = store.fresh() {
            core.line(|| format!("agent {}: {why}", self.host));
            core.seen("journal begun anew");
            let is_harmed = self.machine.storage.take_harm() || self.life.incarnation == 1;
            let verdict = core.checks.restart.lost(self.host, &why.to_string(), is_harmed);
            core.judge(Invariant::RestartKeeps, verdict);
            if core.has(Planted::NoQuarantine) {
                store.end_quarantine(now);
            }
            self.journal.rows = AgentRows::default();
            core.checks.one_end.forgot(self.host);
            core.checks.ledger.reset(End::ResetAndQuarantine);
            core.checks.fifo.reset();
        }
        // One that should not be there at all has written nothing.
        let written =
            if self.host < core.plan.hosts { self.journal.rows.saved() } else { saved.clone() };
        let restart = &core.checks.restart;
        let verdict =
            restart.read(self.host, now, saved.clone(), written, &mut self.journal.lacks_renewals);
        core.judge(Invariant::RestartKeeps, verdict);
        store.go_on(core, now);
        self.store = Some(store);
        saved
    }

    /// The agent must know all holds on pages.
    fn check_kept(
        &mut self,
        core: &mut Core,
        believed: &[(tenure_core::model::SessionId, ClaimId)],
    ) {
        let known: Vec<ClaimId> = self
            .inspect(core)
            .iter()
            .flat_map(|session| &session.holds)
            .filter(|view| matches!(view.state, HoldState::Held | HoldState::Jeopardy))
            .map(|view| ClaimId(view.hold))
            .collect();
        let verdict = core.checks.restart.started(self.host, believed, &known);
        core.judge(Invariant::RestartKeeps, verdict);
    }

    /// Pages of sessions that the journal does not know are voided and removed, as the shell does.
    fn remove_strays(&mut self, core: &mut Core) {
        let sessions: Vec<_> = self.machine.pages.keys().copied().collect();
        for session in
            sessions.into_iter().filter(|session| !self.journal.rows.has_session(*session))
        {
            self.machine.pages.remove(&session);
            core.checks.exclusion.removed(self.host, session);
        }
    }

    /// Dies, by SIGKILL or a bug: connections break, pages and journal stay.
    pub(crate) fn crash(&mut self, core: &mut Core) {
        if !self.is_up() {
            return;
        }
        core.line(|| format!("agent {}: is gone", self.host));
        self.keeper = None;
        self.journal.lacks_renewals |=
            self.store.take().is_some_and(|store| store.lacks_renewals());
        self.machine.storage.end(self.life.process, true);
        self.forget_turn(core.plan.planted);
        core.checks.exclusion.crashed(self.host);
        if !self.life.frozen {
            self.life.idle_since = self.boottime(core);
        }
        self.link.start_anew();
        core.checks.left.crashed(self.host);
        core.checks.tied.crashed(self.host);
        self.callers.watches.clear();
        for (sender, message) in self.inbox.take_messages() {
            Agent::refuse(core, sender, message);
        }
        for (ticket, ((client, life), _)) in std::mem::take(&mut self.callers.tickets) {
            core.tell(client, life, Told::Broken(ticket));
        }
        for (stream, open) in std::mem::take(&mut self.callers.streams) {
            let told = Told::Closed(stream, None);
            core.tell(open.client, open.life, told);
        }
        let after = core.random.ms(5, 1500);
        core.after(after, Happening::Start(self.host));
    }

    /// Ends after it was told to, with what the heart does then.
    pub(crate) fn end(&mut self, core: &mut Core, upstream: &mut Upstream) {
        if let (Some(store), Some(keeper)) = (&mut self.store, &self.keeper)
            && keeper.stopped()
        {
            store.close();
        }
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        self.tend(core);
        if !self.is_up() {
            return;
        }
        let now = self.boottime(core);
        if let (Some(store), Some(keeper)) = (&mut self.store, &self.keeper) {
            store.finish(now, keeper);
            self.machine.storage.end(self.life.process, false);
        }
        core.line(|| format!("agent {}: exits", self.host));
        self.crash(core);
    }

    /// Dies, and its journal with it. What it promised runs out by itself.
    pub(crate) fn lose_journal(&mut self, core: &mut Core) {
        core.line(|| format!("agent {}: its journal is lost", self.host));
        self.crash(core);
        self.machine.storage.clear_runtime();
        self.journal.rows = AgentRows::default();
        // Pages are files: programs that map them still see what they said.
        self.machine.pages.clear();
        core.checks.one_end.forgot(self.host);
        core.checks.tied.forgot(self.host);
        core.checks.exclusion.orphaned(self.host);
    }

    /// Its machine loses its power, and is booted.
    pub(crate) fn lose_power(&mut self, core: &mut Core) {
        self.crash(core);
        core.line(|| format!("agent {}: its machine is booted", self.host));
        self.machine.storage.reboot();
        self.machine.clock.boot(core.now);
        self.life.idle_since = self.boottime(core);
        self.journal.rows = AgentRows::default();
        self.machine.pages.clear();
        core.checks.one_end.forgot(self.host);
        core.checks.exclusion.rebooted(self.host);
        core.checks.beats.rebooted(self.host);
        core.checks.ledger.reset(End::Reset);
        core.checks.fifo.reset();
    }

    /// SIGTERM.
    pub(crate) fn stop(&mut self, core: &mut Core, upstream: &mut Upstream) {
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return };
        if std::mem::replace(&mut self.life.stopping, true) {
            return;
        }
        keeper.handle_stop(now);
        core.line(|| format!("agent {}: stops", self.host));
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        let deadline = Happening::StopDeadline(self.host, self.life.incarnation);
        core.after(std::time::Duration::from_secs(5), deadline);
        self.wake(core);
    }

    /// SIGUSR2.
    pub(crate) fn restart(&mut self, core: &mut Core, upstream: &mut Upstream) {
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return };
        self.life.stopping = true;
        keeper.handle_restart(now);
        core.line(|| format!("agent {}: restarts", self.host));
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        self.wake(core);
    }

    /// SIGSTOP, or the machine sleeps.
    pub(crate) fn freeze(&mut self, core: &mut Core) -> bool {
        if self.life.frozen {
            return false;
        }
        self.life.frozen = true;
        if self.is_up() {
            self.life.idle_since = self.boottime(core);
        }
        true
    }

    /// SIGCONT, or the machine wakes.
    pub(crate) fn thaw(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.life.frozen, false) {
            return;
        }
        let now = self.boottime(core);
        self.life.thawed_at = core.now;
        core.line(|| format!("agent {}: goes on", self.host));
        if self.is_up() {
            // It may have been started meanwhile.
            let from = self.life.idle_since.max(self.machine.clock.at(self.life.started_at));
            core.interrupted(self.host, from, now);
            self.forget_plan();
            self.wake(core);
        }
    }

    /// Nobody listens on the socket.
    pub(crate) fn refuse(core: &mut Core, (client, life): Caller, message: super::core::Message) {
        use super::core::Message;
        let told = match message {
            Message::Request { ticket, .. } => Told::Broken(ticket),
            Message::OpenStream { stream, .. } => Told::Closed(stream, None),
            Message::Cancel(_) | Message::CloseStream(_) => return,
        };
        core.tell(client, life, told);
    }
}
