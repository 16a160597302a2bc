//! What a key lets its principal do at a gateway, and what the gateway writes down of it.

use serde_json::{Value, json};
use tenure_tests::harness::{Campaigner, Client, Gateway, Key, start_agent, until};

const TTL_S: u64 = 30;
/// Holds of the agent whose key is rotated.
const HOLDS: usize = 200;

/// A caller that speaks as an agent does.
struct Caller<'a> {
    gateway: &'a Gateway,
    key: &'a Key,
    mark: String,
}

impl<'a> Caller<'a> {
    fn new(gateway: &'a Gateway, key: &'a Key) -> Caller<'a> {
        let mut caller = Caller { gateway, key, mark: String::new() };
        let (status, welcome) = caller.ask("hello", &json!({"protocol": 1, "version": "x"}));
        assert_eq!(status, 200, "{welcome}");
        caller.mark = welcome["mark"].as_str().unwrap().to_owned();
        caller
    }

    fn id(&self, number: usize) -> String {
        format!("67e55044-10b1-426f-{number:04x}-{}", self.mark)
    }

    fn ask(&self, operation: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask_text(operation, &body.to_string());
        (status, serde_json::from_str(&body).unwrap())
    }

    fn ask_text(&self, operation: &str, body: &str) -> (u16, String, String) {
        let head = format!("POST /v1/upstream/{operation}");
        let (status, answer) = self.gateway.call_with(&self.key.header(), &head, body).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn owner(&self) -> Value {
        json!({"session": self.id(0), "host": "h", "name": "p"})
    }

    fn claim(&self, number: usize, resource: &Value, enqueue: bool) -> Value {
        let terms = match resource["kind"].as_str() {
            Some("master") => json!({"Master": {"priority": 0}}),
            Some("lease") => json!({"Lease": {"grace": ttl(1), "attributes": {}}}),
            _ => json!("Leader"),
        };
        json!({"id": self.id(number), "resource": resource, "owner": self.owner(), "ttl": ttl(TTL_S),
            "terms": terms, "enqueue": enqueue})
    }

    fn announce(&self, tenant: &str, project: &str) -> Value {
        json!({"owner": self.owner(), "tenant": tenant, "project": project, "surface": "s",
            "ttl": ttl(TTL_S)})
    }

    fn beat(&self, number: usize, resource: &Value) -> Value {
        json!({"subject": {"Claim": {"claim": self.id(number), "resource": resource}},
            "ttl": ttl(TTL_S)})
    }

    fn session_beat(&self, tenant: &str, project: &str) -> Value {
        let master = resource(tenant, "master", project);
        json!({"subject": {"Session": {"session": self.id(0), "master": master}}, "ttl": ttl(TTL_S)})
    }

    #[track_caller]
    fn refused(&self, operation: &str, body: &Value, bound: &str) {
        let (status, problem) = self.ask(operation, body);
        let refusal = match bound.ends_with("s_max") {
            true => (429, json!("quota_exceeded"), json!(1000)),
            false => (403, json!("forbidden"), Value::Null),
        };
        let found = (status, problem["code"].clone(), problem["retry_after_ms"].clone());
        assert_eq!(found, refusal, "{body}: {problem}");
        assert_eq!(problem["field"], bound, "{body}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("bounds of this key") && detail.contains("ask the"), "{detail}");
    }

    #[track_caller]
    fn done(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(operation, body);
        assert_eq!(status, 200, "{body}: {answer}");
        answer
    }
}

fn ttl(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}

fn resource(tenant: &str, kind: &str, name: &str) -> Value {
    json!({"tenant": tenant, "kind": kind, "name": name})
}

#[test]
fn times_that_no_store_can_count_with_are_refused() {
    let key = Key::new("free");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let caller = Caller::new(&gateway, &key);
    let leader = resource("acme", "leader", "a");
    for time in [ttl(0), ttl(u64::MAX), ttl(366 * 24 * 3600)] {
        let with_ttl = |mut body: Value| {
            body["ttl"] = time.clone();
            body
        };
        let beats = json!({"beats": [with_ttl(caller.beat(1, &leader))]});
        for (operation, body) in [
            ("claim", with_ttl(caller.claim(1, &leader, false))),
            ("announce", with_ttl(caller.announce("acme", "web"))),
            ("renew", beats),
        ] {
            let (status, problem) = caller.ask(operation, &body);
            assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("ttl is") && detail.contains("31536000000 ms"), "{problem}");
        }
    }
    let mut lease = caller.claim(1, &resource("acme", "lease", "a"), false);
    let terms = |grace: u64| json!({"Lease": {"grace": ttl(grace), "attributes": {}}});
    lease["terms"] = terms(u64::MAX);
    assert_eq!(caller.ask("claim", &lease).0, 422);
    lease["terms"] = terms(1);
    caller.done("claim", &lease);
    caller.done("claim", &caller.claim(2, &leader, false));
}

