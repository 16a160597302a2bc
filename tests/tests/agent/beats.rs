//! What beats tell a program that follows no events.

use serde_json::{Value, json};
use tenure_tests::harness::{Agent, Client, boottime_ns, until};
use uuid::Uuid;

/// The tokens and reasons of what is told as lost.
fn lost(told: &Value) -> Vec<(u64, &str)> {
    let lost = told["lost"].as_array().expect("something was lost");
    let of = |one: &Value| one["token"].as_u64();
    lost.iter()
        .map(|one| (of(one).expect("it was held"), one["reason"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_beat_tells_once_what_its_session_has_lost() {
    let agent = Agent::start();
    let mut http = agent.http();
    let [session, other] =
        [(); 2].map(|()| http.register(&json!({"keepalive_ms": 600_000})).session);
    let beat = |session: Uuid, hold: Option<Uuid>| match hold {
        Some(hold) => json!({"session": session, "hold": hold}),
        None => json!({"session": session}),
    };
    let kept = http.acquire(session, "leader", "kept", &json!({}));
    let [first, second] = ["first", "second"].map(|name| {
        let held = http.acquire(session, "lease", name, &json!({}));
        let revoke = json!({"kind": "lease", "name": name, "reason": "upgrade"});
        assert_eq!(http.post("/v1/revoke", &revoke).status, 200);
        held
    });
    assert_eq!(http.post("/v1/beat", &beat(other, None)).status, 204, "it has lost nothing");
    let told = http.post("/v1/beat", &beat(session, None)).json(200);
    assert_eq!(lost(&told), [(first.token, "revoked"), (second.token, "revoked")]);
    let one = &told["lost"][1];
    assert_eq!(
        (&one["hold"], &one["kind"], &one["name"], &one["detail"]),
        (&json!(second.hold), &json!("lease"), &json!("second"), &json!("upgrade"))
    );
    assert_eq!(http.post("/v1/beat", &beat(session, None)).status, 204, "each is told once");

    let third = http.acquire(session, "lease", "third", &json!({}));
    assert_eq!(http.post("/v1/revoke", &json!({"kind": "lease", "name": "third"})).status, 200);
    let told = http.post("/v1/beat", &beat(session, Some(kept.hold))).json(200);
    assert_eq!(lost(&told), [(third.token, "revoked")]);
    assert!(told["valid_ms"].as_u64().is_some_and(|ms| ms > 0));
    let told = http.post("/v1/beat", &beat(session, Some(kept.hold))).json(200);
    assert_eq!(told.get("lost"), None);
}

#[test]
fn a_beat_tells_what_ran_out_while_the_agent_was_away() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let held = http.acquire(session, "leader", "role", &json!({"ttl_ms": 2000}));
    agent.kill();
    // It may have been renewed until then.
    let over = boottime_ns() + 2_500_000_000;
    until("the hold to run out", || boottime_ns() >= over);
    agent.start_again();
    let told = agent.http().post("/v1/beat", &json!({"session": session})).json(200);
    assert_eq!(lost(&told), [(held.token, "expired")]);
}
