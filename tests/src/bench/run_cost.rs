//! P11: what `tenure run` costs a trivial job, beside flock(1).

use std::process::{Command, Stdio};

use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, binary};

pub(super) fn of_a_trivial_job(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let agent = Agent::start();
    let lock = agent.dir().join("lock");
    let mut flock = Command::new("flock");
    flock.arg(lock).arg("true");
    let mut run = Command::new(binary("tenure"));
    run.env("TENURE_SOCKET", agent.socket()).args(["run", "--leader", "job", "--", "true"]);
    let mut floors = Vec::new();
    let mut costs = Vec::new();
    for _ in 0..effort.rounds {
        let mut flocks = Vec::new();
        let mut runs = Vec::new();
        for _ in 0..effort.starts {
            flocks.push(start_ms(&mut flock)?);
            runs.push(start_ms(&mut run)?);
        }
        let floor = Samples::new(flocks).median();
        floors.push(floor);
        costs.push(Samples::new(runs).median() - floor);
    }
    let floor = Samples::new(floors).median();
    let cost = (Samples::new(costs).median(), "ms");
    let against = format!("more than flock FILE true, {floor:.2} ms");
    report.add("P11", "tenure run -- true", cost, Limit::Most(1.5), against);
    Ok(())
}

fn start_ms(command: &mut Command) -> anyhow::Result<f64> {
    let (us, status) = timed_us(|| command.stdin(Stdio::null()).status());
    anyhow::ensure!(status?.success(), "{command:?} failed");
    Ok(us / 1000.0)
}
