//! Questions when hints may have been lost, a bounded part of them in each turn.

use std::collections::VecDeque;
use std::time::Duration;

use super::Keeper;
use super::calls::Renewed;
use super::timers::{Alarm, Timer};
use crate::model::Resource;
use crate::time::Boottime;

/// How many questions one turn asks.
const PER_TURN: usize = 256;

/// The subject that a lost hint could have had.
#[derive(Debug)]
pub(super) enum About {
    /// A resource that somebody waits for.
    Queue(Resource),
    /// A hold or waiter, or an announced session that the upstream may have forgotten.
    Renewed(Renewed),
    /// A resource whose standing somebody watches.
    Watch(Resource),
}

/// Questions that are still to be asked; bounded by the tables that they come from.
#[derive(Debug, Default)]
pub(super) struct Missed {
    left: VecDeque<About>,
    alarm: Alarm,
}

impl Keeper {
    /// Hints may have been lost: everything that one could have been about is asked for.
    pub fn handle_feed_lost(&mut self, now: Boottime) {
        let mut left: VecDeque<_> = self.queues.keys().cloned().map(About::Queue).collect();
        // Waiters in the order in which they came: those that the upstream forgot queue again.
        let renewed = self.all_beaten().into_iter().chain(self.all_announced());
        left.extend(renewed.map(About::Renewed));
        left.extend(self.watches.keys().cloned().map(About::Watch));
        self.calls.missed.left = left;
        self.ask_missed(now);
    }

    pub(super) fn missed_fired(&mut self, now: Boottime) {
        if self.timers.fired(&mut self.calls.missed.alarm, Timer::Missed, now) {
            self.ask_missed(now);
        }
    }

    fn ask_missed(&mut self, now: Boottime) {
        for _ in 0..PER_TURN {
            match self.calls.missed.left.pop_front() {
                Some(About::Queue(resource)) => self.try_first(now, &resource),
                Some(About::Renewed(item)) => self.due_now(item),
                Some(About::Watch(resource)) => self.ask_standing(now, &resource),
                None => break,
            }
        }
        self.flush_beats();
        // Not in this turn any more.
        let next = (!self.calls.missed.left.is_empty()).then(|| now + Duration::from_nanos(1));
        self.timers.set(&mut self.calls.missed.alarm, Timer::Missed, next);
    }
}
