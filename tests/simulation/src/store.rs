//! The embedded store and the journal of an agent, as shipped, on the directories of its host.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tenure::wire::Kind;
use tenure_core::engine::journal::{Entry, Key};
use tenure_core::keeper::Keeper;
use tenure_core::model::{
    CallId, ClaimId, GoneReason, Report, Request, Resource, Terms, UpstreamStanding,
};
use tenure_core::time::Boottime;
use tenure_stores::Upstream;
use tenure_stores::embedded::{self, Embedded, Opened};
use tenure_stores::journal::LiveRows;
use tenure_stores::journal::{Fresh, Journal, SavedKeeper};
use tenure_stores::settings::OpenError;

use super::core::Core;
use super::plan::Plan;
use super::resource_state::ResourceState;
use super::storage::{Place, Storage};
use super::time::{Clock, TrueTime};
use super::upstream::engine_settings;

/// A store of a running agent.
pub(crate) struct Store {
    embedded: Embedded,
    journal: Rc<RefCell<Journal>>,
    storage: Storage,
    process: u64,
    /// How the resources stood at the last look.
    known: BTreeMap<Resource, ResourceState>,
    /// The limits that claims asked for.
    limits: BTreeMap<ClaimId, u32>,
    /// Claims that are not answered, and what they want.
    claiming: BTreeMap<CallId, (ClaimId, Resource)>,
    /// Calls that it has not answered.
    unanswered: usize,
    /// Its effects since the last turn was secured.
    steps: Vec<Vec<ResourceState>>,
}

impl Store {
    /// Opens it for a process; with it what its keeper takes up.
    pub(crate) fn open(
        plan: &Plan,
        storage: &Storage,
        process: u64,
        now: Boottime,
        catch_up: impl FnOnce(&mut SavedKeeper),
    ) -> Result<(Store, SavedKeeper), OpenError> {
        let place = embedded::Place {
            boot_id: storage.boot_id(),
            now,
            wall_clock_us: storage.wall_clock_us(),
            ahead: plan.ahead,
            engine: engine_settings(),
        };
        let runtime = Box::new(storage.directory(Place::Runtime, process));
        let state = Box::new(storage.directory(Place::State, process));
        let Opened { store, journal, saved } =
            embedded::open(runtime, state, place, catch_up, |disk| {
                Ok(Box::new(storage.scribe(process, disk)))
            })?;
        let store = Store {
            embedded: store,
            journal,
            storage: storage.clone(),
            process,
            known: BTreeMap::new(),
            limits: BTreeMap::new(),
            claiming: BTreeMap::new(),
            unanswered: 0,
            steps: Vec::new(),
        };
        Ok((store, saved))
    }

    /// Compares what it has taken up with what an earlier one did.
    pub(crate) fn go_on(&mut self, core: &Core, now: Boottime) {
        let standings = core.checks.ledger.standings();
        let known = standings.map(|(name, standing)| (name.clone(), standing.clone()));
        let taken_up = self.embedded.rows().into_iter().filter_map(|key| {
            let resource = match self.embedded.row(&key)? {
                Entry::Grant(saved) => saved.claim.resource,
                Entry::Waiter(saved) => saved.claim.resource,
                _ => return None,
            };
            Some((resource, UpstreamStanding::default()))
        });
        for (resource, standing) in taken_up.chain(known) {
            let state = ResourceState { standing, ..ResourceState::none(resource.clone()) };
            self.known.insert(resource, state);
        }
        self.look(now);
    }

    /// Planted: what an earlier one granted does not matter.
    pub(crate) fn end_quarantine(&mut self, now: Boottime) {
        self.embedded.end_quarantine(now);
    }

    /// Until when it grants nothing because an earlier one may have.
    pub(crate) fn quarantined_until(&self, now: Boottime) -> Option<Boottime> {
        self.embedded.engine().quarantined_until(now)
    }

    /// Why it does not go on from what an earlier one wrote.
    pub(crate) fn fresh(&self) -> Option<Fresh> {
        self.journal.borrow().fresh().cloned()
    }

