//! A real Chromium, on pages that are not the gateway's.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::json;
use tenure_tests::harness::{Agent, Browser, Campaigner, Client, Gateway, free_port};

use super::requests::revocation;

const ATTACK: &str = include_str!("attack.js");
/// Both lead to this host, as after DNS rebinding.
const RULES: &str =
    "--host-resolver-rules=MAP evil.example 127.0.0.1,MAP rebound.example 127.0.0.1";
/// The types that need no leave, one that needs it, and none.
const TYPES: [&str; 5] = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/json",
    "",
];

/// Serves an empty page at any path, and returns the port.
fn serve_page() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = BufReader::new(stream.try_clone().expect("a socket can be shared"));
            let mut line = String::new();
            while head.read_line(&mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let page = "<!doctype html><title>evil</title>";
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            );
        }
    });
    port
}

/// An address, and what a page tries there.
struct Target {
    base: String,
    reads: &'static [&'static str],
    writes: Vec<(&'static str, String)>,
}

impl Target {
    /// Has the page that is open try everything; how often it tried. Nothing was read.
    #[track_caller]
    fn attack(&self, browser: &Browser) -> u64 {
        let Target { base, reads, writes } = self;
        let socket = format!("{}/v1/changes", base.replace("http://", "ws://"));
        let wanted = json!({"base": base, "reads": reads, "writes": writes, "types": TYPES, "socket": socket});
        let done = browser.promised(&format!("(() => {{ {ATTACK}; return attack({wanted}); }})()"));
        assert_eq!(done["read"], json!([]), "{base}: {done}");
        done["tries"].as_u64().expect("a number")
    }
}

/// The numbers of answered requests: those that did something, and those that were refused.
fn counts(gateway: &Gateway) -> (Vec<String>, u64) {
    let (status, answer) = gateway.call("GET /metrics", "").expect("it answers");
    assert_eq!(status, 200, "{answer}");
    let lines = || answer.lines().filter(|line| line.starts_with("tenured_gateway_requests_total"));
    let is_done = |line: &&str| {
        let writes = ["revoke", "claim", "examine", "register", "changes", "resources"];
        line.contains("status=\"2") && writes.iter().any(|name| line.contains(name))
    };
    let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    let is_refusal = |line: &&str| {
        ["400", "403", "415", "421"].iter().any(|it| line.contains(&format!("\"{it}\"")))
    };
    let refused = lines().filter(is_refusal).filter_map(count).sum();
    (lines().filter(is_done).map(str::to_owned).collect(), refused)
}

#[test]
fn pages_of_others_read_nothing_and_change_nothing() {
    let nodes = Gateway::nodes(1, &[]);
    let gateway = &nodes[0];
    let scraped = free_port();
    let config = format!("metrics_listen = \"127.0.0.1:{scraped}\"\n");
    let agent = Agent::setup().upstream(&gateway.url()).config(&config).start();
    let mut honest = Campaigner::start(&agent, "payroll.sh");
    let held = honest.acquire("leader", "payroll", &json!({}));

    let session =
        json!({"project": "p", "machine_id": "m", "surface": "claude_desktop"}).to_string();
    let of_gateway = |base: String| Target {
        base,
        reads: &["/v1/resources", "/v1/changes", "/metrics", "/healthz", "/"],
        writes: vec![
            ("/v1/upstream/revoke", revocation("payroll")),
            ("/v1/upstream/examine", "{}".to_owned()),
            ("/api/v1/controller/register", session.clone()),
            ("/prism.admin.v1.ControlPlane/AcquireMailbox", "{}".to_owned()),
        ],
    };
    let of_metrics = |base: String| Target {
        base,
        reads: &["/metrics", "/healthz"],
        writes: vec![("/metrics", "{}".to_owned())],
    };
    let of_node =
        |base: String| Target { base, reads: &["/"], writes: vec![("/", "{}".to_owned())] };

    let before = counts(gateway);
    let browser = Browser::start_with(&[RULES]);
    let mut tries = 0;
    // A page of another origin.
    browser.open(&format!("http://evil.example:{}/", serve_page()));
    for host in ["127.0.0.1", "localhost"] {
        tries += of_gateway(format!("http://{host}:{}", gateway.port())).attack(&browser);
    }
    of_metrics(format!("http://127.0.0.1:{scraped}")).attack(&browser);
    of_node(format!("http://{}", gateway.node_address())).attack(&browser);
    // A page of another program of this host.
    browser.open(&format!("http://127.0.0.1:{}/", serve_page()));
    tries += of_gateway(gateway.url()).attack(&browser);
    of_metrics(format!("http://127.0.0.1:{scraped}")).attack(&browser);
    // A page whose name leads here: what it asks is of its own origin.
    let rebound = |port: u16| {
        let base = format!("http://rebound.example:{port}");
        browser.open(&format!("{base}/"));
        assert_eq!(browser.value("location.origin"), json!(base));
        base
    };
    tries += of_gateway(rebound(gateway.port())).attack(&browser);
    of_metrics(rebound(scraped)).attack(&browser);

    let after = counts(gateway);
    assert_eq!(after.0, before.0, "something was done");
    // Where a browser asks for leave before, the try itself does not come.
    assert!(after.1 - before.1 > tries / 4, "{tries} tries, {} refused", after.1 - before.1);
    let standing = agent.http().standing("leader", "payroll");
    let tokens: Vec<_> = standing.holders.iter().map(|it| it.token).collect();
    assert_eq!(tokens, [held.token]);
    assert!(honest.has(held.hold));
    gateway.cluster(&["status"]);

    // The same calls by those who may.
    browser.open(&format!("{}/", gateway.url()));
    let own = "fetch('/v1/resources').then((it) => it.status)";
    assert_eq!(browser.promised(own), json!(200));
    let revoke = json!({
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": revocation("payroll"),
    });
    let own = format!("fetch('/v1/upstream/revoke', {revoke}).then((it) => it.json())");
    assert_eq!(browser.promised(&own)["revoked"], json!(1));
}
