//! PURE. When the guarded command must stop: the one place that decides it.
//!
//! Instants are ns of the clock on which valid-until is told (CLOCK_BOOTTIME on Linux).

use std::time::Duration;

/// SIGKILL is sent this part of the ttl before valid-until, within [`LEAD_MIN`] and [`LEAD_MAX`]:
/// the kernel needs a moment to end a process, and this one a moment to be scheduled.
const LEAD_PART: u64 = 50;
const LEAD_MIN: u64 = 10_000_000;
const LEAD_MAX: u64 = 250_000_000;

/// The agent ends a hold this part of its ttl before the upstream may: twice what it does unless
/// configured otherwise. A margin of somebody who wants more shortens the time after SIGTERM.
const MARGIN_PART: u32 = 100;
/// The longest ttl that a kind has by default.
const DEFAULT_TTL_MAX: Duration = Duration::from_secs(300);

/// The reaction to a loss that the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// SIGTERM, then SIGKILL.
    Term,
    /// SIGKILL at loss.
    Kill,
    /// Nothing.
    Ignore,
    /// A program, then SIGTERM, then SIGKILL.
    Program,
}

/// How far the stopping has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The command runs undisturbed.
    Running,
    /// The user's program runs; `since` the hold was lost or in danger.
    Program { since: u64 },
    /// SIGTERM was sent; `since` the hold was lost or in danger.
    Terminated { since: u64 },
    /// SIGKILL was sent.
    Killed,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) reaction: Reaction,
    pub(crate) kill_after: Duration,
    /// How long the hold outlives its last beat.
    pub(crate) ttl: Duration,
    /// The longest that it was seen to be valid for, the ttl at most.
    pub(crate) lasts: Duration,
    /// The last valid-until that was not 0.
    pub(crate) valid_until: u64,
    /// When the command has held for as long as the user lets it.
    pub(crate) over_at: Option<u64>,
    /// The agent says that a renewal is unknown.
    pub(crate) jeopardy: bool,
    /// The agent, or the page, says that the hold is gone.
    pub(crate) lost: bool,
    /// The user's program has ended.
    pub(crate) program_ended: bool,
    pub(crate) stage: Stage,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Look again at this instant, or when something happens.
    Wait(Option<u64>),
    /// Start the user's program.
    StartProgram,
    /// SIGTERM to the process group.
    Term,
    /// SIGKILL to the process group.
    Kill,
}

/// The longest hold to ask the agent for, so that a command which may hold for `max_hold` gets its
/// SIGTERM then and not before, and what follows still happens under the hold. It counts when nobody
/// is there to stop the command.
pub(crate) fn max_hold_to_ask(
    max_hold: Duration,
    reaction: Reaction,
    kill_after: Duration,
    ttl: Option<Duration>,
) -> Duration {
    let stopping = match reaction {
        Reaction::Term | Reaction::Program => kill_after,
        Reaction::Kill => Duration::ZERO,
        Reaction::Ignore => return max_hold,
    };
    let margin = ttl.unwrap_or(DEFAULT_TTL_MAX) / MARGIN_PART;
    max_hold + stopping + margin + Duration::from_nanos(LEAD_MAX)
}

