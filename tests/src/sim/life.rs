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
use super::upstream::Upstream;

impl Agent {
    /// Starts from the journal.
    pub(crate) fn start(&mut self, core: &mut Core, upstream: &mut Upstream) {
        if self.is_up() {
            return;
        }
        let now = self.boottime(core);
        self.storage.set_now(core.now);
        let Some(opened) = self.open(core) else { return };
        self.incarnation += 1;
        self.stopping = false;
        self.crash_at_commit = false;
        self.slept = false;
        self.waking = false;
        self.started_at = core.now;
        core.line(|| format!("agent {}: starts, {now:?}", self.host));
        core.interrupted(self.host, self.idle_since, now);
        let saved = self.take_up(core, now, opened);
        let rows = &self.rows;
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
        self.standstills = Standstills::new(now);
        let mut keeper = Keeper::new(settings, core.random.seed(), now);
        keeper.adopt(now, saved);
        self.keeper = Some(keeper);
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
        self.process = self.storage.begin();
        if !self.storage.lock(self.process) {
            core.line(|| format!("agent {}: another one has its directories", self.host));
            self.storage.end(self.process, false);
            return None;
        }
        let stale = core.has(Planted::ForgetEnded);
        let now = if stale { self.idle_since } else { self.boottime(core) };
        let mut only_shown = false;
        let catch_up = |saved: &mut Saved| {
            saved.catch_up(now, |hold, _| {
                let page = self.pages.get(&hold.claim.owner.session)?;
                let shown = page.get(&hold.slot).filter(|it| it.hold == hold.claim.id)?;
                only_shown |= shown.valid_until > hold.valid_until;
                Some(shown.valid_until)
            });
        };
        let opened = Store::open(&core.plan, &self.storage, self.process, now, catch_up);
        if only_shown {
            core.seen("renewal that only a page shows");
        }
        match opened {
            Ok(opened) => Some(Some(opened)),
            Err(error) => {
                core.line(|| format!("agent {}: cannot start: {error}", self.host));
                core.seen("agent that could not start");
                self.storage.end(self.process, true);
                let after = core.random.ms(20, 500);
                core.after(after, Happening::Start(self.host));
                None
            }
        }
    }

    /// The rows that the keeper takes up. They must be all that was written, unless the journal was lost.
    fn take_up(&mut self, core: &mut Core, now: Boottime, opened: Option<(Store, Saved)>) -> Saved {
        let Some((mut store, saved)) = opened else { return self.rows.saved() };
        if let Some(why) = store.fresh() {
            core.line(|| format!("agent {}: {why}", self.host));
            core.seen("journal begun anew");
            let is_harmed = self.storage.take_harm() || self.incarnation == 1;
            let verdict = core.checks.restart.lost(self.host, &why.to_string(), is_harmed);
            core.judge(Invariant::RestartKeeps, verdict);
            if core.has(Planted::NoQuarantine) {
                store.end_quarantine(now);
            }
            self.rows = AgentRows::default();
            core.checks.one_end.forgot(self.host);
            core.checks.ledger.reset(End::ResetAndQuarantine);
            core.checks.fifo.reset();
        }
        // One that should not be there at all has written nothing.
        let written = if self.host < core.plan.hosts { self.rows.saved() } else { saved.clone() };
        let restart = &core.checks.restart;
        let verdict =
            restart.read(self.host, now, saved.clone(), written, &mut self.lacks_renewals);
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
        let sessions: Vec<_> = self.pages.keys().copied().collect();
        for session in sessions.into_iter().filter(|session| !self.rows.has_session(*session)) {
            self.pages.remove(&session);
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
        self.lacks_renewals |= self.store.take().is_some_and(|store| store.lacks_renewals());
        self.storage.end(self.process, true);
        self.forget_turn();
        self.unwritten.clear();
        self.due = None;
        core.checks.exclusion.crashed(self.host);
        if !self.frozen {
            self.idle_since = self.boottime(core);
        }
        self.link.start_anew();
        self.reports.clear();
        self.exits.clear();
        self.undelivered.clear();
        core.checks.left.crashed(self.host);
        core.checks.tied.crashed(self.host);
        self.watches.clear();
        for (sender, message) in std::mem::take(&mut self.messages) {
            Agent::refuse(core, sender, message);
        }
        for (ticket, ((client, life), _)) in std::mem::take(&mut self.tickets) {
            core.tell(client, life, Told::Broken(ticket));
        }
        for (stream, open) in std::mem::take(&mut self.streams) {
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
            self.storage.end(self.process, false);
        }
        core.line(|| format!("agent {}: exits", self.host));
        self.crash(core);
    }

    /// Dies, and its journal with it. What it promised runs out by itself.
    pub(crate) fn lose_journal(&mut self, core: &mut Core) {
        core.line(|| format!("agent {}: its journal is lost", self.host));
        self.crash(core);
        self.storage.clear_runtime();
        self.rows = AgentRows::default();
        // Pages are files: programs that map them still see what they said.
        self.pages.clear();
        core.checks.one_end.forgot(self.host);
        core.checks.tied.forgot(self.host);
        core.checks.exclusion.orphaned(self.host);
    }

    /// Its machine loses its power, and is booted.
    pub(crate) fn lose_power(&mut self, core: &mut Core) {
        self.crash(core);
        core.line(|| format!("agent {}: its machine is booted", self.host));
        self.storage.reboot();
        self.clock.boot(core.now);
        self.idle_since = self.boottime(core);
        self.rows = AgentRows::default();
        self.pages.clear();
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
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        keeper.handle_stop(now);
        core.line(|| format!("agent {}: stops", self.host));
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        let deadline = Happening::StopDeadline(self.host, self.incarnation);
        core.after(std::time::Duration::from_secs(5), deadline);
        self.wake(core);
    }

    /// SIGUSR2.
    pub(crate) fn restart(&mut self, core: &mut Core, upstream: &mut Upstream) {
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return };
        self.stopping = true;
        keeper.handle_restart(now);
        core.line(|| format!("agent {}: restarts", self.host));
        self.drive(core, upstream, |turn, keeper, around| turn.flush(keeper, around));
        self.wake(core);
    }

    /// SIGSTOP, or the machine sleeps.
    pub(crate) fn freeze(&mut self, core: &mut Core) -> bool {
        if self.frozen {
            return false;
        }
        self.frozen = true;
        if self.is_up() {
            self.idle_since = self.boottime(core);
        }
        true
    }

    /// SIGCONT, or the machine wakes.
    pub(crate) fn thaw(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.frozen, false) {
            return;
        }
        let now = self.boottime(core);
        core.line(|| format!("agent {}: goes on", self.host));
        if self.is_up() {
            // It may have been started meanwhile.
            let from = self.idle_since.max(self.clock.at(self.started_at));
            core.interrupted(self.host, from, now);
            self.due = None;
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
