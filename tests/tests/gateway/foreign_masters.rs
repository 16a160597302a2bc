//! Masters that a backend of SPEC-032 wrote straight into the Redis of gateways.

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, RedisServer, until};

use super::sessions::{Program, REGISTER, SEES, id, wanted};

/// A backend that writes its sessions straight into Redis, and dies.
fn a_foreign_master_that_dies_is_told_of(notifications: &str) {
    const DEAD: &str = "7d7c1c6e-3a2b-4c1d-9e8f-0123456789ab";
    let key = Key::within("laptop", SEES);
    let redis = RedisServer::start();
    let _: String = redis.command(&["CONFIG", "SET", "notify-keyspace-events", notifications]);
    let gateways = [0, 1].map(|_| Gateway::start_with(&redis.url(), &[&key]));
    let published = redis.listen(&["prism:events:*"]);
    let hash = format!("prism:session:{DEAD}");
    let fields = "tenant_id default project_id atlas agent_identity donna agent_surface cli machine_id m-9 is_master 1";
    let hset = ["HSET", &hash].into_iter().chain(fields.split(' '));
    let _: i64 = redis.command(&Vec::from_iter(hset));
    let _: i64 = redis.command(&["SADD", "prism:project:default:atlas:sessions", DEAD]);
    let _: String = redis.command(&["SET", "prism:master:default:atlas", DEAD]);
    let programs = gateways.each_ref().map(|gateway| Program { gateway, key: &key });
    let peers = [0, 1].map(|at| programs[at].register(&format!("peer-{at}"), "claude_code"));
    assert_eq!(peers.each_ref().map(|peer| peer["role"].clone()), ["peer", "peer"]);
    let told = [0, 1].map(|at| programs[at].events(id(&peers[at])));
    // Each of them is one more heartbeat of the backend, as far as a gateway sees; then it dies.
    for _ in 0..2 {
        for name in [hash.as_str(), "prism:master:default:atlas"] {
            let _: i64 = redis.command(&["PEXPIRE", name, "2000"]);
        }
    }
    for events in &told {
        for kind in ["master_released", "session_ended"] {
            let event = events.next(kind, DEAD);
            assert_eq!(
                (&event["name"], &event["host"]),
                (&json!("donna"), &json!("m-9")),
                "{kind}"
            );
        }
    }
    let next = programs[0].ask(REGISTER, id(&peers[0]), &wanted("peer-0", "claude_code"));
    assert_eq!(next["role"], "master");
    programs[0].release(id(&peers[0]));
    told[1].next("master_released", id(&peers[0]));
    for events in &told {
        let heard = events.0.lock();
        let of_dead = |event: &&Value| event["session"] == DEAD;
        assert_eq!(heard.events.iter().filter(of_dead).count(), 2, "each is told once: {heard:?}");
    }
    let channel = "prism:events:project:default:atlas";
    until("all to be published", || published.of_type(channel, "master_released").len() >= 2);
    assert_eq!(published.of_type(channel, "master_released").len(), 2, "one for each end");
}

#[test]
fn a_master_of_another_program_that_dies_is_told_of() {
    a_foreign_master_that_dies_is_told_of("Ex");
}

#[test]
fn a_master_of_another_program_that_dies_is_told_of_without_notifications() {
    a_foreign_master_that_dies_is_told_of("");
}
