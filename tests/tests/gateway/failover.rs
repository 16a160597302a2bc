//! Agents that name several gateways: they stay with one, and move when that fails.

use std::time::Duration;

use serde_json::json;
use tenure::wire::{LostReason, UpstreamState, UpstreamStatus};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Gateway, Proxy, RedisServer, SharedStore, start_agent, until,
};
use tenure_tests::over_every_store;

over_every_store!(
    a_hold_outlives_each_gateway_that_is_killed_or_hangs,
    a_stream_is_opened_anew_and_nothing_is_missed,
    a_gateway_without_its_store_is_left_for_one_that_has_it,
    a_hold_with_a_short_ttl_leaves_no_gateway_whose_store_is_as_slow_as_the_others,
);

fn upstream(agent: &Agent) -> UpstreamStatus {
    agent.http().status().upstream
}

#[track_caller]
fn is_up(agent: &Agent) {
    until("the upstream to be up", || upstream(agent).state == UpstreamState::Up);
}

#[track_caller]
fn moves_from(used: usize, gateways: &[Gateway], agent: &Agent) {
    until("the agent to move", || {
        Gateway::used_by(gateways, agent) != used && upstream(agent).state == UpstreamState::Up
    });
}

fn a_hold_outlives_each_gateway_that_is_killed_or_hangs<S: SharedStore>() {
    let store = S::begin();
    let mut gateways = [0, 1, 2].map(|_| Gateway::start(&store.url()));
    let agent = start_agent(0, &Gateway::urls(&gateways), "");
    is_up(&agent);
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("leader", "role", &json!({"ttl_ms": 12_000}));
    for end in [Gateway::kill, Gateway::pause, Gateway::kill, Gateway::pause] {
        let used = Gateway::used_by(&gateways, &agent);
        end(&mut gateways[used]);
        moves_from(used, &gateways, &agent);
        assert!(!program.events.has("lost", held.hold), "{}", agent.log());
        let told = &upstream(&agent).gateways[used];
        assert!(told.away.is_some() && told.away_ms.is_some(), "{told:?}");
        gateways[used].kill();
        gateways[used].start_again();
    }
    let used = Gateway::used_by(&gateways, &agent);
    gateways[used].terminate();
    moves_from(used, &gateways, &agent);
    gateways[used].ended();
    program.release(held.hold);
    assert!(program.acquire("leader", "role", &json!({})).token > held.token);
}

fn a_stream_is_opened_anew_and_nothing_is_missed<S: SharedStore>() {
    let store = S::begin();
    let mut gateways = [0, 1].map(|_| Gateway::start(&store.url()));
    let agents = [0, 1].map(|host| start_agent(host, &Gateway::urls(&gateways), ""));
    agents.iter().for_each(is_up);
    let mut low = Campaigner::start(&agents[0], "low");
    let mut high = Campaigner::start(&agents[1], "high");
    for _ in 0..4 {
        let held = low.acquire("master", "", &json!({}));
        let waiting = high.queue("leader", "role", &json!({}));
        assert!(high.events.granted(waiting).token > 0);
        let used = Gateway::used_by(&gateways, &agents[0]);
        gateways[used].kill();
        let taken = high.queue("master", "", &json!({"priority": 9}));
        assert_eq!(low.events.lost(held.hold).reason, LostReason::Preempted);
        let next = low.queue("leader", "role", &json!({}));
        high.release(waiting);
        low.events.granted(next);
        low.release(next);
        high.release(taken);
        gateways[used].start_again();
    }
}

fn a_gateway_without_its_store_is_left_for_one_that_has_it<S: SharedStore>() {
    let store = S::begin();
    let proxies = [0, 1].map(|_| store.proxy());
    let gateways = proxies.each_ref().map(|proxy| Gateway::start(&proxy.url()));
    let agent = start_agent(0, &Gateway::urls(&gateways), "");
    is_up(&agent);
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("leader", "role", &json!({}));
    for _ in 0..2 {
        let used = Gateway::used_by(&gateways, &agent);
        proxies[used].refuse();
        moves_from(used, &gateways, &agent);
        assert!(!program.events.has("lost", held.hold));
        proxies[used].heal();
    }
    // Nobody has it: there is nowhere to go.
    proxies.iter().for_each(Proxy::refuse);
    until("the agent to be told", || {
        upstream(&agent).behind.is_some() && upstream(&agent).state == UpstreamState::Down
    });
    proxies.iter().for_each(Proxy::heal);
    is_up(&agent);
    assert!(!program.events.has("lost", held.hold));
    program.release(held.hold);
}

fn a_hold_with_a_short_ttl_leaves_no_gateway_whose_store_is_as_slow_as_the_others<
    S: SharedStore,
>() {
    let store = S::begin();
    let proxies = [0, 1].map(|_| store.proxy());
    let gateways = proxies.each_ref().map(|proxy| Gateway::start(&proxy.url()));
    let agent = start_agent(0, &Gateway::urls(&gateways), "");
    is_up(&agent);
    let mut program = Campaigner::start(&agent, "program");
    proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(500)));
    let asked = json!({"ttl_ms": 3000, "wait": "block", "wait_ms": 2000});
    let mut used = vec![Gateway::used_by(&gateways, &agent)];
    for number in 0..20 {
        // A grant may be over when its answer comes: the store is too slow for such a ttl.
        let name = format!("role-{number}");
        program.puppet.ask(program.session, "leader", &name, &asked);
        used.push(Gateway::used_by(&gateways, &agent));
    }
    let moves = used.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(moves <= 6, "{used:?}\n{}", agent.log());
}

/// The error of an agent that may use none of these.
#[track_caller]
fn refused(gateways: &[Gateway]) -> String {
    let agent = start_agent(0, &Gateway::urls(gateways), "");
    until("the agent to be refused", || upstream(&agent).state == UpstreamState::Down);
    upstream(&agent).last_error.expect("it says why")
}

#[test]
fn gateways_with_stores_of_their_own_are_not_mixed() {
    let rule = "must share one Redis, one Postgres or one cluster: name those alone that do";
    let separate = [0, 1].map(|_| RedisServer::start());
    let error = refused(&separate.each_ref().map(|redis| Gateway::start(&redis.url())));
    assert!(error.contains("keeps another store (redis ") && error.contains(rule), "{error}");

    let embedded = [0, 1].map(|_| Gateway::start("embedded:"));
    let error = refused(&embedded);
    assert!(error.contains("cannot be one of several") && error.contains(rule), "{error}");
    let agent = start_agent(0, &embedded[0].url(), "");
    is_up(&agent);
    assert!(upstream(&agent).gateways.is_empty(), "it is named alone");
}

#[test]
fn a_gateway_that_comes_later_with_another_store_is_refused_and_the_others_serve() {
    let redis = [0, 1].map(|_| RedisServer::start());
    let mut gateways = [0, 1].map(|number| Gateway::start(&redis[number].url()));
    gateways[1].kill();
    let agent = start_agent(0, &Gateway::urls(&gateways), "");
    is_up(&agent);
    gateways[1].start_again();
    gateways[0].kill();
    until("the other to be refused", || {
        let error = upstream(&agent).last_error.unwrap_or_default();
        error.contains("none of the 2 gateways can be used")
            && error.contains("keeps another store")
            && error.contains("cannot connect to the gateway at")
    });
    gateways[0].start_again();
    is_up(&agent);
    assert_eq!(Gateway::used_by(&gateways, &agent), 0);
}