#[test]
fn a_key_is_good_within_its_bounds_alone() {
    let bounds = [
        ["--tenant", "acme"],
        ["--project", "web-*"],
        ["--kind", "leader"],
        ["--kind", "master"],
        ["--name", "ci/*"],
        ["--priority-max", "0"],
        ["--ttl-max", "30s"],
    ];
    let short = Key::within("short", &["--ttl-max", "30s"]);
    let keys = [Key::within("bound", bounds.as_flattened()), Key::new("free"), short];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [bound, free] = [0, 1].map(|at| Caller::new(&gateway, &keys[at]));
    let own = resource("acme", "leader", "ci/a");
    let foreign = resource("other", "leader", "ci/a");
    let prod = resource("acme", "leader", "prod");
    let claim = |resource: &Value| bound.claim(1, resource, false);

    bound.refused("claim", &claim(&foreign), "tenants");
    bound.refused("claim", &claim(&prod), "names");
    bound.refused("claim", &claim(&resource("acme", "lease", "ci/a")), "kinds");
    bound.refused("claim", &claim(&resource("acme", "master", "api")), "projects");
    let mut high = claim(&resource("acme", "master", "web-1"));
    high["terms"] = json!({"Master": {"priority": 1}});
    bound.refused("claim", &high, "priority_max");
    let mut long = claim(&own);
    long["ttl"] = ttl(TTL_S + 1);
    bound.refused("claim", &long, "ttl_max");
    let kept = Caller::new(&gateway, &keys[2]);
    let mut lease = kept.claim(1, &resource("acme", "lease", "a"), false);
    lease["terms"] = json!({"Lease": {"grace": ttl(TTL_S + 1), "attributes": {}}});
    kept.refused("claim", &lease, "ttl_max");
    bound.refused("announce", &bound.announce("acme", "api"), "projects");
    let end = json!({"session": bound.id(0), "tenant": "other", "project": "web-1"});
    bound.refused("end", &end, "tenants");
    bound.refused("release", &json!({"claim": bound.id(1), "resource": foreign}), "tenants");
    bound.refused("inspect", &json!({"resource": foreign}), "tenants");
    bound.refused("inspect", &json!({"resource": prod, "all_holders": true}), "names");
    bound.refused("revoke", &json!({"resource": prod}), "names");
    let routes = json!({"tenant": "other", "page": {"after": null, "limit": 10}});
    bound.refused("routes", &routes, "tenants");

    // What is outside costs a batch nothing but itself; a session's beat is for its project's master, too.
    bound.done("claim", &claim(&own));
    bound.done("announce", &bound.announce("acme", "web-1"));
    let held = free.claim(1, &prod, false);
    free.done("claim", &held);
    let beats = [
        bound.beat(2, &prod),
        bound.beat(1, &own),
        bound.session_beat("acme", "api"),
        bound.session_beat("other", "web-1"),
        bound.session_beat("acme", "web-1"),
    ];
    let answers = bound.done("renew", &json!({"beats": beats}))["beats"].clone();
    let gone = json!({"Gone": "Revoked"});
    for (index, is_gone) in [true, false, true, true, false].into_iter().enumerate() {
        assert_eq!(answers[index] == gone, is_gone, "{index}: {answers}");
    }
    assert!(!answers[1]["Held"].is_null() && !answers[4]["Session"].is_null(), "{answers}");

    // Operation ids and sessions of another principal are nobody's.
    for (operation, body) in [
        ("claim", free.claim(1, &own, false)),
        ("renew", json!({"beats": [free.beat(1, &own)]})),
        ("release", json!({"claim": free.id(1), "resource": own})),
        ("announce", free.announce("acme", "web-1")),
    ] {
        let (status, answer) = bound.ask(operation, &body);
        assert_eq!((status, &answer["code"]), (404, &json!("session_unknown")), "{operation}");
    }
}

