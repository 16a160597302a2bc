//! Rules that hold whatever is asked, in whatever order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

use super::super::journal::Entry;
use super::super::{Effect, Engine, EngineSettings, Image, TokenRange};
use super::TOKENS;
use super::mirror::Mirror;
use crate::model::{
    Answer, Beat, BeatAnswer, Change, Claim, ClaimAnswer, ClaimId, Owner, Page, Request, Resource,
    SessionId, SessionRecord, Subject, Terms,
};
use crate::time::Boottime;

/// Few names, so that requests meet.
const RESOURCES: [(Kind, &str); 5] = [
    (Kind::Leader, "x"),
    (Kind::Master, "p"),
    (Kind::Lease, "l"),
    (Kind::Semaphore, "g"),
    (Kind::Semaphore, "h"),
];
const IDS: u128 = 24;

#[derive(Debug, Clone)]
enum Step {
    Claim { id: u128, session: u128, limit: u32, enqueue: bool },
    Renew(u128),
    Release(u128),
    Revoke(usize),
    Pass(u64),
    Timeout,
    Restart,
    Announce(u128),
    EndSession(u128),
    Look(usize),
    Quarantine(u64),
    Suspend(bool),
    Extend,
    Freeze,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..IDS, 1..5u128, 0..4u32, any::<bool>()).prop_map(
            |(id, session, limit, enqueue)| Step::Claim {
                id, session, limit, enqueue
            }
        ),
        6 => (1..IDS).prop_map(Step::Renew),
        4 => (1..IDS).prop_map(Step::Release),
        1 => (0..RESOURCES.len()).prop_map(Step::Revoke),
        6 => (1..12_000u64).prop_map(Step::Pass),
        2 => Just(Step::Timeout),
        1 => Just(Step::Restart),
        2 => (1..5u128).prop_map(Step::Announce),
        1 => (1..5u128).prop_map(Step::EndSession),
        2 => (0..RESOURCES.len()).prop_map(Step::Look),
        1 => (1..12_000u64).prop_map(Step::Quarantine),
        1 => any::<bool>().prop_map(Step::Suspend),
        2 => Just(Step::Extend),
        2 => Just(Step::Freeze),
    ]
}

fn resource((kind, name): (Kind, &str)) -> Resource {
    Resource { tenant: Arc::from("default"), kind, name: Arc::from(name) }
}

/// Always the same resource for the same id.
fn resource_of(id: u128) -> Resource {
    resource(RESOURCES[id as usize % RESOURCES.len()])
}

fn owner(session: u128) -> Owner {
    let session = SessionId(Uuid::from_u128(session));
    Owner { session, host: Arc::from("host"), name: Arc::from("name") }
}

fn through_json(image: &Image) -> Image {
    let text = serde_json::to_string(image).unwrap();
    let read = serde_json::from_str(&text).unwrap();
    assert_eq!(*image, read);
    read
}

struct Run {
    engine: Engine,
    /// A copy of it, made at some instant and thawed, which goes on by itself.
    twin: Engine,
    /// The copy is to be made before the next effects are taken out.
    freezes: bool,
    /// The last durable token.
    durable: u64,
    mirror: Mirror,
    now: Boottime,
    token_max: u64,
    /// The waiters as the engine told them, in the order in which they are to be granted.
    queues: HashMap<Resource, Vec<Waiting>>,
    /// Whose grant ended last.
    former: HashMap<Resource, SessionId>,
}

#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    rank: Reverse<i32>,
    claim: ClaimId,
    session: SessionId,
}

impl Run {
    fn handle(&mut self, request: Request) -> Answer {
        let before = self.granted();
        let answer = self.answer(request);
        self.drain(before, None);
        answer
    }

    fn answer(&mut self, request: Request) -> Answer {
        let answer = self.engine.handle(self.now, request.clone());
        assert_eq!(answer, self.twin.handle(self.now, request));
        answer
    }

    /// On both copies.
    fn each(&mut self, change: impl Fn(&mut Engine)) {
        change(&mut self.engine);
        change(&mut self.twin);
    }

    /// A read changes nothing, whatever is overdue.
    fn look(&mut self, index: usize) {
        let before = self.engine.freeze();
        let resource = resource(RESOURCES[index]);
        let tenant = Arc::clone(&resource.tenant);
        self.answer(Request::Holders(resource.clone()));
        self.answer(Request::Inspect(resource));
        self.answer(Request::Routes { tenant, name: None, page: Page::whole() });
        assert_eq!(self.engine.freeze(), before);
    }

    /// Claims by token, as the journal has them.
    fn granted(&self) -> BTreeMap<u64, ClaimId> {
        self.mirror.grants.values().map(|grant| (grant.token, grant.claim.id)).collect()
    }

