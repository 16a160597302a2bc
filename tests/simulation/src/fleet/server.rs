//! A model of Redis: one thread that does one thing after the other, and is busy meanwhile.
//!
//! The engine answers. Whom it tells of a change follows from what agents have asked, as with
//! `CLIENT TRACKING`: whoever has looked at a key on its feed's connection, once; the caretaker, of what is
//! shared with other programs; whoever subscribes to a project or a session, of its messages; and an agent of the
//! grants of its claims that wait for an exclusive resource, and of what was taken from it.
//!
//! Nothing may run out in a scenario: an engine grants by itself what ran out, and Redis only when it is
//! asked. [`Counts::ran_out`] tells.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{
    Answer, BeatAnswer, Change, ClaimAnswer, ClaimId, GoneReason, Request, Resource, Subject,
};
use tenure_core::time::Boottime;
use tenure_stores::redis::chores::{Chore, Found, Stood, Surveyed, TERM};
use tenure_stores::redis::exchange::{CareOf, Cared};
use tenure_stores::remote::{Audience, Hint, Seen, Topic, Verified};

use super::backend::{Asked, Said};
use super::{Planted, costs};

/// Keys in one step of a survey.
const SURVEY_STEP: usize = 1000;
/// Keys of a semaphore that is held.
const KEYS_PER_SEMAPHORE: usize = 3;
/// The least time that a holder, or a waiter, which is beaten has left.
const LEFT: Duration = Duration::from_secs(20);
/// How long until the next step of a sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// What the model has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands, scripts included.
    pub commands: u64,
    pub scripts: u64,
    /// Claims among them.
    pub claims: u64,
    /// Writes to agents that no command of theirs asked for.
    pub pushes: u64,
    /// How long it was busy.
    pub busy: Duration,
    /// The script that it did nothing else for longest.
    pub longest: Duration,
    /// Claims that ran out.
    pub ran_out: u64,
    /// How long each PING would have waited for its answer.
    pub pings: Vec<Duration>,
}

impl Counts {
    /// What was done since then; the longest script is that of all time.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            commands: self.commands - before.commands,
            scripts: self.scripts - before.scripts,
            claims: self.claims - before.claims,
            pushes: self.pushes - before.pushes,
            busy: self.busy.saturating_sub(before.busy),
            longest: self.longest,
            ran_out: self.ran_out - before.ran_out,
            pings: self.pings[before.pings.len()..].to_vec(),
        }
    }

    /// The wait that 99 of 100 PINGs stay below.
    pub fn ping_p99(&self) -> Duration {
        let mut pings = self.pings.clone();
        pings.sort_unstable();
        pings.get(pings.len() * 99 / 100).copied().unwrap_or_default()
    }
}

/// What follows from a command.
pub(super) struct Outcome {
    pub(super) said: Option<Said>,
    /// When the answer leaves.
    pub(super) answered_at: Boottime,
    /// When it goes on, and pushes have left.
    pub(super) pushed_at: Boottime,
    pub(super) pushes: BTreeMap<usize, Vec<Hint>>,
}

/// Which agents have asked to be told of what.
#[derive(Default)]
struct Told {
    tracked: HashMap<Topic, BTreeSet<usize>>,
    subscribed: HashMap<Audience, BTreeSet<usize>>,
}

pub(super) struct Redis {
    engine: Engine,
    planted: Option<Planted>,
    agents: usize,
    /// With the agent to tell.
    held: HashMap<Resource, BTreeMap<ClaimId, usize>>,
    /// With the agent to tell.
    waiting: BTreeMap<ClaimId, (Resource, usize)>,
    /// Granted, and not heard of since.
    unconfirmed: HashSet<ClaimId>,
    told: Told,
    caretaker: Option<(usize, Boottime)>,
    overhears: Option<usize>,
    busy_until: Boottime,
    pub(super) counts: Counts,
    /// Whom to tell of what when the present command is done.
    pushes: BTreeMap<usize, Vec<Hint>>,
}

impl Redis {
    pub(super) fn new(agents: usize, planted: Option<Planted>) -> Redis {
        let tokens = TokenRange { first: 1, last: 1_000_000_000 };
        Redis {
            engine: Engine::new(EngineSettings::default(), tokens),
            planted,
            agents,
            held: HashMap::new(),
            waiting: BTreeMap::new(),
            unconfirmed: HashSet::new(),
            told: Told::default(),
            caretaker: None,
            overhears: None,
            busy_until: Boottime::ZERO,
            counts: Counts::default(),
            pushes: BTreeMap::new(),
        }
    }

