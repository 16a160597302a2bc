//! The engine, which says what is right.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tenure::wire::Kind;
use tenured::engine::journal::Entry;
use tenured::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenured::host::clock::Boottime;
use tenured::model::{Answer, Change, ClaimId, Request, Resource};
use tenured::upstream::redis::layout::Layout;

use super::messages::Told;

/// How long the engine's machine has been up when a run begins.
const UP: Duration = Duration::from_secs(3600);

/// When a token was granted, and for what.
#[derive(Debug, Clone)]
pub(super) struct Birth {
    /// The step in which it was; see [`Oracle::step`].
    pub(super) step: usize,
    /// What was granted.
    pub(super) resource: Resource,
}

/// The engine, driven as its shell drives it.
pub(super) struct Oracle {
    engine: Engine,
    /// Counts what could happen in any order: within a step tokens of different resources may have
    /// been granted in another order elsewhere.
    step: usize,
    births: BTreeMap<u64, Birth>,
    latest: HashMap<ClaimId, u64>,
    layout: Layout,
    told: Vec<Told>,
}

impl Oracle {
    /// An engine that has never granted anything.
    pub(super) fn new() -> Oracle {
        let tokens = TokenRange { first: 1001, last: 1_000_000_000 };
        Oracle {
            engine: Engine::new(EngineSettings::default(), tokens),
            step: 0,
            births: BTreeMap::new(),
            latest: HashMap::new(),
            layout: Layout::default(),
            told: Vec::new(),
        }
    }

    /// The answer to a request, so many ms after the start.
    pub(super) fn handle(&mut self, now_ms: u64, request: Request) -> Answer {
        let answer = self.engine.handle(instant(now_ms), request);
        self.drain(false);
        answer
    }

    /// When something happens by itself, in ms after the start.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let at = self.engine.poll_timeout()?.since(Boottime::ZERO + UP);
        Some(at.as_nanos().div_ceil(1_000_000) as u64)
    }

    /// Does what happens by itself. Returns whether a semaphore's holders or waiters changed.
    pub(super) fn handle_timeout(&mut self, now_ms: u64) -> bool {
        self.engine.handle_timeout(instant(now_ms));
        self.drain(true)
    }

    /// The token of a claim's latest grant.
    pub(super) fn token_of(&self, claim: ClaimId) -> Option<u64> {
        self.latest.get(&claim).copied()
    }

    /// What was told since this was asked last.
    pub(super) fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// When a token was granted.
    pub(super) fn birth(&self, token: u64) -> Option<&Birth> {
        self.births.get(&token)
    }

    fn drain(&mut self, by_itself: bool) -> bool {
        let mut permits = false;
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Persist(Entry::Grant(grant)) => {
                    self.latest.insert(grant.claim.id, grant.token);
                    let birth = Birth { step: self.step, resource: grant.claim.resource };
                    self.births.entry(grant.token).or_insert(birth);
                }
                Effect::Change(change) => {
                    if let Change::Resource(resource) = &change {
                        permits |= resource.kind == Kind::Semaphore;
                    }
                    self.told.extend(Told::of(&self.layout, &change, by_itself));
                }
                Effect::Persist(_) | Effect::ReserveTokens => {}
            }
        }
        self.step += 1;
        permits
    }
}

fn instant(now_ms: u64) -> Boottime {
    Boottime::ZERO + UP + Duration::from_millis(now_ms)
}
