//! Cursors of a gateway's pages name nothing, are good for their caller, question and gateway alone, and no agent loses
//! a listing over that.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Answer, Client, Gateway, Key, Postgres, RedisServer, SharedStore, eventually, start_agent,
};

/// In every name that the bounded key must not see.
const SECRETS: [&str; 3] = ["SECRET", "umbrella", "zeta"];

/// A caller that speaks as an agent does, and keeps all that it was answered.
struct Caller<'a> {
    gateway: &'a Gateway,
    key: &'a Key,
    mark: String,
    heard: String,
}

impl<'a> Caller<'a> {
    fn new(gateway: &'a Gateway, key: &'a Key) -> Caller<'a> {
        let mut caller = Caller { gateway, key, mark: String::new(), heard: String::new() };
        let (status, welcome) = caller.ask("hello", &json!({"protocol": 1, "version": "x"}));
        assert_eq!(status, 200, "{welcome}");
        caller.mark = welcome["mark"].as_str().unwrap().to_owned();
        caller
    }

    fn ask(&mut self, operation: &str, body: &Value) -> (u16, Value) {
        let head = format!("POST /v1/upstream/{operation}");
        let called = self.gateway.call_with(&self.key.header(), &head, &body.to_string());
        let (status, answer) = called.unwrap();
        self.heard.push_str(&answer);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap())
    }

    fn owner(&self, number: usize) -> Value {
        let session = format!("67e55044-10b1-426f-{number:04x}-{}", self.mark);
        json!({"session": session, "host": "h", "name": "p"})
    }

    fn lease(&mut self, number: usize, tenant: &str, name: &str) {
        let claim = json!({"id": self.owner(1000 + number)["session"], "enqueue": false, "owner": self.owner(number),
            "resource": {"tenant": tenant, "kind": "lease", "name": name}, "ttl": {"secs": 600, "nanos": 0},
            "terms": {"Lease": {"grace": {"secs": 60, "nanos": 0}, "attributes": {}}}});
        let (status, answer) = self.ask("claim", &claim);
        assert_eq!(status, 200, "{answer}");
    }

    fn announce(&mut self, number: usize, tenant: &str, project: &str) {
        let record = json!({"owner": self.owner(number), "tenant": tenant, "project": project, "surface": "s",
            "ttl": {"secs": 600, "nanos": 0}});
        let (status, answer) = self.ask("announce", &record);
        assert_eq!(status, 200, "{answer}");
    }

    /// All rows of a listing, one at a time; and the first cursor.
    fn walk(&mut self, of: &Listing) -> (Vec<Value>, Option<String>) {
        let (mut rows, mut after, mut first) = (Vec::new(), Value::Null, None);
        loop {
            let (status, page) = self.ask(of.operation, &of.question(&after));
            assert_eq!(status, 200, "{page}");
            rows.extend(page[of.rows].as_array().unwrap().iter().cloned());
            after = page[of.next].clone();
            let Some(next) = after.as_str() else { return (rows, first) };
            assert!(!next.contains('/') && next.len() >= 198, "{next}");
            first.get_or_insert_with(|| next.to_owned());
        }
    }

    #[track_caller]
    fn is_refused(&mut self, of: &Listing, after: &str) {
        let (status, problem) = self.ask(of.operation, &of.question(&json!(after)));
        assert_eq!((status, &problem["field"]), (422, &json!("page.after")), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        let ways = ["begin at the first page", "start without one"];
        assert!(ways.iter().any(|way| detail.contains(way)), "{detail}");
    }
}

struct Listing {
    operation: &'static str,
    rows: &'static str,
    next: &'static str,
    of: Value,
}

impl Listing {
    fn routes() -> Listing {
        let of = json!({"tenant": "acme", "name": null});
        Listing { operation: "routes", rows: "routes", next: "cursor", of }
    }

    fn resources() -> Listing {
        Listing { operation: "resources", rows: "resources", next: "next", of: json!({}) }
    }

    fn members() -> Listing {
        let of =
            json!({"within": {"project": {"tenant": "acme", "project": "ci-1"}}, "listed": true});
        Listing { operation: "members", rows: "sessions", next: "next", of }
    }

    fn question(&self, after: &Value) -> Value {
        let mut question = self.of.clone();
        question["page"] = json!({"after": after, "limit": 1});
        question
    }
}

fn bounded() -> Key {
    Key::within("bounded", &["--tenant", "acme", "--name", "ci/*", "--project", "ci-*"])
}

fn fill(gateway: &Gateway, key: &Key) {
    let mut root = Caller::new(gateway, key);
    let leases = ["aaa/SECRET-merger-db", "ci/a", "ci/b", "m/SECRET-1", "zzz/SECRET-2"];
    for (number, name) in leases.into_iter().enumerate() {
        root.lease(number, "acme", name);
    }
    root.lease(5, "umbrella", "SECRET-lease");
    let projects = [
        ("acme", "SECRET-project-1"),
        ("acme", "ci-1"),
        ("acme", "ci-1"),
        ("acme", "ci-1"),
        ("acme", "ci-2"),
        ("umbrella", "SECRET-project-2"),
        ("zeta", "SECRET-3"),
    ];
    for (number, (tenant, project)) in projects.into_iter().enumerate() {
        root.announce(100 + number, tenant, project);
    }
}