    fn drain(&mut self, before: BTreeMap<u64, ClaimId>, joined: Option<Claim>) {
        if std::mem::take(&mut self.freezes) {
            self.twin = Engine::thaw(through_json(&self.engine.freeze()));
        }
        loop {
            let effect = self.engine.poll_effect();
            assert_eq!(effect, self.twin.poll_effect());
            let Some(effect) = effect else { break };
            match effect {
                Effect::Persist(entry) => {
                    if let Entry::GrantEnded { row } = entry {
                        let Claim { resource, owner, .. } = self.mirror.grants[&row].claim.clone();
                        self.former.insert(resource, owner.session);
                    }
                    self.mirror.write(entry);
                }
                Effect::Change(Change::Granted { claim, resource, grant }) => {
                    let token = grant.unwrap().token;
                    assert_eq!(self.granted().get(&token), Some(&claim));
                    self.arrive(claim, resource);
                }
                Effect::Change(Change::Lost { claim, resource }) => self.leave(claim, &resource),
                Effect::Change(_) | Effect::ReserveTokens => {}
            }
        }
        if let Some(claim) = joined {
            let queue = self.queues.entry(claim.resource.clone()).or_default();
            if queue.iter().all(|waiting| waiting.claim != claim.id) {
                let (rank, session) = (claim.rank(), claim.owner.session);
                let place = queue.partition_point(|waiting| waiting.rank <= rank);
                queue.insert(place, Waiting { rank, claim: claim.id, session });
            }
        }
        // Tokens increase.
        for token in self.granted().keys().filter(|token| !before.contains_key(token)) {
            assert!(*token > self.token_max, "token {token} after {}", self.token_max);
        }
        self.token_max = self.granted().keys().copied().max().unwrap_or(0).max(self.token_max);
        self.check_exclusion();
    }

    /// First come, first served; a master by priority, and a lease's former holder before all others.
    fn arrive(&mut self, claim: ClaimId, resource: Resource) {
        let former = self.former.get(&resource).copied();
        let follows = |waiting: &Waiting| Some(waiting.session) == former;
        let queue = self.queues.entry(resource.clone()).or_default();
        let place = queue.iter().position(|waiting| waiting.claim == claim);
        let place = place.unwrap_or_else(|| panic!("{claim:?} does not wait"));
        let first = match resource.kind {
            Kind::Lease if follows(&queue[place]) => queue.iter().position(follows),
            _ => Some(0),
        };
        assert_eq!(Some(place), first, "{claim:?} overtook");
        queue.remove(place);
    }

    fn leave(&mut self, claim: ClaimId, resource: &Resource) {
        let queue = self.queues.entry(resource.clone()).or_default();
        queue.retain(|waiting| waiting.claim != claim);
    }

    fn check_exclusion(&self) {
        let mut holders: HashMap<&Resource, usize> = HashMap::new();
        for grant in self.mirror.grants.values() {
            *holders.entry(&grant.claim.resource).or_default() += 1;
        }
        for (resource, count) in holders {
            // Limits are at most 3, and lowering evicts nobody.
            let most = if resource.kind == Kind::Semaphore { 3 } else { 1 };
            assert!(count <= most, "{count} holders of {resource}");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Claim { id, session, limit, enqueue } => {
                self.claim(id, session, limit, enqueue);
            }
            Step::Renew(id) => {
                let claim = ClaimId(Uuid::from_u128(id));
                let subject = Subject::Claim { claim, resource: resource_of(id) };
                let beat = Beat { subject, ttl: Duration::from_secs(10) };
                let answer = self.handle(Request::Renew(vec![beat]));
                let Answer::Renew(answers) = answer else { panic!("{answer:?}") };
                if let [BeatAnswer::Waiting { position, .. }] = answers.as_slice() {
                    assert_eq!(self.queues[&resource_of(id)][*position as usize - 1].claim, claim);
                }
            }
            Step::Release(id) => {
                let claim = ClaimId(Uuid::from_u128(id));
                let resource = resource_of(id);
                self.handle(Request::Release { claim, resource: resource.clone() });
                self.leave(claim, &resource);
            }
            Step::Revoke(index) => {
                let resource = resource(RESOURCES[index]);
                self.handle(Request::Revoke { resource, token: None, revocation: None });
            }
            Step::Pass(ms) => self.now = self.now + Duration::from_millis(ms),
            Step::Timeout => {
                let before = self.granted();
                let now = self.now;
                self.each(|engine| engine.handle_timeout(now));
                self.drain(before, None);
                assert!(self.engine.poll_timeout().is_none_or(|at| at > self.now));
                assert!(
                    self.engine.resources.blocked.is_empty()
                        || self.engine.grants_in(now).is_some()
                );
            }
            Step::Restart => {
                let saved = self.mirror.saved();
                self.engine = Engine::restore(
                    EngineSettings::default(),
                    TokenRange { first: 1, last: self.durable },
                    saved,
                    &HashMap::new(),
                    self.now,
                );
                // A restart forgets marks, and tokens of grants that ended, on purpose.
                self.engine.tokens.skip_past(self.token_max);
                self.twin = Engine::thaw(through_json(&self.engine.freeze()));
            }
            Step::Announce(session) => {
                self.handle(Request::Announce(SessionRecord {
                    owner: owner(session),
                    tenant: Arc::from("default"),
                    project: Arc::from("p"),
                    surface: Arc::from("cli"),
                    ttl: Duration::from_secs(10),
                    registered_at: None,
                }));
            }
            Step::EndSession(session) => {
                let (tenant, project) = (Arc::from("default"), Arc::from("p"));
                let session = SessionId(Uuid::from_u128(session));
                self.handle(Request::EndSession { session, tenant, project });
            }
            Step::Look(index) => self.look(index),
            Step::Quarantine(ms) => {
                let until = self.now + Duration::from_millis(ms);
                self.each(|engine| engine.quarantine(until));
            }
            Step::Suspend(suspended) => self.each(|engine| engine.suspend(suspended)),
            Step::Extend => {
                self.durable += 5;
                let durable = self.durable;
                self.each(|engine| engine.extend_tokens(durable));
            }
            Step::Freeze => self.freezes = true,
        }
        assert_eq!(self.engine.freeze(), self.twin.freeze());
        self.check_inside();
    }

