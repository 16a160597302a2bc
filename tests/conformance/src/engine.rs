//! The engine, embedded: no network, no other program.

use std::time::Duration;

use tenure_core::engine::journal::Key;
use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{Answer, Request, Resource, Terms};
use tenure_core::time::Boottime;

use crate::allowances::Allowance;
use crate::stores::Store;
use crate::subject::{Hint, Subject, Upkeep};

/// The engine.
pub(crate) const STORE: Store = Store {
    name: "engine",
    faults: &FAULTS,
    open: |fault| Box::new(Embedded::new(fault.map(str::to_owned))),
};

/// Faults between the engine and whoever asks it.
const FAULTS: [&str; 8] = [
    "clock-stands-still",
    "beat-shortens",
    "release-not-done",
    "no-grace",
    "no-priority",
    "always-queues",
    "tenants-meet",
    "losses-untold",
];

const TOKENS: TokenRange = TokenRange { first: 1501, last: 1_000_000_000 };
const UP: Duration = Duration::from_secs(60);

struct Embedded {
    engine: Engine,
    now: Boottime,
    hints: Vec<Hint>,
    changes: u64,
    fault: Option<String>,
}

impl Embedded {
    fn new(fault: Option<String>) -> Embedded {
        let engine = Engine::new(EngineSettings::default(), TOKENS);
        Embedded { engine, now: Boottime::ZERO + UP, hints: Vec::new(), changes: 0, fault }
    }

    fn has(&self, fault: &str) -> bool {
        self.fault.as_deref() == Some(fault)
    }

    fn settle(&mut self) {
        while self.engine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Persist(_) => self.changes += 1,
                Effect::Change(change) => self.hints.push(Hint::of(change, Boottime::ZERO + UP)),
                Effect::ReserveTokens => {}
            }
        }
        if self.has("losses-untold") {
            self.hints.retain(|hint| !matches!(hint, Hint::Lost(_)));
        }
    }

    /// The request as a faulty store understands it.
    fn distorted(&self, mut request: Request) -> Request {
        match &mut request {
            Request::Claim(claim) => {
                claim.enqueue |= self.has("always-queues");
                match &mut claim.terms {
                    Terms::Lease { grace, .. } if self.has("no-grace") => *grace = Duration::ZERO,
                    Terms::Master { priority } if self.has("no-priority") => *priority = 0,
                    _ => {}
                }
                if self.has("tenants-meet") {
                    claim.resource.tenant = "default".into();
                }
            }
            Request::Renew(beats) if self.has("beat-shortens") => {
                beats.iter_mut().for_each(|beat| beat.ttl /= 2);
            }
            _ => {}
        }
        request
    }
}

impl Subject for Embedded {
    fn allowances(&self) -> &'static [Allowance] {
        &[Allowance::NoVersionHints, Allowance::TellsInTime]
    }

    fn begin(&mut self) {
        *self = Embedded::new(self.fault.take());
    }

    fn set_clock(&mut self, us: u64) {
        if !self.has("clock-stands-still") {
            // Whole ms, as the clock of the plan, so that the same falls into one step.
            self.now = Boottime::ZERO + UP + Duration::from_millis(us / 1000);
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        if self.has("release-not-done") && matches!(request, Request::Release { .. }) {
            return Ok(Answer::Released(true));
        }
        let answer = self.engine.handle(self.now, self.distorted(request.clone()));
        self.settle();
        Ok(answer)
    }

    fn hints(&mut self) -> Result<Vec<Hint>, String> {
        self.settle();
        Ok(std::mem::take(&mut self.hints))
    }

    fn upkeep_in_time(&self) -> &'static [bool] {
        &[true]
    }

    fn look_after(&mut self, _: &[Resource]) -> Result<Option<Vec<Upkeep>>, String> {
        self.settle();
        Ok(None)
    }

    fn changes(&mut self) -> Option<u64> {
        Some(self.changes)
    }

    fn left(&mut self) -> Vec<String> {
        self.settle();
        let rows = self.engine.rows().into_iter();
        let stays = |key: &Key| matches!(key, Key::Routes(_) | Key::History(_));
        rows.filter(|key| !stays(key)).map(|key| format!("{key:?}")).collect()
    }
}
