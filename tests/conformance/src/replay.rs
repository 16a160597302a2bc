//! Carrying a plan out on both sides.

use tenure_core::model::{
    Answer, Claim, ClaimAnswer, ClaimId, Owner, Request, Resource, SessionId, StandingEntry, Terms,
    UpstreamStanding,
};
use uuid::Uuid;

use crate::allowances::{Allowance, forgets_sooner, in_words_of_callers};
use crate::compare::{Comparer, equal};
use crate::messages::Messages;
use crate::operation::Operation;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::seen::Seen;
use crate::subject::{Subject, Upkeep};
use crate::text;

/// The last µs of a ms, up to which requests may take.
const LAST_US: u64 = 999;

/// A token of neither side.
const NEVER_GRANTED: u64 = 1;

/// The result of a plan.
pub(crate) struct Run {
    /// The first difference.
    pub(crate) difference: Option<Difference>,
    /// How many requests were answered.
    pub(crate) operations: u64,
    /// How often what was answered.
    pub(crate) seen: Seen,
    /// Operations and answers, if asked for.
    pub(crate) lines: Vec<String>,
}

/// The two sides do not say the same.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// The index of the operation that showed it; one more than the last if it was the end of them.
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Both sides in the course of a run.
pub(crate) struct Replay<'a> {
    subject: &'a mut dyn Subject,
    plan: &'a Plan,
    oracle: Oracle,
    comparer: Comparer,
    messages: Messages,
    resources: Vec<Resource>,
    /// The engine's clock, ms after the start.
    now_ms: u64,
    /// The store's clock, µs after the start.
    now_us: u64,
    /// When upkeep is due next, by the store's word, µs after the start.
    due_us: Option<u64>,
    operations: u64,
    seen: Seen,
    lines: Option<Vec<String>>,
}

impl<'a> Replay<'a> {
    /// Carries a plan out, up to the first difference.
    pub(crate) fn run(subject: &'a mut dyn Subject, plan: &'a Plan, trace: bool) -> Run {
        subject.begin();
        let mut replay = Replay {
            comparer: Comparer::new(subject.allowances()),
            subject,
            plan,
            oracle: Oracle::new(),
            messages: Messages::default(),
            resources: plan.resources(),
            now_ms: 0,
            now_us: 0,
            due_us: None,
            operations: 0,
            seen: Seen::default(),
            lines: trace.then(Vec::new),
        };
        replay.set_clock(plan.phase_us);
        let difference = replay.all().err();
        let Replay { operations, seen, lines, .. } = replay;
        Run { difference, operations, seen, lines: lines.unwrap_or_default() }
    }

    fn all(&mut self) -> Result<(), Difference> {
        for (at, operation) in self.plan.operations.iter().enumerate() {
            if let Some(lines) = &mut self.lines {
                lines.push(format!("{at:>5} {:>9} {operation}", self.now_ms));
            }
            self.step(operation).map_err(|what| Difference { at, what })?;
        }
        if !self.plan.ends() {
            return Ok(());
        }
        let at = self.plan.operations.len();
        self.nothing_left().map_err(|what| Difference { at, what })
    }

