//! The output of the programs, in files and on screens: nothing in it is read as a command by a terminal.

use std::ffi::OsString;

use serde_json::Value;
use tokio::runtime::Runtime;

use super::call::{Sent, Server};
use super::lane::Lane;
use super::report::{Failure, Report};
use super::servers::{Logs, Servers};
use super::terminal;
use super::verdict;
use super::wire::Reply;
use crate::harness::rss_max_kib;

/// Endpoints whose answers are made of what callers sent.
const OF_AGENT: [&str; 6] =
    ["/v1/list?limit=1000", "/v1/status", "/v1/agents", "/v1/routes", "/v1/log", "/metrics"];
const OF_GATEWAY: [&str; 8] = [
    "/v1/overview",
    "/v1/resources?limit=100",
    "/v1/agents",
    "/v1/mailboxes",
    "/v1/proxies",
    "/v1/runners",
    "/metrics",
    "/api/v1/controller/status?project_id=name-0",
];
/// Commands that show it to people.
const COMMANDS: [&[&str]; 8] = [
    &["ls"],
    &["ls", "--json"],
    &["status"],
    &["status", "--verbose"],
    &["agents"],
    &["routes"],
    &["doctor"],
    &["log"],
];
/// Those about one resource.
const OF_ONE: [&str; 3] = ["standing", "why", "history"];
/// Most resources that are looked at one by one.
const ONES_MAX: usize = 40;

/// Looks at all of it, and ends the programs.
pub(super) fn look(servers: Servers, runtime: &Runtime, report: &mut Report) {
    let (agent, gateway) = (servers.agent.pid(), servers.gateway.pid());
    for (name, pid) in [("tenured", agent), ("tenured-gateway", gateway)] {
        let name = format!("{name} ({} logs)", servers.logs.word());
        match std::path::Path::new(&format!("/proc/{pid}")).exists() {
            true => report.remember(name, rss_max_kib(pid)),
            false => report.fail(Failure::after(format!("{name} has ended"), "")),
        }
    }
    runtime.block_on(look_at_screens(&servers, report));
    let logs =
        [("the agent's log", servers.agent.log()), ("the gateway's log", servers.gateway.log())];
    for (name, log) in logs {
        let name = format!("{name} ({})", servers.logs.word());
        inspect(&name, log.as_bytes(), report);
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            report.fail(Failure::after(format!("{name}: a panic"), line));
        }
        if servers.logs == Logs::Json {
            lines_are_json(&name, &log, report);
            inspect_texts(&name, &log, report);
        }
    }
    for path in servers.trails() {
        let trail = std::fs::read(path).unwrap_or_default();
        inspect("the trail", &trail, report);
        lines_are_json("the trail", &String::from_utf8_lossy(&trail), report);
    }
}

fn inspect(name: &str, bytes: &[u8], report: &mut Report) {
    if let Some(danger) = terminal::danger(bytes) {
        report.fail(Failure::after(format!("{name} has what a terminal interprets"), danger));
    }
    if let Some(line) = terminal::forged(&String::from_utf8_lossy(bytes)) {
        report.fail(Failure::after(format!("{name} has a line of a caller's"), line));
    }
}

fn lines_are_json(name: &str, text: &str, report: &mut Report) {
    // Words from before the settings are read are for people; the last line may be cut.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let is_bad =
        |line: &str| !line.starts_with("tenured") && serde_json::from_str::<Value>(line).is_err();
    if let Some(line) = whole.into_iter().find(|line| is_bad(line)) {
        report.fail(Failure::after(format!("{name} has a line that is no JSON"), line));
    }
}

/// The texts in JSON, or in lines of JSON, as their readers see them. The trail has names as they are, and escapes them.
fn inspect_texts(name: &str, text: &str, report: &mut Report) {
    let whole = terminal::danger_in_json(text.as_bytes());
    let of_line = || text.lines().find_map(|line| terminal::danger_in_json(line.as_bytes()));
    if let Some(danger) = whole.or_else(of_line) {
        let sort = format!("{name} has texts that a terminal interprets");
        report.fail(Failure::after(sort, danger));
    }
}

async fn look_at_screens(servers: &Servers, report: &mut Report) {
    let mut lane = Lane::open(servers, 0).await;
    let endpoints = OF_AGENT.map(|path| (Server::Agent, path)).into_iter();
    let endpoints = endpoints.chain(OF_GATEWAY.map(|path| (Server::Gateway, path)));
    let mut listed = Value::Null;
    for (to, path) in endpoints {
        let reply = lane.send(&Sent::get(to, path.to_owned())).await;
        check(&format!("GET {path}"), &reply, report);
        if let (Reply::Http { body, .. }, "/v1/list?limit=1000") = (&reply, path) {
            listed = serde_json::from_slice(body).unwrap_or_default();
        }
    }
    let of_all = COMMANDS.iter().map(|words| words.iter().map(OsString::from).collect());
    let mut commands: Vec<Vec<OsString>> = of_all.collect();
    let resources = listed["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    for resource in resources.iter().take(ONES_MAX) {
        let word = |key: &str| OsString::from(resource[key].as_str().unwrap_or_default());
        let mut tenant = OsString::from("--tenant=");
        tenant.push(word("tenant"));
        for command in OF_ONE {
            let rest = ["--".into(), word("kind"), word("name")];
            commands.push([command.into(), tenant.clone()].into_iter().chain(rest).collect());
        }
    }
    for arguments in commands {
        let name = format!("tenure {arguments:?}");
        let reply = lane.send(&Sent::Process { program: "tenure", arguments }).await;
        check(&name, &reply, report);
    }
}

fn check(name: &str, reply: &Reply, report: &mut Report) {
    let bytes = match reply {
        Reply::Http { status, body } if *status < 500 => body,
        Reply::Process { code: Some(0..=78), output } => output,
        other => {
            return report.fail(Failure::after(format!("{name} failed"), verdict::text(other)));
        }
    };
    inspect(name, bytes, report);
    inspect_texts(name, &String::from_utf8_lossy(bytes), report);
}
