//! Calls of the control plane that their callers give up, or that the store does not answer in time.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{
    Gateway, Key, MAILBOX, RedisServer, RfcRunners, eventually, of_runner, until,
};

/// Calls that are given up, by several programs at a time.
const BATCHES: usize = 5;
const CALLS: usize = 40;

fn routes(gateway: &Gateway, key: &Key) -> Vec<Value> {
    let body = json!({"tenant": "default", "name": null, "page": {"after": null, "limit": 1000}});
    let header = if key.text.is_empty() { String::new() } else { key.header() };
    let called = gateway.call_with(&header, "POST /v1/upstream/routes", &body.to_string());
    let (_, answer) = called.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    body["routes"].as_array().cloned().unwrap_or_default()
}

#[track_caller]
fn calls_that_are_given_up_leave_nothing_that_nobody_owns(upstream: &str) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("gateway.toml");
    // Long enough for all leases of a key to be there at once, on a busy machine too.
    let times = "[mailbox]\nttl = \"12s\"\nheartbeat_interval = \"3s\"\ngrace_period = \"4s\"\n";
    std::fs::write(&file, times).unwrap();
    let most = (BATCHES * CALLS).to_string();
    let key = Key::within("storm", &["--holds-max", &most]);
    let config = format!("--config={}", file.display());
    let gateway = Gateway::start_by(upstream, &[&key], &[config]);
    let header = key.header();
    let bearer = header.trim().split_once(": ").unwrap().1;
    // Every second program says which run of it this is.
    let metadata = |batch: usize| match batch % 2 {
        0 => json!({"authorization": bearer, "x-tenure-incarnation": batch.to_string()}),
        _ => json!({"authorization": bearer}),
    };
    let mut runners = RfcRunners::start();
    let prefix = |batch: usize| format!("batch-{batch}");
    let storm: Vec<_> = (0..BATCHES)
        .map(|batch| runners.give_up(&gateway, &prefix(batch), CALLS, &metadata(batch)))
        .collect();
    let codes: Vec<Value> = storm.into_iter().map(|calls| runners.result(calls)).collect();
    let codes = json!(codes).to_string();
    for code in ["OK", "CANCELLED"] {
        eprintln!("{}x {code}", codes.matches(&format!("\"{code}\"")).count());
    }
    let of = |batch: usize, number: usize| {
        let mailbox = format!("{}-{number}@p", prefix(batch));
        json!({"mailbox_id": mailbox, "runner_id": "runner"})
    };
    for batch in 0..BATCHES {
        let channel = prefix(batch);
        runners.open(&channel, &gateway, &metadata(batch));
        for number in 0..CALLS {
            let again =
                |runners: &mut RfcRunners| runners.call("acquire", &channel, &of(batch, number));
            if batch % 2 == 0 {
                let answer = again(&mut runners);
                assert_eq!(answer["success"], true, "the same run: {answer}");
            }
            until("the mailbox to be had", || again(&mut runners)["success"] == true);
            let beat = runners.call("heartbeat", &channel, &of(batch, number));
            assert_eq!(beat["lease_renewed"], true, "{beat}");
            let release = runners.call("release", &channel, &of(batch, number));
            assert_eq!(release["released"], true, "{release}");
        }
    }
    until("nothing to be held", || routes(&gateway, &key).is_empty());
    // The key has all its counts back, and no more.
    let channel = prefix(0);
    let fresh = |number: usize| json!({"mailbox_id": format!("fresh-{number}"), "runner_id": "r"});
    for number in 0..BATCHES * CALLS {
        let answer = runners.call("acquire", &channel, &fresh(number));
        assert_eq!(answer["success"], true, "{number}: {answer}");
    }
    let answer = runners.call("acquire", &channel, &fresh(BATCHES * CALLS));
    assert_eq!(answer["code"], "RESOURCE_EXHAUSTED", "{answer}");
}

#[test]
fn calls_that_are_given_up_leave_nothing_that_nobody_owns_embedded() {
    calls_that_are_given_up_leave_nothing_that_nobody_owns("embedded:");
}

#[test]
fn calls_that_are_given_up_leave_nothing_that_nobody_owns_on_redis() {
    let server = RedisServer::start();
    calls_that_are_given_up_leave_nothing_that_nobody_owns(&server.url());
}

