//! Requests of a program: those that are not answered, and those that it may repeat.

use std::collections::{BTreeMap, VecDeque};

use tenure::wire::Acquire;
use tenure_core::keeper::Ticket;
use uuid::Uuid;

use super::super::time::TrueTime;
use super::MySession;

/// Answered requests that a program may repeat.
const ANSWERED_MAX: usize = 4;

/// A request whose answer has not come.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) what: Asking,
    pub(crate) at: TrueTime,
    pub(crate) cancel_at: Option<TrueTime>,
}

#[derive(Debug, Clone)]
pub(crate) enum Asking {
    Register(Box<MySession>),
    Resume,
    Acquire(Box<Acquire>),
    Release(Option<Uuid>),
    Other,
}

/// The requests of a program.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) asked: BTreeMap<Ticket, Asked>,
    /// An acquire that broke off, or is to be sent once more.
    pub(crate) again: Option<Acquire>,
    /// Requests with an id that were answered with a hold.
    pub(crate) answered: VecDeque<Acquire>,
    made: u64,
}

impl Requests {
    /// Counts a request; its number.
    pub(crate) fn count(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Acquires that are not answered.
    pub(crate) fn acquiring(&self) -> usize {
        self.asked.values().filter(|asked| matches!(asked.what, Asking::Acquire(_))).count()
    }

    /// Requests that are to be cancelled by then.
    pub(crate) fn overdue(&self, now: TrueTime) -> Vec<Ticket> {
        let is_overdue = |asked: &Asked| asked.cancel_at.is_some_and(|at| at <= now);
        let overdue = self.asked.iter().filter(|(_, asked)| is_overdue(asked));
        overdue.map(|(ticket, _)| *ticket).collect()
    }

    /// Keeps a request that was answered, so that it may be repeated.
    pub(crate) fn note_answered(&mut self, acquire: &Acquire) {
        if self.answered.iter().all(|known| known.request != acquire.request) {
            self.answered.push_back(acquire.clone());
            if self.answered.len() > ANSWERED_MAX {
                self.answered.pop_front();
            }
        }
    }

    /// Forgets what was about a session.
    pub(crate) fn forget(&mut self) {
        self.again = None;
        self.answered.clear();
    }
}