fn names(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
}

fn no_answer_names_what_a_key_must_not_see(upstream: &str) {
    let (root, key) = (Key::new("root"), bounded());
    let mut gateway = Gateway::start_with(upstream, &[&root, &key]);
    fill(&gateway, &root);
    let mut caller = Caller::new(&gateway, &key);
    let (routes, of_routes) = caller.walk(&Listing::routes());
    assert_eq!(names(&routes), BTreeSet::from(["ci/a", "ci/b"]));
    let (resources, of_resources) = caller.walk(&Listing::resources());
    assert_eq!(names(&resources), BTreeSet::from(["ci-1", "ci-2", "ci/a", "ci/b"]));
    let (members, _) = caller.walk(&Listing::members());
    assert!(members.len() >= 3, "{members:?}");
    for path in ["resources", "mailboxes", "runners", "proxies", "overview", "agents"] {
        let head = format!("GET /v1/{path}");
        let (_, answer) = gateway.call_with(&key.header(), &head, "").unwrap();
        caller.heard.push_str(&answer);
    }
    for secret in SECRETS {
        assert!(!caller.heard.contains(secret), "{secret}: {}", caller.heard);
    }

    let [of_routes, of_resources] = [of_routes, of_resources].map(Option::unwrap);
    for nonsense in ["", "0", "r1", "acme/ci/a", "p[\"\",\"\"]", &"x".repeat(100_000)] {
        caller.is_refused(&Listing::routes(), nonsense);
        caller.is_refused(&Listing::resources(), nonsense);
    }
    caller.is_refused(&Listing::routes(), &of_resources);
    caller.is_refused(&Listing::resources(), &of_routes);
    Caller::new(&gateway, &root).is_refused(&Listing::resources(), &of_resources);
    gateway.kill();
    gateway.start_again();
    Caller::new(&gateway, &key).is_refused(&Listing::resources(), &of_resources);
}

#[test]
fn no_answer_names_what_a_key_must_not_see_embedded() {
    no_answer_names_what_a_key_must_not_see("embedded:");
}

#[test]
fn no_answer_names_what_a_key_must_not_see_redis() {
    let store = RedisServer::begin();
    no_answer_names_what_a_key_must_not_see(&SharedStore::url(&store));
}

#[test]
fn no_answer_names_what_a_key_must_not_see_postgres() {
    let store = Postgres::begin();
    no_answer_names_what_a_key_must_not_see(&SharedStore::url(&store));
}

#[test]
fn an_agents_listing_goes_on_when_its_gateway_is_another_one() {
    let mut gateway = Gateway::start("embedded:");
    let agent = start_agent(0, &gateway.url(), "");
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "holds": 8})).session;
    let wanted: BTreeSet<String> = (0..6).map(|number| format!("lease-{number}")).collect();
    for name in &wanted {
        http.acquire(session, "lease", name, &json!({}));
    }
    for path in ["/v1/list?kind=lease", "/v1/routes?tenant=default"] {
        let page = |after: &str| agent.http().get(&format!("{path}&limit=1{after}"));
        let row = |page: &Value| -> Vec<String> {
            let rows = page["resources"].as_array().or(page["routes"].as_array()).unwrap();
            rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
        };
        let mut shown = page("").json(200);
        let mut found = BTreeSet::from_iter(row(&shown));
        gateway.kill();
        gateway.start_again();
        while let Some(next) = shown["cursor"].as_str().map(str::to_owned) {
            let after = format!("&cursor={next}");
            shown = eventually("the agent to be connected", || {
                let answer: Answer = page(&after);
                (answer.status == 200).then(|| answer.json(200))
            });
            found.extend(row(&shown));
        }
        assert_eq!(found, wanted, "{path}");
    }
    // A listing begins again once: behind gateways that take turns it would not end.
    let first = agent.http().get("/v1/routes?tenant=default&limit=1").json(200);
    let first = first["cursor"].as_str().unwrap().to_owned();
    gateway.kill();
    gateway.start_again();
    let again = eventually("the agent to be connected", || {
        let target = format!("/v1/routes?tenant=default&limit=1&cursor={first}");
        let answer = agent.http().get(&target);
        (answer.status == 200).then(|| answer.json(200))
    });
    let again = again["cursor"].as_str().unwrap().to_owned();
    gateway.kill();
    gateway.start_again();
    let said = eventually("the agent to say so", || {
        let target = format!("/v1/routes?tenant=default&limit=1&cursor={again}");
        let text = agent.http().get(&target).text();
        text.contains("page.after").then_some(text)
    });
    assert!(said.contains("begin at the first page"), "{said}");
}