#[test]
fn a_principal_has_no_more_than_its_key_says_and_room_comes_back() {
    let bounds = ["--sessions-max", "1", "--holds-max", "3", "--waiters-max", "1"];
    let keys = [Key::within("few", &bounds), Key::new("free")];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let [few, free] = [0, 1].map(|at| Caller::new(&gateway, &keys[at]));
    let named = |name: &str| resource("t", "leader", name);
    for (number, name) in [(1, "taken"), (2, "taken too")] {
        free.done("claim", &free.claim(number, &named(name), false));
    }
    few.done("announce", &few.announce("t", "p"));
    let mut other = few.announce("t", "p");
    other["owner"]["session"] = json!(few.id(9));
    few.refused("announce", &other, "sessions_max");

    few.done("claim", &few.claim(1, &named("a"), false));
    few.done("claim", &few.claim(1, &named("a"), false));
    let waits = few.done("claim", &few.claim(2, &named("taken"), true));
    assert!(!waits["Waiting"].is_null(), "{waits}");
    few.refused("claim", &few.claim(3, &named("taken too"), true), "waiters_max");
    // One that somebody else has takes no room.
    for number in 10..20 {
        let taken = few.done("claim", &few.claim(number, &named("taken too"), false));
        assert!(!taken["Contended"].is_null(), "{taken}");
    }
    few.done("claim", &few.claim(3, &named("b"), false));
    few.refused("claim", &few.claim(4, &named("c"), false), "holds_max");
    few.done("release", &json!({"claim": few.id(1), "resource": named("a")}));
    few.done("claim", &few.claim(4, &named("c"), false));
    // It is the principal's, whichever key it shows.
    let (rotated, overlap) = (gateway.keys(&["rotate", keys[0].id()]), keys[0].header());
    let again = Key { text: rotated, line: String::new() };
    until("the new key to be known", || {
        gateway.call_with(&again.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#).unwrap().0
            == 200
    });
    let twin = Caller::new(&gateway, &again);
    twin.refused("claim", &twin.claim(5, &named("d"), false), "holds_max");
    let (status, _) =
        gateway.call_with(&overlap, "POST /v1/upstream/renew", r#"{"beats":[]}"#).unwrap();
    assert_eq!(status, 200, "the old key is good for a while");
}

#[test]
fn who_is_too_fast_is_told_when_to_come_again_and_beats_go_on() {
    let keys = [Key::within("fast", &["--requests-per-second", "2"]), Key::new("free")];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let [fast, free] = [0, 1].map(|at| Caller::new(&gateway, &keys[at]));
    let look = json!({"resource": resource("t", "leader", "n")}).to_string();
    // A call each until one is too early: how many there were depends on the machine.
    let mut refused = None;
    until("a call to be too early", || {
        let (status, head, body) = fast.ask_text("inspect", &look);
        refused = (status != 200).then_some((status, head, body));
        refused.is_some()
    });
    let (status, head, body) = refused.unwrap();
    assert!(status == 429 && head.contains("retry-after: 1"), "{head}{body}");
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(problem["field"], "requests_per_second");
    assert!(problem["detail"].as_str().unwrap().contains("requests_per_second = 2"), "{problem}");
    fast.done("renew", &json!({"beats": []}));
    free.done("inspect", &serde_json::from_str(&look).unwrap());
    until("a call to be in time", || fast.ask_text("inspect", &look).0 == 200);
}

#[test]
fn oversized_and_malformed_batches_are_refused_and_cost_nothing_else() {
    let key = Key::new("alpha");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let caller = Caller::new(&gateway, &key);
    let leader = resource("t", "leader", "n");
    caller.done("claim", &caller.claim(1, &leader, false));
    let many = vec![caller.beat(1, &leader); 513];
    let long = "x".repeat((1 << 20) + 1);
    for (body, status, says) in [
        (json!({"beats": many}).to_string(), 422, "beats is 513; the rule: 512 at most"),
        (json!({"beats": [long]}).to_string(), 413, "1048576 bytes at most"),
        ("{\"beats\":[".to_owned(), 422, "EOF"),
        (json!({"beats": [{"subject": "x", "ttl": 1}]}).to_string(), 422, ""),
        (json!({"beats": {"1": 2}}).to_string(), 422, ""),
        ("[".repeat(100_000), 422, ""),
        (String::new(), 422, "EOF"),
    ] {
        let (answered, _, problem) = caller.ask_text("renew", &body);
        assert!(answered == status && problem.contains(says), "{problem}");
    }
    let beaten = caller.done("renew", &json!({"beats": [caller.beat(1, &leader)]}));
    assert!(!beaten["beats"][0]["Held"].is_null(), "{beaten}");
}

#[test]
fn a_key_that_is_revoked_or_over_lets_nobody_in_and_open_streams_end() {
    let keys = [Key::new("alpha"), Key::within("beta", &["--expires", "8s"]), Key::new("gamma")];
    let gateway = Gateway::start_audited("embedded:", &[&keys[0], &keys[1], &keys[2]]);
    let listed = gateway.keys(&["list"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(keys.iter().all(|key| listed.contains(key.id()) && !listed.contains(&key.text)));
    let [revoked, over, kept] = keys.each_ref().map(|key| gateway.changes(key));
    // Nobody tells the gateway: it sees that the file is another.
    gateway.keys(&["revoke", keys[0].id()]);
    revoked.ended();
    over.ended();
    for key in &keys[..2] {
        let (status, answer) =
            gateway.call_with(&key.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#).unwrap();
        assert!(status == 401 && !answer.contains(key.id()), "{answer}");
    }
    kept.is_open();
    let trail = gateway.trail();
    let change = trail.iter().find(|line| line["event"] == "key").unwrap();
    assert_eq!((&change["key"], &change["outcome"]), (&json!(keys[0].id()), &json!("revoked")));
    let text = format!("{}{trail:?}", gateway.log());
    assert!(keys.iter().all(|key| !text.contains(&key.text[12..])), "a secret is in a log");
}

#[test]
fn a_rotated_key_costs_no_hold() {
    let key = Key::new("laptop-7");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let config = gateway.config(&key);
    let agent = start_agent(0, &gateway.url(), &config);
    let mut programs = ["a", "b", "c", "d"].map(|name| Campaigner::start(&agent, name));
    let mut holds = Vec::new();
    for number in 0..HOLDS {
        let program = &mut programs[number % 4];
        holds.push(program.acquire("leader", &format!("role-{number}"), &json!({})));
    }
    let new = gateway.keys(&["rotate", key.id(), "--overlap", "2s"]);
    gateway.change_key(&key, &new);
    until("the old key to be over", || {
        gateway.call_with(&key.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#).unwrap().0
            == 401
    });
    // The first call by the old key is refused; then the agent reads the new one by itself.
    until("the agent to show the new key", || {
        let looked = agent.http().try_call("GET", "/v1/standing?kind=leader&name=role-0", b"");
        looked.is_ok_and(|answer| answer.status == 200)
    });
    let after = programs[0].acquire("leader", "after", &json!({}));
    for (number, hold) in holds.iter().enumerate() {
        let standing = agent.http().standing("leader", &format!("role-{number}"));
        assert_eq!(standing.holders[0].token, hold.token);
        assert!(after.token > hold.token);
    }
    assert_eq!(agent.counts().1, HOLDS as u64 + 1);
    for text in [agent.log(), gateway.log()] {
        assert!(!text.contains(&key.text[12..]) && !text.contains(&new[12..]));
    }
}

#[test]
fn the_trail_of_a_scenario_is_complete_and_in_order() {
    let beta = Key::within("beta", &["--right", "revoke"]);
    let keys = [Key::within("alpha", &["--tenant", "t"]), beta];
    let gateway = Gateway::start_audited("embedded:", &[&keys[0], &keys[1]]);
    let [alpha, beta] = [0, 1].map(|at| Caller::new(&gateway, &keys[at]));
    let master = resource("t", "master", "p");
    let leader = resource("t", "leader", "n");
    alpha.done("announce", &alpha.announce("t", "p"));
    alpha.done("claim", &alpha.claim(1, &master, false));
    let mut higher = beta.claim(1, &master, true);
    higher["terms"] = json!({"Master": {"priority": 5}});
    beta.done("claim", &higher);
    beta.done("claim", &beta.claim(2, &leader, false));
    alpha.done("claim", &alpha.claim(2, &leader, true));
    beta.done("release", &json!({"claim": beta.id(2), "resource": leader}));
    alpha.done("renew", &json!({"beats": [alpha.beat(2, &leader)]}));
    alpha.refused("claim", &alpha.claim(3, &resource("other", "leader", "n"), false), "tenants");
    beta.done("revoke", &json!({"resource": leader}));
    let end = json!({"session": alpha.id(0), "tenant": "t", "project": "p"});
    alpha.done("end", &end);
    gateway.keys(&["revoke", keys[1].id()]);
    let expected = [
        ("register", "alpha", "master/p"),
        ("grant", "alpha", "master/p"),
        ("preemption", "alpha", "master/p"),
        ("grant", "beta", "master/p"),
        ("grant", "beta", "leader/n"),
        ("release", "beta", "leader/n"),
        ("grant", "alpha", "leader/n"),
        ("refusal", "alpha", ""),
        ("loss", "alpha", "leader/n"),
        ("revocation", "beta", "leader/n"),
        ("release", "alpha", ""),
        ("key", "beta", ""),
    ];
    let mut trail = Vec::new();
    until("the trail to be written", || {
        trail = gateway.trail();
        trail.len() >= expected.len()
    });
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let found: Vec<_> = trail
        .iter()
        .map(|line| (text(line, "event"), text(line, "principal"), text(line, "resource")))
        .collect();
    let expected = expected.map(|(event, principal, resource)| {
        let resource = if resource.is_empty() { String::new() } else { format!("t:{resource}") };
        (event.to_owned(), principal.to_owned(), resource)
    });
    assert_eq!(found, expected, "{trail:#?}");
    let times: Vec<_> = trail.iter().map(|line| text(line, "time")).collect();
    assert!(times.is_sorted());
    let grant = &trail[1];
    assert_eq!(grant["key"], keys[0].id());
    assert_eq!(grant["session"], alpha.id(0));
    assert!(grant["token"].as_u64().unwrap() > 0 && text(grant, "peer").starts_with("127.0.0.1:"));
    assert_eq!(grant["token"], trail[2]["token"]);
    assert!(text(&trail[7], "outcome").contains("tenant \"other\""));
}
