//! Agents of two hosts on one Postgres.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;
use tenure::wire::{LostReason, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Postgres, SharedStore, binary, kind_of, start_agent, until, wait_s,
};

/// Kinds of [`kind_of`] that have one holder.
const EXCLUSIVE: [usize; 4] = [0, 1, 3, 4];

fn two_agents() -> (Postgres, Vec<Agent>) {
    let postgres = Postgres::setup().start();
    let agents = (0..2).map(|host| start_agent(host, &postgres.url(), "")).collect();
    (postgres, agents)
}

/// What ends a holder.
type End = fn(&mut Campaigner, uuid::Uuid);

#[track_caller]
fn hands_over(end: End) {
    let (postgres, agents) = two_agents();
    for (kind, more) in EXCLUSIVE.map(kind_of) {
        let mut first = Campaigner::start(&agents[0], "first");
        let mut second = Campaigner::start(&agents[1], "second");
        let held = first.acquire(kind, "role", &more);
        let waiting = second.queue(kind, "role", &more);
        let standing = agents[0].http().standing(kind, if kind == "master" { "p" } else { "role" });
        assert_eq!(standing.waiters.len(), 1, "{kind}: {standing:?}");
        assert!(!second.has(waiting), "{kind} is held");
        end(&mut first, held.hold);
        let granted = second.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}: a new grant has a greater token");
        second.release(waiting);
    }
    for agent in &agents {
        until("every session and hold to end", || agent.counts() == (0, 0, 0));
    }
    postgres.has_nothing_left();
}

#[test]
fn a_release_hands_over_to_another_host() {
    hands_over(|holder, hold| holder.release(hold));
}

#[test]
fn a_killed_holder_hands_over_to_another_host() {
    hands_over(|holder, _| holder.kill());
}

#[test]
fn a_dead_host_is_taken_over_from_when_its_time_is_up() {
    let (_postgres, mut agents) = two_agents();
    for (kind, mut more) in EXCLUSIVE.map(kind_of) {
        more["ttl_ms"] = json!(1000);
        if kind == "lease" {
            more["grace_ms"] = json!(500);
        }
        let mut dead = Campaigner::start(&agents[0], "dead");
        let held = dead.acquire(kind, "role", &more);
        agents[0].kill();
        let mut heir = Campaigner::start(&agents[1], "heir");
        let waiting = heir.queue(kind, "role", &more);
        let granted = heir.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}: a new grant has a greater token");
        agents[0].start_again();
        heir.release(waiting);
    }
}

#[test]
fn a_stopped_host_learns_that_it_has_lost() {
    let (_postgres, mut agents) = two_agents();
    let mut stopped = Campaigner::start(&agents[0], "stopped");
    let held = stopped.acquire("leader", "role", &json!({"ttl_ms": 1000}));
    agents[0].pause();
    let mut heir = Campaigner::start(&agents[1], "heir");
    let waiting = heir.queue("leader", "role", &json!({}));
    heir.events.granted(waiting);
    agents[0].resume();
    assert_eq!(stopped.events.lost(held.hold).reason, LostReason::Expired);
}

#[test]
fn permits_of_two_hosts_are_one_limit() {
    let (_postgres, agents) = two_agents();
    let (kind, more) = kind_of(2);
    let mut programs: Vec<Campaigner> =
        (0..4).map(|at| Campaigner::start(&agents[at % 2], &format!("program {at}"))).collect();
    let held: Vec<_> = programs[..3].iter_mut().map(|it| it.acquire(kind, "gpu", &more)).collect();
    let last = programs.last_mut().expect("there are four");
    let waiting = last.queue(kind, "gpu", &more);
    assert!(!last.has(waiting), "all permits are taken");
    programs[0].release(held[0].hold);
    assert!(programs[3].events.granted(waiting).token > held[2].token);
}

/// The rights of docs/postgres.md, for a role that may only use the schema.
const RIGHTS: &str = "grant usage on schema tenure to least; \
    grant select, insert, update, delete on all tables in schema tenure to least; \
    grant usage, select, update on all sequences in schema tenure to least; \
    grant execute on all functions in schema tenure to least";

