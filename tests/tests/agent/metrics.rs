//! Metrics as Prometheus and its promtool see them, on the socket and over TCP; alert rules and dashboard that name
//! nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tenure_tests::harness::{
    Agent, Client, DEADLINE, RedisServer, binary, eventually, free_port, other_users,
};

fn packaging(path: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace is above").join("packaging").join(path)
}

/// The output of promtool; true if it is content.
#[track_caller]
fn promtool(args: &[&str], directory: &Path, input: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("promtool: {error}; it is part of Debian's package prometheus, which tests/run installs")
        });
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("promtool reads it");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said.into_owned())
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the agent listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// Sends a request over TCP; returns the whole answer.
fn ask(port: u16, request: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and its end");
    answer
}

fn get(port: u16, path: &str, more: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n"))
}

/// An agent that has met some of everything.
fn busy(port: u16, redis: &RedisServer) -> Agent {
    let config = format!("metrics_listen = \"127.0.0.1:{port}\"\n");
    let agent = Agent::setup().config(&config).upstream(&redis.url()).start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    for kind in ["leader", "lease"] {
        http.acquire(session, kind, "a", &json!({}));
    }
    let lost = http.acquire(session, "leader", "b", &json!({}));
    http.post("/v1/revoke", &json!({"kind": "leader", "name": "b"})).json(200);
    events.lost(lost.hold);
    http.get("/v1/nothing");
    agent
}

/// The names of families as their samples have them, `_bucket` and the like left out.
fn families(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let named = types.filter_map(|line| match line.split_once(' ')? {
        (name, "counter") => Some(format!("{name}_total")),
        (name, "info") => Some(format!("{name}_info")),
        (name, _) => Some(name.to_owned()),
    });
    named.collect()
}

/// Metrics of the agent that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let ours = words.filter(|word| word.starts_with("tenured_") || word.starts_with("process_"));
    ours.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

/// Has Prometheus' parser of OpenMetrics read a page: promtool does so when it imports samples, which must
/// have a time.
#[track_caller]
fn assert_openmetrics(page: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let timed = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1700000000\n"),
    };
    let samples: String = page.lines().map(timed).collect();
    fs::write(directory.path().join("page"), samples).expect("it is written");
    let import = ["tsdb", "create-blocks-from", "openmetrics", "page", "blocks"];
    let (is_content, said) = promtool(&import, directory.path(), "");
    assert!(is_content, "{said}\n{page}");
}

#[test]
fn promtool_is_content_with_the_page() {
    let (port, redis) = (free_port(), RedisServer::start());
    let agent = busy(port, &redis);
    let mut http = agent.http();
    let page = http.get("/metrics");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(content_type));
    let (_, over_tcp) = split(&get(port, "/metrics", ""));
    for page in [page.text(), over_tcp] {
        assert_openmetrics(&page);
        assert!(page.contains("tenured_losses_total{reason=\"revoked\"} 1"), "{page}");
        assert!(page.contains("tenured_holds{kind=\"leader\",state=\"held\"} 1"), "{page}");
        assert!(page.contains("tenured_upstream_state{state=\"up\"} 1"), "{page}");
        let lag =
            page.lines().find_map(|line| line.strip_prefix("tenured_event_lag_seconds_count "));
        assert!(lag.is_some_and(|count| count != "0"), "{page}");
    }
}

