use super::super::{Machine, World};
use crate::harness::boottime_ns;

/// Of the programs as they are installed.
const BINARY_MAX: u64 = 15 * 1024 * 1024;
/// Twice what is promised, since other machines differ.
const RSS_KIB_MAX: u64 = 24 * 1024;
const IDLE_SECONDS: u32 = 60;

pub(super) fn idle(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    let size = machine.run("stat --format %s /usr/bin/tenured").ok();
    let size: u64 = size.parse().expect("a number");
    log.expect("the program is at most 15 MiB", size <= BINARY_MAX);

    machine.run("systemctl restart tenured").ok();
    let instant = |name: &str| -> u64 {
        machine.property("tenured.service", name).parse().expect("microseconds")
    };
    let started = instant("ExecMainStartTimestampMonotonic");
    let ready = instant("ActiveEnterTimestampMonotonic").saturating_sub(started);
    log.say(&format!("   ready {:.1} ms after systemd started it", in_ms(ready * 1000)));
    machine.run("journalctl --unit=tenured --output=cat --lines=3 --no-pager").ok();

    let (cpu, began) = (cpu_ns(machine), boottime_ns());
    machine.run(&format!("sleep {IDLE_SECONDS}")).ok();
    let (used, passed) = (cpu_ns(machine) - cpu, boottime_ns() - began);
    let percent = in_ms(used) / in_ms(passed) * 100.0;
    log.say(&format!(
        "   idle: {:.2} ms of a core in {IDLE_SECONDS} s, {percent:.3} %",
        in_ms(used)
    ));
    let pid = machine.agent_pid();
    let memory =
        machine.run(&format!("grep -E '^(VmRSS|RssAnon|VmHWM|Threads):' /proc/{pid}/status"));
    let rss = memory.ok().lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok()
    });
    let rss = rss.expect("the process runs");
    log.say(&format!("   resident {:.1} MiB", in_ms(rss * 1_000_000) / 1024.0));
    // Programs share their libraries: Pss counts of each page the part that falls to this one.
    machine.run(&format!("grep -E '^(Rss|Pss|Private_Dirty):' /proc/{pid}/smaps_rollup")).ok();
    log.expect("it has at most 24 MiB resident", rss <= RSS_KIB_MAX);
}

/// Time that all threads of the agent spent on a core.
fn cpu_ns(machine: &Machine) -> u64 {
    let pid = machine.agent_pid();
    let threads = machine.look(&format!("cat /proc/{pid}/task/*/schedstat")).ok();
    let spent = threads.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    spent.sum()
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn in_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
