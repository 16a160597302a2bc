//! What the session plane of a gateway refuses, and to whom.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, until};

const REGISTER: &str = "POST /api/v1/controller/register";
const HEARTBEAT: &str = "POST /api/v1/controller/heartbeat";
const RELEASE: &str = "POST /api/v1/controller/release";
const STATUS: &str = "GET /api/v1/controller/status";
const EVENTS: &str = "GET /api/v1/controller/events";

/// Status, head in lower case, and body.
fn call(
    gateway: &Gateway,
    key: &str,
    head: &str,
    session: &str,
    body: &str,
) -> (u16, String, Value) {
    let session = match session {
        "" => String::new(),
        id => format!("X-Prism-Session-Id: {id}\r\n"),
    };
    let (status, answer) = gateway.call_with(&format!("{key}{session}"), head, body).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn wanted(identity: &str, more: &Value) -> String {
    let mut body = json!({"project_id": "atlas", "agent_identity": identity, "machine_id": "m-1"});
    let fields = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

#[track_caller]
fn register(gateway: &Gateway, key: &Key, identity: &str) -> String {
    let body = wanted(identity, &json!({"of_a_later_version": {"deep": 1}}));
    let (status, _, body) = call(gateway, &key.header(), REGISTER, "", &body);
    assert_eq!(status, 200, "{body}");
    body["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn every_refusal_has_its_status_and_a_detail() {
    let (key, other) = (Key::new("laptop"), Key::new("other"));
    let narrow = Key::within("narrow", &["--project", "web-*", "--priority-max", "0"]);
    let gateway = Gateway::start_with("embedded:", &[&key, &other, &narrow]);
    let session = register(&gateway, &key, "donna");
    let never = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let desktop = json!({"agent_surface": "claude_desktop", "project_id": "web-1"});
    let (good, of_other, of_narrow) = (key.header(), other.header(), narrow.header());
    let donna = wanted("donna", &json!({}));
    for (key, head, session, body, expected) in [
        ("", HEARTBEAT, "", "", 401),
        ("", REGISTER, "", "", 401),
        (good.as_str(), HEARTBEAT, "", "", 422),
        (&good, RELEASE, "", "", 422),
        (&good, STATUS, "", "", 422),
        (&good, EVENTS, "", "", 422),
        (&good, HEARTBEAT, &session, "{", 422),
        (&good, HEARTBEAT, "no-uuid", "", 410),
        (&good, HEARTBEAT, never, "", 410),
        (&good, EVENTS, never, "", 410),
        (&good, STATUS, never, "", 410),
        (&good, REGISTER, "", "", 422),
        (&good, REGISTER, "", r#"{"project_id":"p"}"#, 422),
        (&good, REGISTER, "", &wanted("", &json!({})), 422),
        (&good, REGISTER, "", &wanted("x", &json!({"project_id": "a:b"})), 422),
        (&good, REGISTER, "no-uuid", &donna, 422),
        // Its own project would be left with a master that nobody is.
        (&good, REGISTER, &session, &wanted("donna", &json!({"project_id": "web-2"})), 422),
        (&good, "GET /api/v1/controller/heartbeat", "", "", 405),
        (&of_other, HEARTBEAT, &session, "", 410),
        (&of_other, RELEASE, &session, "", 410),
        (&of_other, EVENTS, &session, "", 410),
        (&of_narrow, REGISTER, "", &donna, 403),
        (&of_narrow, REGISTER, "", &wanted("x", &desktop), 403),
        (&of_narrow, "GET /api/v1/controller/status?project_id=atlas", "", "", 403),
    ] {
        let (status, head_of, body) = call(&gateway, key, head, session, body);
        assert_eq!(status, expected, "{head} {session} {body}");
        assert!(head_of.contains("application/problem+json"), "{head_of}");
        assert!(body["detail"].is_string(), "{body}");
        if expected == 410 {
            assert_eq!(body["detail"], "session expired, re-register via prism_start");
        }
    }
    let (status, _, body) = call(&gateway, &good, HEARTBEAT, &session, "");
    assert_eq!((status, &body["role"]), (200, &"master".into()), "nobody has touched it");
}

#[test]
fn the_second_key_of_a_principal_carries_its_session_on() {
    let (old, new) = (Key::new("laptop"), Key::new("laptop"));
    let gateway = Gateway::start_with("embedded:", &[&old]);
    let session = register(&gateway, &old, "donna");
    gateway.set_keys(&[&new]);
    let beat = |key: &Key| call(&gateway, &key.header(), HEARTBEAT, &session, "").0;
    until("the new key to be good", || beat(&new) == 200);
    until("the old key to be revoked", || beat(&old) == 401);
}

#[test]
fn a_registration_that_is_repeated_by_its_name_is_one_session() {
    let key = Key::new("laptop");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let named = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let ask = |session: &str| {
        let body = wanted("donna", &json!({}));
        let (status, _, body) = call(&gateway, &key.header(), REGISTER, session, &body);
        (status, body)
    };
    let (_, first) = ask(named);
    let (_, second) = ask(named);
    assert_eq!(first, second);
    assert_eq!(
        (&first["role"], &first["controller_status"]["sessions"][1]),
        (&"master".into(), &Value::Null)
    );
    let session = first["session_id"].as_str().unwrap();
    assert_eq!(call(&gateway, &key.header(), RELEASE, session, "").0, 200);
    let (_, _, again) = call(&gateway, &key.header(), RELEASE, session, "");
    assert_eq!(again, json!({"ok": true, "released": false}));
    assert_eq!(ask(session).0, 410, "a late copy does not bring it back");
}

/// Each of two programs of one identity ends the other's session, and registers anew on 410.
#[test]
fn two_sessions_of_one_identity_that_supersede_each_other_settle() {
    let key = Key::new("laptop");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let header = key.header();
    let mut sessions = [None::<String>, None];
    let mut registered = 0;
    let refused = 'flapping: loop {
        for at in [0, 1] {
            let alive = |session: &String| call(&gateway, &header, HEARTBEAT, session, "").0 == 200;
            if sessions[at].as_ref().is_some_and(alive) {
                continue;
            }
            let body = wanted("lola", &json!({}));
            let (status, head, body) = call(&gateway, &header, REGISTER, "", &body);
            if status == 429 {
                assert!(body["detail"].as_str().unwrap().contains("registers over and over"));
                let after = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
                assert!(after.unwrap().parse::<u64>().unwrap() >= 30, "{head}");
                break 'flapping at;
            }
            assert_eq!(status, 200, "{body}");
            registered += 1;
            assert!(registered < 100, "it goes on and on");
            sessions[at] = body["session_id"].as_str().map(str::to_owned);
            if let Some(other) = &sessions[1 - at] {
                call(&gateway, &header, RELEASE, other, "");
            }
        }
    };
    // While the one waits, the other one is left in peace.
    let settled = sessions[1 - refused].as_ref().unwrap();
    for _ in 0..3 {
        let body = wanted("lola", &json!({}));
        assert_eq!(call(&gateway, &header, REGISTER, settled, &body).0, 200, "it runs for master");
        let (status, _, body) = call(&gateway, &header, HEARTBEAT, settled, "");
        assert_eq!((status, &body["role"]), (200, &"master".into()));
        assert_eq!(call(&gateway, &header, REGISTER, "", &wanted("lola", &json!({}))).0, 429);
    }
    register(&gateway, &key, "donna");
}

#[test]
fn a_stream_ends_when_its_key_is_revoked() {
    let (key, other) = (Key::new("laptop"), Key::new("other"));
    let gateway = Gateway::start_with("embedded:", &[&key, &other]);
    let session = register(&gateway, &key, "donna");
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
    let header = key.header();
    write!(stream, "{EVENTS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}X-Prism-Session-Id: {session}\r\n\r\n")
        .unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    gateway.set_keys(&[&other]);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
}

#[test]
fn registrations_and_refusals_are_in_the_audit_trail() {
    let key = Key::new("laptop");
    let gateway = Gateway::start_audited("embedded:", &[&key]);
    let session = register(&gateway, &key, "donna");
    call(&gateway, &key.header(), HEARTBEAT, "", "");
    call(&gateway, &key.header(), RELEASE, &session, "");
    let has = |event: &str, of: Option<&str>| {
        let mut lines = gateway.trail().into_iter();
        lines.any(|it| it["event"] == event && of.is_none_or(|of| it["session"] == of))
    };
    until("the lines", || {
        let of = Some(session.as_str());
        has("register", of) && has("grant", of) && has("release", of) && has("refusal", None)
    });
}