    /// When something runs out.
    pub(super) fn due(&self) -> Option<Boottime> {
        self.engine.poll_timeout()
    }

    /// Somebody looks how long it takes to answer.
    pub(super) fn ping(&mut self, now: Boottime) {
        self.counts.pings.push(self.busy_until.since(now) + costs::COMMAND);
        self.plain(now, 1);
    }

    /// Commands that are only counted.
    pub(super) fn plain(&mut self, now: Boottime, commands: u32) {
        self.counts.commands += u64::from(commands);
        self.work(now, costs::COMMAND * commands);
    }

    /// Ends what has run out.
    pub(super) fn handle_timeout(&mut self, now: Boottime) -> Outcome {
        self.engine.handle_timeout(now);
        self.settle();
        self.finish(now, Duration::ZERO, None)
    }

    /// Does a command of an agent.
    pub(super) fn handle(&mut self, now: Boottime, agent: usize, asked: Asked) -> Outcome {
        let start = now.max(self.busy_until);
        let keys = self.held.len() * KEYS_PER_SEMAPHORE;
        let other = costs::other(&asked, keys.min(SURVEY_STEP));
        let (said, cost, is_script) = match asked {
            Asked::Request(request) => {
                let (answer, cost) = self.request(start, agent, request);
                (Said::Answer(answer), cost, true)
            }
            Asked::Listen => {
                for agents in
                    self.told.tracked.values_mut().chain(self.told.subscribed.values_mut())
                {
                    agents.remove(&agent);
                }
                (Said::Done, other, false)
            }
            Asked::Hear(audiences) => {
                for audience in audiences {
                    self.told.subscribed.entry(audience).or_default().insert(agent);
                }
                (Said::Done, other, false)
            }
            Asked::StopHearing(audiences) => {
                for audience in audiences {
                    self.told.subscribed.entry(audience).or_default().remove(&agent);
                }
                (Said::Done, other, false)
            }
            Asked::Watch(topics) => (Said::Watched(self.watch(agent, topics)), other, false),
            Asked::Verify(claims) => {
                let look =
                    |(claim, resource): &(ClaimId, Resource)| match self.holds(resource, claim) {
                        true => Verified::Held,
                        false => Verified::Gone,
                    };
                (Said::Verified(claims.iter().map(look).collect()), other, true)
            }
            Asked::Chore(chore) => {
                let is_script = !matches!(chore, Chore::Survey(_));
                (Said::Found(self.chore(start, agent, chore)), other, is_script)
            }
        };
        self.counts.commands += 1;
        if is_script {
            self.counts.scripts += 1;
            self.counts.longest = self.counts.longest.max(cost);
        }
        self.finish(now, cost, Some(said))
    }

    fn work(&mut self, now: Boottime, cost: Duration) {
        self.busy_until = now.max(self.busy_until) + cost;
        self.counts.busy += cost;
    }

    fn finish(&mut self, now: Boottime, cost: Duration, said: Option<Said>) -> Outcome {
        self.work(now, cost);
        let answered_at = self.busy_until;
        let pushes = std::mem::take(&mut self.pushes);
        self.counts.pushes += pushes.len() as u64;
        self.work(now, pushes.values().map(|hints| costs::push(hints.len())).sum());
        Outcome { said, answered_at, pushed_at: self.busy_until, pushes }
    }

