use super::super::{Machine, World, profile};
use crate::harness::boottime_ns;

/// Limits for the programs as they are installed.
const BINARY_MAX: u64 = 15 * 1024 * 1024;
/// Twice what is promised, since other machines differ.
const RSS_KIB_MAX: u64 = 24 * 1024;
const IDLE_SECONDS: u32 = 60;
/// How often each unit is started.
const STARTS: usize = 7;
/// A unit beside the agent's.
const BARE: &str = "/run/systemd/system/bare.service";

pub(super) fn idle(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    let profile = profile();
    if profile != "release" {
        // tests/run shows this line at its end.
        log.say(&format!("size and memory of programs of the profile {profile} are NOT tested: `tests/long packages` tests a release"));
        return;
    }
    let size = machine.run("stat --format %s /usr/bin/tenured").ok();
    let size: u64 = size.parse().expect("a number");
    log.expect("the program is at most 15 MiB", size <= BINARY_MAX);

    bare(machine);
    for unit in ["bare.service", "tenured.service"] {
        let mut readies: Vec<f64> = (0..STARTS).map(|_| ready_ms(machine, unit)).collect();
        readies.sort_by(f64::total_cmp);
        let (least, median) = (readies[0], readies[STARTS / 2]);
        log.say(&format!(
            "   {unit} is ready {least:.1} ms after systemd started it, {median:.1} ms by the median"
        ));
    }
    machine.run("journalctl --unit=tenured --output=cat --lines=3 --no-pager").ok();
    machine.run(&format!("rm -r {BARE} {BARE}.d; systemctl daemon-reload")).ok();

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

/// Makes a service that is as locked in as the agent, and does nothing but to say that it is ready: what
/// systemd takes by itself.
#[track_caller]
fn bare(machine: &Machine) {
    machine
        .run(&format!(
            "cp /lib/systemd/system/tenured.service {BARE} && mkdir {BARE}.d && cat >{BARE}.d/bare.conf <<'END' \
             && systemctl daemon-reload\n[Service]\nNotifyAccess=all\nExecStart=\n\
             ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep 60'\nRuntimeDirectory=\n\
             StateDirectory=\nRestart=no\nWatchdogSec=0\nEND"
        ))
        .ok();
}

/// How long after the start of its process a unit is ready.
#[track_caller]
fn ready_ms(machine: &Machine, unit: &str) -> f64 {
    machine.look(&format!("systemctl restart {unit}")).ok();
    let instant =
        |name: &str| -> u64 { machine.property(unit, name).parse().expect("microseconds") };
    let started = instant("ExecMainStartTimestampMonotonic");
    let ready = instant("ActiveEnterTimestampMonotonic").saturating_sub(started);
    if unit == "bare.service" {
        machine.look(&format!("systemctl stop {unit}")).ok();
    }
    in_ms(ready * 1000)
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
