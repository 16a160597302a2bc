//! The invariants, one file each. The numbers are those of the design.

mod beats_in_time;
mod bounded;
mod exclusion;
mod fifo;
mod ledger;
mod no_starvation;
mod nothing_left;
mod one_answer;
mod one_end;
mod restart_keeps;
mod rising_tokens;
mod tied;
mod truth_first;

use std::fmt;

pub(crate) use beats_in_time::BeatsInTime;
pub(crate) use bounded::Bounded;
pub(crate) use exclusion::{Exclusion, Slot};
pub(crate) use fifo::Fifo;
pub(crate) use ledger::{End, Ledger, Moment};
pub(crate) use no_starvation::NoStarvation;
pub(crate) use nothing_left::NothingLeft;
pub(crate) use one_answer::OneAnswer;
pub(crate) use one_end::OneEnd;
pub(crate) use restart_keeps::RestartKeeps;
pub(crate) use rising_tokens::RisingTokens;
pub(crate) use tied::Tied;
pub(crate) use truth_first::TruthFirst;

/// The violation, in words.
pub(crate) type Verdict = Result<(), String>;

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// I1: never more holders whose valid-until has not passed than permits, in true time.
    Exclusion,
    /// I2: tokens strictly increase in grant order.
    RisingTokens,
    /// I3: whoever came first is granted first.
    Fifo,
    /// I4: nobody waits for a free resource.
    NoStarvation,
    /// I5: whoever ended leaves nothing behind.
    NothingLeft,
    /// I6: every grant ends exactly once.
    OneEnd,
    /// I7: beats are sent in time.
    BeatsInTime,
    /// I8: nobody is told *held* before the upstream said so.
    TruthFirst,
    /// I9: a restart of the agent loses no valid hold.
    RestartKeeps,
    /// I10: nothing grows without limit.
    Bounded,
    /// I11: a session lasts as long as what ties it to life.
    Tied,
    /// I12: a request id has one answer.
    OneAnswer,
    /// I13: no turn does more because more wait.
    BoundedWork,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 13] = [
        Invariant::Exclusion,
        Invariant::RisingTokens,
        Invariant::Fifo,
        Invariant::NoStarvation,
        Invariant::NothingLeft,
        Invariant::OneEnd,
        Invariant::BeatsInTime,
        Invariant::TruthFirst,
        Invariant::RestartKeeps,
        Invariant::Bounded,
        Invariant::Tied,
        Invariant::OneAnswer,
        Invariant::BoundedWork,
    ];
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name) = match self {
            Invariant::Exclusion => (1, "exclusion"),
            Invariant::RisingTokens => (2, "rising tokens"),
            Invariant::Fifo => (3, "first come, first served"),
            Invariant::NoStarvation => (4, "no starvation"),
            Invariant::NothingLeft => (5, "nothing left"),
            Invariant::OneEnd => (6, "one end"),
            Invariant::BeatsInTime => (7, "beats in time"),
            Invariant::TruthFirst => (8, "truth first"),
            Invariant::RestartKeeps => (9, "restart keeps"),
            Invariant::Bounded => (10, "bounded"),
            Invariant::Tied => (11, "tied to life"),
            Invariant::OneAnswer => (12, "one answer"),
            Invariant::BoundedWork => (13, "bounded work"),
        };
        write!(f, "I{number} {name}")
    }
}

/// A rule was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    pub invariant: Invariant,
    /// How.
    pub what: String,
}
