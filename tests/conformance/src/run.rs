//! Running seeds and transcripts.

use std::fmt;

use crate::plan::Plan;
use crate::replay::{Replay, Run};
use crate::seen::Seen;
use crate::shrink::shrink;
use crate::stores::Store;
use crate::subject::Subject;
use crate::transcript::Transcript;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed, or the name of the transcript.
    pub of: String,
    /// The number of requests that were answered.
    pub operations: u64,
    /// The number of times that each answer was given.
    pub seen: Seen,
    /// The first difference.
    pub difference: Option<String>,
    /// The operations that lead to the difference, without those that do not; or all of them, if that was
    /// asked for. `=` is the engine's answer, `~` the store's.
    pub lines: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let Outcome { of, operations, difference, .. } = self;
        match difference {
            Some(difference) => write!(f, "{of}: {difference}"),
            None => write!(f, "{of}: {operations} operations, no difference"),
        }
    }
}

/// Runs plans one after another on a store of its own.
pub struct Runner {
    subject: Box<dyn Subject>,
}

impl Runner {
    /// Opens the store, with a fault in it if one is named.
    pub fn new(store: &Store, fault: Option<&str>) -> Runner {
        Runner { subject: (store.open)(fault) }
    }

    /// Runs a seed. With `trace` every operation is told, else only those that lead to a difference.
    pub fn run(&mut self, seed: u64, trace: bool) -> Outcome {
        let plan = Plan::draw(seed, self.subject.upkeep_in_time());
        let run = Replay::run(&mut *self.subject, &plan, trace);
        let Run { operations, difference: Some(difference), seen, .. } = run else {
            return outcome(seed.to_string(), run);
        };
        if trace {
            return outcome(seed.to_string(), Run { difference: Some(difference), seen, ..run });
        }
        let plan = shrink(&mut *self.subject, &plan, difference);
        let shrunk = Replay::run(&mut *self.subject, &plan, true);
        outcome(seed.to_string(), Run { operations, seen, ..shrunk })
    }

    /// Runs a transcript, once in each way in which the store's upkeep can be done. `None` if the store cannot
    /// do what it asks for.
    pub fn check(&mut self, transcript: &Transcript) -> Option<Outcome> {
        let mut last = None;
        for in_time in self.subject.upkeep_in_time() {
            let plan = transcript.plan(*in_time)?;
            let run = Replay::run(&mut *self.subject, &plan, true);
            let outcome = outcome(transcript.name.clone(), run);
            if outcome.difference.is_some() {
                return Some(outcome);
            }
            last = Some(outcome);
        }
        last
    }
}

fn outcome(of: String, run: Run) -> Outcome {
    let Run { operations, difference, seen, lines } = run;
    let difference = difference.map(|difference| difference.what);
    Outcome { of, operations, seen, difference, lines }
}