/// Decides about `now`.
///
/// In danger is a hold whose agent says so, or whose valid-until was not moved for more than two
/// thirds of the time that it lasts: a healthy one is renewed every third, so little time left is no
/// danger by itself when the ttl is short, or a grant is not confirmed yet.
pub(crate) fn decide(now: u64, view: &View) -> Action {
    if view.reaction == Reaction::Ignore || view.stage == Stage::Killed {
        return Action::Wait(None);
    }
    let last_moment = view.valid_until.saturating_sub(lead(view.ttl));
    let kill_after = nanos(view.kill_after);
    let since = match view.stage {
        Stage::Program { since } | Stage::Terminated { since } => Some(since),
        Stage::Running | Stage::Killed => None,
    };
    let kill_at = since.map_or(last_moment, |since| last_moment.min(since + kill_after));
    if now >= kill_at {
        return Action::Kill;
    }
    match view.stage {
        Stage::Terminated { .. } | Stage::Killed => Action::Wait(Some(kill_at)),
        Stage::Program { since } => {
            let term_at = since + kill_at.saturating_sub(since) / 2;
            if view.program_ended || now >= term_at {
                Action::Term
            } else {
                Action::Wait(Some(term_at))
            }
        }
        Stage::Running => {
            let quiet = if view.jeopardy { u64::MAX } else { nanos(view.lasts) / 3 };
            let danger_at = view.valid_until.saturating_sub(kill_after.min(quiet));
            let over_at = view.over_at.unwrap_or(u64::MAX);
            let stop_at = match view.reaction {
                _ if view.lost => now,
                Reaction::Kill => over_at,
                _ => danger_at.min(over_at),
            };
            match view.reaction {
                _ if now < stop_at => Action::Wait(Some(stop_at.min(kill_at))),
                Reaction::Kill => Action::Kill,
                Reaction::Program => Action::StartProgram,
                _ => Action::Term,
            }
        }
    }
}