#[test]
fn the_schema_can_be_applied_by_hand_and_used_with_the_least_rights() {
    let docs = include_str!("../../../../docs/postgres.md").replace('\n', " ");
    for right in RIGHTS.replace("to least", "to tenure_agent").split("; ") {
        assert!(docs.contains(right.trim()), "docs/postgres.md says {right}");
    }
    let postgres = Postgres::setup().start();
    postgres.sql("create role least login");
    let agent = Agent::setup().upstream(&postgres.url_as("least")).start();
    let why = || agent.http().status().upstream.last_error.unwrap_or_default();
    until("the agent to say what it lacks", || why().contains("make or use the schema tenure"));

    let printed = |program: &str| {
        let out = Command::new(binary(program)).args(["check-config", "--sql"]).output();
        let out = out.expect("it runs");
        assert!(out.status.success(), "{program}: {out:?}");
        out.stdout
    };
    let sql = printed("tenured");
    assert!(sql == printed("tenured-gateway"), "both print the same");
    let mut psql = postgres.psql("postgres");
    let mut psql =
        psql.arg("-1").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql");
    psql.stdin.take().expect("a pipe").write_all(&sql).expect("psql reads");
    assert!(psql.wait().expect("it ends").success());
    postgres.sql(RIGHTS);

    until("the agent to be up", || agent.http().status().upstream.state == UpstreamState::Up);
    for (kind, more) in EXCLUSIVE.map(kind_of) {
        let mut first = Campaigner::start(&agent, "first");
        let mut second = Campaigner::start(&agent, "second");
        let held = first.acquire(kind, "role", &more);
        let waiting = second.queue(kind, "role", &more);
        first.release(held.hold);
        second.events.granted(waiting);
        second.release(waiting);
    }
}

/// Settings that an administrator may have given the role for other programs. Each of them would end or change
/// something that the agent does, if it were not for settings of the agent's own.
const ODD_SETTINGS: [&str; 16] = [
    "statement_timeout = '20ms'",
    "lock_timeout = '1ms'",
    "idle_in_transaction_session_timeout = '100ms'",
    "idle_session_timeout = '500ms'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "search_path = 'pg_temp'",
    "standard_conforming_strings = off",
    "quote_all_identifiers = on",
    "array_nulls = off",
    "timezone = 'Asia/Kathmandu'",
    "datestyle = 'German'",
    "intervalstyle = 'sql_standard'",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "client_encoding = 'latin1'",
];
const CONNECTIONS: &str = "select pid from pg_stat_activity where usename = 'odd' order by pid";
const LONG_WAITS: &str = "select count(*) from pg_stat_activity where usename = 'odd' \
    and wait_event_type = 'Lock' and clock_timestamp() - query_start > '100 ms'";

#[test]
fn settings_of_the_role_for_other_programs_are_no_matter() {
    let postgres = Postgres::setup().start();
    postgres.sql("create role odd login; grant create on database postgres to odd");
    for setting in ODD_SETTINGS {
        postgres.sql(&format!("alter role odd set {setting}"));
    }
    let agents = [0, 1].map(|host| start_agent(host, &postgres.url_as("odd"), ""));
    for agent in &agents {
        until("the agent to be up", || agent.http().status().upstream.state == UpstreamState::Up);
    }
    let mut first = Campaigner::start(&agents[0], "erste Wählerin ☂");
    let mut second = Campaigner::start(&agents[1], "second");
    let connections = || postgres.sql(CONNECTIONS);
    // Four of each agent.
    until("every connection to be there", || connections().lines().count() == 8);
    let before = connections();
    for (kind, more) in EXCLUSIVE.map(kind_of) {
        let held = first.acquire(kind, "röle", &more);
        let waiting = second.queue(kind, "röle", &more);
        first.release(held.hold);
        assert!(second.events.granted(waiting).token > held.token, "{kind}");
        second.release(waiting);
    }

    // A lock is waited for, and beats go on meanwhile.
    let kept = first.acquire("leader", "kept", &json!({"ttl_ms": 1000}));
    let limit = json!({"limit": 2});
    first.acquire("semaphore", "locked", &limit);
    let lock = "select from tenure.resource where name = 'locked' for update";
    let stranger = postgres.hold(lock);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| second.acquire("semaphore", "locked", &limit));
        until("the agent to wait for the lock", || postgres.count(LONG_WAITS) > 0);
        drop(stranger);
        asked.join().expect("it is granted");
    });
    wait_s(1);
    assert!(!first.events.has("lost", kept.hold), "{:?}", first.events.all());
    assert_eq!(connections(), before, "no connection was ended");
}
