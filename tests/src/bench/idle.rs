//! P10: an agent that nobody asks anything.

use std::time::Duration;

use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, binary, cpu_ns, rss_kib};

pub(super) fn footprint(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let ready = (0..effort.rounds)
        .map(|_| {
            let (us, _agent) = timed_us(Agent::start);
            us / 1000.0
        })
        .collect();
    let against = "from its start to its first answer, looked for every 2 ms".to_owned();
    let ready = (Samples::new(ready).median(), "ms");
    report.add("P10", "ready", ready, Limit::Most(50.0), against);

    let agent = Agent::start();
    let before = cpu_ns(agent.pid());
    std::thread::sleep(Duration::from_millis(effort.idle_ms));
    let used = (cpu_ns(agent.pid()) - before) as f64 / 1e6;
    let percent = 100.0 * used / effort.idle_ms as f64;
    let against = format!("{used:.2} ms in {} s", effort.idle_ms / 1000);
    report.add("P10", "processor time, idle", (percent, "%"), Limit::Most(0.1), against);
    let rss = rss_kib(agent.pid()) as f64 / 1024.0;
    report.add("P10", "resident memory, idle", (rss, "MiB"), Limit::Most(12.0), String::new());
    let size = std::fs::metadata(binary("tenured"))?.len() as f64 / f64::from(1 << 20);
    report.add("P10", "size of the program", (size, "MiB"), Limit::Most(15.0), String::new());
    Ok(())
}
