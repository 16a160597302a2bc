//! Faults of a Postgres and of the network to it, and their effect on clients.
//!
//! Behind every test workers of two hosts take turns at guarded resources: none of them may find
//! another one at work, each must get a turn again afterwards, and nothing of theirs may be left.

use serde_json::json;
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{
    Agent, Client, Holder, OpenTransaction, Postgres, SharedStore, Siege, eventually, start_agent,
    until, wait_s,
};

/// Ends every connection of an agent.
const TERMINATE: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
                         where application_name like 'tenure %'";

fn besieged() -> Siege<Postgres> {
    Siege::begin(Postgres::setup().start())
}

/// Asks for a leadership, which must be refused because of Postgres; the reason.
#[track_caller]
fn refused(agent: &Agent, name: &str) -> String {
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let answer = http.ask(session, "leader", name, &json!({}));
    let problem = answer.problem(Code::UpstreamUnavailable);
    http.end(session);
    problem.detail
}

#[test]
fn the_whole_server_is_stopped() {
    let mut siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    let short = Holder::of_leadership(&siege.agents[1], "short", 700);
    siege.redis.pause();
    // By its own timer: Postgres has not said a word.
    assert_eq!(short.events.lost(short.held.hold).reason, LostReason::Expired);
    long.events.jeopardy(long.held.hold);
    wait_s(5);
    siege.redis.resume();
    until("the long hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost(), "it had time left");
    [long, short].into_iter().for_each(Holder::leave);
    siege.end();
}

#[test]
fn the_process_that_starts_others_is_stopped() {
    let mut siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    siege.redis.process().pause();
    // What is connected goes on.
    siege.everybody_gets_another_turn();
    siege.proxies.iter().for_each(|proxy| proxy.cut());
    long.events.jeopardy(long.held.hold);
    siege.redis.process().resume();
    until("the hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn the_server_is_killed_and_started_again() {
    let mut siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    for _ in 0..3 {
        siege.redis.kill();
        siege.redis.start_again();
        siege.everybody_gets_another_turn();
    }
    assert!(!long.has_lost(), "Postgres still knew it");
    let standing = siege.agents[1].http().standing("leader", "long");
    assert_eq!(standing.holders[0].token, long.held.token);
    long.leave();
    siege.end();
}

#[test]
fn connections_are_ended_again_and_again() {
    let siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    for _ in 0..20 {
        siege.redis.sql(TERMINATE);
        siege.everybody_gets_another_turn();
    }
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn answers_are_lost_between_commit_and_client() {
    let siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    let mut cut = [0; 2];
    for round in 0..18 {
        let host = round % 2;
        let part = ["job", "permit", "box"][round / 2 % 3];
        siege.proxies[host].cut_reply_to(part);
        cut[host] += 1;
        siege.proxies[host].wait_replies_cut(cut[host]);
    }
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn a_grant_whose_answer_was_lost_is_granted_once() {
    let siege = besieged();
    let mut http = siege.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    for round in 1..=5 {
        siege.proxies[0].cut_reply_to("once");
        let held = http.acquire(session, "leader", "once", &json!({"wait": "block"}));
        siege.proxies[0].wait_replies_cut(round);
        let standing = siege.agents[1].http().standing("leader", "once");
        assert_eq!(standing.holders[0].token, held.token);
        http.release(session, held.hold);
        let is_free = || siege.agents[1].http().standing("leader", "once").holders.is_empty();
        until("its release", is_free);
    }
    http.end(session);
    siege.end();
}

#[test]
fn somebody_else_locks_the_row_of_one_resource() {
    let siege = besieged();
    let locked = Holder::of_leadership(&siege.agents[0], "locked", 60_000);
    let beside = Holder::of_leadership(&siege.agents[0], "beside", 4_000);
    let lock = "select * from tenure.resource where name = 'locked' for update";
    let stranger: OpenTransaction = siege.redis.hold(lock);
    refused(&siege.agents[1], "locked");
    // Longer than the server lets a statement wait.
    wait_s(10);
    siege.everybody_gets_another_turn();
    assert!(!beside.has_lost(), "{:?}", beside.events.all());
    drop(stranger);
    siege.everybody_gets_another_turn();
    // The claim itself: its beats have to wait, and go on afterwards.
    let stranger = siege.redis.hold("select * from tenure.claim where name = 'locked' for update");
    locked.events.jeopardy(locked.held.hold);
    drop(stranger);
    until("the hold to be safe", || locked.events.has("safe", locked.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!locked.has_lost());
    [locked, beside].into_iter().for_each(Holder::leave);
    siege.end();
}

#[test]
fn a_locked_row_costs_no_other_hold_of_its_host() {
    const TTL_MS: u64 = 3000;
    let postgres = Postgres::setup().start();
    let agent = start_agent(0, &postgres.url(), "");
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000, "holds": 255})).session;
    let events = agent.events(session);
    let others: Vec<_> = (0..200)
        .map(|at| {
            let name = format!("beside-{at}");
            http.acquire(session, "leader", &name, &json!({"ttl_ms": TTL_MS})).hold
        })
        .collect();
    let locked = Holder::of_leadership(&agent, "locked", TTL_MS);
    let stranger = postgres.hold(
        "select from tenure.claim where resource = (select id from tenure.resource where name = 'locked') for update",
    );
    wait_s(2 * TTL_MS / 1000);
    assert_eq!(locked.events.lost(locked.held.hold).reason, LostReason::Expired);
    for hold in others {
        assert!(!events.has("lost", hold), "{hold}");
    }
    drop(stranger);
    // A beat that had waited for the row may have prolonged the claim, until the agent gives it back.
    until("the claim to be given back", || {
        postgres.sql("select count(*) from tenure.claim join tenure.resource on resource.id = claim.resource where resource.name = 'locked'") == "0"
    });
    let again = Holder::of_leadership(&agent, "locked", TTL_MS);
    [locked, again].into_iter().for_each(Holder::leave);
    http.end(session);
    postgres.has_nothing_left();
}

#[test]
fn the_server_takes_no_changes() {
    let siege = besieged();
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    siege.redis.sql("alter system set default_transaction_read_only = on");
    siege.redis.sql("select pg_reload_conf()");
    let jeopardy = long.events.jeopardy(long.held.hold);
    assert!(jeopardy.cause.contains("read-only transaction"), "{jeopardy:?}");
    let reason = refused(&siege.agents[1], "role");
    assert!(reason.contains("read-only transaction"), "{reason}");
    siege.redis.sql("alter system reset all");
    siege.redis.sql("select pg_reload_conf()");
    until("the hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn there_are_too_many_connections() {
    const MOST: usize = 14;
    let postgres = Postgres::setup().option("max_connections", &MOST.to_string()).start();
    let siege = Siege::begin(postgres);
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    siege.proxies.iter().for_each(|proxy| proxy.refuse());
    let own = "select count(*) from pg_stat_activity where application_name like 'tenure %'";
    until("the agents' connections to end", || siege.redis.count(own) == 0);
    // Processes of the server that are about to end have a place still.
    let others: Vec<OpenTransaction> = (0..MOST)
        .map(|_| eventually("a connection to be free", || siege.redis.try_hold("select 1")))
        .collect();
    siege.proxies.iter().for_each(|proxy| proxy.heal());
    let why = |agent: &Agent| agent.http().status().upstream.last_error.unwrap_or_default();
    until("both to say it", || siege.agents.iter().all(|it| why(it).contains("max_connections")));
    // Each connection learns it by an attempt of its own, and that of calls may be later than that of beats.
    until("a call to be told it", || {
        refused(&siege.agents[1], "role").contains("each agent has four connections")
    });
    drop(others);
    until("the hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn the_disk_is_full() {
    let mut siege = Siege::begin(Postgres::setup().disk("160m").start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    siege.redis.fill_disk();
    // The next segment of the log has no room, and Postgres gives up.
    until("Postgres to give up", || {
        let _: Result<String, String> = siege.redis.try_sql("select pg_switch_wal()");
        siege.redis.process().ended().is_some()
    });
    long.events.jeopardy(long.held.hold);
    siege.redis.empty_disk();
    siege.redis.start_again();
    until("the hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

/// A standby that has everything of a besieged server takes its place.
#[track_caller]
fn fail_over(siege: &mut Siege<Postgres>, standby: Postgres) {
    siege.redis.kill();
    standby.promote();
    siege.proxies.iter().for_each(|proxy| proxy.lead_to(&standby));
    siege.redis = standby;
}

#[test]
fn a_synchronous_standby_has_every_grant() {
    let mut siege = Siege::begin(Postgres::setup().option("fsync", "on").start());
    let standby = siege.redis.standby("second");
    siege.redis.sql("alter system set synchronous_standby_names = 'second'");
    siege.redis.sql("select pg_reload_conf()");
    let synchronous = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    until("the standby to be synchronous", || siege.redis.count(synchronous) == 1);
    until("the agents to know it", || {
        let guarantee = |agent: &Agent| agent.http().status().upstream.guarantee;
        siege.agents.iter().all(|it| guarantee(it).ends_with("to a synchronous standby"))
    });
    let holders: Vec<Holder> = (0..50)
        .map(|at| Holder::of_leadership(&siege.agents[at % 2], &format!("own-{at}"), 60_000))
        .collect();
    fail_over(&mut siege, standby);
    // The one that took over has no standby of its own.
    siege.redis.sql("alter system reset all");
    siege.redis.sql("select pg_reload_conf()");
    siege.everybody_gets_another_turn();
    for (at, holder) in holders.into_iter().enumerate() {
        let standing = siege.agents[0].http().standing("leader", &format!("own-{at}"));
        assert_eq!(standing.holders[0].token, holder.held.token);
        assert!(!holder.has_lost());
        holder.leave();
    }
    siege.end();
}

#[test]
fn a_grant_that_an_asynchronous_standby_lacks_is_told_as_lost() {
    let mut siege = besieged();
    let standby = siege.redis.standby("second");
    let kept = Holder::of_leadership(&siege.agents[0], "kept", 20_000);
    let position = siege.redis.sql("select pg_current_wal_lsn()");
    let has_it = format!("select (pg_last_wal_replay_lsn() >= '{position}')::integer");
    until("the standby to have it", || standby.count(&has_it) == 1);
    standby.sql("alter system set primary_conninfo = ''");
    standby.sql("select pg_reload_conf()");
    let receives = "select count(*) from pg_stat_wal_receiver";
    until("the standby to follow no longer", || standby.count(receives) == 0);
    let missed = Holder::of_leadership(&siege.agents[1], "missed", 20_000);
    fail_over(&mut siege, standby);
    assert_eq!(missed.events.lost(missed.held.hold).reason, LostReason::UpstreamReset);
    siege.everybody_gets_another_turn();
    let next = Holder::of_leadership(&siege.agents[0], "missed", 20_000);
    assert!(next.held.token > missed.held.token, "tokens grow over the loss");
    until("the kept one to be safe", || kept.events.has("safe", kept.held.hold));
    assert!(!kept.has_lost());
    [kept, missed, next].into_iter().for_each(Holder::leave);
    siege.end();
}
