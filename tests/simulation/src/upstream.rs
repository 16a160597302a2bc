//! The upstream: an engine with its journal and its ledger of tokens.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{
    Answer, Change, ClaimAnswer, ClaimId, GoneReason, Request, Resource, Subject,
};
use tenure_core::time::Boottime;

use super::core::{Core, Happening};
use super::invariants::{End, Moment};
use super::plan::TTL_MS;
use super::planted::Planted;
use super::resource_state::ResourceState;
use super::rows::EngineRows;
use super::time::{Clock, TrueTime};

/// Tokens made durable at a time. Few, so that runs see them run out.
const TOKENS: u64 = 16;
/// How long ended claims are remembered. Longer than any message is under way.
const TOMBSTONE: Duration = Duration::from_secs(10);
/// Most waiters of a resource.
const QUEUE_MAX: usize = 6;

/// The store of the truth.
pub(crate) struct Upstream {
    clock: Clock,
    engine: Engine,
    rows: EngineRows,
    /// The greatest token that may have been granted. Survives everything.
    token_high: u64,
    /// The time of its wall clock at the beginning of the run, µs.
    wall_us: u64,
    /// Grows when its data is lost.
    pub(crate) epoch: u64,
    /// Grows with every start: connections of an earlier life are broken.
    pub(crate) life: u64,
    /// True while it stands still.
    pub(crate) frozen: bool,
    /// Until when it grants nothing. Kept with its data.
    quarantine: Boottime,
    /// Effects that are not judged yet.
    moments: Vec<Moment>,
    /// When its next turn is planned.
    planned: Option<TrueTime>,
    /// Releases that a planted fault does once more.
    again: Vec<Resource>,
}

impl Upstream {
    /// An upstream that has never granted anything.
    pub(crate) fn new(clock: Clock) -> Upstream {
        let range = TokenRange { first: 1, last: TOKENS };
        Upstream {
            clock,
            engine: Engine::new(engine_settings(), range),
            rows: EngineRows::default(),
            token_high: TOKENS,
            wall_us: 1_000_000,
            epoch: 1,
            life: 1,
            frozen: false,
            quarantine: Boottime::ZERO,
            moments: Vec::new(),
            planned: None,
            again: Vec::new(),
        }
    }

    /// The instant by its clock.
    pub(crate) fn clock(&self, core: &Core) -> Boottime {
        self.clock.at(core.now)
    }

    /// True if it grants nothing for a while.
    pub(crate) fn is_quarantined(&self, core: &Core) -> bool {
        self.engine.quarantined_until(self.clock.at(core.now)).is_some()
    }

    /// The true instant at which it has something to do.
    pub(crate) fn due(&self) -> Option<TrueTime> {
        self.engine.poll_timeout().map(|at| self.clock.when(at))
    }

    /// Answers a request, and gives the hints that follow from it.
    pub(crate) fn call(&mut self, core: &mut Core, request: Request) -> (Answer, Vec<Change>) {
        let now = self.clock.at(core.now);
        if core.has(Planted::DoubleRelease) {
            self.release_again(now);
        }
        if let Request::Release { claim, resource } = &request {
            let waits = self.rows.waiters.values().any(|saved| saved.claim.id == *claim);
            if waits && core.has(Planted::WaiterKept) {
                return (Answer::Released(true), Vec::new());
            }
            if core.has(Planted::DoubleRelease) || core.has(Planted::DoubleGrant) {
                self.again.push(resource.clone());
            }
        }
        if core.has(Planted::DoubleGrant) {
            self.grant_again(core);
        }
        if core.has(Planted::LastFirst) && matches!(request, Request::Release { .. }) {
            self.send_first_to_the_end(core);
        }
        // Overdue expiries are a step of their own, so that each step has one cause.
        self.engine.handle_timeout(now);
        let mut changes = self.settle(core);
        let beaten = waiting_of(core, &request);
        let queues = match &request {
            Request::Claim(claim) if claim.enqueue => Some((claim.id, claim.resource.clone())),
            _ => None,
        };
        let quarantine = self.engine.quarantined_until(now).filter(|_| queues.is_some());
        let answer = match quarantine.filter(|_| core.has(Planted::QuarantineOrder)) {
            Some(until) => Answer::Claim(ClaimAnswer::Quarantined { free_in: until - now }),
            None => self.engine.handle(now, request),
        };
        if let Some((claim, resource)) = queues
            && matches!(answer, Answer::Claim(ClaimAnswer::Quarantined { .. }))
        {
            core.checks.fifo.postponed(&resource, claim);
        }
        changes.extend(self.settle(core));
        for claim in beaten {
            self.send_to_the_end(core, claim);
        }
        (answer, changes)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, core: &mut Core) -> Vec<Change> {
        self.engine.handle_timeout(self.clock.at(core.now));
        self.settle(core)
    }

