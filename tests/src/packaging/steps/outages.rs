use super::super::{Crowd, World, crowd};
use crate::harness::Client;

const DROP_IN: &str = "/etc/systemd/system/tenured.service.d/test.conf";
/// While this file is there, a start of the agent waits.
const GATE: &str = "/run/tenured-test-gate";

/// The agent's process is another one than before, and the service is up.
#[track_caller]
fn comes_back(world: &World, before: u32) {
    let machine = &world.machine;
    machine.until(
        "the service is active again, with another process",
        &format!(
            "systemctl is-active tenured.service && \
             test $(systemctl show --value --property=MainPID tenured.service) != {before}"
        ),
    );
}

#[track_caller]
fn all_kept(world: &mut World) {
    let crowd = world.crowd.as_mut().expect("it was gathered");
    crowd.expect_all_kept(&world.machine, &world.puppet);
}

pub(super) fn restart(world: &mut World) {
    world.crowd = Some(Crowd::gather(&world.machine, "alice", &world.puppet));
    world.machine.run("tenure status | head -12").ok();
    world.machine.until(
        "systemd keeps a handle on each client's process",
        "test $(systemctl show --value --property=NFileDescriptorStore tenured) = 20",
    );
    let before = world.machine.agent_pid();
    world.machine.run("systemctl restart tenured").ok();
    comes_back(world, before);
    if let Some(crowd) = &world.crowd {
        crowd.expect_shutdown(&world.machine, "restarting");
    }
    all_kept(world);
}

pub(super) fn kill(world: &mut World) {
    let before = world.machine.agent_pid();
    world.machine.run(&format!("kill -KILL {before}")).ok();
    comes_back(world, before);
    all_kept(world);
}

pub(super) fn upgrade(world: &mut World) {
    let machine = &world.machine;
    let before = machine.agent_pid();
    let listening = socket_number(world);
    machine.run(&format!("apt-get install --yes {}", world.packages[1])).ok();
    machine.run("dpkg-query --show tenured").ok();
    comes_back(world, before);
    machine.log.expect("the socket was not closed meanwhile", socket_number(world) == listening);
    if let Some(crowd) = &world.crowd {
        crowd.expect_shutdown(machine, "restarting");
    }
    all_kept(world);
}

/// The number of the socket that listens (flag 0x10000), which no other one has.
#[track_caller]
fn socket_number(world: &World) -> String {
    let listens = r#"$4 == "00010000" && $8 == "/run/tenured/api.sock" { print $7 }"#;
    world.machine.run(&format!("awk '{listens}' /proc/net/unix")).ok()
}

/// The heart and everything else stand still, as after a SIGSTOP.
pub(super) fn watchdog(world: &mut World) {
    let machine = &world.machine;
    let limit = machine.property("tenured.service", "WatchdogUSec");
    machine.log.expect("the watchdog bites after 30 s", limit == "30s");
    drop_in(world, "WatchdogSec=5s");
    machine.run("systemctl restart tenured").ok();
    all_kept(world);
    let machine = &world.machine;
    let before = machine.agent_pid();
    machine.run(&format!("kill -STOP {before}")).ok();
    comes_back(world, before);
    machine.until(
        "the journal says why",
        "journalctl --unit=tenured --no-pager | grep -i 'watchdog timeout'",
    );
    all_kept(world);
    drop_in(world, "");
}

pub(super) fn client_dies_meanwhile(world: &mut World) {
    let crowd = world.crowd.as_mut().expect("it was gathered");
    let (mut puppet, victim, role) = crowd.victim();
    drop_in(world, &format!("ExecStartPre=/bin/sh -c 'while [ -e {GATE} ]; do sleep 0.02; done'"));
    let machine = &world.machine;
    let before = machine.agent_pid();
    machine.run(&format!("touch {GATE} && kill -KILL {before}")).ok();
    machine.until("the agent is away", "systemctl is-active tenured | grep activating");
    machine.run(&format!("kill -KILL {victim}")).ok();
    puppet.program().wait();
    machine.run(&format!("rm {GATE}")).ok();
    comes_back(world, before);
    let mut root = crowd::puppet(machine, "root", &world.puppet);
    crate::harness::until("nobody to hold what it held", || {
        root.standing("leader", &role).holders.is_empty()
    });
    machine.log.expect("what it held is free", true);
    all_kept(world);
    drop_in(world, "");
}

/// Puts a line into the service's section, and takes the last one out.
#[track_caller]
fn drop_in(world: &World, line: &str) {
    let folder = DROP_IN.trim_end_matches("/test.conf");
    world.machine.run(&format!(
        "mkdir -p {folder} && cat >{DROP_IN} <<'END' && systemctl daemon-reload\n[Service]\n{line}\nEND"
    ))
    .ok();
}
