//! Pure. The election of the agent that looks after semaphores of other programs, its survey of those
//! that were there before it, and its sweep of the sets that cannot expire.
//!
//! One agent of the fleet is the caretaker, for a term that it renews; the others ask when the term is
//! over. For some seconds after the caretaker died those programs hand over as slowly as without an
//! agent; nothing else depends on it.
//!
//! Sessions and leases expire. The set of a project's sessions does not, because programs without Tenure add to
//! it, and neither does the set of the names of a tenant's leases. The scripts that add to a set list it; a sweep
//! looks at the listed sets, and takes out members that are dead. Where the server refuses to tell of changes
//! there is no caretaker, and a set loses its dead members only when it is read.

use std::time::Duration;

use tenure_core::time::Boottime;

use super::chores::Chore;

/// How long an agent is the caretaker without standing again.
pub const TERM: Duration = Duration::from_secs(6);
/// How often the caretaker stands again.
const STAND_EVERY: Duration = Duration::from_secs(2);
/// Agents that ask for the end of the same term do so within this time of each other.
const SPREAD_MS: u64 = 1000;
/// After a call that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How many times as long as a step of a survey or sweep took Redis is left alone.
const REST: u32 = 10;
/// Least rest between two steps; a step takes the server about a millisecond.
const REST_MIN: Duration = Duration::from_millis(10);
/// Longest rest between two steps of a survey.
const REST_MAX: Duration = Duration::from_secs(1);
/// Longest rest between two steps of a sweep: with it ten thousand sets are looked at within half a minute.
const SWEEP_REST_MAX: Duration = Duration::from_millis(100);
/// Least time between the beginnings of two surveys.
const SURVEY_EVERY: Duration = Duration::from_secs(30);

/// The cursor at which a survey of all keys begins, and has ended.
const START: &[u8] = b"0";

/// The answer to who stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stood {
    /// How long another agent is the caretaker at least; `None` if it is this one.
    pub other: Option<Duration>,
    /// Changes by other programs are heard of from now on.
    pub hears_anew: bool,
}

/// The agent's part in the election of a caretaker. One errand at a time.
#[derive(Debug)]
pub(super) struct Caretaker {
    spread: Duration,
    /// Changes are heard of. Who hears nothing does not stand.
    hears: bool,
    is_it: bool,
    stand_at: Option<Boottime>,
    /// The next step of a survey.
    survey: Option<(Boottime, Vec<u8>)>,
    surveyed_at: Option<Boottime>,
    /// The next step of a sweep.
    sweep_at: Option<Boottime>,
    asked_at: Option<Boottime>,
}

impl Caretaker {
    /// `seed` differs between agents.
    pub(super) fn new(seed: u64) -> Caretaker {
        Caretaker {
            spread: Duration::from_millis(seed % SPREAD_MS),
            hears: false,
            is_it: false,
            stand_at: None,
            survey: None,
            surveyed_at: None,
            sweep_at: None,
            asked_at: None,
        }
    }

    pub(super) fn is_it(&self) -> bool {
        self.is_it
    }

    /// Hints come from now on, of whatever changes after it.
    pub(super) fn feed_started(&mut self, now: Boottime) {
        self.hears = true;
        self.stand_at = Some(self.stand_at.map_or(now, |at| at.min(now)));
    }

    /// Hints do not come for a moment: what a survey would find now, it would have to look for again.
    pub(super) fn feed_stopped(&mut self) {
        self.hears = false;
    }

