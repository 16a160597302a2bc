//! The control plane with many runners, beside agents, and through a gateway that is killed.

use serde_json::{Value, json};
use tenure::wire::Happened::{Granted, Released};
use tenure::wire::History;
use tenure_tests::harness::{
    Campaigner, Client, Gateway, MAILBOX, RedisServer, RfcRunners, of_runner as of, start_agent,
    until,
};

const RUNNERS: usize = 100;

fn mailbox(number: usize, runner: &str) -> Value {
    json!({"mailbox_id": format!("events-{number}@proxy-01"), "runner_id": runner})
}

/// The tokens of the grants of the mailbox, in their order.
fn tokens(gateway: &Gateway) -> Vec<u64> {
    let grants = gateway
        .trail()
        .into_iter()
        .filter(|line| line["event"] == "grant" && line.to_string().contains(MAILBOX));
    grants.map(|line| line["token"].as_u64().unwrap()).collect()
}

#[test]
fn a_runner_and_an_agents_program_contend_for_one_lease() {
    let gateway = Gateway::start_audited("embedded:", &[]);
    let agent = start_agent(0, &gateway.url(), "");
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    let mut program = Campaigner::start(&agent, "program");

    assert_eq!(runners.acquire("a", "runner-01")["success"], true);
    let waiting = program.queue("lease", MAILBOX, &json!({}));
    assert_eq!(runners.heartbeat("a", "runner-01")["lease_renewed"], true);
    assert_eq!(runners.release("a", "runner-01")["released"], true);
    let granted = program.events.granted(waiting);
    let denied = runners.acquire("a", "runner-01");
    assert_eq!(denied["message"], "mailbox already leased by program");
    assert_eq!(runners.heartbeat("a", "runner-01")["message"], "lease owned by program");
    program.release(granted.of.hold);
    until("the runner to have it again", || runners.acquire("a", "runner-01")["success"] == true);
    until("all grants to be written down", || tokens(&gateway).len() == 3);
    let tokens = tokens(&gateway);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(tokens[1], granted.token);
    // Whoever asks later is told of both.
    until("the history to have all five changes", || {
        let path = format!("/v1/history?kind=lease&name={MAILBOX}");
        let told: History = agent.http().get(&path).expect(200);
        let told: Vec<_> = told.changes.iter().map(|it| (&*it.name, it.what, it.token)).collect();
        let mut expected = [("runner-01", 0), ("program", 1), ("runner-01", 2)]
            .iter()
            .flat_map(|(name, at)| [(*name, Granted, tokens[*at]), (*name, Released, tokens[*at])])
            .collect::<Vec<_>>();
        // The last one has it still.
        expected.pop();
        expected.reverse();
        told == expected
    });
}

#[track_caller]
fn no_lease_is_lost_with_a_gateway(upstream: &str) {
    let mut gateway = Gateway::start(upstream);
    let mut runners = RfcRunners::start();
    let names: Vec<_> = (0..RUNNERS).map(|number| format!("runner-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        // Every second program does not say which run of it this is.
        let metadata = match number % 2 {
            0 => json!({"x-tenure-incarnation": "1"}),
            _ => json!({}),
        };
        runners.open(name, &gateway, &metadata);
    }
    let each = |runners: &mut RfcRunners, what: &str| -> Vec<Value> {
        let numbered = names.iter().enumerate();
        let calls: Vec<_> = numbered
            .map(|(number, name)| runners.begin(what, name, &mailbox(number, name)))
            .collect();
        calls.into_iter().map(|call| runners.result(call)).collect()
    };
    for answer in each(&mut runners, "acquire") {
        assert_eq!(answer["success"], true, "{answer}");
    }
    // Under load: heartbeats are under way while it is killed.
    let numbered = names.iter().enumerate();
    let calls: Vec<_> = numbered
        .map(|(number, name)| runners.begin("heartbeat", name, &mailbox(number, name)))
        .collect();
    gateway.kill();
    for call in calls {
        let answer = runners.result(call);
        let is_lost = answer["code"] == "OK" && answer["lease_renewed"] == false;
        assert!(!is_lost, "{answer}");
    }
    gateway.start_again();
    // A second process of each name comes first, and waits.
    runners.open("second", &gateway, &json!({}));
    let call = |runners: &mut RfcRunners, channel: &str, number: usize, name: &str| {
        runners.call("acquire", channel, &mailbox(number, name))
    };
    for (number, name) in names.iter().enumerate() {
        let denied = call(&mut runners, "second", number, name);
        assert_eq!(denied["success"], false, "{denied}");
        let denied = call(&mut runners, "second", number, "other");
        assert_eq!(denied["success"], false, "{denied}");
    }
    let mut left: Vec<_> = (0..RUNNERS).collect();
    until("every runner to go on", || {
        left.retain(|number| {
            let name = &names[*number];
            let answer = runners.call("heartbeat", name, &mailbox(*number, name));
            assert_ne!(answer["lease_renewed"], false, "{answer}");
            answer["lease_renewed"] != true
        });
        left.is_empty()
    });
    for (number, name) in names.iter().enumerate() {
        assert_eq!(call(&mut runners, "second", number, name)["success"], false);
    }
    for answer in each(&mut runners, "release") {
        assert_eq!(answer["released"], true, "{answer}");
    }
}

#[test]
fn no_lease_is_lost_with_a_gateway_embedded() {
    no_lease_is_lost_with_a_gateway("embedded:");
}

#[test]
fn no_lease_is_lost_with_a_gateway_on_redis() {
    let server = RedisServer::start();
    no_lease_is_lost_with_a_gateway(&server.url());
}

#[test]
fn a_runner_goes_on_at_another_gateway() {
    let (gateways, _server) = Gateway::several(2, &[]);
    let mut runners = RfcRunners::start();
    runners.open("first", &gateways[0], &json!({"x-tenure-incarnation": "7"}));
    runners.open("second", &gateways[1], &json!({"x-tenure-incarnation": "7"}));
    runners.open("other", &gateways[1], &json!({"x-tenure-incarnation": "8"}));
    let mut fields = of("runner-01");
    fields["ttl_seconds"] = json!(900);
    assert_eq!(runners.call("acquire", "first", &fields)["success"], true);
    let renewed = runners.heartbeat("second", "runner-01");
    assert_eq!(renewed["lease_renewed"], true);
    assert!(renewed["new_expiration"].as_f64().unwrap() > 800.0, "for its own ttl: {renewed}");
    assert_eq!(
        runners.heartbeat("other", "runner-01")["message"],
        "lease owned by another runner-01"
    );
    assert_eq!(runners.release("other", "runner-01")["released"], false);
    assert_eq!(runners.release("second", "runner-01")["released"], true);
}
