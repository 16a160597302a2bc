//! Requests as a browser makes them, written by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use tenure_harness::Authority;
use tenure_tests::harness::{Agent, Campaigner, Client, Gateway, free_port};

/// What `fetch` with the mode `no-cors` sends for a page of another site.
const CROSS_SITE: &str = "Origin: http://evil.example\r\nReferer: http://evil.example/x\r\n\
    Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
const TEXT: &str = "Content-Type: text/plain;charset=UTF-8\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// A revocation of the leader of that name.
pub(super) fn revocation(name: &str) -> String {
    let resource = json!({"tenant": "default", "kind": "leader", "name": name});
    let revocation = json!({"by": "evil", "reason": "a page said so", "for_ms": 3_600_000});
    json!({"resource": resource, "token": null, "revocation": revocation}).to_string()
}

/// The body of an answer.
fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_default()
}

#[track_caller]
fn call(gateway: &Gateway, head: &str, headers: &str, body: &str) -> (u16, String) {
    gateway.call_with(headers, head, body).expect("the gateway answers")
}

#[test]
fn pages_of_others_change_nothing_on_a_gateway_without_keys() {
    let gateway = Gateway::start("embedded:");
    let agent = Agent::setup().upstream(&gateway.url()).start();
    let mut honest = Campaigner::start(&agent, "payroll.sh");
    let held = honest.acquire("leader", "payroll", &json!({}));

    let revoke = "POST /v1/upstream/revoke";
    let register = "POST /api/v1/controller/register";
    let session = json!({"project_id": "p", "agent_identity": "a", "machine_id": "m"}).to_string();
    let revocation = revocation("payroll");
    // As the host is named in the calls.
    let own = "Origin: http://localhost\r\n";
    for (head, headers, body, expected) in [
        (revoke, format!("{CROSS_SITE}{TEXT}"), &*revocation, 403),
        (revoke, format!("{CROSS_SITE}{JSON}"), &revocation, 403),
        (revoke, TEXT.to_owned(), &revocation, 415),
        (revoke, format!("{own}{TEXT}"), &revocation, 415),
        (
            revoke,
            "Content-Type: application/x-www-form-urlencoded\r\n".to_owned(),
            &revocation,
            415,
        ),
        (revoke, format!("Host: rebound.evil.example:8740\r\n{JSON}"), &revocation, 421),
        (revoke, format!("Origin: null\r\n{JSON}"), &revocation, 403),
        (revoke, format!("Sec-Fetch-Site: same-site\r\n{JSON}"), &revocation, 403),
        (register, format!("{CROSS_SITE}{TEXT}"), &session, 403),
        (register, TEXT.to_owned(), &session, 415),
        ("POST /v1/upstream/examine", CROSS_SITE.to_owned(), "", 403),
        ("POST /v1/upstream/examine", TEXT.to_owned(), "", 415),
        ("GET /v1/resources", CROSS_SITE.to_owned(), "", 403),
        ("GET /v1/resources", "Host: rebound.evil.example\r\n".to_owned(), "", 421),
        ("GET /v1/changes", CROSS_SITE.to_owned(), "", 403),
        ("GET /metrics", "Host: rebound.evil.example\r\n".to_owned(), "", 421),
        ("GET /healthz", "Sec-Fetch-Site: cross-site\r\n".to_owned(), "", 403),
        ("GET /nothing", CROSS_SITE.to_owned(), "", 403),
        ("GET /page.js", CROSS_SITE.to_owned(), "", 403),
        ("OPTIONS /v1/upstream/revoke", CROSS_SITE.to_owned(), "", 403),
        ("POST /prism.admin.v1.ControlPlane/Acquire", JSON.to_owned(), "", 415),
    ] {
        let (status, answer) = call(&gateway, head, &headers, body);
        assert_eq!(status, expected, "{head}\n{headers}{answer}");
        let lower = answer.to_ascii_lowercase();
        assert!(!lower.contains("access-control-"), "{answer}");
        assert!(lower.contains("cache-control: no-store\r\n"), "{answer}");
        assert!(lower.contains("x-content-type-options: nosniff\r\n"), "{answer}");
        assert!(lower.contains("cross-origin-resource-policy: same-origin\r\n"), "{answer}");
    }
    let standing = agent.http().standing("leader", "payroll");
    let tokens: Vec<_> = standing.holders.iter().map(|it| it.token).collect();
    assert_eq!(tokens, [held.token]);
    assert!(honest.has(held.hold));

    // The same by those who may.
    assert_eq!(call(&gateway, register, &format!("{own}{JSON}"), &session).0, 200);
    let fetched = format!("{own}Sec-Fetch-Site: same-origin\r\n{JSON}");
    let (status, answer) = call(&gateway, revoke, &fetched, &revocation);
    assert_eq!((status, &body(&answer)["revoked"]), (200, &json!(1)), "{answer}");
}

