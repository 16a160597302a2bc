//! Running seeds.

use super::plan::Plan;
use super::planted::Planted;
use super::replay::Replay;
use super::scripts::Scripts;
use super::seen::Seen;
use super::shrink::shrink;

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How many requests were answered.
    pub operations: u64,
    /// How often what was answered.
    pub seen: Seen,
    /// The difference, if there was one.
    pub difference: Option<String>,
    /// What led to the difference, without what did not; or all of it, if that was asked for. `=` is
    /// what the engine answered, `~` the upstream.
    pub lines: Vec<String>,
}

/// Runs seeds one after another on a server of its own.
pub struct Runner {
    scripts: Scripts,
}

impl Runner {
    /// Starts the server. Its scripts have a fault if one is given.
    ///
    /// # Panics
    ///
    /// When redis-server or cc is missing.
    pub fn new(planted: Option<Planted>) -> Runner {
        Runner { scripts: Scripts::start(planted) }
    }

    /// Runs a seed. With `trace` every operation is told, else only what leads to a difference.
    pub fn run(&mut self, seed: u64, trace: bool) -> Outcome {
        let plan = Plan::draw(seed);
        let run = Replay::run(&mut self.scripts, &plan, trace);
        let operations = run.operations;
        let difference = match run.difference {
            Some(difference) if !trace => difference,
            whole => {
                let difference = whole.map(|difference| difference.what);
                return Outcome { seed, operations, seen: run.seen, difference, lines: run.lines };
            }
        };
        let plan = shrink(&mut self.scripts, &plan, difference);
        let shrunk = Replay::run(&mut self.scripts, &plan, true);
        let difference = shrunk.difference.map(|difference| difference.what);
        Outcome { seed, operations, seen: run.seen, difference, lines: shrunk.lines }
    }
}
