//! Agents of several hosts behind several gateways, which share one store.

use serde_json::{Value, json};
use tenure::wire::{LostReason, ReleasedCause};
use tenure_tests::harness::{
    Agent, Balancer, Campaigner, Gateway, Holder, SharedStore, Siege, start_agent, until,
};
use tenure_tests::over_every_store;

over_every_store!(
    the_stream_is_at_one_gateway_and_calls_go_through_another,
    three_agents_behind_one_address_of_two_gateways,
    gateways_that_are_killed_lose_no_hold_and_grant_nothing_twice,
    a_store_that_stands_still_or_is_killed_puts_holds_in_jeopardy,
    a_grant_is_told_with_all_that_a_waiter_needs_though_nobody_answers_its_calls,
);

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];
/// How often a gateway is killed.
const KILLS: usize = 100;

fn terms(kind: &str) -> Value {
    match kind {
        "semaphore" => json!({"limit": 1}),
        _ => json!({}),
    }
}

fn two_gateways(store: &impl SharedStore) -> [Gateway; 2] {
    [0, 1].map(|_| Gateway::start(&store.url()))
}

fn nobody_holds(agents: &[Agent]) {
    for agent in agents {
        until("every session and hold to end", || agent.counts() == (0, 0, 0));
    }
}

/// Registers, elects, preempts, acquires, and hands over on releases and kills, for all kinds and from each host
/// to the next one.
fn drill(agents: &[Agent]) {
    for (from, to) in (0..agents.len()).map(|host| (host, (host + 1) % agents.len())) {
        for kind in KINDS {
            let mut first = Campaigner::start(&agents[from], "first");
            let mut second = Campaigner::start(&agents[to], "second");
            let held = first.acquire(kind, "role", &terms(kind));
            let waiting = second.queue(kind, "role", &terms(kind));
            first.release(held.hold);
            assert_eq!(first.events.released(held.hold).cause, ReleasedCause::Client);
            let granted = second.events.granted(waiting);
            assert!(granted.token > held.token, "{kind}: a new grant has a greater token");

            let again = first.queue(kind, "role", &terms(kind));
            second.kill();
            assert!(first.events.granted(again).token > granted.token, "{kind}");
        }
        nobody_holds(agents);
        let mut low = Campaigner::start(&agents[from], "low");
        let mut high = Campaigner::start(&agents[to], "high");
        let held = low.acquire("master", "", &json!({}));
        let taken = high.acquire("master", "", &json!({"priority": 9}));
        assert!(taken.token > held.token);
        assert_eq!(low.events.lost(held.hold).reason, LostReason::Preempted);
    }
    nobody_holds(agents);
}

fn the_stream_is_at_one_gateway_and_calls_go_through_another<S: SharedStore>() {
    let store = S::begin();
    let gateways = two_gateways(&store);
    let ways = [(0, 1), (1, 0)].map(|(to, by)| Balancer::apart(&gateways, to, by));
    let agents = [0, 1].map(|host| start_agent(host, &ways[host].url(), ""));
    drill(&agents);
    store.has_nothing_left();

    // An agent that is killed releases nothing: the gateway of the first waiter's calls sees the time run out.
    let [mut alpha, beta] = agents;
    let mut holder = Campaigner::start(&alpha, "holder");
    let mut next = Campaigner::start(&beta, "next");
    let short = json!({"ttl_ms": 2000});
    let held = holder.acquire("leader", "role", &short);
    let waiting = next.queue("leader", "role", &short);
    alpha.kill();
    assert!(next.events.granted(waiting).token > held.token);
}

fn three_agents_behind_one_address_of_two_gateways<S: SharedStore>() {
    let store = S::begin();
    let gateways = two_gateways(&store);
    for way in [Balancer::by_connection(&gateways), Balancer::by_request(&gateways)] {
        let agents = [0, 1, 2].map(|host| start_agent(host, &way.url(), ""));
        drill(&agents);
        store.has_nothing_left();
    }
}

fn gateways_that_are_killed_lose_no_hold_and_grant_nothing_twice<S: SharedStore>() {
    let store = S::begin();
    let mut gateways = two_gateways(&store);
    let way = Balancer::by_connection(&gateways);
    let siege = Siege::begin_at(store, &way.url());
    let holders: Vec<_> = (siege.agents.iter().zip(["one", "two"]))
        .map(|(agent, name)| Holder::of_leadership(agent, name, 60_000))
        .collect();
    for kill in 0..KILLS {
        let gateway = &mut gateways[kill % 2];
        gateway.kill();
        gateway.start_again();
        if kill % 10 == 9 {
            siege.everybody_gets_another_turn();
        }
    }
    for holder in holders {
        holder.leave();
    }
    siege.end();
}

fn a_store_that_stands_still_or_is_killed_puts_holds_in_jeopardy<S: SharedStore>() {
    let store = S::begin();
    let gateways = two_gateways(&store);
    let way = Balancer::by_connection(&gateways);
    let mut siege = Siege::begin_at(store, &way.url());
    let holder = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    siege.redis.pause();
    holder.is_in_jeopardy_and_safe_again(|| {
        let body = json!({"resource": {"tenant": "t", "kind": "leader", "name": "n"}}).to_string();
        let (status, answer) = gateways[0].call("POST /v1/upstream/inspect", &body).unwrap();
        assert_eq!(status, 503, "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
        let (status, _) = gateways[0].call("GET /healthz", "").unwrap();
        assert_eq!(status, 200, "the gateway itself is well");
        siege.redis.resume();
    });
    siege.everybody_gets_another_turn();
    siege.redis.kill();
    siege.redis.start_again();
    siege.everybody_gets_another_turn();
    assert!(!holder.has_lost(), "the store still knew it");
    holder.leave();
    siege.end();
}

fn a_grant_is_told_with_all_that_a_waiter_needs_though_nobody_answers_its_calls<S: SharedStore>() {
    let store = S::begin();
    let mut gateways = two_gateways(&store);
    let way = Balancer::apart(&gateways, 0, 1);
    let agents =
        [(0, gateways[0].url()), (1, way.url())].map(|(host, url)| start_agent(host, &url, ""));
    let [alpha, beta] = &agents;
    for kind in KINDS {
        let mut holder = Campaigner::start(alpha, "holder");
        let mut next = Campaigner::start(beta, "next");
        let held = holder.acquire(kind, "role", &terms(kind));
        let waiting = next.queue(kind, "role", &terms(kind));
        gateways[1].pause();
        holder.release(held.hold);
        let granted = next.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}");
        gateways[1].resume();
        next.release(waiting);
    }
    nobody_holds(&agents);
    store.has_nothing_left();
}
