//! Every field that can be wrong, what the refusal says, and that nothing came of it.

use serde_json::{Value, json};
use tenure::wire::Code;
use tenure_tests::harness::{Agent, Client};
use uuid::Uuid;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Posts `base` with each of the changes; each must be refused as `invalid`, naming the field.
/// A change to null removes the field.
#[track_caller]
fn check_invalid(agent: &Agent, path: &str, base: &Value, changes: &[(&str, Value)]) {
    let mut http = agent.http();
    let mut wrong = Vec::new();
    for (field, value) in changes {
        let mut body = base.clone();
        match value {
            Value::Null => drop(body.as_object_mut().expect("an object").remove(*field)),
            value => body[field] = value.clone(),
        }
        let answer = http.post(path, &body);
        if answer.status != 422 {
            wrong.push(format!("{path} {field}={value}: {} {}", answer.status, answer.text()));
            continue;
        }
        let problem = answer.problem(Code::Invalid);
        let named = problem.field.clone().unwrap_or_default();
        if named != *field && !named.starts_with(&format!("{field}.")) {
            wrong.push(format!("{path} {field}={value} was blamed on {named:?}: {problem}"));
        }
        let last = field.rsplit('.').next().unwrap_or(field);
        if !problem.detail.contains(last) {
            wrong.push(format!("{path} {field}={value}: the detail does not name it: {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), changes.len(), wrong.join("\n"));
}

fn long_name() -> String {
    "é".repeat(100) + "x"
}

#[test]
fn register_names_the_wrong_field() {
    let agent = Agent::start();
    let mut changes = vec![
        ("tether", json!("rope")),
        ("tether", json!(3)),
        ("keepalive_ms", json!(0)),
        ("keepalive_ms", json!(-1)),
        ("keepalive_ms", json!(1.5)),
        ("keepalive_ms", json!("30s")),
        ("keepalive_ms", json!(DAY_MS + 1)),
        ("linger_ms", json!(-1)),
        ("linger_ms", json!(DAY_MS + 1)),
        ("progress_ms", json!(0)),
        ("progress_ms", json!("often")),
        ("ttl_ms", json!(0)),
        ("ttl_ms", json!(1)),
        ("ttl_ms", json!(DAY_MS + 1)),
        ("guarded", json!("yes")),
        ("resume", json!({"session": "nobody", "secret": "x"})),
        ("resume", json!({"session": Uuid::nil()})),
        ("resume", json!({"session": Uuid::nil(), "secret": "x", "colour": 1})),
        ("resume", json!("please")),
        ("colour", json!("red")),
        ("Name", json!("case matters")),
    ];
    for field in ["name", "surface", "tenant", "project"] {
        changes.extend([
            (field, json!("")),
            (field, json!(long_name())),
            (field, json!("two\nlines")),
            (field, json!("bell\u{7}")),
            (field, json!("nul\u{0}")),
            (field, json!("del\u{7f}")),
            (field, json!("c1\u{85}")),
            (field, json!(7)),
            (field, json!(["a"])),
        ]);
    }
    for field in ["tenant", "project"] {
        changes.push((field, json!("a:b")));
    }
    check_invalid(&agent, "/v1/register", &json!({}), &changes);
    assert_eq!(agent.counts(), (0, 0, 0));
}

#[test]
fn acquire_names_the_wrong_field() {
    let agent = Agent::start();
    let session = agent.http().register(&json!({})).session;
    let base = |kind: &str| match kind {
        "master" => json!({"session": session, "kind": "master"}),
        kind => json!({"session": session, "kind": kind, "name": "thing"}),
    };
    let anything = [
        ("session", Value::Null),
        ("session", json!("me")),
        ("session", json!(1)),
        ("kind", Value::Null),
        ("kind", json!("king")),
        ("kind", json!("Leader")),
        ("wait", json!("forever")),
        ("wait", json!(true)),
        ("timeout_ms", json!(-1)),
        ("timeout_ms", json!("5s")),
        ("request", json!("")),
        ("request", json!(long_name())),
        ("request", json!("a\u{1b}[31m")),
        ("request", json!(5)),
        ("ttl_ms", json!(0)),
        ("ttl_ms", json!(1)),
        ("ttl_ms", json!(DAY_MS + 1)),
        ("ttl_ms", json!(30.5)),
        ("max_hold_ms", json!(0)),
        ("max_hold_ms", json!(-5)),
        ("colour", json!("red")),
    ];
    for kind in ["leader", "master", "lease", "semaphore"] {
        check_invalid(&agent, "/v1/acquire", &base(kind), &anything);
    }
    let named = [
        ("name", Value::Null),
        ("name", json!("")),
        ("name", json!(long_name())),
        ("name", json!("two\nlines")),
        ("name", json!("c1\u{9b}")),
        ("name", json!(9)),
    ];
    for kind in ["leader", "lease", "semaphore"] {
        check_invalid(&agent, "/v1/acquire", &base(kind), &named);
    }
    let limit = ("limit", json!(1));
    let priority = ("priority", json!(1));
    let grace = ("grace_ms", json!(1000));
    let attributes = ("attributes", json!({"address": "here"}));
    let of_others = |own: &[&str]| -> Vec<(&'static str, Value)> {
        [limit.clone(), priority.clone(), grace.clone(), attributes.clone()]
            .into_iter()
            .filter(|(field, _)| !own.contains(field))
            .collect()
    };
    check_invalid(&agent, "/v1/acquire", &base("leader"), &of_others(&[]));
    check_invalid(&agent, "/v1/acquire", &base("master"), &of_others(&["priority"]));
    check_invalid(&agent, "/v1/acquire", &base("lease"), &of_others(&["grace_ms", "attributes"]));
    check_invalid(&agent, "/v1/acquire", &base("semaphore"), &of_others(&["limit"]));
    check_invalid(&agent, "/v1/acquire", &base("master"), &[("name", json!("a master has none"))]);
    check_invalid(
        &agent,
        "/v1/acquire",
        &base("semaphore"),
        &[("limit", json!(0)), ("limit", json!(-1)), ("limit", json!("many"))],
    );
    check_invalid(
        &agent,
        "/v1/acquire",
        &base("lease"),
        &[
            ("grace_ms", json!(-1)),
            ("grace_ms", json!(DAY_MS + 1)),
            ("attributes", json!("10.0.0.7")),
            ("attributes", json!({"colour": "red"})),
            ("attributes", json!({"partition": 256})),
            ("attributes", json!({"partition": -1})),
            ("attributes", json!({"address": "two\nlines"})),
            ("attributes", json!({"address": 7})),
            ("attributes", json!({"status": "\u{0}"})),
        ],
    );
    check_invalid(&agent, "/v1/acquire", &base("master"), &[("priority", json!("high"))]);
    assert_eq!(agent.counts(), (1, 0, 0), "a refused request leaves nothing");
}

#[test]
fn the_other_calls_name_the_wrong_field() {
    let agent = Agent::start();
    let session = agent.http().register(&json!({})).session;
    let sessions = [
        ("session", Value::Null),
        ("session", json!("me")),
        ("session", json!(1)),
        ("colour", json!("red")),
    ];
    let base = json!({"session": session});
    for path in ["/v1/beat", "/v1/checkpoint", "/v1/release"] {
        check_invalid(&agent, path, &base, &sessions);
    }
    check_invalid(&agent, "/v1/release", &base, &[("hold", json!("mine")), ("hold", json!(1))]);
    check_invalid(
        &agent,
        "/v1/revoke",
        &json!({"kind": "leader", "name": "x"}),
        &[
            ("kind", Value::Null),
            ("kind", json!("king")),
            ("name", Value::Null),
            ("name", json!("")),
            ("name", json!("two\nlines")),
            ("token", json!(-1)),
            ("token", json!("all")),
            ("tenant", json!("")),
            ("colour", json!("red")),
        ],
    );
}

#[test]
fn queries_name_the_wrong_parameter() {
    let agent = Agent::start();
    let mut http = agent.http();
    let mut wrong = Vec::new();
    for (path, field) in [
        ("/v1/events", "session"),
        ("/v1/events?session=me", "session"),
        ("/v1/standing", "kind"),
        ("/v1/standing?kind=king&name=x", "kind"),
        ("/v1/standing?kind=leader", "name"),
        ("/v1/standing?kind=leader&name=", "name"),
        ("/v1/standing?kind=leader&name=a%0Ab", "name"),
        ("/v1/observe", "kind"),
        ("/v1/observe?kind=leader", "name"),
        ("/v1/routes?name=", "name"),
        ("/v1/routes?name=a%00b", "name"),
    ] {
        let answer = http.get(path);
        if answer.status != 422 {
            wrong.push(format!("{path}: {} {}", answer.status, answer.text()));
            continue;
        }
        let problem = answer.problem(Code::Invalid);
        if problem.field.as_deref() != Some(field) {
            wrong.push(format!("{path} was blamed on {:?}: {problem}", problem.field));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_json_is_invalid() {
    let agent = Agent::start();
    let mut http = agent.http();
    let deep = "[".repeat(60_000);
    for body in ["{", "nonsense", "\"text\"", "[]", "1", "{\"name\":\"a\"}{}", "\u{0}", &deep] {
        let answer = http.try_call("POST", "/v1/register", body.as_bytes()).expect("an answer");
        answer.problem(Code::Invalid);
    }
    let answer = http.try_call("POST", "/v1/register", b"{\"name\":\"\xff\"}").expect("an answer");
    answer.problem(Code::Invalid);
    let twice = http.try_call("POST", "/v1/register", br#"{"name":"a","name":"b"}"#);
    twice.expect("an answer").problem(Code::Invalid);
    assert_eq!(agent.counts(), (0, 0, 0));
}

#[test]
fn sessions_and_holds_that_are_not_there() {
    let agent = Agent::start();
    let mut http = agent.http();
    let nobody = json!({"session": Uuid::nil()});
    for path in ["/v1/beat", "/v1/checkpoint", "/v1/release"] {
        http.post(path, &nobody).problem(Code::SessionUnknown);
    }
    http.ask(Uuid::nil(), "leader", "x", &json!({})).problem(Code::SessionUnknown);
    http.get(&format!("/v1/events?session={}", Uuid::nil())).problem(Code::SessionUnknown);

    let session = http.register(&json!({}));
    let wrong_secret = json!({"resume": {"session": session.session, "secret": "00"}});
    http.post("/v1/register", &wrong_secret).problem(Code::Unauthorized);
    assert!(!http.release(session.session, Uuid::nil()), "nothing there, nothing released");

    assert!(http.end(session.session));
    let ended = json!({"session": session.session});
    for path in ["/v1/beat", "/v1/checkpoint"] {
        http.post(path, &ended).problem(Code::SessionLost);
    }
    http.ask(session.session, "leader", "x", &json!({})).problem(Code::SessionLost);
}

#[test]
fn a_lost_hold_stays_lost() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    let more = json!({"request": "once"});
    let granted = http.acquire(session, "leader", "role", &more);
    http.post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    events.lost(granted.hold);
    let again = http.ask(session, "leader", "role", &more);
    assert_eq!(again.problem(Code::HoldLost).hold, Some(granted.hold));
    let release = json!({"session": session, "hold": granted.hold});
    http.post("/v1/release", &release).problem(Code::HoldLost);
}

#[test]
fn unknown_paths_and_methods_are_problems_too() {
    let agent = Agent::start();
    let mut http = agent.http();
    http.get("/v1/nothing").problem(Code::NotFound);
    http.get("/").problem(Code::NotFound);
    http.get("/v1/acquire").problem(Code::MethodNotAllowed);
    http.post("/v1/status", &json!({})).problem(Code::MethodNotAllowed);
    http.call("DELETE", "/v1/register", None).problem(Code::MethodNotAllowed);
}

#[test]
fn a_body_beyond_64_kib_is_too_large() {
    let agent = Agent::start();
    let mut http = agent.http();
    let fits = format!("{{\"name\":\"a\"{}}}", " ".repeat(64 * 1024 - 12));
    assert_eq!(fits.len(), 64 * 1024);
    let answer = http.try_call("POST", "/v1/register", fits.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = http.try_call("POST", "/v1/register", format!("{fits} ").as_bytes());
    answer.expect("an answer").problem(Code::TooLarge);
}
