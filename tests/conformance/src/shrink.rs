//! Leaving out of a plan what is not needed to show a difference.

use crate::plan::Plan;
use crate::replay::{Difference, Replay};
use crate::subject::Subject;

/// Operations spent on it at most.
const OPERATIONS_MAX: u64 = 200_000;

/// A shorter plan that ends with the same difference.
///
/// Parts are left out as long as it remains: first large ones, then single operations (Zeller and
/// Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*, 2002). A plan that has lost parts
/// may ask for what is never asked for, and differ in other ways.
pub(crate) fn shrink(subject: &mut dyn Subject, plan: &Plan, difference: Difference) -> Plan {
    let kind = kind_of(&difference.what);
    let mut best = plan.clone().cut(&difference);
    let mut spent = 0;
    let mut part = best.removable() / 2;
    while part > 0 {
        let mut start = 0;
        let mut shrunk = false;
        while start < best.removable() && spent < OPERATIONS_MAX {
            let end = (start + part).min(best.removable());
            let shorter = best.without(start..end);
            let run = Replay::run(subject, &shorter, false);
            spent += run.operations;
            match run.difference {
                Some(difference) if kind_of(&difference.what) == kind => {
                    best = shorter.cut(&difference);
                    shrunk = true;
                }
                _ => start = end,
            }
        }
        if part > 1 || !shrunk {
            part /= 2;
        }
    }
    best
}

/// The words of a difference without ids and numbers.
fn kind_of(what: &str) -> Vec<String> {
    what.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}
