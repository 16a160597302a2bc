//! The order in which a turn puts out what came of it.

/// A step of what a turn puts out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What was written down outlives the process.
    Journal,
    /// Pages that are voided.
    Voids,
    /// The other pages, and watches on processes.
    Pages,
    /// Calls to an upstream beyond this process: it works while the rest is done.
    Calls,
    /// Replies and events.
    Told,
}

/// An order of all steps. There is one that is right; the simulation has wrong ones, to see that its
/// invariants notice. Each is a type of its own, so that no agent can come to another.
pub trait Order {
    /// The steps, one after the other.
    fn steps(&self) -> [Step; 5];
}

/// The order that keeps the invariants of a turn.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sound;

impl Order for Sound {
    fn steps(&self) -> [Step; 5] {
        [Step::Journal, Step::Voids, Step::Pages, Step::Calls, Step::Told]
    }
}