    /// A call of the keeper's.
    pub(crate) fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        if let Request::Claim(claim) = &request {
            let unknown = || ResourceState::none(claim.resource.clone());
            self.known.entry(claim.resource.clone()).or_insert_with(unknown);
            if let Terms::Semaphore { limit, .. } = claim.terms {
                self.limits.insert(claim.id, limit);
                self.claiming.insert(call, (claim.id, claim.resource.clone()));
            }
        }
        self.unanswered += 1;
        self.embedded.submit(now, call, request);
        self.look(now);
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Boottime) {
        if self.embedded.poll_timeout().is_some_and(|due| due <= now) {
            self.embedded.handle_timeout(now);
            // The end of a quarantine serves whoever waited for it.
            self.take_down(now, true);
        }
    }

    /// The next thing that it has to say.
    pub(crate) fn next_report(&mut self, now: Boottime) -> Option<Report> {
        let waited = self.storage.note_due(self.process).is_some();
        let polled = self.embedded.poll_report(&mut Context::from_waker(Waker::noop()));
        if waited {
            // Its waiters may have been granted, and a later claim have changed the limit.
            self.take_down(now, true);
        }
        match polled {
            Poll::Ready(report) => {
                if let Report::Answer { call, .. } = &report {
                    self.unanswered -= 1;
                    self.claiming.remove(call);
                }
                Some(report)
            }
            Poll::Pending => None,
        }
    }

    /// Calls that it has not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Notes a change of the keeper's.
    pub(crate) fn write(&mut self, entry: tenure_core::keeper::journal::Entry) {
        self.journal.borrow_mut().write(entry);
    }

    /// When it wants to be asked again.
    pub(crate) fn due(&self, clock: &Clock) -> Option<TrueTime> {
        let own = [self.embedded.poll_timeout(), self.journal.borrow().poll_timeout()];
        let own = own.into_iter().flatten().map(|at| clock.when(at));
        own.chain(self.storage.note_due(self.process)).min()
    }

    /// Makes a turn outlive the process; what it did in it. Nothing, if the process was killed meanwhile.
    pub(crate) fn secure(&mut self, now: Boottime) -> Option<Vec<Vec<ResourceState>>> {
        self.journal.borrow_mut().secure(now);
        self.storage.is_alive(self.process).then(|| std::mem::take(&mut self.steps))
    }

    /// Tends the journal after each turn, as the heart does.
    pub(crate) fn tend(&mut self, now: Boottime, keeper: &mut Keeper) {
        let rows = LiveRows::new(keeper, &self.embedded);
        self.journal.borrow_mut().tend(now, &rows);
        keeper.set_unrecorded(self.journal.borrow().refusal());
    }

    /// True if holds may be valid longer than its journal says.
    pub(crate) fn lacks_renewals(&self) -> bool {
        self.journal.borrow().lacks_renewals()
    }

    /// True if everything would survive the agent.
    pub(crate) fn is_recorded(&self) -> bool {
        self.journal.borrow().refusal().is_none()
    }

    /// Closes it in the last turn, as the heart does.
    pub(crate) fn finish(&mut self, now: Boottime, keeper: &Keeper) {
        let rows = LiveRows::new(keeper, &self.embedded);
        self.journal.borrow_mut().finish(now, &rows);
    }

    /// Everything is released.
    pub(crate) fn close(&mut self) {
        self.embedded.close();
    }

    /// True if it grants nothing for a while, and says so.
    pub(crate) fn grants_nothing(&self) -> Option<String> {
        self.embedded.health().grants_nothing
    }

    /// Its content, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let stays = |key: &Key| matches!(key, Key::Routes(_) | Key::History(_));
        let rows = self.embedded.rows();
        rows.iter().filter(|key| !stays(key)).map(|key| format!("{key:?} in the store")).collect()
    }

    /// Takes down what is different since the last look.
    fn look(&mut self, now: Boottime) {
        self.take_down(now, false);
    }

    fn take_down(&mut self, now: Boottime, several: bool) {
        let engine = self.embedded.engine();
        let mut step = Vec::new();
        for (resource, before) in &mut self.known {
            let standing = engine.holders(now, resource);
            let gone = before.standing.holders.iter().map(|entry| entry.claim);
            let gone = gone.filter(|id| standing.holders.iter().all(|it| it.claim != *id));
            let why_gone = |claim| engine.why_gone(claim).unwrap_or(GoneReason::Unknown);
            let ended = gone.map(|claim| (claim, why_gone(claim))).collect();
            let is_in_grace = |claim: &ClaimId| {
                let row = engine.row(&Key::Claim(*claim));
                matches!(row, Some(Entry::Grant(saved)) if saved.in_grace)
            };
            let leases = standing.holders.iter().filter(|_| resource.kind == Kind::Lease);
            let in_grace = leases.map(|entry| entry.claim).filter(is_in_grace).collect();
            let claiming = self.claiming.values().filter(|(_, of)| of == resource);
            let limits = standing.holders.iter().map(|it| it.claim).chain(claiming.map(|it| it.0));
            let limits = limits.filter_map(|claim| self.limits.get(&claim).copied());
            let limits = limits.chain(before.standing.limit);
            let highest_limit = if several { limits.max() } else { None };
            let state = ResourceState {
                resource: resource.clone(),
                standing,
                highest_limit,
                ended,
                in_grace,
            };
            if !state.is_like(before) {
                step.push(state.clone());
                *before = state;
            }
        }
        if !step.is_empty() {
            self.steps.push(step);
        }
    }
}
