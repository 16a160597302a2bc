//! `[[allow]]` rules, quotas, and a configuration that is checked.

use std::process::Command;

use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{Agent, Client, Puppet, binary, other_users};

const ONE: u32 = 65534;

fn with_rules(rules: &str) -> Option<(Agent, Puppet, Puppet)> {
    let [one, other] = other_users()?;
    assert_eq!(one, ONE);
    let agent = Agent::setup().config(rules).open_to_all().start();
    let (one, other) = (Puppet::start_as(&agent, one), Puppet::start_as(&agent, other));
    Some((agent, one, other))
}

#[test]
fn without_a_matching_rule_nothing_is_allowed() {
    let Some((_agent, mut one, mut other)) = with_rules("[[allow]]\nuid = 65534\n") else { return };
    one.register(&json!({}));
    other.post("/v1/register", &json!({})).problem(Code::Forbidden);
    other.get("/v1/standing?kind=leader&name=role").problem(Code::Forbidden);
    assert_eq!(other.get("/healthz").status, 200, "health is for everybody");
}

#[test]
fn a_rule_bounds_tenant_project_kind_name_and_priority() {
    let rules = "[[allow]]\nuid = 65534\ntenants = [\"acme\"]\nprojects = [\"build-*\"]\n\
                 kinds = [\"leader\", \"master\"]\nnames = [\"ci-*\", \"build-*\"]\npriority_max = 5\n";
    let Some((_agent, mut one, _)) = with_rules(rules) else { return };
    one.post("/v1/register", &json!({})).problem(Code::Forbidden);
    let wrong_tenant = json!({"tenant": "other", "project": "build-1"});
    one.post("/v1/register", &wrong_tenant).problem(Code::Forbidden);
    let wrong_project = json!({"tenant": "acme", "project": "deploy"});
    one.post("/v1/register", &wrong_project).problem(Code::Forbidden);

    let session = one.register(&json!({"tenant": "acme", "project": "build-1"})).session;
    one.acquire(session, "leader", "ci-cleanup", &json!({}));
    one.ask(session, "leader", "prod", &json!({})).problem(Code::Forbidden);
    one.ask(session, "semaphore", "ci-gpu", &json!({})).problem(Code::Forbidden);
    let refused = one.ask(session, "master", "", &json!({"priority": 6})).problem(Code::Forbidden);
    assert!(refused.detail.contains('5'), "names the ceiling: {refused}");
    one.acquire(session, "master", "", &json!({"priority": 5}));
}

