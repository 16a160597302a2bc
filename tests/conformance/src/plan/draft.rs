//! A plan as it comes to be.

use std::collections::HashSet;
use std::time::Duration;

use tenure_core::model::{
    Answer, Claim, ClaimAnswer, ClaimId, HistoryEntry, Request, Resource, Subject,
};
use tenure_wire::Kind;
use uuid::Uuid;

use super::TICK_MAX_US;
use super::cast::{Cast, Program, uuid};
use super::time::ROOM_US;
use crate::operation::Operation;
use crate::oracle::Oracle;
use tenure_harness::random::Random;

/// A claim that was made, or will be.
pub(super) struct Drawn {
    pub(super) claim: Claim,
    /// When it runs out, or has run out, ms.
    pub(super) ends_ms: u64,
    /// True if it held or waited when it was answered last.
    pub(super) there: bool,
}

pub(super) struct Draft {
    pub(super) random: Random,
    /// True if nobody does what is due when it is due.
    pub(super) lazy: bool,
    pub(super) now_ms: u64,
    /// Instants that were used, modulo [`QUANTUM_MS`].
    pub(super) used: HashSet<u64>,
    /// Tells what is there still, so that there is something to be asked about.
    pub(super) oracle: Oracle,
    pub(super) cast: Cast,
    pub(super) drawn: Vec<Drawn>,
    pub(super) operations: Vec<Operation>,
    pub(super) requests: usize,
    /// When changes were recorded last: twice in a ms their order would be that of µs, which the engine does not see.
    pub(super) recorded_ms: Option<u64>,
    /// The changes that were recorded last.
    pub(super) recorded: Vec<HistoryEntry>,
    /// µs that requests have taken since time has passed last, at most.
    pub(super) spent_us: u64,
}

impl Draft {
    /// Nothing yet.
    pub(super) fn begin(seed: u64, upkeep_in_time: &[bool]) -> Draft {
        let mut random = Random::new(seed);
        let cast = Cast::draw(&mut random);
        Draft {
            lazy: upkeep_in_time.get(usize::from(random.per_mille(300))) == Some(&false)
                || upkeep_in_time == [false],
            random,
            cast,
            now_ms: 0,
            used: HashSet::from([0]),
            oracle: Oracle::new(),
            drawn: Vec::new(),
            operations: Vec::new(),
            requests: 0,
            recorded_ms: None,
            recorded: Vec::new(),
            spent_us: 0,
        }
    }

    pub(super) fn ask(&mut self, request: Request) {
        let answer = self.oracle.handle(self.now_ms, request.clone());
        match (&request, answer) {
            (Request::Claim(claim), Answer::Claim(answer)) => {
                use ClaimAnswer::{Held, Waiting};
                let there = matches!(answer, Held { .. } | Waiting { .. });
                self.learn(claim.id, there, claim.ttl);
            }
            (Request::Renew(beats), Answer::Renew(answers)) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    if let Subject::Claim { claim, .. } = &beat.subject {
                        let there = answer.gone().is_none();
                        self.learn(*claim, there, beat.ttl);
                    }
                }
            }
            (Request::Release { claim, .. }, _) => self.learn(*claim, false, Duration::ZERO),
            _ => {}
        }
        self.asked(Operation::Ask(request));
    }

    /// Takes note of what became of a claim.
    fn learn(&mut self, id: ClaimId, there: bool, ttl: Duration) {
        let now_ms = self.now_ms;
        if let Some(drawn) = self.drawn.iter_mut().find(|drawn| drawn.claim.id == id) {
            if there {
                drawn.ends_ms = drawn.ends_ms.max(now_ms + millis(ttl));
            } else if drawn.there {
                drawn.ends_ms = drawn.ends_ms.min(now_ms);
            }
            drawn.there = there;
        }
    }

    pub(super) fn add(&mut self) {
        if self.spent_us > ROOM_US {
            return self.pass();
        }
        match self.random.below(100) {
            0..28 => self.claim_new(),
            28..36 => self.claim_again(),
            36..54 => self.renew(),
            54..64 => self.release(),
            64..70 => self.announce(),
            70..71 => self.end_session(),
            71..80 => self.inspect(),
            80..83 => self.routes(),
            83..85 => self.revoke(),
            85..87 => self.repeat(),
            87..89 => self.record(),
            89..91 => self.history(),
            91..92 => self.operations.push(Operation::Reconnect),
            _ => self.pass(),
        }
    }

    pub(super) fn resource(&mut self) -> Resource {
        self.cast.resource(&mut self.random)
    }

    /// One of that kind; there is at least one.
    pub(super) fn resource_of(&mut self, kind: Kind) -> Resource {
        let fitting: Vec<&Resource> = self.cast.all.iter().filter(|it| it.kind == kind).collect();
        (*self.random.pick(&fitting)).clone()
    }

    pub(super) fn some_program(&mut self) -> &mut Program {
        let at = self.random.below(self.cast.programs.len() as u64) as usize;
        &mut self.cast.programs[at]
    }

    pub(super) fn id(&mut self) -> Uuid {
        uuid(&mut self.random)
    }

    /// Asks to take a grant away by its token, or by that of an earlier one.
    pub(super) fn revoke_by_token(&mut self, resource: Resource, of: ClaimId) {
        if let Some(token) = self.oracle.token_of(of) {
            let request = Request::Revoke {
                resource: resource.clone(),
                token: Some(token),
                revocation: None,
            };
            self.oracle.handle(self.now_ms, request);
        }
        self.asked(Operation::Revoke { resource, of: Some(of) });
    }

    fn asked(&mut self, operation: Operation) {
        self.requests += 1;
        self.spent_us += TICK_MAX_US + self.oracle.take_granted();
        self.operations.push(operation);
    }

    /// The reply was lost: the same once more.
    fn repeat(&mut self) {
        let recent = self.operations.iter().rev().take(6);
        let asked: Vec<Request> = recent
            .map_while(|operation| match operation {
                Operation::Ask(request) => Some(request.clone()),
                _ => None,
            })
            // Changes are told again by `record`, which knows when they would come back in another order.
            .filter(|request| !matches!(request, Request::Record(_)))
            .collect();
        if !asked.is_empty() {
            let request = self.random.pick(&asked).clone();
            self.ask(request);
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