fn split(answer: &str) -> (String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_scraper_gets_metrics_and_nothing_else() {
    let port = free_port();
    let agent = Agent::setup().config(&format!("metrics_listen = \"127.0.0.1:{port}\"\n")).start();
    assert!(get(port, "/healthz", "").starts_with("HTTP/1.1 200 "));
    for path in
        ["/v1/status", "/v1/log", "/v1/doctor", "/openapi.json", "/", "/metrics/", "/readyz"]
    {
        let answer = get(port, path, "");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        assert!(answer.contains("the API is on the Unix socket"), "{answer}");
    }
    let wrong = ask(
        port,
        "POST /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    );
    assert!(wrong.starts_with("HTTP/1.1 405 "), "{wrong}");
    let wrong = get(port, "/metrics?x=1", "");
    assert!(wrong.starts_with("HTTP/1.1 422 "), "{wrong}");
    assert!(ask(port, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("x-long: {}\r\n", "x".repeat(64 * 1024));
    let mut stream = connect(port);
    // Refused while it is still being sent.
    let _ = stream
        .write_all(format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\n{long}\r\n").as_bytes());
    assert!(get(port, "/metrics", "").starts_with("HTTP/1.1 200 "));
    drop(agent);
}

#[test]
fn those_who_only_connect_hold_up_neither_the_api_nor_scrapes() {
    let port = free_port();
    let agent = Agent::setup().config(&format!("metrics_listen = \"127.0.0.1:{port}\"\n")).start();
    let idle: Vec<_> = (0..300).map(|_| connect(port)).collect();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "a", &json!({}));
    // The oldest of those make room.
    assert!(get(port, "/metrics", "").starts_with("HTTP/1.1 200 "));
    drop(idle);
}

#[test]
fn an_address_that_somebody_has_is_told_at_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
    let address = taken.local_addr().expect("it is bound");
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(binary("tenured"))
        .env("TENURED_METRICS_LISTEN", address.to_string())
        .env("TENURED_CONFIG", "/dev/null")
        .args(["--runtime-dir", "run", "--state-dir", "state"].map(|word| match word {
            "run" | "state" => dir.path().join(word),
            flag => flag.into(),
        }))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    let expected =
        format!("metrics_listen = \"{address}\": cannot listen there; choose another port");
    assert!(said.contains(&expected) && said.contains("Address already in use"), "{said}");
    assert!(!dir.path().join("run/api.sock").exists(), "nobody was served meanwhile");
}

#[test]
fn alert_rules_are_sound_and_fire() {
    let directory = packaging("prometheus");
    for args in [
        &["check", "rules", "tenured.rules.yml"][..],
        &["test", "rules", "tenured.rules.test.yml"],
        &["check", "rules", "tenured-gateway.rules.yml"],
        &["test", "rules", "tenured-gateway.rules.test.yml"],
        &["check", "config", "--syntax-only", "scrape.yml"],
    ] {
        let (is_content, said) = promtool(args, &directory, "");
        assert!(is_content, "{args:?}: {said}");
    }
    let read = |name: &str| fs::read_to_string(directory.join(name)).expect("it is there");
    for daemon in ["tenured", "tenured-gateway"] {
        let rules = read(&format!("{daemon}.rules.yml"));
        let tests = read(&format!("{daemon}.rules.test.yml"));
        for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
            assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
        }
    }
}

/// Every text under the key `expr` or `definition`.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    Some(text) if key == "expr" || key == "definition" => {
                        found.push(text.to_owned())
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn rules_and_dashboard_name_what_the_agent_exports() {
    let agent = Agent::start();
    let mut http = agent.http();
    let exported = eventually("requests to be counted", || {
        let page = http.get("/metrics").text();
        page.contains("tenured_requests_total{").then(|| families(&page))
    });
    let read = |name: &str| fs::read_to_string(packaging(name)).expect("it is there");
    for name in ["prometheus/tenured.rules.yml", "prometheus/tenured.rules.test.yml"] {
        let unknown: Vec<_> = named(&read(name)).difference(&exported).cloned().collect();
        assert!(unknown.is_empty(), "{name} names {unknown:?}, which the agent does not export");
    }
    let dashboard: Value = serde_json::from_str(&read("grafana/tenured.json")).expect("JSON");
    let mut texts = Vec::new();
    expressions(&dashboard, &mut texts);
    let shown = named(&texts.join("\n"));
    let unknown: Vec<_> = shown.difference(&exported).collect();
    assert!(unknown.is_empty(), "the dashboard names {unknown:?}, which the agent does not export");
    let hidden: Vec<_> = exported.difference(&shown).collect();
    assert!(hidden.is_empty(), "the dashboard does not show {hidden:?}");

    // Fields that Grafana requires of a dashboard.
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    assert!(
        dashboard["uid"].is_string() && dashboard["title"].is_string() && dashboard["id"].is_null()
    );
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<_> = variables.iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "job", "instance"]);
    assert_eq!(variables[0]["type"], "datasource");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        assert!(panel["description"].is_string(), "{}", panel["title"]);
        let place = &panel["gridPos"];
        let [x, width] = ["x", "w"].map(|side| place[side].as_u64().expect("a place"));
        assert!(x + width <= 24, "{}", panel["title"]);
        assert!(!panel["targets"].as_array().expect("queries").is_empty(), "{}", panel["title"]);
    }
}

/// What another host is to the network: a namespace, joined to this one by a cable.
struct OtherHost {
    name: String,
    /// The addresses here and there.
    here: String,
}

impl OtherHost {
    fn start() -> OtherHost {
        let id = std::process::id();
        let (name, cable) = (format!("scraper-{id}"), format!("s{id}"));
        // A network of two for each process.
        let net = format!("10.231.{}.{}", (id >> 6) & 255, (id & 63) * 4);
        let (base, last) = net.rsplit_once('.').expect("four numbers");
        let last: u8 = last.parse().expect("a number");
        let (here, there) = (format!("{base}.{}", last + 1), format!("{base}.{}", last + 2));
        let other = OtherHost { name: name.clone(), here: here.clone() };
        for line in [
            format!("netns add {name}"),
            format!("link add {cable} type veth peer name eth0 netns {name}"),
            format!("addr add {here}/30 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {name} addr add {there}/30 dev eth0"),
            format!("-n {name} link set eth0 up"),
        ] {
            let status =
                Command::new("ip").args(line.split(' ')).status().expect("ip is installed");
            assert!(status.success(), "ip {line}: {status}");
        }
        other
    }

    fn fetch(&self, url: &str) -> Output {
        let program = ["ip", "netns", "exec", &self.name, "curl", "-sS", "-m", "10", url];
        Command::new(program[0]).args(&program[1..]).output().expect("ip is installed")
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        // The cable goes with it.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn another_host_reads_metrics_that_are_public_and_no_others() {
    if other_users().is_none() {
        return;
    }
    let other = OtherHost::start();
    let (private, public) = (free_port(), free_port());
    let stays_here =
        Agent::setup().config(&format!("metrics_listen = \"127.0.0.1:{private}\"\n")).start();
    let config = format!("metrics_listen = \"0.0.0.0:{public}\"\nmetrics_listen_public = true\n");
    let agent = Agent::setup().config(&config).start();

    let scraped = other.fetch(&format!("http://{}:{public}/metrics", other.here));
    assert!(scraped.status.success(), "{scraped:?}");
    assert_openmetrics(&String::from_utf8_lossy(&scraped.stdout));
    assert!(!other.fetch(&format!("http://{}:{private}/metrics", other.here)).status.success());
    let api = other.fetch(&format!("http://{}:{public}/v1/status", other.here));
    assert!(String::from_utf8_lossy(&api.stdout).contains("the API is on the Unix socket"));
    drop((agent, stays_here));
}