#[test]
fn a_rule_bounds_what_is_told_as_it_bounds_what_may_be_held() {
    let rules = "[[allow]]\nuid = 65534\nprojects = [\"web-*\"]\n\
                 kinds = [\"leader\", \"lease\", \"master\"]\nnames = [\"ci/*\"]\n[[allow]]\nuid = 1\n";
    let Some((agent, mut one, mut other)) = with_rules(rules) else { return };
    let session = other.register(&json!({"project": "secret"})).session;
    for name in ["ci/a", "prod"] {
        other.acquire(session, "leader", name, &json!({}));
        other.acquire(session, "lease", name, &json!({}));
    }
    for allowed in ["leader&name=ci/a", "lease&name=ci/a", "master&name=web-1"] {
        assert_eq!(one.get(&format!("/v1/standing?kind={allowed}")).status, 200, "{allowed}");
    }
    for forbidden in
        ["leader&name=prod", "lease&name=prod", "semaphore&name=ci/a", "master&name=secret"]
    {
        one.get(&format!("/v1/standing?kind={forbidden}")).problem(Code::Forbidden);
        one.get(&format!("/v1/observe?kind={forbidden}")).problem(Code::Forbidden);
    }
    let named = |routes: serde_json::Value| -> Vec<String> {
        let lines = routes["routes"].as_array().expect("a list").iter();
        lines.map(|line| line["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(named(one.get("/v1/routes").json(200)), ["ci/a"]);
    assert!(named(one.get("/v1/routes?name=prod").json(200)).is_empty());
    assert_eq!(named(other.get("/v1/routes").json(200)).len(), 2);
    // Neither a cursor nor a total tells of what may not be read.
    for name in ["ci/b", "ci/c", "aa", "ci-z"] {
        other.acquire(session, "lease", name, &json!({}));
    }
    let mut seen = Vec::new();
    let mut next = "/v1/routes?limit=1".to_owned();
    loop {
        let page = one.get(&next).json(200);
        assert!(page.get("total").is_none(), "{page}");
        seen.extend(named(page.clone()));
        let Some(cursor) = page.get("cursor").and_then(serde_json::Value::as_str) else { break };
        assert!(cursor.starts_with("ci/"), "{cursor}");
        next = format!("/v1/routes?limit=1&cursor={cursor}");
    }
    assert_eq!(seen, ["ci/a", "ci/b", "ci/c"]);
    // Root needs no rule to look: it may revoke, too.
    assert_eq!(agent.http().get("/v1/standing?kind=leader&name=prod").status, 200);
}

#[test]
fn a_rule_bounds_sessions_and_holds() {
    let rules = "[[allow]]\nuid = 65534\nsessions_max = 2\nholds_max = 3\n[[allow]]\nuid = 1\n";
    let Some((agent, mut one, mut other)) = with_rules(rules) else { return };
    let first = one.register(&json!({})).session;
    let second = one.register(&json!({})).session;
    let refused = one.post("/v1/register", &json!({}));
    let problem = refused.problem(Code::QuotaExceeded);
    assert!(problem.retry_after_ms.is_some());
    assert!(refused.header("retry-after").is_some());

    let held = one.acquire(first, "leader", "a", &json!({}));
    one.acquire(first, "leader", "b", &json!({}));
    one.acquire(second, "leader", "c", &json!({}));
    one.ask(second, "leader", "d", &json!({})).problem(Code::QuotaExceeded);
    // A hold that is given back makes room; so does a session.
    one.release(first, held.hold);
    one.acquire(second, "leader", "d", &json!({}));
    one.end(first);
    one.register(&json!({}));

    for _ in 0..4 {
        let session = other.register(&json!({})).session;
        other.acquire(session, "leader", &session.to_string(), &json!({}));
    }
    assert_eq!(agent.counts(), (6, 6, 0), "another user has its own room");
}

#[test]
fn the_agents_own_limits_refuse_with_retry_after() {
    let config = "[limits]\nsessions_max = 3\nholds_max = 2\n";
    let agent = Agent::setup().config(config).start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.register(&json!({}));
    http.register(&json!({}));
    http.post("/v1/register", &json!({})).problem(Code::QuotaExceeded);
    http.acquire(session, "leader", "a", &json!({}));
    http.acquire(session, "leader", "b", &json!({}));
    let refused = http.ask(session, "leader", "c", &json!({}));
    let problem = refused.problem(Code::QuotaExceeded);
    assert!(problem.detail.contains('2'), "names the limit: {problem}");
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn connections_are_limited_and_others_are_served_again() {
    let config = "[limits]\nconnections_max = 20\nconnections_per_uid_max = 20\n";
    let agent = Agent::setup().config(config).start();
    // Idle connections make room.
    let mut idle: Vec<_> = (0..60).map(|_| agent.http()).collect();
    for http in &mut idle {
        assert_eq!(http.get("/healthz").status, 200);
    }
    // Open streams do not: the next one is refused, with an answer or without.
    let mut http = agent.http();
    let sessions: Vec<_> = (0..5).map(|_| http.register(&json!({})).session).collect();
    let streams: Vec<_> = sessions
        .iter()
        .flat_map(|&session| [session; 4])
        .map(|session| agent.events(session))
        .collect();
    match agent.http().try_call("GET", "/healthz", b"") {
        Ok(answer) => drop(answer.problem(Code::QuotaExceeded)),
        Err(error) => eprintln!("closed: {error}"),
    }
    drop(streams);
    tenure_tests::harness::until("room for one more", || {
        agent.http().try_call("GET", "/healthz", b"").is_ok_and(|answer| answer.status == 200)
    });
}

#[track_caller]
fn check_refused(config: &str, expected: &[&str]) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), config).expect("the file is ours");
    let output = Command::new(binary("tenured"))
        .args(["check-config", "--config"])
        .arg(file.path())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{config:?} was taken: {said}");
    for word in expected {
        assert!(said.contains(word), "{config:?}: {said:?} does not say {word:?}");
    }
}

#[test]
fn a_wrong_setting_names_the_key_the_value_and_the_rule() {
    check_refused("[leader]\nttl = \"10s\"\nbeat = \"6s\"\n", &["leader.ttl", "10s", "beat"]);
    check_refused("[leader]\nbeat = \"50ms\"\n", &["leader.beat", "50ms", "100"]);
    check_refused("[leader]\nttl = \"soon\"\n", &["leader.ttl", "soon"]);
    check_refused("[leeder]\nttl = \"10s\"\n", &["leeder"]);
    check_refused("[leader]\ntll = \"10s\"\n", &["tll", "ttl"]);
    check_refused("upstream = \"mysql://host\"\n", &["upstream", "embedded:"]);
    check_refused("[[allow]]\ntenants = [\"a\"]\n", &["allow", "uid"]);
    check_refused("not toml", &["expected"]);
}

#[test]
fn the_effective_configuration_is_shown() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), "[leader]\nttl = \"45s\"\n").expect("the file is ours");
    let output = Command::new(binary("tenured"))
        .args(["check-config", "--config"])
        .arg(file.path())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for word in ["45s", "socket", "[limits]", "sessions_max"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
}

