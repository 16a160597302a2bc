//! What a gateway shows people of who holds and waits for what.

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, RedisServer, eventually};

/// Somebody who looks, and claims as an agent does.
struct Caller<'a> {
    gateway: &'a Gateway,
    header: String,
    mark: String,
}

impl<'a> Caller<'a> {
    fn new(gateway: &'a Gateway, key: Option<&Key>) -> Caller<'a> {
        let header = key.map(Key::header).unwrap_or_default();
        let mut caller = Caller { gateway, header, mark: String::new() };
        let (_, welcome) = caller.post("hello", &json!({"protocol": 1, "version": "x"}));
        caller.mark = welcome["mark"].as_str().unwrap().to_owned();
        caller
    }

    fn call(&self, head: &str, body: &str) -> (u16, Value) {
        let (status, answer) = self.gateway.call_with(&self.header, head, body).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn post(&self, operation: &str, body: &Value) -> (u16, Value) {
        self.call(&format!("POST /v1/upstream/{operation}"), &body.to_string())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.call(&format!("GET {path}"), "")
    }

    fn id(&self, number: usize) -> String {
        format!("67e55044-10b1-426f-{number:04x}-{}", self.mark)
    }

    fn owner(&self, number: usize) -> Value {
        json!({"session": self.id(number), "host": "alpha", "name": format!("program {number}")})
    }

    #[track_caller]
    fn claim(&self, number: usize, tenant: &str, kind: &str, name: &str) {
        let terms = match kind {
            "master" => json!({"Master": {"priority": 0}}),
            "semaphore" => json!({"Semaphore": {"limit": 1}}),
            "lease" => {
                json!({"Lease": {"grace": ttl(0), "attributes": {"address": "10.0.0.1:80"}}})
            }
            _ => json!("Leader"),
        };
        let resource = json!({"tenant": tenant, "kind": kind, "name": name});
        let claim = json!({"id": self.id(number), "resource": resource, "owner": self.owner(number),
            "ttl": ttl(60), "terms": terms, "enqueue": true});
        let (status, answer) = self.post("claim", &claim);
        assert_eq!(status, 200, "{answer}");
    }

    #[track_caller]
    fn announce(&self, number: usize, tenant: &str, project: &str) {
        let record = json!({"owner": self.owner(number), "tenant": tenant, "project": project,
            "surface": "s", "ttl": ttl(60)});
        let (status, answer) = self.post("announce", &record);
        assert_eq!(status, 200, "{answer}");
    }

    /// The rows of a page, and how many there are in all, once there are as many.
    #[track_caller]
    fn rows(&self, query: &str, total: usize) -> Vec<Value> {
        eventually(&format!("{total} resources of {query:?}"), || {
            let (status, mut page) = self.get(&format!("/v1/resources{query}"));
            assert_eq!(status, 200, "{page}");
            (page["total"] == total).then(|| page["rows"].as_array_mut().unwrap().split_off(0))
        })
    }
}

fn ttl(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}

fn names(rows: &[Value]) -> Vec<String> {
    let word = |row: &Value, of: &str| row[of].as_str().unwrap().to_owned();
    rows.iter().map(|row| ["tenant", "kind", "name"].map(|of| word(row, of)).join("/")).collect()
}

fn people_see_what_is_held_waited_for_and_announced(upstream: &str) {
    let gateway = Gateway::start(upstream);
    let caller = Caller::new(&gateway, None);
    for (number, kind) in ["leader", "master", "lease", "semaphore"].into_iter().enumerate() {
        caller.claim(2 * number, "acme", kind, "Role");
        caller.claim(2 * number + 1, "acme", kind, "Role");
    }
    caller.announce(8, "acme", "Role");
    caller.announce(9, "acme", "crew");
    caller.claim(10, "default", "leader", "a");

    let rows = caller.rows("", 6);
    let expected = ["acme/master/Role", "acme/master/crew", "acme/leader/Role", "acme/lease/Role"];
    assert_eq!(names(&rows)[..4], expected);
    assert_eq!(names(&rows)[4..], ["acme/semaphore/Role", "default/leader/a"]);
    for row in [&rows[0], &rows[2], &rows[3], &rows[4]] {
        assert_eq!((&row["holding"], &row["waiting"]), (&json!(1), &json!(1)), "{row}");
        let holder = &row["holders"][0];
        assert_eq!(holder["host"], "alpha", "{row}");
        assert!(holder["token"].as_u64().unwrap() > 0 && holder["since_ms"].is_u64(), "{row}");
        let waiter = &row["waiters"][0];
        assert!(waiter["session"].as_str().unwrap().ends_with(&caller.mark), "{row}");
        assert!(waiter.get("token").is_none() && waiter["name"].is_string(), "{row}");
    }
    assert_eq!((&rows[0]["sessions"], &rows[0]["members"]), (&json!(["program 8"]), &json!(1)));
    assert_eq!((&rows[1]["sessions"], &rows[1]["holding"]), (&json!(["program 9"]), &json!(0)));
    assert_eq!(rows[3]["route"]["address"], "10.0.0.1:80");
    assert_eq!((&rows[4]["limit"], &rows[2]["limit"]), (&json!(1), &Value::Null));

    assert_eq!(names(&caller.rows("?kind=master&limit=1&offset=1", 2)), ["acme/master/crew"]);
    assert_eq!(names(&caller.rows("?search=ROL&kind=lease", 1)), ["acme/lease/Role"]);
    assert_eq!(caller.rows("?offset=100", 6).len(), 0);

    let (_, overview) = caller.get("/v1/overview");
    let counts = json!({"master": 2, "leader": 2, "lease": 1, "semaphore": 1});
    assert_eq!((&overview["counts"], &overview["complete"]), (&counts, &json!(true)), "{overview}");
    let store = &overview["gateway"]["store"];
    assert_eq!((&store["state"], &store["error"]), (&json!("up"), &Value::Null), "{overview}");
    assert!(overview["read_at"].as_u64() >= overview["gateway"]["started_at"].as_u64());
}

#[test]
fn people_see_what_the_embedded_store_has() {
    people_see_what_is_held_waited_for_and_announced("embedded:");
}

#[test]
fn people_see_what_redis_has() {
    people_see_what_is_held_waited_for_and_announced(&RedisServer::start().url());
}

#[test]
fn nobody_sees_what_is_outside_of_the_bounds_of_its_key() {
    let keys = [
        Key::within("acme", &["--tenant", "acme"]),
        Key::within("other", &["--tenant", "other"]),
        Key::within("ci", &["--tenant", "acme", "--kind", "leader", "--name", "ci/*"]),
    ];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1], &keys[2]]);
    let [acme, other, ci] = [0, 1, 2].map(|at| Caller::new(&gateway, Some(&keys[at])));
    acme.claim(0, "acme", "leader", "ci/a");
    acme.claim(1, "acme", "leader", "prod");
    acme.claim(2, "acme", "lease", "ci/a");
    acme.rows("", 3);
    assert_eq!(names(&ci.rows("", 1)), ["acme/leader/ci/a"]);
    assert_eq!(other.rows("", 0).len(), 0);
    let none = json!({"master": 0, "leader": 0, "lease": 0, "semaphore": 0});
    assert_eq!(other.get("/v1/overview").1["counts"], none);
    assert_eq!(ci.get("/v1/overview").1["counts"]["leader"], 1);

    let stranger = Caller { gateway: &gateway, header: String::new(), mark: String::new() };
    for path in ["/v1/overview", "/v1/resources"] {
        assert_eq!(stranger.get(path).0, 401, "{path}");
    }
}

#[test]
fn a_question_that_is_wrong_is_refused_with_the_rule() {
    let gateway = Gateway::start("embedded:");
    let caller = Caller::new(&gateway, None);
    let long = format!("?search={}", "x".repeat(513));
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?limit=many", "limit"),
        ("?offset=-1", "offset"),
        ("?kind=mutex", "kind"),
        ("?kind=lease&kind=lease", "kind"),
        (long.as_str(), "search"),
    ] {
        let (status, problem) = caller.get(&format!("/v1/resources{query}"));
        assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "{query}: {problem}");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
    let (status, problem) = caller.get("/v1/resources?page=2");
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 422 && detail.contains("kind, search, offset, limit"), "{problem}");
    assert_eq!(caller.call("POST /v1/resources", "").0, 405);
}
