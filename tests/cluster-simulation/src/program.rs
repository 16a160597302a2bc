//! A program that claims, renews and releases, asks any node, and now and then falls silent.

use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request, Resource,
    SessionId, Subject, Terms,
};
use tenure_wire::Kind;
use uuid::Uuid;

use crate::chance::Random;
use crate::host::Reply;
use crate::invariants::Invariants;

/// The things that programs contend for, and how many may have each.
pub(crate) const THINGS: [(Kind, &str, usize); 4] = [
    (Kind::Leader, "role", 1),
    (Kind::Master, "project", 1),
    (Kind::Lease, "lease", 1),
    (Kind::Semaphore, "permits", 2),
];
const TTLS_MS: [u64; 3] = [3_000, 5_000, 8_000];

pub(crate) fn resource(thing: usize) -> Resource {
    let (kind, name, _) = THINGS[thing];
    Resource { tenant: "default".into(), kind, name: name.into() }
}

pub(crate) fn claim(id: Uuid, thing: usize, ttl: Duration, enqueue: bool) -> Request {
    let terms = match THINGS[thing] {
        (Kind::Leader, ..) => Terms::Leader,
        // None takes it from another: what that one relied on would end early.
        (Kind::Master, ..) => Terms::Master { priority: 0 },
        (Kind::Semaphore, _, limit) => {
            Terms::Semaphore { limit: limit as u32, keeps: false, only_own: false }
        }
        _ => {
            Terms::Lease { grace: Duration::ZERO, attributes: Default::default(), take_over: None }
        }
    };
    let owner = Owner { session: SessionId(id), host: "here".into(), name: "program".into() };
    let id = ClaimId(id);
    Request::Claim(Claim { id, resource: resource(thing), owner, ttl, terms, enqueue })
}

pub(crate) struct Program {
    thing: usize,
    claim: Uuid,
    ttl: Duration,
    enqueue: bool,
    step: Step,
    /// It has it until then, by its own clock; `None` while it has nothing.
    until_us: Option<u64>,
    /// The token of its grant.
    token: u64,
    /// The next instant at which it does something by itself.
    due_us: u64,
    asked: Option<Asked>,
}

struct Asked {
    what: Step,
    sent_us: u64,
    reply: Reply,
    /// Its answer is lost on the way.
    is_lost: bool,
}

/// The thing that it asks for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Begin,
    Claim,
    Beat,
    Release,
    /// As an administrator, who takes away what the program has.
    Revoke,
    Look,
}

/// A question for a node.
pub(crate) struct Ask {
    pub(crate) request: Request,
    what: Step,
}

impl Program {
    pub(crate) fn new(random: &mut Random) -> Program {
        let mut program = Program {
            thing: 0,
            claim: Uuid::nil(),
            ttl: Duration::ZERO,
            enqueue: false,
            step: Step::Begin,
            until_us: None,
            token: 0,
            due_us: random.below(1_000_000),
            asked: None,
        };
        program.begin(random);
        program
    }

    fn begin(&mut self, random: &mut Random) {
        self.thing = random.index(THINGS.len());
        self.claim = Uuid::from_u64_pair(random.number(0, u64::MAX - 1), random.number(0, 1 << 60));
        self.ttl = Duration::from_millis(TTLS_MS[random.index(TTLS_MS.len())]);
        self.enqueue = random.per_mille(300);
        self.until_us = None;
        self.step = if random.per_mille(200) { Step::Look } else { Step::Claim };
    }

    fn rest(&mut self, now_us: u64, random: &mut Random) {
        self.begin(random);
        self.due_us = now_us + random.number(50_000, 1_500_000);
    }

    /// The question that it has now.
    pub(crate) fn ask(&mut self, now_us: u64, random: &mut Random) -> Option<Ask> {
        if self.asked.is_some() || self.due_us > now_us {
            return None;
        }
        if self.until_us.is_some_and(|until_us| until_us <= now_us) {
            // It knows that it has lost it, and asks for it no more: others may have it.
            self.rest(now_us, random);
            return None;
        }
        if self.step == Step::Beat && random.per_mille(120) {
            let is_taken_away = self.until_us.is_some() && random.per_mille(250);
            self.step = if is_taken_away { Step::Revoke } else { Step::Release };
        }
        if self.step == Step::Beat && random.per_mille(40) {
            // It is gone, and tells nobody: another takes its place.
            self.rest(now_us, random);
            return None;
        }
        let resource = resource(self.thing);
        let request = match self.step {
            Step::Begin | Step::Claim => claim(self.claim, self.thing, self.ttl, self.enqueue),
            Step::Beat => {
                let subject = Subject::Claim { claim: ClaimId(self.claim), resource };
                Request::Renew(vec![Beat { subject, ttl: self.ttl }])
            }
            Step::Release => Request::Release { claim: ClaimId(self.claim), resource },
            Step::Revoke => Request::Revoke { resource, token: Some(self.token), revocation: None },
            Step::Look => Request::Inspect(resource),
        };
        Some(Ask { request, what: self.step })
    }