#[test]
fn a_policy_is_tried_without_asking_for_anything() {
    let rules = "[[allow]]\nuid = 1001\nkinds = [\"leader\", \"master\"]\nnames = [\"nightly\"]\npriority_max = 5\n";
    let agent = Agent::setup().config(rules).start();
    let can = |words: &str| {
        let mut command = Command::new(binary("tenure"));
        command.env("TENURE_SOCKET", agent.socket()).arg("can").args(words.split(' '));
        let output = command.output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("it is UTF-8"))
    };
    let yes = "yes: uid 1001 (gid 1001) may have leader/nightly\n".to_owned();
    assert_eq!(can("--uid 1001 --gid 1001 leader nightly"), (Some(0), yes));
    for (words, said) in [
        ("--uid 1001 --gid 1001 leader other", "lets uid 1001 (gid 1001) have leader/other"),
        ("--uid 1002 --gid 1001 leader nightly", "no: no [[allow]] rule"),
        ("--uid 1001 --gid 1001 --priority 6 master p", "priority 5 at most, not 6"),
        ("--uid 1001 --gid 1001 --tenant other lease x", "in tenant \"other\""),
    ] {
        let (code, out) = can(words);
        assert_eq!(code, Some(77), "{words}: {out}");
        assert!(out.contains(said), "{words}: {out}");
    }
    let (code, out) = can("--uid 1001 --gid 1001 nightly");
    assert!(code == Some(64) && out.contains("rules go by the kind"), "{out}");
    assert_eq!(agent.counts(), (0, 0, 0), "nothing was asked for");
}

#[test]
fn a_user_may_ask_what_it_may_have_and_not_what_others_may() {
    let Some((_agent, mut one, _)) = with_rules("[[allow]]\nuid = 65534\nkinds = [\"leader\"]\n")
    else {
        return;
    };
    assert_eq!(one.get("/v1/can?kind=leader&name=a").json(200)["allowed"], true);
    assert_eq!(one.get("/v1/can?kind=lease&name=a").json(200)["allowed"], false);
    one.get("/v1/can?kind=lease&name=a&uid=0&gid=0").problem(Code::Forbidden);
}
