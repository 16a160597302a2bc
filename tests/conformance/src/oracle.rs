//! The engine, whose answers are right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tenure_core::engine::journal::Entry;
use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{
    Answer, Change, Claim, ClaimAnswer, ClaimId, Owner, Request, Resource, SessionId, Terms,
    UpstreamStanding,
};
use tenure_core::time::Boottime;
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

use crate::messages::Told;
use crate::subject::Hint;

/// How long the engine's machine has been up when a run begins.
const UP: Duration = Duration::from_secs(3600);

/// When a token was granted, and for what.
#[derive(Debug, Clone)]
pub(crate) struct Birth {
    /// The step in which it was; see [`Oracle::step`].
    pub(crate) step: usize,
    pub(crate) resource: Resource,
}

/// The engine, driven as its shell drives it.
pub(crate) struct Oracle {
    engine: Engine,
    /// Counts what could happen in any order: within a step tokens of different resources may have
    /// been granted in another order elsewhere.
    step: usize,
    births: BTreeMap<u64, Birth>,
    granted: u64,
    latest: HashMap<ClaimId, u64>,
    in_grace: HashSet<ClaimId>,
    told: Vec<Told>,
}

impl Oracle {
    /// An engine that has never granted anything.
    pub(crate) fn new() -> Oracle {
        let tokens = TokenRange { first: 1001, last: 1_000_000_000 };
        Oracle {
            engine: Engine::new(EngineSettings::default(), tokens),
            step: 0,
            births: BTreeMap::new(),
            granted: 0,
            latest: HashMap::new(),
            in_grace: HashSet::new(),
            told: Vec::new(),
        }
    }

    /// The answer to a request, so many ms after the start.
    pub(crate) fn handle(&mut self, now_ms: u64, request: Request) -> Answer {
        let looked_at = match &request {
            Request::Inspect(resource) => Some(resource.clone()),
            _ => None,
        };
        let now = instant(now_ms);
        if request.is_read() {
            // As shells do: a read takes no step.
            self.engine.handle_timeout(now);
        }
        let mut answer = self.engine.handle(now, request);
        self.drain(false);
        if let (Some(resource), Answer::Standing(standing)) = (looked_at, &mut answer) {
            standing.runs_out = self.runs_out(now_ms, resource, standing);
        }
        answer
    }

    /// When the time of an exclusive holder is up, or then its grace. The engine does not say, as it
    /// tells of it in time; so somebody is refused, and told when to come again.
    fn runs_out(
        &mut self,
        now_ms: u64,
        resource: Resource,
        standing: &UpstreamStanding,
    ) -> Option<Duration> {
        let holder = standing.holders.first()?;
        let terms = match resource.kind {
            Kind::Leader => Terms::Leader,
            Kind::Master => Terms::Master { priority: i32::MIN },
            Kind::Lease => Terms::Lease {
                grace: Duration::ZERO,
                attributes: Attributes::default(),
                take_over: None,
            },
            Kind::Semaphore => return None,
        };
        // A lease in its grace is refused to all other sessions, and one before it to its own.
        let session = match self.in_grace.contains(&holder.claim) {
            true => SessionId(Uuid::nil()),
            false => holder.owner.session,
        };
        let owner = Owner { session, host: "nowhere".into(), name: "nobody".into() };
        let refused = Request::Claim(Claim {
            id: ClaimId(Uuid::nil()),
            resource,
            owner,
            ttl: Duration::from_secs(1),
            terms,
            enqueue: false,
        });
        let answer = self.engine.handle(instant(now_ms), refused);
        let Answer::Claim(ClaimAnswer::Contended { free_in, .. }) = answer else {
            panic!("{:?} holds and is not in the way: {answer:?}", holder.claim);
        };
        free_in
    }

    /// When something happens by itself, in ms after the start.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let at = self.engine.poll_timeout()?.since(Boottime::ZERO + UP);
        Some(at.as_nanos().div_ceil(1_000_000) as u64)
    }

    /// Does what happens by itself. Returns whether claims ended or were granted, or a lease has come into its
    /// grace.
    pub(crate) fn handle_timeout(&mut self, now_ms: u64) -> bool {
        let now = instant(now_ms);
        let mut has_changed = false;
        // A step does a part of what is due.
        loop {
            self.engine.handle_timeout(now);
            has_changed |= self.drain(true);
            if self.engine.poll_timeout().is_none_or(|due| due > now) {
                return has_changed;
            }
        }
    }

    /// The token of a claim's latest grant.
    pub(crate) fn token_of(&self, claim: ClaimId) -> Option<u64> {
        self.latest.get(&claim).copied()
    }

    /// How many grants there were since this was asked last.
    pub(crate) fn take_granted(&mut self) -> u64 {
        std::mem::take(&mut self.granted)
    }

    /// Hints given since this was asked last.
    pub(crate) fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// When a token was granted.
    pub(crate) fn birth(&self, token: u64) -> Option<&Birth> {
        self.births.get(&token)
    }

    fn drain(&mut self, by_itself: bool) -> bool {
        let mut has_changed = false;
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Persist(Entry::Grant(grant)) => {
                    self.latest.insert(grant.claim.id, grant.token);
                    match grant.in_grace {
                        true => self.in_grace.insert(grant.claim.id),
                        false => self.in_grace.remove(&grant.claim.id),
                    };
                    // A lease is written again when its line of the routing table changes.
                    if !self.births.contains_key(&grant.token) {
                        let birth = Birth { step: self.step, resource: grant.claim.resource };
                        self.births.insert(grant.token, birth);
                        self.granted += 1;
                    }
                }
                Effect::Change(change) => {
                    has_changed |= match &change {
                        Change::Resource(resource) => {
                            matches!(resource.kind, Kind::Semaphore | Kind::Lease)
                        }
                        Change::Lost { .. } | Change::Granted { .. } => true,
                        Change::Message { .. } => false,
                    };
                    let hint = Hint::of(change, Boottime::ZERO + UP);
                    self.told.push(Told { hint, by_itself });
                }
                Effect::Persist(_) | Effect::ReserveTokens => {}
            }
        }
        self.step += 1;
        has_changed
    }
}

fn instant(now_ms: u64) -> Boottime {
    Boottime::ZERO + UP + Duration::from_millis(now_ms)
}