    fn request(&mut self, now: Boottime, agent: usize, mut request: Request) -> (Answer, Duration) {
        if let Request::Claim(claim) = &mut request {
            self.counts.claims += 1;
            let is_exclusive = claim.resource.kind != Kind::Semaphore;
            if is_exclusive && self.planted == Some(Planted::NoQueue) {
                claim.enqueue = false;
            }
        }
        let answer = self.engine.handle(now, request.clone());
        match (&request, &answer) {
            (Request::Claim(claim), Answer::Claim(ClaimAnswer::Held { .. })) => {
                self.waiting.remove(&claim.id);
                self.unconfirmed.remove(&claim.id);
                self.held.entry(claim.resource.clone()).or_default().insert(claim.id, agent);
                self.changed(&claim.resource);
            }
            (Request::Claim(claim), Answer::Claim(ClaimAnswer::Waiting { .. })) => {
                self.joined(claim.id, &claim.resource, agent);
            }
            (Request::Release { claim, resource }, _) => drop(self.left(claim, resource)),
            (Request::Renew(beats), Answer::Renew(answers)) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    if let Subject::Claim { claim, resource } = &beat.subject
                        && matches!(answer, BeatAnswer::Held { .. })
                    {
                        self.unconfirmed.remove(claim);
                        self.held.entry(resource.clone()).or_default().insert(*claim, agent);
                        self.changed(resource);
                    }
                }
            }
            (Request::Announce(record), _) => {
                let (tenant, name) = (record.tenant.clone(), record.project.clone());
                self.changed(&Resource { tenant, kind: Kind::Master, name });
            }
            (Request::EndSession { tenant, project, .. }, _) => {
                let (tenant, name) = (tenant.clone(), project.clone());
                self.changed(&Resource { tenant, kind: Kind::Master, name });
            }
            _ => {}
        }
        let grants = self.settle();
        let cost = costs::request(&request, &answer) + costs::grant() * grants;
        (answer, cost)
    }

    /// Takes up what the engine has brought about beyond its answer; how many waiters it granted.
    fn settle(&mut self) -> u32 {
        let mut grants = 0;
        while let Some(effect) = self.engine.poll_effect() {
            let Effect::Change(change) = effect else { continue };
            match change {
                Change::Resource(_) => {}
                Change::Granted { claim, resource, grant } => {
                    grants += 1;
                    let (_, agent) = self.waiting.remove(&claim).expect("it waited");
                    self.unconfirmed.insert(claim);
                    self.held.entry(resource.clone()).or_default().insert(claim, agent);
                    self.changed(&resource);
                    // Agents and Redis go by one clock here.
                    self.pushes.entry(agent).or_default().push(Hint::Granted(claim, grant));
                    if resource.kind == Kind::Semaphore {
                        self.tell(Topic::Grant(claim, resource), Hint::Granted(claim, None));
                    }
                }
                Change::Lost { claim, resource } => {
                    let agent = self.left(&claim, &resource);
                    match (self.engine.why_gone(claim), agent) {
                        (Some(GoneReason::Expired) | None, _) => self.counts.ran_out += 1,
                        (Some(_), Some(agent)) => {
                            self.pushes.entry(agent).or_default().push(Hint::Lost(claim));
                        }
                        (Some(_), None) => {}
                    }
                }
                Change::Message { tenant, project, session, payload } => {
                    let payload = payload.to_string().into_bytes();
                    let (audience, hint) = match session {
                        None => (
                            Audience::Project { tenant: tenant.clone(), project: project.clone() },
                            Hint::ToProject { tenant, project, payload },
                        ),
                        Some(session) => {
                            (Audience::Session(session), Hint::ToSession { session, payload })
                        }
                    };
                    self.publish(&audience, &hint);
                }
            }
        }
        grants
    }

    fn holds(&self, resource: &Resource, claim: &ClaimId) -> bool {
        self.held.get(resource).is_some_and(|claims| claims.contains_key(claim))
    }

    /// A claim waits.
    fn joined(&mut self, claim: ClaimId, resource: &Resource, agent: usize) {
        if self.waiting.insert(claim, (resource.clone(), agent)).is_none() {
            self.queue_changed(resource);
        }
    }

    /// A claim holds or waits no more. The agent that held it.
    fn left(&mut self, claim: &ClaimId, resource: &Resource) -> Option<usize> {
        self.unconfirmed.remove(claim);
        if self.waiting.remove(claim).is_some() {
            self.queue_changed(resource);
        }
        let claims = self.held.get_mut(resource)?;
        let agent = claims.remove(claim)?;
        if claims.is_empty() {
            self.held.remove(resource);
        }
        self.changed(resource);
        Some(agent)
    }

    /// The key that says who holds a resource was written.
    fn changed(&mut self, resource: &Resource) {
        if self.planted == Some(Planted::Broadcast) || self.planted == Some(Planted::AllCare) {
            return self.tell_all(&Hint::Resource(resource.clone()));
        }
        self.tell(Topic::Resource(resource.clone()), Hint::Resource(resource.clone()));
        self.overheard(resource, Hint::Resource(resource.clone()));
    }

    /// The key that says who waits was written.
    fn queue_changed(&mut self, resource: &Resource) {
        self.overheard(resource, Hint::Queue(resource.clone()));
    }

    /// The caretaker hears of whatever is shared with other programs.
    fn overheard(&mut self, resource: &Resource, hint: Hint) {
        if let Some(agent) = self.overhears.filter(|_| resource.kind == Kind::Semaphore) {
            self.pushes.entry(agent).or_default().push(hint);
        }
    }

    fn tell(&mut self, topic: Topic, hint: Hint) {
        for agent in self.told.tracked.remove(&topic).unwrap_or_default() {
            self.pushes.entry(agent).or_default().push(hint.clone());
        }
    }

    fn tell_all(&mut self, hint: &Hint) {
        for agent in 0..self.agents {
            self.pushes.entry(agent).or_default().push(hint.clone());
        }
    }

    /// Every subscriber is written to.
    fn publish(&mut self, audience: &Audience, hint: &Hint) {
        if self.planted == Some(Planted::AllHear) {
            return self.tell_all(hint);
        }
        for agent in self.told.subscribed.get(audience).into_iter().flatten() {
            self.pushes.entry(*agent).or_default().push(hint.clone());
        }
    }

    fn watch(&mut self, agent: usize, topics: Vec<Topic>) -> Vec<Seen> {
        let mut seen = Vec::with_capacity(topics.len());
        let come = |come| if come { Seen::CameAbout } else { Seen::NotYet };
        for topic in topics {
            seen.push(match &topic {
                Topic::Resource(resource) => come(!self.held.contains_key(resource)),
                Topic::Held(_, semaphore) if semaphore.kind == Kind::Semaphore => {
                    match self.held.get(semaphore) {
                        Some(claims) => Seen::Holders(claims.len() as u64),
                        None => Seen::CameAbout,
                    }
                }
                Topic::Held(claim, resource) => come(!self.holds(resource, claim)),
                Topic::Grant(claim, _) => come(self.unconfirmed.contains(claim)),
            });
            // A key is tracked, whatever was asked about it.
            let topic = match topic {
                Topic::Held(_, resource) => Topic::Resource(resource),
                topic => topic,
            };
            self.told.tracked.entry(topic).or_default().insert(agent);
        }
        seen
    }

    fn chore(&mut self, now: Boottime, agent: usize, chore: Chore) -> Found {
        match chore {
            Chore::Care(semaphores) => {
                Found::Cared(semaphores.into_iter().map(|it| self.care(now, it)).collect())
            }
            Chore::Stand => {
                let other = self.caretaker.filter(|(other, until)| *other != agent && *until > now);
                if other.is_none() {
                    self.caretaker = Some((agent, now + TERM));
                }
                let hears_anew = other.is_none() && self.overhears.replace(agent) != Some(agent);
                Found::Stood(Stood { other: other.map(|(_, until)| until - now), hears_anew })
            }
            // No session or lease of the model leaves its set.
            Chore::Sweep => Found::Swept(SWEEP_EVERY),
            Chore::Survey(cursor) => {
                let cursor = String::from_utf8(cursor).expect("it is the one that was given");
                let walked = cursor.parse::<usize>().expect("a number") + SURVEY_STEP;
                let is_over = walked >= self.held.len() * KEYS_PER_SEMAPHORE;
                let next = if is_over { 0 } else { walked }.to_string().into_bytes();
                let queues = self.waiting.values().map(|(it, _)| it);
                let queues = queues.filter(|it| it.kind == Kind::Semaphore);
                let queues: BTreeSet<_> = queues.filter(|_| is_over).cloned().collect();
                Found::Surveyed(Surveyed { next, semaphores: queues.into_iter().collect() })
            }
        }
    }

    fn care(&self, now: Boottime, CareOf { tenant, name, .. }: CareOf) -> Cared {
        let semaphore = Resource { tenant, kind: Kind::Semaphore, name };
        let standing = self.engine.inspect(now, &semaphore);
        let (holders, waiting) = (standing.holding, standing.waiting);
        let next = (holders + waiting > 0).then_some(LEFT);
        Cared { holders, waiting, next, foreign: false }
    }
}
