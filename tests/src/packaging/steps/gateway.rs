use serde_json::json;
use tenure::wire::UpstreamState;

use super::super::machine::Machine;
use super::super::{Inventory, World, crowd};
use super::hardening;
use crate::harness::{Client, until};

const UNIT: &str = "tenured-gateway.service";
const KEYS: &str = "/etc/tenured-gateway/keys.toml";
const GATEWAYS: &str = "/etc/tenured-gateway/conf.d/50-keys.toml";
const AGENTS: &str = "/etc/tenured/conf.d/60-gateway.toml";
const CLUSTER: &str = "/etc/tenured-gateway/conf.d/60-cluster.toml";
const SECRET: &str = "/etc/credstore/tenured.upstream-secret";

pub(super) fn gateway(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    machine.run(&format!("apt-get install --yes {}", world.gateway)).ok();
    machine.run(&format!("systemctl is-active {UNIT} && systemctl is-enabled {UNIT}")).ok();
    let said = machine.run(&format!("systemd-analyze verify {UNIT}")).ok();
    log.expect("the unit has no faults", said.is_empty());
    hardening::exposure(machine, UNIT);

    machine.run("install -d -m 0700 /etc/credstore && mkdir -p /etc/tenured-gateway/conf.d").ok();
    machine.run(&format!("echo 'keys_file = \"{KEYS}\"' >{GATEWAYS}")).ok();
    let add = format!("umask 077 && tenured-gateway keys add --subject host-1 >{SECRET}");
    machine.run(&format!("({add}) && systemctl restart {UNIT}")).ok();
    machine.run(&format!("systemctl status --no-pager --lines=3 {UNIT}")).ok();
    machine.run(&format!("echo 'upstream = \"http://127.0.0.1:8740\"' >{AGENTS}")).ok();
    machine.run("systemctl restart tenured").ok();
    let mut program = crowd::puppet(machine, "root", &world.puppet);
    let session = program.register(&json!({"tether": "connection"})).session;
    let events = program.open_events(session);
    events.snapshot();
    let with = json!({"ttl_ms": 60_000});
    let granted = program.acquire(session, "leader", "through-the-gateway", &with);
    for end in ["restart", "kill --signal=KILL"] {
        is_served_again(machine, &mut program, end);
        let holders = program.standing("leader", "through-the-gateway").holders;
        let stands = matches!(&holders[..], [only] if only.token == granted.token);
        log.expect("who held before holds", stands);
    }
    let lost = events.all().iter().any(|seen| seen.event.name() == "lost");
    log.expect("and was told of no loss", !lost);
    program.release(session, granted.hold);
    node(world);
    let key = format!("journalctl --no-pager | grep -a -c -F -f {SECRET}");
    log.expect("the key is shown nowhere", machine.run(&key).text == "0");

    machine.run(&format!("rm {AGENTS} {SECRET} && rmdir /etc/credstore")).ok();
    machine.run("systemctl restart tenured").ok();
    machine.run("apt-get purge --yes tenured-gateway").ok();
    let after = Inventory::of(machine);
    // The package itself lies where the test put it.
    let left = after.naming("tenured-gateway").into_iter().filter(|line| !line.ends_with(".deb"));
    let left: Vec<_> = left.collect();
    log.expect(&format!("a purge leaves nothing: {left:?}"), left.is_empty());
    // It cannot know what it granted before the gateway, and lets that run out.
    machine.until("the agent grants again by itself", "tenure lock --no-wait probe -- true");
}

/// The same unit runs a node of a cluster: it keeps what is held when it is killed, and is not started again and again with a
/// folder that it must not use.
fn node(world: &World) {
    let machine = &world.machine;
    let log = &machine.log;
    let lines = "upstream = \"cluster:\"\\n[cluster]\\nlisten = \"127.0.0.1:8741\"\\n";
    machine.run(&format!("printf '{lines}' >{CLUSTER} && systemctl restart {UNIT}")).ok();
    machine.run("tenured-gateway cluster init && tenured-gateway cluster status").ok();
    machine.run("systemctl restart tenured").ok();
    let mut program = crowd::puppet(machine, "root", &world.puppet);
    let session = program.register(&json!({"tether": "connection"})).session;
    let granted =
        program.acquire(session, "lease", "through-the-cluster", &json!({"ttl_ms": 60_000}));
    is_served_again(machine, &mut program, "kill --signal=KILL");
    let holders = program.standing("lease", "through-the-cluster").holders;
    let stands = matches!(&holders[..], [only] if only.token == granted.token);
    log.expect("who held before holds", stands);
    program.release(session, granted.hold);

    let folder = "/var/lib/tenured-gateway/cluster";
    machine.run(&format!("echo 'it differs' >{folder}/condemned")).ok();
    machine.run(&format!("systemctl restart {UNIT}")).fails();
    machine.until("the unit waits for somebody", &format!("systemctl is-failed {UNIT}"));
    let restarts = machine.property(UNIT, "NRestarts");
    log.expect("and is not tried again", restarts == "0");
    machine.run(&format!("rm -r {CLUSTER} {folder} && systemctl restart {UNIT}")).ok();
}

/// Ends the gateway, and waits until a program reaches another process of it.
fn is_served_again(machine: &Machine, program: &mut impl Client, end: &str) {
    let before = machine.property(UNIT, "MainPID");
    machine.run(&format!("systemctl {end} {UNIT}")).ok();
    machine.until(
        "the gateway serves again, by another process",
        &format!(
            "systemctl is-active {UNIT} && \
             test $(systemctl show --value --property=MainPID {UNIT}) != {before}"
        ),
    );
    until("the agent to reach it", || program.status().upstream.state == UpstreamState::Up);
}
