//! A Postgres that came back older: nothing is granted for as long as lost holds may be valid.

use std::process::Command;

use serde_json::json;
use tenure::wire::{Code, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, LOST_TTL_MS, Postgres, SharedStore, binary, grants_go_on,
    nobody_overlaps, start_agent, until,
};

/// Has a base backup take the place of a server.
#[track_caller]
fn restore(server: &mut Postgres, mut backup: Postgres) -> Postgres {
    server.kill();
    backup.start_again();
    backup.promote();
    backup
}

#[test]
fn nobody_overlaps_when_postgres_is_restored_from_a_base_backup() {
    let mut server = Postgres::begin();
    let proxies: Vec<_> = (0..3).map(|_| server.proxy()).collect();
    let agents: Vec<Agent> = proxies
        .iter()
        .enumerate()
        .map(|(host, proxy)| start_agent(host, &proxy.url(), ""))
        .collect();
    let mut http = agents[0].http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "early", &json!({"ttl_ms": LOST_TTL_MS}));
    let mut backup = server.standby("backup");
    backup.kill();
    let mut restored = None;
    nobody_overlaps(&agents, || {
        let backup = restore(&mut server, backup);
        proxies.iter().for_each(|proxy| proxy.lead_to(&backup));
        restored = Some(backup);
    });
}

#[test]
fn a_restart_of_postgres_is_no_loss() {
    let mut server = Postgres::begin();
    let agents: Vec<Agent> = (0..2).map(|host| start_agent(host, &server.url(), "")).collect();
    let mut http = agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({}));
    server.kill();
    server.start_again();
    grants_go_on(&agents);
}

#[test]
fn tables_that_were_made_anew_are_in_quarantine_until_somebody_ends_it() {
    let server = Postgres::begin();
    let agents: Vec<Agent> = (0..2).map(|host| start_agent(host, &server.url(), "")).collect();
    let mut http = agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "long", &json!({"ttl_ms": 600_000}));
    server.sql("update tenure.about set epoch = 'another'");
    for agent in &agents {
        until("it to be named", || {
            agent.http().status().upstream.state == UpstreamState::Quarantined
        });
    }
    let mut http = agents[1].http();
    let session = http.register(&json!({})).session;
    http.ask(session, "leader", "other", &json!({})).problem(Code::UpstreamUnavailable);
    let mut waiter = Campaigner::start(&agents[1], "waiter");
    let waits = ["leader", "lease", "semaphore", "master"]
        .map(|kind| waiter.queue(kind, "waited-for", &json!({})));
    let mut command = Command::new(binary("tenured"));
    command.args(["quarantine", "end", "--yes", "--socket"]).arg(agents[0].socket());
    let output = command.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("before its time"), "{told}");
    for wait in waits {
        waiter.events.granted(wait);
    }
    for agent in &agents {
        until("it to grant again", || agent.http().status().upstream.state == UpstreamState::Up);
    }
}
