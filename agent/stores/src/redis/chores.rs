//! Pure. Care of semaphores that other programs share, and the election of the agent that does it, and that sweeps the
//! sets that cannot expire.

use std::time::Duration;

use tenure_core::model::Resource;
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::care::Care;
use super::caretaker::Caretaker;
pub use super::caretaker::{Stood, TERM};
use super::exchange::{CareOf, Cared};
pub use super::feed::Surveyed;
use crate::remote::{self, ClaimStep, Hears, Hint};

#[derive(Debug, Clone, PartialEq)]
pub enum Chore {
    Care(Vec<CareOf>),
    /// To be the caretaker.
    Stand,
    /// A step of a sweep of sets that cannot expire.
    Sweep,
    /// A step of a survey of semaphores, from this cursor on.
    Survey(Vec<u8>),
}

#[derive(Debug)]
pub enum Found {
    Cared(Vec<Cared>),
    Stood(Stood),
    /// How long until the next step.
    Swept(Duration),
    Surveyed(Surveyed),
}

#[derive(Debug)]
pub struct Chores {
    care: Care,
    caretaker: Caretaker,
}

impl Chores {
    /// `seed` differs between agents.
    pub fn new(seed: u64) -> Chores {
        Chores { care: Care::new(seed), caretaker: Caretaker::new(seed) }
    }
}

impl remote::Chores for Chores {
    type Chore = Chore;
    type Found = Found;

    fn handle_hint(&mut self, now: Boottime, hint: &Hint) {
        match hint {
            Hint::Resource(resource) if resource.kind == Kind::Semaphore => {
                self.care.permits_changed(now, resource);
            }
            Hint::Queue(semaphore) => self.care.queue_changed(now, semaphore),
            _ => {}
        }
    }

    fn handle_claim_step(&mut self, now: Boottime, resource: &Resource, step: ClaimStep) {
        if resource.kind == Kind::Semaphore {
            match step {
                ClaimStep::Tracked => self.care.share(resource),
                ClaimStep::IsNext => self.care.is_next(now, resource),
                ClaimStep::IsNextNoMore => self.care.is_next_no_more(resource),
                ClaimStep::Forgotten => self.care.unshare(resource),
            }
        }
    }

    fn handle_expires_soon(&mut self, now: Boottime, resource: &Resource) {
        self.care.expires_soon(now, resource);
    }

    fn feed_started(&mut self, now: Boottime, hears: Hears) {
        match hears {
            Hears::Everything | Hears::Watched => self.caretaker.feed_started(now),
            Hears::Part => self.caretaker.feed_refused(),
        }
        self.care.appoint(self.caretaker.is_it());
    }

    fn feed_stopped(&mut self) {
        self.caretaker.feed_stopped();
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        let timeouts = [self.care.poll_timeout(), self.caretaker.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// One piece of care and one errand of the caretaker are on their way at most.
    fn take(&mut self, now: Boottime) -> Option<Chore> {
        let due = self.care.take(now);
        if !due.is_empty() {
            return Some(Chore::Care(due));
        }
        self.caretaker.take(now)
    }

    fn handle_done(&mut self, now: Boottime, chore: Chore, found: Option<Found>) {
        match chore {
            Chore::Care(asked) => {
                let found = match found {
                    Some(Found::Cared(found)) => Some(found),
                    _ => None,
                };
                self.care.handle_answer(now, asked, found);
            }
            Chore::Stand => {
                let answer = match found {
                    Some(Found::Stood(stood)) => Some(stood),
                    _ => None,
                };
                self.caretaker.stood(now, answer);
                self.care.appoint(self.caretaker.is_it());
            }
            Chore::Sweep => {
                let next = match found {
                    Some(Found::Swept(next)) => Some(next),
                    _ => None,
                };
                self.caretaker.swept(now, next);
            }
            Chore::Survey(from) => {
                let next = match found {
                    Some(Found::Surveyed(Surveyed { next, semaphores })) => {
                        for semaphore in semaphores {
                            self.care.queue_changed(now, &semaphore);
                        }
                        Some(next)
                    }
                    _ => None,
                };
                self.caretaker.surveyed(now, from, next);
            }
        }
    }
}
