//! P8: asking whether a hold is held, and checking that it is.

use std::hint::black_box;

use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::Agent;

/// Questions by round for each call of the effort.
const QUESTIONS_PER_CALL: usize = 1000;

pub(super) fn of_a_hold(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let agent = Agent::start();
    let runtime = tokio::runtime::Runtime::new()?;
    let hold = runtime.block_on(async {
        let connected = tenure::Agent::connect_to(agent.socket()).await?;
        let session = connected.session().open().await?;
        anyhow::Ok(session.leader("role").acquire().await?)
    })?;
    let questions = effort.calls * QUESTIONS_PER_CALL;
    type Question = fn(&tenure::Hold) -> bool;
    let sorts: [(&str, Question); 2] =
        [("hold.is_held()", |hold| hold.is_held()), ("hold.check()", |hold| hold.check().is_ok())];
    for (what, question) in sorts {
        let mut rounds = Vec::new();
        for _ in 0..effort.rounds {
            let (us, held) = timed_us(|| (0..questions).all(|_| question(black_box(&hold))));
            anyhow::ensure!(held, "the hold was lost");
            rounds.push(us * 1000.0 / questions as f64);
        }
        let ns = (Samples::new(rounds).median(), "ns");
        let against = format!("{questions} questions a round");
        report.add("P8", what, ns, Limit::Most(60.0), against);
    }
    // Dropping a hold gives it back in the background, which takes the runtime.
    let _inside = runtime.enter();
    drop(hold);
    Ok(())
}
