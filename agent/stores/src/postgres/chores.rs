//! Pure. When an agent looks for what is due by itself.

use std::time::Duration;

use tenure_core::model::Resource;
use tenure_core::time::Boottime;

use crate::remote::{self, ClaimStep, Hears, Hint};

/// Longest time between two looks: what runs out is ended no later, though no agent was told of it.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Shortest such time.
const LOOK_MIN: Duration = Duration::from_millis(2);

/// A look for what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep;

/// Every agent looks, and what one ends is ended for all.
#[derive(Debug)]
pub struct Chores {
    /// `None` while a look is on its way.
    due: Option<Boottime>,
}

impl Default for Chores {
    fn default() -> Chores {
        Chores { due: Some(Boottime::ZERO) }
    }
}

impl remote::Chores for Chores {
    type Chore = Upkeep;
    /// When something is due next.
    type Found = Option<Duration>;

    fn handle_hint(&mut self, _now: Boottime, _hint: &Hint) {}
    fn handle_claim_step(&mut self, _now: Boottime, _resource: &Resource, _step: ClaimStep) {}
    fn handle_expires_soon(&mut self, _now: Boottime, _resource: &Resource) {}
    fn feed_started(&mut self, _now: Boottime, _hears: Hears) {}
    fn feed_stopped(&mut self) {}

    fn poll_timeout(&self) -> Option<Boottime> {
        self.due
    }

    fn take(&mut self, now: Boottime) -> Option<Upkeep> {
        self.due.take_if(|due| *due <= now).map(|_| Upkeep)
    }

    fn handle_done(&mut self, now: Boottime, _chore: Upkeep, found: Option<Option<Duration>>) {
        let next = found.flatten().unwrap_or(LOOK_MAX);
        self.due = Some(now + next.clamp(LOOK_MIN, LOOK_MAX));
    }
}

#[cfg(test)]
mod tests {
    use remote::Chores as _;

    use super::*;

    #[test]
    fn one_look_at_a_time_and_the_next_when_something_is_due() {
        let at = |ms: u64| Boottime::from_nanos(ms * 1_000_000);
        let mut chores = Chores::default();
        assert_eq!(chores.take(at(5)), Some(Upkeep));
        assert_eq!((chores.take(at(5)), chores.poll_timeout()), (None, None));
        for (found, next) in [
            (Some(Some(Duration::from_millis(300))), 310),
            (Some(Some(Duration::ZERO)), 12),
            (Some(Some(Duration::from_secs(60))), 1010),
            (Some(None), 1010),
            (None, 1010),
        ] {
            chores.handle_done(at(10), Upkeep, found);
            assert_eq!(chores.poll_timeout(), Some(at(next)));
            assert_eq!(chores.take(at(next - 1)), None);
            assert_eq!(chores.take(at(next)), Some(Upkeep));
        }
    }
}