    fn claim(&mut self, id: u128, session: u128, limit: u32, enqueue: bool) {
        let resource = resource_of(id);
        let claim_id = ClaimId(Uuid::from_u128(id));
        let terms = match resource.kind {
            Kind::Leader => Terms::Leader,
            Kind::Master => Terms::Master { priority: limit as i32 },
            Kind::Semaphore => Terms::Semaphore { limit, keeps: false, only_own: false },
            Kind::Lease => Terms::Lease {
                grace: Duration::from_secs(u64::from(limit) * 5),
                attributes: Attributes::default(),
                take_over: None,
            },
        };
        let owner = owner(session);
        let ttl = Duration::from_secs(10);
        let claim = Claim { id: claim_id, resource: resource.clone(), owner, ttl, terms, enqueue };
        let before = self.granted();
        let answer = self.answer(Request::Claim(claim.clone()));
        let waits = matches!(answer, Answer::Claim(ClaimAnswer::Waiting { .. }));
        self.drain(before, waits.then_some(claim));
        match answer {
            Answer::Claim(ClaimAnswer::Held { token, .. }) => {
                assert_eq!(self.granted().get(&token), Some(&claim_id));
            }
            Answer::Claim(ClaimAnswer::Waiting { position, .. }) => {
                assert_eq!(self.queues[&resource][position as usize - 1].claim, claim_id);
            }
            _ => {}
        }
    }

    /// Nothing free with somebody waiting, no timer too many or too late, no empty resource.
    fn check_inside(&self) {
        let engine = &self.engine;
        assert_eq!(engine.timers.len(), engine.claims.len() + engine.sessions.len());
        for tracked in engine.claims.values() {
            assert!(tracked.armed <= tracked.deadline());
            assert!(engine.resources.get(&tracked.claim.resource).is_some());
        }
        for (resource, occupation) in engine.resources.iter() {
            assert!(!occupation.is_unused());
            let waits_for_free = !occupation.queue.is_empty() && occupation.has_room();
            let blocked = &engine.resources.blocked;
            assert!(!waits_for_free || blocked.contains(resource), "{resource}");
        }
        assert_eq!(engine.claims.len(), self.mirror.grants.len() + self.mirror.waiters.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_whatever_is_asked_and_an_image_goes_on_as_its_engine(
        durable in prop_oneof![2 => Just(TOKENS.last), 1 => 1..30u64],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let tokens = TokenRange { first: 1, last: durable };
        let engine = Engine::new(EngineSettings::default(), tokens);
        let mut run = Run {
            twin: Engine::thaw(through_json(&engine.freeze())),
            engine,
            freezes: false,
            durable,
            mirror: Mirror::default(),
            now: Boottime::from_nanos(1),
            token_max: 0,
            queues: HashMap::new(),
            former: HashMap::new(),
        };
        for step in steps {
            run.step(step);
        }
        // After everybody has gone nothing is left.
        for id in 1..IDS {
            run.step(Step::Release(id));
        }
        run.now = run.now + Duration::from_secs(3600);
        for _ in 0..2 {
            run.step(Step::Timeout);
            run.now = run.now + Duration::from_secs(3600);
        }
        prop_assert!(run.mirror.is_empty());
        prop_assert!(run.engine.resources.is_empty());
        prop_assert_eq!(run.engine.tombstones.len(), 0);
        prop_assert_eq!(run.engine.poll_timeout(), None);
    }
}