    /// Starts again with its data.
    pub(crate) fn restart(&mut self, core: &mut Core) {
        self.life += 1;
        self.restore(core);
        self.engine.quarantine(self.quarantine);
        self.settle(core);
    }

    /// Starts again without its data. With `quarantine` it grants nothing until every grant that it
    /// has forgotten must have ended.
    pub(crate) fn reset(&mut self, core: &mut Core, quarantine: bool) {
        self.life += 1;
        self.epoch += 1;
        self.rows = EngineRows::default();
        let range = self.fresh_tokens(core);
        self.engine = Engine::new(engine_settings(), range);
        if quarantine {
            self.quarantine = self.clock.at(core.now) + Duration::from_millis(TTL_MS.1);
        }
        self.engine.quarantine(self.quarantine);
        core.checks.ledger.reset(if quarantine { End::ResetAndQuarantine } else { End::Reset });
        core.checks.fifo.reset();
    }

    /// Somebody sets its wall clock.
    pub(crate) fn step_wall_clock(&mut self, us: u64) {
        self.wall_us = us;
    }

    /// Its effects since the last call.
    pub(crate) fn moments(&mut self) -> Vec<Moment> {
        std::mem::take(&mut self.moments)
    }

    /// Every resource that somebody holds or waits for.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        self.rows.resources()
    }

    /// All claims and sessions that are left, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.rows.names();
        if self.engine.has_grants() {
            names.push("grants of the engine".to_owned());
        }
        if let Some(at) = self.engine.poll_timeout() {
            names.push(format!("a timer at {at:?}"));
        }
        names
    }

    /// The tokens of a new start: past all that may have been granted, and not before the wall
    /// clock.
    fn fresh_tokens(&mut self, core: &Core) -> TokenRange {
        if core.has(Planted::TokenReset) {
            return TokenRange { first: 1, last: TOKENS };
        }
        let wall = self.wall_us + core.now.as_nanos() / 1000;
        let first = wall.max(self.token_high + 1);
        self.token_high = first + TOKENS;
        TokenRange { first, last: self.token_high }
    }

    /// Writes the journal, reserves tokens, and compares what was granted with the rules.
    fn settle(&mut self, core: &mut Core) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut touched = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Change(change) => changes.push(change),
                Effect::Persist(entry) => touched.extend(self.rows.write(entry)),
                Effect::ReserveTokens => {
                    self.token_high = self.token_high.max(TOKENS) + TOKENS;
                    self.engine.extend_tokens(self.token_high);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        self.compare(core, &touched);
        changes
    }

    fn compare(&mut self, core: &mut Core, touched: &[Resource]) {
        let now = self.clock.at(core.now);
        let mut step = Vec::new();
        for resource in touched {
            let standing = self.engine.holders(now, resource);
            let before = core.checks.ledger.standing(resource);
            let gone = before
                .into_iter()
                .flat_map(|before| &before.holders)
                .filter(|before| standing.holders.iter().all(|entry| entry.claim != before.claim));
            let why_gone = |claim| self.engine.why_gone(claim).unwrap_or(GoneReason::Unknown);
            let ended = gone.map(|entry| (entry.claim, why_gone(entry.claim))).collect();
            let in_grace = self.rows.grants.values();
            let in_grace =
                in_grace.filter(|saved| saved.in_grace && saved.claim.resource == *resource);
            let in_grace = in_grace.map(|saved| saved.claim.id).collect();
            step.push(ResourceState {
                ended,
                in_grace,
                standing,
                ..ResourceState::none(resource.clone())
            });
        }
        self.moments.extend(core.take_down(step));
    }

    /// Planted: releases whoever holds what was released before.
    fn release_again(&mut self, now: Boottime) {
        for resource in std::mem::take(&mut self.again) {
            let holder = self.rows.grants.values().find(|saved| saved.claim.resource == resource);
            let Some(claim) = holder.map(|saved| saved.claim.id) else {
                self.again.push(resource);
                continue;
            };
            self.engine.handle(now, Request::Release { claim, resource });
        }
    }

    /// Planted: whoever was granted what was released is forgotten, so that the next one is granted it as well.
    fn grant_again(&mut self, core: &mut Core) {
        for resource in std::mem::take(&mut self.again) {
            let holder = self.rows.grants.values().find(|saved| saved.claim.resource == resource);
            let Some(row) = holder.map(|saved| saved.row) else {
                self.again.push(resource);
                continue;
            };
            self.rows.grants.remove(&row);
            self.restore(core);
        }
    }

    /// Planted: whoever has waited longest is overtaken.
    fn send_first_to_the_end(&mut self, core: &mut Core) {
        let first = self.rows.waiters.values().next().map(|saved| saved.claim.id);
        if let Some(first) = first {
            self.send_to_the_end(core, first);
        }
    }

    /// Planted: a waiter that was beaten goes to the end of the queue.
    fn send_to_the_end(&mut self, core: &mut Core, claim: ClaimId) {
        let place = self.rows.waiters.iter().find(|(_, saved)| saved.claim.id == claim);
        let Some(row) = place.map(|(row, _)| *row) else { return };
        let Some(last) = self.rows.waiters.keys().next_back().copied() else { return };
        if row == last {
            return;
        }
        let last = last.max(self.rows.grants.keys().next_back().copied().unwrap_or(0));
        if let Some(mut saved) = self.rows.waiters.remove(&row) {
            saved.row = last + 1;
            self.rows.waiters.insert(saved.row, saved);
        }
        self.restore(core);
    }

    /// Has an engine go on from its rows.
    fn restore(&mut self, core: &Core) {
        let range = self.fresh_tokens(core);
        let now = self.clock.at(core.now);
        self.engine =
            Engine::restore(engine_settings(), range, self.rows.saved(), &HashMap::new(), now);
    }

    /// Plans its next turn.
    pub(crate) fn plan_turn(&mut self, core: &mut Core) {
        let Some(due) = self.due().filter(|_| !self.frozen) else { return };
        let planned = self.planned.filter(|planned| *planned > core.now);
        if planned.is_none_or(|planned| due < planned) {
            let late = core.random.us(0, 3000);
            let at = due.max(core.now) + late;
            self.planned = Some(at);
            core.queue.push(at, Happening::UpstreamTurn);
        }
    }
}

fn waiting_of(core: &Core, request: &Request) -> Vec<ClaimId> {
    match request {
        Request::Renew(beats) if core.has(Planted::OrderOfBeats) => beats
            .iter()
            .filter_map(|beat| match &beat.subject {
                Subject::Claim { claim, .. } => Some(*claim),
                Subject::Session { .. } => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn engine_settings() -> EngineSettings {
    EngineSettings { tombstone: TOMBSTONE, tombstones_max: 10_000, queue_max: QUEUE_MAX }
}
