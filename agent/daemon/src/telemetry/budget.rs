//! The share of the log that each user of the host has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lines of one user that may come at once.
const BURST: f64 = 1000.0;
/// Lines of one user per second, over longer times. With ordinary names that is 30 kB/s.
const LINES_PER_SECOND: f64 = 50.0;
/// Users with a budget of their own; those beyond have one in common.
const USERS_MAX: usize = 1024;
/// How often the log says how many lines it left out.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Lines in two sorts: a flood of grants and releases must not hide that something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Registrations, grants, releases, ends.
    Routine,
    Loss,
}

/// Lines of a user that the log left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// The user; none for those beyond [`USERS_MAX`].
    pub(super) uid: Option<u32>,
    pub(super) lines: u64,
}

/// Bounds the lines that each user causes. A user beyond its share has lines left out, which are counted
/// and told; nobody else's lines are.
#[derive(Debug, Default)]
pub(super) struct Budget {
    shares: HashMap<Option<u32>, UserLines>,
    told: Option<Instant>,
}

#[derive(Debug)]
struct UserLines {
    routine: Bucket,
    loss: Bucket,
    left_out: u64,
}

#[derive(Debug)]
struct Bucket {
    lines: f64,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Bucket {
        Bucket { lines: BURST, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let gained = now.duration_since(self.filled).as_secs_f64() * LINES_PER_SECOND;
        self.lines = (self.lines + gained).min(BURST);
        self.filled = now;
    }

    fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has = self.lines >= 1.0;
        if has {
            self.lines -= 1.0;
        }
        has
    }
}

impl Budget {
    /// Decides about one more line of that user.
    pub(super) fn admit(&mut self, now: Instant, uid: u32, sort: Sort) -> bool {
        let known = self.shares.len() < USERS_MAX || self.shares.contains_key(&Some(uid));
        let share = self.shares.entry(known.then_some(uid)).or_insert_with(|| UserLines {
            routine: Bucket::new(now),
            loss: Bucket::new(now),
            left_out: 0,
        });
        let bucket = match sort {
            Sort::Routine => &mut share.routine,
            Sort::Loss => &mut share.loss,
        };
        let admitted = bucket.take(now);
        share.left_out += u64::from(!admitted);
        admitted
    }

    /// The lines left out since the last time, once in [`TELL_EVERY`]; forgets users that are quiet.
    pub(super) fn left_out(&mut self, now: Instant) -> Vec<LeftOut> {
        let told = *self.told.get_or_insert(now);
        if now.duration_since(told) < TELL_EVERY {
            return Vec::new();
        }
        self.told = Some(now);
        let mut all = Vec::new();
        self.shares.retain(|uid, share| {
            let lines = std::mem::take(&mut share.left_out);
            if lines > 0 {
                all.push(LeftOut { uid: *uid, lines });
            }
            share.routine.fill(now);
            share.loss.fill(now);
            lines > 0 || share.routine.lines < BURST || share.loss.lines < BURST
        });
        all
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant does")]
mod tests {
    use super::*;

    fn admitted(budget: &mut Budget, now: Instant, uid: u32, sort: Sort, lines: u32) -> f64 {
        f64::from((0..lines).map(|_| u32::from(budget.admit(now, uid, sort))).sum::<u32>())
    }

    #[test]
    fn a_flood_of_one_user_leaves_the_lines_of_others() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        assert_eq!(admitted(&mut budget, now, 7, Sort::Routine, 5000), BURST);
        assert_eq!(admitted(&mut budget, now, 8, Sort::Routine, 10), 10.0);
        assert_eq!(admitted(&mut budget, now, 7, Sort::Loss, 10), 10.0);
        let later = now + Duration::from_secs(2);
        let gained = admitted(&mut budget, later, 7, Sort::Routine, 5000);
        assert_eq!(gained, 2.0 * LINES_PER_SECOND);
    }

    #[test]
    fn the_lines_left_out_are_told_once() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        assert!(budget.left_out(now).is_empty());
        admitted(&mut budget, now, 7, Sort::Routine, 1500);
        assert!(budget.left_out(now + TELL_EVERY / 2).is_empty());
        let told = budget.left_out(now + TELL_EVERY);
        assert_eq!(told, [LeftOut { uid: Some(7), lines: 500 }]);
        assert!(budget.left_out(now + TELL_EVERY * 2).is_empty());
    }

    #[test]
    fn ten_thousand_users_cost_a_bounded_table() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        for uid in 0..10_000 {
            budget.admit(now, uid, Sort::Routine);
        }
        assert_eq!(budget.shares.len(), USERS_MAX + 1);
        budget.left_out(now);
        // The share in common is exhausted and told; all others have filled up again.
        budget.left_out(now + TELL_EVERY);
        budget.left_out(now + TELL_EVERY * 10);
        assert!(budget.shares.is_empty());
    }
}