    fn step(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Reconnect => {
                self.compare_hints()?;
                self.subject.reconnect();
                Ok(())
            }
            Operation::Ask(request) => self.ask(request, request),
            Operation::Revoke { resource, of } => {
                let look = Request::Inspect(resource.clone());
                self.ask(&look, &look)?;
                let engine = of.and_then(|of| self.oracle.token_of(of));
                let store =
                    engine.and_then(|token| self.comparer.tokens.store(&self.oracle, token));
                let revoke = |token: Option<u64>| Request::Revoke {
                    resource: resource.clone(),
                    token: token.or(Some(NEVER_GRANTED)),
                    revocation: None,
                };
                self.ask(&revoke(engine), &revoke(store))
            }
            Operation::Pass(to_ms) if self.plan.lazy => self.pass_unattended(*to_ms),
            Operation::Pass(to_ms) => self.pass(*to_ms),
        }
    }

    /// Asks both, each with its own tokens, and compares what they say.
    fn ask(&mut self, of_engine: &Request, of_store: &Request) -> Result<(), String> {
        let engine = self.oracle.handle(self.now_ms, of_engine.clone());
        let store = self.subject.ask(of_store)?;
        self.operations += 1;
        self.seen.count(&engine);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:17}= {}", "", text::answer(&engine)));
            lines.push(format!("{:17}~ {}", "", text::answer(&store)));
        }
        let forgets = self.plan.lazy && self.comparer.allows(Allowance::ForgetsSooner);
        let store = if forgets { forgets_sooner(&engine, store) } else { store };
        let has_own_words = self.comparer.allows(Allowance::OwnWords);
        let store = if has_own_words { in_words_of_callers(&engine, store) } else { store };
        let calls = self.subject.calls();
        self.comparer.compare(&self.oracle, of_engine, &engine, &store, calls)?;
        self.quiet(of_store, &store)?;
        if let Request::Inspect(resource) = of_engine {
            self.verify(resource)?;
        }
        self.tick();
        Ok(())
    }

    /// A request takes time, and more if it grants much: each grant has its own µs.
    fn tick(&mut self) {
        let us = self.plan.tick_us + self.oracle.take_granted();
        self.set_clock((self.now_us + us).min(self.now_ms * 1000 + LAST_US));
    }

    /// A look or a refusal changes nothing, or agents would wake each other for ever.
    fn quiet(&mut self, request: &Request, answer: &Answer) -> Result<(), String> {
        let refused = matches!(answer, Answer::Claim(ClaimAnswer::Contended { .. }));
        let looked =
            matches!(request, Request::Inspect(_) | Request::Routes { .. } | Request::History(_));
        if !refused && !looked {
            return Ok(());
        }
        // The first one may have found something to clean up.
        let Some(before) = self.subject.changes() else { return Ok(()) };
        self.subject.ask(request)?;
        let after = self.subject.changes();
        equal("the number of changes by a look or refusal", &Some(before), &after)
    }

    /// A holder of a resource is one by every way of asking.
    fn verify(&mut self, resource: &Resource) -> Result<(), String> {
        let claims = self.plan.claims_of(resource);
        let Some(verified) = self.subject.verify(resource, &claims)? else { return Ok(()) };
        // A standing may not list all of them.
        let request = Request::Holders(resource.clone());
        let Answer::Standing(all) = self.oracle.handle(self.now_ms, request) else {
            return Err("the engine tells no holders".to_owned());
        };
        let holds = |claim: &ClaimId| all.holders.iter().any(|entry| entry.claim == *claim);
        let held: Vec<bool> = claims.iter().map(holds).collect();
        equal("what is verified", &held, &verified)
    }

    /// Compares the hints given until now.
    fn compare_hints(&mut self) -> Result<(), String> {
        let (told, given) = (self.oracle.told(), self.subject.hints()?);
        self.messages.check(&self.oracle, &mut self.comparer, told, given)
    }

    fn set_clock(&mut self, us: u64) {
        self.now_us = us;
        self.subject.set_clock(us);
    }

    /// Time passes, and both sides do what is due by themselves when it is due.
    fn pass(&mut self, to_ms: u64) -> Result<(), String> {
        self.compare_hints()?;
        // A request did itself what it made possible.
        let before = self.subject.changes();
        let counts = self.look_after("before time passes")?;
        equal("the number of changes by idle upkeep", &before, &self.subject.changes())?;
        while let Some(at) = self.oracle.poll_timeout().filter(|at| *at <= to_ms) {
            let at = at.max(self.now_ms);
            // A store that counts is asked only when somebody's claim has ended, or was granted.
            if !self.oracle.handle_timeout(at) && counts {
                continue;
            }
            // In whole ms from when it was asked, so up to one late.
            if counts && self.due_us.is_none_or(|due| due / 1000 > at + 1) {
                let due = self.due_us;
                return Err(format!("something is due at {at} ms, but upkeep says {due:?} µs"));
            }
            self.now_ms = at;
            // Its requests came within a ms: what is due in this one is due by the end of it.
            self.set_clock(at * 1000 + LAST_US);
            self.look_after("at its time")?;
        }
        if let Some(due) = self.due_us.filter(|due| *due / 1000 <= to_ms) {
            return Err(format!("upkeep says that something is due at {due} µs"));
        }
        self.now_ms = to_ms;
        self.set_clock(to_ms * 1000 + self.plan.phase_us);
        Ok(())
    }

    /// Does the upkeep of all resources, and checks that nothing was left to do but by time. Returns
    /// false if the store does not count.
    fn look_after(&mut self, when: &str) -> Result<bool, String> {
        self.due_us = None;
        let Some(found) = self.subject.look_after(&self.resources)? else { return Ok(false) };
        for (resource, found) in self.resources.clone().iter().zip(found) {
            let Upkeep { holders, waiting, next } = found;
            let engine = self.standing(resource);
            let counts = (engine.holding, engine.waiting);
            equal(&format!("upkeep of {resource} {when}"), &counts, &(holders, waiting))?;
            let next = next.map(|next| self.now_us + next.as_micros() as u64);
            self.due_us = [self.due_us, next].into_iter().flatten().min();
        }
        Ok(true)
    }

    /// Time passes while no agent is there to do what is due; then whoever comes first to a
    /// semaphore does it on the way.
    fn pass_unattended(&mut self, to_ms: u64) -> Result<(), String> {
        self.compare_hints()?;
        let before = self.standings();
        self.now_ms = to_ms;
        self.set_clock(to_ms * 1000 + self.plan.phase_us);
        self.oracle.handle_timeout(to_ms);
        for (at, (resource, before)) in before.into_iter().enumerate() {
            let after = self.standing(&resource);
            let ids = |of: &[StandingEntry]| of.iter().map(|it| it.claim).collect::<Vec<_>>();
            if ids(&before.holders) == ids(&after.holders)
                && ids(&before.waiters) == ids(&after.waiters)
            {
                continue;
            }
            // A claim that is granted would take its token before those of the other semaphores.
            let full = after.limit.filter(|limit| after.holding >= u64::from(*limit));
            match ((to_ms + at as u64) % 3, full) {
                (0, _) if self.subject.upkeep_in_time().contains(&true) => {
                    self.subject.look_after(std::slice::from_ref(&resource))?;
                    self.tick();
                }
                (1, Some(limit)) => self.try_claim(resource, limit)?,
                _ => self.release_unknown(resource)?,
            }
        }
        Ok(())
    }

    /// All resources, by the engine.
    fn standings(&mut self) -> Vec<(Resource, UpstreamStanding)> {
        let resources = self.resources.clone();
        resources
            .into_iter()
            .map(|resource| {
                let standing = self.standing(&resource);
                (resource, standing)
            })
            .collect()
    }

    fn standing(&mut self, resource: &Resource) -> UpstreamStanding {
        match self.oracle.handle(self.now_ms, Request::Inspect(resource.clone())) {
            Answer::Standing(standing) => standing,
            _ => UpstreamStanding::default(),
        }
    }

    /// An id that is not in the plan.
    fn passer_by(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.now_us) << 64)
    }

    fn release_unknown(&mut self, resource: Resource) -> Result<(), String> {
        let claim = ClaimId(self.passer_by());
        let request = Request::Release { claim, resource };
        self.ask(&request, &request)
    }

    fn try_claim(&mut self, resource: Resource, limit: u32) -> Result<(), String> {
        let id = self.passer_by();
        let owner = Owner { session: SessionId(id), host: "ant".into(), name: "passer-by".into() };
        let request = Request::Claim(Claim {
            id: ClaimId(id),
            resource,
            owner,
            ttl: std::time::Duration::from_secs(5),
            terms: Terms::Semaphore { limit, keeps: false, only_own: false },
            enqueue: false,
        });
        self.ask(&request, &request)
    }

    /// Everybody has gone: what may be left are counters that must not go.
    fn nothing_left(&mut self) -> Result<(), String> {
        self.compare_hints()?;
        equal("the entries left at the end", &Vec::new(), &self.subject.left())
    }
}
