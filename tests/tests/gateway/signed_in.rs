//! People whom a reverse proxy signs in, and names in a header.

use serde_json::{Value, json};
use tenure_tests::harness::{Browser, Campaigner, Gateway, Key, start_agent, until};

const PEOPLE: &str = r#"
identity_header = "X-User"
[[people]]
who = "alice@ops.example"
rights = "all"
[[people]]
who = "*@ops.example"
"#;

/// A gateway that believes proxies in this network, and asks others for a key.
fn start(key: &Key, proxies: &str, audit: &str) -> (Gateway, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let trail = dir.path().join("trail");
    let audit = audit.replace("TRAIL", &trail.display().to_string());
    std::fs::write(&file, format!("trusted_proxies = \"{proxies}\"\n{audit}{PEOPLE}")).unwrap();
    let config = format!("--config={}", file.display());
    (Gateway::start_by("embedded:", &[key], &[config]), dir)
}

fn call(gateway: &Gateway, headers: &str, head: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = format!("{headers}Content-Type: application/json\r\n");
    let (status, answer) = gateway.call_with(&headers, head, &body).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

const ALICE: &str = "X-User: alice@ops.example\r\n";
const BOB: &str = "X-User: bob@ops.example\r\n";

#[test]
fn a_proxy_names_people_and_they_may_do_what_their_section_says() {
    let key = Key::new("host");
    let (gateway, dir) = start(&key, "127.0.0.1", "audit = \"TRAIL\"\n");
    let agent = start_agent(0, &gateway.url(), &gateway.config(&key));
    let mut program = Campaigner::start(&agent, "backup.sh");
    program.acquire("leader", "nightly", &json!({}));

    let (status, overview) = call(&gateway, ALICE, "GET /v1/overview", &Value::Null);
    assert_eq!(
        (status, &overview["caller"]["principal"]),
        (200, &json!("person:alice@ops.example"))
    );
    assert!(overview["caller"]["rights"].as_array().unwrap().contains(&json!("revoke")));
    let nightly = "GET /v1/resources?tenant=default&kind=leader&name=nightly";
    let holder =
        |headers| call(&gateway, headers, nightly, &Value::Null).1["rows"][0]["holders"][0].clone();
    assert_eq!(holder(ALICE)["name"], "backup.sh");
    assert_eq!(holder(BOB)["name"], "another principal");

    // A request without an origin may be any page's.
    let wish =
        json!({"tenant": "default", "kind": "leader", "name": "nightly", "reason": "upgrade"});
    let own = "Origin: http://localhost\r\n";
    for (headers, expected) in [
        (ALICE.to_owned(), 403),
        (format!("{ALICE}Origin: https://evil.example\r\n"), 403),
        (format!("{ALICE}Sec-Fetch-Site: cross-site\r\n"), 403),
        (format!("{BOB}{own}"), 403),
        (format!("{ALICE}{own}"), 200),
    ] {
        let (status, answer) = call(&gateway, &headers, "POST /v1/revoke", &wish);
        assert_eq!(status, expected, "{headers}: {answer}");
        assert!(status != 200 || answer["revoked"] == 1, "{answer}");
    }
    let has_line = || {
        let trail = std::fs::read_to_string(dir.path().join("trail")).unwrap_or_default();
        trail.lines().any(|line| {
            line.contains(r#""principal":"person:alice@ops.example""#)
                && line.contains("revoked 1: upgrade")
        })
    };
    until("a line of the trail", has_line);
}

#[test]
fn nobody_is_believed_who_is_no_proxy_and_no_proxy_acts_as_an_agent() {
    let key = Key::new("host");
    let overview = "GET /v1/overview";
    let (elsewhere, _dir) = start(&key, "192.0.2.7", "");
    let (status, answer) = call(&elsewhere, ALICE, overview, &Value::Null);
    let detail = answer["detail"].as_str().unwrap();
    assert!(status == 401 && detail.contains("trusted_proxies"), "{answer}");
    // With a key the header does not count.
    let with_key = format!("{ALICE}{}", key.header());
    let (status, answer) = call(&elsewhere, &with_key, overview, &Value::Null);
    assert_eq!((status, &answer["caller"]["principal"]), (200, &json!("host")));

    let (gateway, _dir) = start(&key, "127.0.0.0/8", "");
    for (headers, expected) in [
        (format!("{BOB}{ALICE}"), 401),
        ("X-User: bob@ops.example, alice@ops.example\r\n".to_owned(), 401),
        ("X-User: \r\n".to_owned(), 401),
        ("X-User: alice@evil.example\r\n".to_owned(), 403),
        (String::new(), 401),
        (format!("{ALICE}Authorization: Bearer tnr_wrong\r\n"), 401),
    ] {
        let (status, answer) = call(&gateway, &headers, overview, &Value::Null);
        assert_eq!(status, expected, "{headers}: {answer}");
    }
    for head in ["POST /v1/upstream/hello", "GET /v1/upstream/changes", "GET /metrics"] {
        let hello = json!({"protocol": 1, "version": "x"});
        let body = if head.starts_with("POST") { hello } else { Value::Null };
        let (status, answer) = call(&gateway, ALICE, head, &body);
        assert_eq!(status, 401, "{head}: {answer}");
    }
}

#[test]
fn the_page_leads_back_to_the_proxy_when_its_session_has_ended() {
    let (gateway, _dir) = start(&Key::new("host"), "127.0.0.1", "");
    let browser = Browser::start();
    let signed_in = |headers: &Value| {
        browser.devtools("Network.setExtraHTTPHeaders", &json!({"headers": headers}));
    };
    browser.devtools("Network.enable", &json!({}));
    signed_in(&json!({"X-User": "alice@ops.example"}));
    browser.open(&gateway.url());
    browser.until("document.getElementById('sign-in').hidden");
    browser.script("window.isOfBefore = true");
    // The proxy would answer with its own page at the reload.
    signed_in(&json!({}));
    browser.until("window.isOfBefore !== true && !document.getElementById('sign-in').hidden");
    signed_in(&json!({"X-User": "alice@ops.example"}));
    browser.open(&gateway.url());
    browser.until("document.getElementById('sign-in').hidden");
}