    /// The question was sent.
    fn sent(
        &mut self,
        ask: Step,
        reply: Reply,
        now_us: u64,
        is_lost: bool,
        known: &mut Invariants,
    ) {
        match ask {
            Step::Claim => known.claims(self.claim, now_us),
            Step::Release | Step::Revoke => known.lets_go(self.claim, now_us),
            _ => {}
        }
        self.asked = Some(Asked { what: ask, sent_us: now_us, reply, is_lost });
    }

    /// Takes the answer, if there is one.
    pub(crate) fn hear(&mut self, now_us: u64, random: &mut Random, known: &mut Invariants) {
        let Some(asked) = &mut self.asked else { return };
        let heard = match asked.reply.try_recv() {
            Ok(heard) => heard,
            Err(tokio::sync::oneshot::error::TryRecvError::Empty) => return,
            Err(tokio::sync::oneshot::error::TryRecvError::Closed) => {
                Err(Failure::Unknown("the process ended".to_owned()))
            }
        };
        let (what, sent_us, is_lost) = (asked.what, asked.sent_us, asked.is_lost);
        self.asked = None;
        self.due_us = now_us + random.number(10_000, 300_000);
        match heard {
            Ok(answer) if !is_lost => {
                known.answered += 1;
                self.take(answer, (what, sent_us), now_us, random, known);
            }
            // It asks again, and somebody else.
            _ => known.unanswered += 1,
        }
    }

    fn take(
        &mut self,
        answer: Answer,
        (what, sent_us): (Step, u64),
        now_us: u64,
        random: &mut Random,
        known: &mut Invariants,
    ) {
        let until_us = sent_us + self.valid_us();
        let next_beat_us = now_us + self.ttl.as_micros() as u64 / 3;
        if self.until_us.is_some_and(|until_us| until_us <= now_us) {
            return self.rest(now_us, random);
        }
        match (answer, what) {
            (Answer::Claim(ClaimAnswer::Held { token, .. }), _) => {
                known.holds(self.thing, self.claim, token, (now_us, until_us));
                (self.step, self.due_us) = (Step::Beat, next_beat_us);
                (self.until_us, self.token) = (Some(until_us), token);
            }
            (Answer::Claim(ClaimAnswer::Waiting { .. }), _) => {
                self.step = Step::Beat;
                self.due_us = now_us + random.number(100_000, 900_000);
            }
            (Answer::Claim(ClaimAnswer::Gone(reason)), _) => {
                known.loses(self.claim, now_us, &format!("{reason:?}"));
                self.rest(now_us, random);
            }
            (Answer::Renew(beats), _) => match &beats[0] {
                BeatAnswer::Held { token, .. } => {
                    known.holds(self.thing, self.claim, *token, (now_us, until_us));
                    self.due_us = next_beat_us;
                    (self.until_us, self.token) = (Some(until_us), *token);
                }
                BeatAnswer::Waiting { .. } => {
                    self.due_us = now_us + random.number(100_000, 900_000);
                }
                other => {
                    known.loses(self.claim, now_us, &format!("{other:?}"));
                    self.rest(now_us, random);
                }
            },
            (Answer::Standing(standing), _) => {
                let tokens: Vec<u64> = standing.holders.iter().map(|it| it.token).collect();
                known.sees(self.thing, &tokens, (sent_us, now_us));
                self.rest(now_us, random);
            }
            (Answer::Revoked(_), _) => {
                known.is_revoked(self.claim, now_us);
                self.step = Step::Beat;
            }
            _ => self.rest(now_us, random),
        }
    }

    /// How long it may rely on a grant, from the instant before it asked: the agents' rule.
    fn valid_us(&self) -> u64 {
        let ttl_us = self.ttl.as_micros() as u64;
        ttl_us - ttl_us / 200 - 10_000
    }
}

impl Ask {
    pub(crate) fn sent_by(
        self,
        program: &mut Program,
        reply: Reply,
        now_us: u64,
        is_lost: bool,
        known: &mut Invariants,
    ) {
        program.sent(self.what, reply, now_us, is_lost, known);
    }
}