#[test]
fn a_refusal_says_which_host_and_which_setting() {
    let gateway = Gateway::start_by("embedded:", &[], &[]);
    let host = "Host: bad\u{1}name.example\r\n";
    assert_eq!(call(&gateway, "GET /v1/overview", host, "").0, 400);
    let (status, answer) = call(&gateway, "GET /v1/overview", "Host: other.example:1\r\n", "");
    let problem = body(&answer);
    assert_eq!(status, 421);
    let expected = "\"other.example:1\" is no name of this listener; use one of its addresses or localhost, or add that \
        name to the setting hosts";
    assert_eq!((&problem["detail"], &problem["field"]), (&json!(expected), &json!("host")));

    // A link to the page is followed; nothing else is.
    let link =
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(call(&gateway, "GET /", link, "").0, 200);
    assert_eq!(call(&gateway, "GET /v1/overview", link, "").0, 403);
}

/// The status of an answer to bytes.
fn status_of(port: u16, request: &str) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // It may be reset: not all was read.
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn a_host_must_be_named_once() {
    let gateway = Gateway::start("embedded:");
    let get = |version: &str, target: &str, headers: &str| {
        let request = format!("GET {target} HTTP/{version}\r\n{headers}Connection: close\r\n\r\n");
        status_of(gateway.port(), &request)
    };
    assert_eq!(get("1.1", "/healthz", ""), 400);
    assert_eq!(get("1.1", "/healthz", "Host: localhost\r\nHost: localhost\r\n"), 400);
    assert_eq!(get("1.1", "/healthz", "Host: localhost\r\nHost: evil.example\r\n"), 400);
    assert_eq!(get("1.1", "http://evil.example/healthz", "Host: localhost\r\n"), 421);
    assert_eq!(get("1.1", "http://localhost/healthz", "Host: evil.example\r\n"), 421);
    assert_eq!(get("1.0", "/healthz", ""), 200);
}

#[test]
fn hosts_of_the_setting_and_of_the_certificate_are_its_own() {
    let named =
        Gateway::start_by("embedded:", &[], &["--hosts=tenure.example, *.corp.example".to_owned()]);
    for (host, expected) in [
        ("tenure.example", 200),
        ("a.corp.example:443", 200),
        ("corp.example", 421),
        ("evil.example", 421),
        ("127.0.0.1", 200),
    ] {
        let found = call(&named, "GET /v1/overview", &format!("Host: {host}\r\n"), "").0;
        assert_eq!(found, expected, "{host}");
    }
    let page =
        "Host: tenure.example\r\nOrigin: https://tenure.example\r\nSec-Fetch-Site: same-origin\r\n";
    assert_eq!(call(&named, "GET /v1/overview", page, "").0, 200);

    let authority = Authority::new();
    authority.issue("gateway", "DNS:gateway.example,DNS:*.below.example,IP:192.0.2.7");
    let file = |name: &str| authority.path(name).display().to_string();
    let (certificate, key) = (file("gateway.pem"), file("gateway.key"));
    let args = [format!("--tls-cert-file={certificate}"), format!("--tls-key-file={key}")];
    let secure = Gateway::start_by("embedded:", &[], &args);
    for (host, expected) in [
        ("gateway.example", "200"),
        ("a.below.example", "200"),
        ("192.0.2.7", "200"),
        ("192.0.2.8", "421"),
        ("evil.example", "421"),
    ] {
        let place = format!("gateway.example:{0}:127.0.0.1:{0}", secure.port());
        let url = format!("https://gateway.example:{}/v1/overview", secure.port());
        let host = format!("Host: {host}");
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &host];
        let mut curl = Command::new("curl");
        curl.args(arguments).args(["--connect-to", &place, "--cacert", &file("ca.pem"), &url]);
        let output = curl.output().expect("curl is installed");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{host}");
    }
}

#[test]
fn metrics_of_an_agent_are_for_scrapers_alone() {
    let port = free_port();
    let config =
        format!("metrics_listen = \"127.0.0.1:{port}\"\nmetrics_hosts = \"node7.example\"\n");
    let _agent = Agent::setup().config(&config).start();
    for (method, headers, expected) in [
        ("GET", "Host: localhost\r\n", 200),
        ("GET", "Host: 127.0.0.1:1\r\n", 200),
        ("GET", "Host: node7.example\r\n", 200),
        ("GET", "Host: evil.example\r\n", 421),
        ("GET", "", 400),
        ("GET", "Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("GET", "Host: localhost\r\nOrigin: null\r\n", 403),
        ("GET", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("POST", "Host: localhost\r\nContent-Length: 0\r\n", 405),
        ("OPTIONS", "Host: localhost\r\n", 405),
    ] {
        let request = format!("{method} /metrics HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        assert_eq!(status_of(port, &request), expected, "{method} {headers}");
    }
}