/// The status that the gateway itself gives to a heartbeat with this deadline, whose caller waits for longer.
fn status_of(gateway: &Gateway, deadline: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let of_mailbox = u8::try_from(MAILBOX.len()).unwrap();
    let ids = [&[10, of_mailbox][..], MAILBOX.as_bytes(), &[18, 1, b'r']].concat();
    let length = u8::try_from(ids.len()).unwrap();
    std::fs::write(file.path(), [&[0, 0, 0, 0, length][..], &ids].concat()).unwrap();
    let output = Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--http2-prior-knowledge", "--include"])
        .args(["--max-time", "30", "--header", "content-type: application/grpc"])
        .args(["--header", &format!("grpc-timeout: {deadline}"), "--data-binary"])
        .arg(format!("@{}", file.path().display()))
        .arg(format!("{}/prism.admin.v1.ControlPlane/MailboxHeartbeat", gateway.url()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = text.lines().find_map(|line| line.strip_prefix("grpc-status: "));
    status.map_or(text.clone(), |status| status.trim().to_owned())
}

#[test]
fn a_store_that_stands_still_costs_no_lease_and_gives_none_twice() {
    let mut server = RedisServer::start();
    let gateway = Gateway::start(&server.url());
    let nobody = Key { text: String::new(), line: String::new() };
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    runners.open("b", &gateway, &json!({}));
    runners.open("named", &gateway, &json!({"x-tenure-incarnation": "1"}));
    assert_eq!(runners.acquire("a", "runner-01")["success"], true);
    let before = routes(&gateway, &nobody);

    server.pause();
    let mut calls = Vec::new();
    for seconds in [0.001, 0.02, 0.2, 1.0, 5.0] {
        for (what, channel, runner) in [
            ("heartbeat", "a", "runner-01"),
            ("acquire", "a", "runner-01"),
            ("acquire", "b", "runner-02"),
        ] {
            calls.push(runners.begin_within(what, channel, &of_runner(runner), seconds));
        }
    }
    // The same call again and again, of which each but the last is given up.
    let fresh = |channel: &str| json!({"mailbox_id": format!("{channel}@p"), "runner_id": "fresh"});
    for channel in ["a", "named"] {
        for _ in 0..8 {
            let call = runners.begin_within("acquire", channel, &fresh(channel), 0.05);
            let code = runners.result(call)["code"].clone();
            assert!(code == "DEADLINE_EXCEEDED" || code == "UNAVAILABLE", "{code}");
        }
    }
    for call in calls {
        let code = runners.result(call)["code"].clone();
        assert!(code == "DEADLINE_EXCEEDED" || code == "UNAVAILABLE", "{code}");
    }
    for deadline in ["1m", "50m", "999999u"] {
        let status = status_of(&gateway, deadline);
        assert!(status == "4" || status == "14", "{deadline}: {status}");
    }
    let last = ["a", "named"].map(|it| runners.begin_within("acquire", it, &fresh(it), 20.0));
    server.resume();

    for (channel, call) in ["a", "named"].into_iter().zip(last) {
        let answer = runners.result(call);
        assert!(answer["success"] == true || answer["code"] == "UNAVAILABLE", "{answer}");
        until("the mailbox to be had", || {
            runners.call("acquire", channel, &fresh(channel))["success"] == true
        });
        // Calls that were given up take nothing away later.
        for _ in 0..20 {
            let beat = runners.call("heartbeat", channel, &fresh(channel));
            assert_eq!(beat["lease_renewed"], true, "{beat}");
        }
    }
    eventually("a heartbeat to be answered", || {
        let beat = runners.heartbeat("a", "runner-01");
        assert_ne!(beat["lease_renewed"], false, "{beat}");
        (beat["lease_renewed"] == true).then_some(())
    });
    assert_eq!(runners.acquire("b", "runner-02")["message"], "mailbox already leased by runner-01");
    let after = routes(&gateway, &nobody);
    let kept = after.iter().find(|route| route["name"] == MAILBOX).unwrap();
    assert_eq!(kept["token"], before[0]["token"]);
    assert_eq!(after.len(), 3, "one holder each: {after:?}");
}

#[test]
fn a_call_that_was_given_up_takes_no_lease_from_the_one_that_repeats_it() {
    let mut server = RedisServer::start();
    let gateway = Gateway::start(&server.url());
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    runners.open("named", &gateway, &json!({"x-tenure-incarnation": "1"}));
    for (round, channel) in (0..6).zip(["a", "named"].into_iter().cycle()) {
        let fields = json!({"mailbox_id": format!("{round}@p"), "runner_id": "r"});
        // The connection is there, with all that it takes.
        runners.call("heartbeat", channel, &fields);
        server.pause();
        let given_up = runners.begin_within("acquire", channel, &fields, 0.05);
        assert_eq!(runners.result(given_up)["code"], "DEADLINE_EXCEEDED");
        let repeated = runners.begin_within("acquire", channel, &fields, 20.0);
        // It is under way, too, when another call has been given up.
        let late = runners.begin_within("heartbeat", channel, &fields, 0.05);
        runners.result(late);
        server.resume();
        assert_eq!(runners.result(repeated)["success"], true);
        for _ in 0..20 {
            let beat = runners.call("heartbeat", channel, &fields);
            assert_eq!(beat["lease_renewed"], true, "{channel}: {beat}");
        }
    }
}