fn lead(ttl: Duration) -> u64 {
    (nanos(ttl) / LEAD_PART).clamp(LEAD_MIN, LEAD_MAX)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    // Halved so that an instant and a duration can always be added.
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A hold of 30 s, renewed just now, valid until 130 s.
    fn healthy() -> View {
        View {
            reaction: Reaction::Term,
            kill_after: Duration::from_secs(10),
            ttl: Duration::from_secs(30),
            lasts: Duration::from_secs(30),
            valid_until: 130_000 * MS,
            over_at: None,
            jeopardy: false,
            lost: false,
            program_ended: false,
            stage: Stage::Running,
        }
    }

    fn short() -> View {
        let ttl = Duration::from_secs(1);
        View { ttl, lasts: ttl, valid_until: 101_000 * MS, ..healthy() }
    }

    #[track_caller]
    fn check(now_ms: u64, view: View, expected: Action) {
        assert_eq!(decide(now_ms * MS, &view), expected, "at {now_ms} ms: {view:?}");
    }

    fn wait(ms: u64) -> Action {
        Action::Wait(Some(ms * MS))
    }

    #[test]
    fn a_healthy_hold_is_looked_at_when_two_thirds_of_its_ttl_are_over() {
        check(100_000, healthy(), wait(120_000));
        check(119_999, healthy(), wait(120_000));
        check(120_000, healthy(), Action::Term);
        let patient = View { kill_after: Duration::from_secs(3), ..healthy() };
        check(120_000, patient, wait(127_000));
        check(127_000, patient, Action::Term);
    }

    #[test]
    fn a_short_healthy_hold_is_left_alone_although_less_than_kill_after_is_left() {
        check(100_000, short(), Action::Wait(Some(101_000 * MS - 1_000 * MS / 3)));
        check(100_600, short(), Action::Wait(Some(101_000 * MS - 1_000 * MS / 3)));
        check(100_667, short(), Action::Term);
    }

    #[test]
    fn a_grant_that_is_to_be_confirmed_is_left_alone() {
        let fresh = View { lasts: Duration::from_secs(6), valid_until: 106_000 * MS, ..healthy() };
        check(100_000, fresh, wait(104_000));
        check(104_000, fresh, Action::Term);
    }

    #[test]
    fn in_jeopardy_it_is_stopped_when_kill_after_is_left() {
        let view = View { jeopardy: true, ..healthy() };
        check(100_000, view, wait(120_000));
        check(120_000, view, Action::Term);
        check(100_000, View { kill_after: Duration::from_secs(29), ..view }, wait(101_000));
        check(100_001, View { jeopardy: true, ..short() }, Action::Term);
    }

    #[test]
    fn it_is_killed_before_the_hold_stops_being_valid() {
        check(129_749, View { stage: term(129_000), ..healthy() }, wait(129_750));
        check(129_750, View { stage: term(129_000), ..healthy() }, Action::Kill);
        check(129_750, healthy(), Action::Kill);
        check(500_000, healthy(), Action::Kill);
        check(100_980, short(), Action::Kill);
        let patient = View { kill_after: Duration::ZERO, ..healthy() };
        check(129_749, patient, wait(129_750));
        check(129_750, patient, Action::Kill);
    }

    fn term(since_ms: u64) -> Stage {
        Stage::Terminated { since: since_ms * MS }
    }

    #[test]
    fn a_lost_one_is_stopped_at_once_and_killed_after_kill_after() {
        let lost = View { lost: true, ..healthy() };
        check(100_000, lost, Action::Term);
        check(100_000, View { stage: term(100_000), ..lost }, wait(110_000));
        check(110_000, View { stage: term(100_000), ..lost }, Action::Kill);
        check(125_000, View { stage: term(125_000), ..lost }, wait(129_750));
        check(130_001, lost, Action::Kill);
    }

    #[test]
    fn stopping_does_not_go_back_when_the_hold_is_safe_again() {
        let renewed = View { valid_until: 150_000 * MS, stage: term(120_000), ..healthy() };
        check(121_000, renewed, wait(130_000));
        check(130_000, renewed, Action::Kill);
    }

    #[test]
    fn with_kill_there_is_no_warning() {
        let view = View { reaction: Reaction::Kill, ..healthy() };
        check(121_000, view, wait(129_750));
        check(121_000, View { jeopardy: true, ..view }, wait(129_750));
        check(100_000, View { lost: true, ..view }, Action::Kill);
        check(129_750, view, Action::Kill);
    }

    #[test]
    fn what_is_over_is_stopped_at_that_instant_and_gets_all_of_kill_after() {
        for max_hold in [1, 10, 11, 60].map(Duration::from_secs) {
            for reaction in [Reaction::Term, Reaction::Program, Reaction::Kill] {
                let kill_after = Duration::from_secs(10);
                let asked = max_hold_to_ask(max_hold, reaction, kill_after, None);
                // As an agent with the default margin grants and renews it.
                let last = 100_000 * MS + nanos(asked) - nanos(Duration::from_millis(160));
                let over_at = 100_000 * MS + nanos(max_hold);
                let valid_until = last.min(over_at + 20_000 * MS);
                let view = View { reaction, over_at: Some(over_at), valid_until, ..healthy() };
                assert_eq!(decide(over_at - 1, &view), Action::Wait(Some(over_at)), "{view:?}");
                let expected = match reaction {
                    Reaction::Kill => Action::Kill,
                    Reaction::Program => Action::StartProgram,
                    _ => Action::Term,
                };
                assert_eq!(decide(over_at, &view), expected, "{view:?}");
                if reaction == Reaction::Kill {
                    continue;
                }
                let told = View { stage: Stage::Terminated { since: over_at }, ..view };
                let kill_at = over_at + 10_000 * MS;
                assert_eq!(decide(over_at, &told), Action::Wait(Some(kill_at)), "{told:?}");
            }
        }
    }

    #[test]
    fn with_ignore_nothing_happens() {
        let over_at = Some(90_000 * MS);
        let view = View { reaction: Reaction::Ignore, lost: true, over_at, ..healthy() };
        check(100_000, view, Action::Wait(None));
        check(200_000, view, Action::Wait(None));
    }

    #[test]
    fn a_program_comes_first_but_has_half_of_the_time_at_most() {
        let view = View { reaction: Reaction::Program, lost: true, ..healthy() };
        check(100_000, view, Action::StartProgram);
        let started = View { stage: Stage::Program { since: 100_000 * MS }, ..view };
        check(100_001, started, wait(105_000));
        check(100_001, View { program_ended: true, ..started }, Action::Term);
        check(105_000, started, Action::Term);
        check(110_000, started, Action::Kill);
    }

    #[test]
    fn nothing_more_follows_the_kill() {
        check(200_000, View { stage: Stage::Killed, ..healthy() }, Action::Wait(None));
    }
}
