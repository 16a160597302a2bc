//! When sessions of the session plane registered, as every store tells it.

use serde_json::Value;
use tenure_tests::harness::{Gateway, Key, Postgres, RedisServer, SharedStore};

use super::sessions::{Program, REGISTER, SEES, id, wanted};

const STATUS: &str = "GET /api/v1/controller/status?project_id=atlas";

/// When the only session of the project registered.
#[track_caller]
fn registered_at(status: &Value) -> String {
    let sessions = status["sessions"].as_array().unwrap();
    assert_eq!((sessions.len(), &sessions[0]), (1, &status["master"]), "{status}");
    let at = sessions[0]["registered_at"].as_str().unwrap_or_default();
    let form = at.replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(form, "0000-00-00T00:00:00.000000+00:00", "{status}");
    at.to_owned()
}

/// Two gateways of a store, or the same one twice.
fn status_tells_when_a_session_registered_first(gateways: [&Gateway; 2], key: &Key) {
    let programs = gateways.map(|gateway| Program { gateway, key });
    let first = programs[0].register("donna", "claude_code");
    let at = registered_at(&first["controller_status"]);
    assert_eq!(registered_at(&programs[1].ask(STATUS, "", "")), at);
    // Neither the same registration again nor another name is another session.
    for name in ["donna", "lola"] {
        let again = programs[1].ask(REGISTER, id(&first), &wanted(name, "claude_code"));
        assert_eq!(id(&again), id(&first));
        assert_eq!(registered_at(&again["controller_status"]), at, "{name}");
    }
    programs[0].release(id(&first));
    let second = programs[0].register("donna", "claude_code");
    assert!(registered_at(&second["controller_status"]) > at, "{second}");
}

#[test]
fn status_tells_when_a_session_registered_first_embedded() {
    let key = Key::within("laptop", SEES);
    let mut gateway = Gateway::start_with("embedded:", &[&key]);
    status_tells_when_a_session_registered_first([&gateway, &gateway], &key);
    let at = registered_at(&Program { gateway: &gateway, key: &key }.ask(STATUS, "", ""));
    gateway.kill();
    gateway.start_again();
    let program = Program { gateway: &gateway, key: &key };
    assert_eq!(registered_at(&program.ask(STATUS, "", "")), at, "a restart changes nothing");
}

#[test]
fn status_tells_when_a_session_registered_first_redis() {
    over::<RedisServer>();
}

#[test]
fn status_tells_when_a_session_registered_first_postgres() {
    over::<Postgres>();
}

fn over<S: SharedStore>() {
    let (store, key) = (S::begin(), Key::within("laptop", SEES));
    let gateways = [0, 1].map(|_| Gateway::start_with(&store.url(), &[&key]));
    status_tells_when_a_session_registered_first([&gateways[0], &gateways[1]], &key);
}