    /// Hints will not come.
    pub(super) fn feed_refused(&mut self) {
        *self = Caretaker { spread: self.spread, asked_at: self.asked_at, ..Caretaker::new(0) };
    }

    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        if self.asked_at.is_some() || !self.hears {
            return None;
        }
        let survey = self.survey.as_ref().map(|(at, _)| *at);
        [self.stand_at, self.sweep_at, survey].into_iter().flatten().min()
    }

    pub(super) fn take(&mut self, now: Boottime) -> Option<Chore> {
        if self.asked_at.is_some() || !self.hears {
            return None;
        }
        let errand = if self.stand_at.is_some_and(|at| at <= now) {
            self.stand_at = None;
            Chore::Stand
        } else if self.sweep_at.take_if(|at| *at <= now).is_some() {
            Chore::Sweep
        } else {
            let (_, cursor) = self.survey.take_if(|(at, _)| *at <= now)?;
            if cursor == START {
                self.surveyed_at = Some(now);
            }
            Chore::Survey(cursor)
        };
        self.asked_at = Some(now);
        Some(errand)
    }

    /// `None` if nothing is known.
    pub(super) fn stood(&mut self, now: Boottime, answer: Option<Stood>) {
        self.asked_at = None;
        if !self.hears {
            return;
        }
        let Some(Stood { other, hears_anew }) = answer else {
            self.stand_at = Some(now + RETRY + self.spread);
            return;
        };
        self.is_it = other.is_none();
        self.stand_at = Some(match other {
            None => now + STAND_EVERY,
            Some(left) => now + left.min(TERM) + self.spread,
        });
        if !self.is_it {
            self.survey = None;
            self.sweep_at = None;
            return;
        }
        self.sweep_at.get_or_insert(now);
        if hears_anew {
            self.survey_from(now);
        }
    }

    /// Takes how long it is until the next step of a sweep; none if this one failed.
    pub(super) fn swept(&mut self, now: Boottime, next: Option<Duration>) {
        let rest = self.rest(now).min(SWEEP_REST_MAX);
        self.sweep_at = self.is_it.then(|| now + next.map_or(RETRY, |next| next.max(rest)));
    }

    /// Takes the result of a step of a survey; none if it failed.
    pub(super) fn surveyed(&mut self, now: Boottime, from: Vec<u8>, next: Option<Vec<u8>>) {
        let rest = self.rest(now);
        // Perhaps it is to begin anew.
        if !self.is_it || self.survey.is_some() {
            return;
        }
        self.survey = match next {
            None => Some((now + RETRY, from)),
            Some(next) if next == START => None,
            Some(next) => Some((now + rest, next)),
        };
    }

    /// How long Redis is left alone after the step that has just been answered.
    fn rest(&mut self, now: Boottime) -> Duration {
        let took = self.asked_at.take().map_or(Duration::ZERO, |asked_at| now.since(asked_at));
        (took * REST).clamp(REST_MIN, REST_MAX)
    }

    fn survey_from(&mut self, now: Boottime) {
        let not_before = self.surveyed_at.map_or(now, |at| at + SURVEY_EVERY);
        self.survey = Some((now.max(not_before), START.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const IT: Option<Stood> = Some(Stood { other: None, hears_anew: true });

    /// One that has just become it, before its survey.
    fn elected() -> Caretaker {
        let mut caretaker = Caretaker::new(0);
        caretaker.feed_started(NOW);
        assert_eq!(caretaker.take(NOW), Some(Chore::Stand));
        caretaker.stood(NOW, IT);
        caretaker
    }

    /// Its first sweep finds that no set is to be looked at soon.
    fn sweep_nothing(caretaker: &mut Caretaker) {
        assert_eq!(caretaker.take(NOW), Some(Chore::Sweep));
        caretaker.swept(NOW, Some(30 * SECOND));
    }

    #[test]
    fn who_hears_nothing_does_not_stand() {
        let mut caretaker = Caretaker::new(7);
        assert_eq!((caretaker.poll_timeout(), caretaker.take(NOW)), (None, None));
        caretaker.feed_started(NOW);
        assert_eq!(caretaker.take(NOW), Some(Chore::Stand));
        caretaker.feed_refused();
        caretaker.stood(NOW, IT);
        assert_eq!((caretaker.is_it(), caretaker.poll_timeout()), (false, None));
    }

    #[test]
    fn who_is_elected_surveys_when_it_hears_of_all_that_it_looks_after() {
        let mut caretaker = elected();
        caretaker.feed_stopped();
        assert_eq!((caretaker.poll_timeout(), caretaker.take(NOW)), (None, None));
        caretaker.feed_started(NOW);
        assert_eq!(caretaker.take(NOW), Some(Chore::Stand));
        caretaker.feed_stopped();
        caretaker.stood(NOW, IT);
        caretaker.feed_started(NOW);
        assert_eq!(caretaker.take(NOW), Some(Chore::Stand), "it stands again after a pause");
        caretaker.stood(NOW, IT);
        sweep_nothing(&mut caretaker);
        assert_eq!(caretaker.take(NOW), Some(Chore::Survey(START.to_vec())));
    }

    #[test]
    fn one_stands_again_in_time_and_the_others_when_it_is_over() {
        let mut caretaker = elected();
        assert!(caretaker.is_it());
        assert!(caretaker.stand_at.unwrap() < NOW + TERM);
        caretaker.stood(NOW, Some(Stood { other: Some(3 * SECOND), hears_anew: false }));
        assert!(!caretaker.is_it());
        assert_eq!(caretaker.poll_timeout(), Some(NOW + 3 * SECOND));
        assert_eq!((caretaker.survey, caretaker.sweep_at), (None, None));
    }

    #[test]
    fn a_sweep_goes_step_by_step_with_rests_and_ends_with_the_term() {
        let mut caretaker = elected();
        caretaker.survey = None;
        assert_eq!(caretaker.take(NOW), Some(Chore::Sweep));
        assert_eq!(caretaker.poll_timeout(), None, "one errand at a time");
        let later = NOW + Duration::from_millis(2);
        caretaker.swept(later, Some(Duration::ZERO));
        assert_eq!(caretaker.poll_timeout(), Some(later + Duration::from_millis(20)));
        let mut now = NOW + SECOND;
        assert_eq!(caretaker.take(now), Some(Chore::Sweep));
        caretaker.swept(now, Some(Duration::ZERO));
        assert_eq!(caretaker.sweep_at, Some(now + REST_MIN));
        assert_eq!(caretaker.take(now + REST_MIN), Some(Chore::Sweep));
        // Other calls kept the server.
        caretaker.swept(now + SECOND, Some(Duration::ZERO));
        assert_eq!(caretaker.sweep_at, Some(now + SECOND + SWEEP_REST_MAX));
        now = now + 2 * SECOND;
        assert_eq!(caretaker.take(now), Some(Chore::Stand));
        caretaker.stood(now, Some(Stood { other: None, hears_anew: false }));
        assert_eq!(caretaker.take(now), Some(Chore::Sweep), "it went on meanwhile");
        caretaker.swept(now, None);
        assert_eq!(caretaker.sweep_at, Some(now + RETRY), "it is tried again");
        assert_eq!(caretaker.take(now + SECOND), Some(Chore::Sweep));
        caretaker.swept(now + SECOND, Some(7 * SECOND));
        assert_eq!(caretaker.sweep_at, Some(now + 8 * SECOND));
        caretaker.feed_refused();
        assert_eq!(caretaker.poll_timeout(), None);
    }

    #[test]
    fn a_survey_goes_step_by_step_with_rests_and_is_not_begun_twice() {
        let mut caretaker = elected();
        sweep_nothing(&mut caretaker);
        assert_eq!(caretaker.take(NOW), Some(Chore::Survey(START.to_vec())));
        assert_eq!(caretaker.take(NOW + SECOND), None, "one errand at a time");
        let later = NOW + Duration::from_millis(50);
        caretaker.surveyed(later, START.to_vec(), Some(b"17".to_vec()));
        let next = later + Duration::from_millis(500);
        assert_eq!(caretaker.poll_timeout(), Some(next));
        assert_eq!(caretaker.take(next), Some(Chore::Survey(b"17".to_vec())));
        caretaker.surveyed(next, b"17".to_vec(), None);
        assert_eq!(caretaker.survey, Some((next + RETRY, b"17".to_vec())), "it is tried again");
        caretaker.survey = None;
        // The feed comes and goes.
        for _ in 0..5 {
            caretaker.feed_started(next);
            assert_eq!(caretaker.take(next), Some(Chore::Stand));
            caretaker.stood(next, IT);
        }
        assert_eq!(caretaker.survey, Some((NOW + SURVEY_EVERY, START.to_vec())));
        assert_eq!(caretaker.take(NOW + 3 * SECOND), Some(Chore::Stand));
    }
}
