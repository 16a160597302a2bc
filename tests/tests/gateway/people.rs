//! What a gateway shows people of who holds and waits for what.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Campaigner, Client, DEADLINE, Gateway, Key, RedisServer, eventually, start_agent,
};

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

    #[track_caller]
    fn release(&self, number: usize, tenant: &str, kind: &str, name: &str) {
        let resource = json!({"tenant": tenant, "kind": kind, "name": name});
        let (_, answer) =
            self.post("release", &json!({"claim": self.id(number), "resource": resource}));
        assert_eq!(answer, json!({"found": true}));
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

/// An open stream of changes.
struct Changes(BufReader<TcpStream>);

impl Changes {
    #[track_caller]
    fn open(gateway: &Gateway, key: Option<&Key>) -> Changes {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let header = key.map(Key::header).unwrap_or_default();
        write!(stream, "GET /v1/changes HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").unwrap();
        let mut changes = Changes(BufReader::new(stream));
        // At once, and before anything changes.
        assert_eq!(changes.line_after(""), "HTTP/1.1 200 OK");
        changes.line_after(": ");
        changes
    }

    /// The rest of the next line that begins so.
    #[track_caller]
    fn line_after(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(rest) = line.trim_end_matches(['\r', '\n']).strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        assert_eq!(self.line_after("event: "), "change");
        serde_json::from_str(&self.line_after("data: ")).unwrap()
    }

    /// The next change: its word, resource and holder.
    #[track_caller]
    fn next_of(&mut self) -> [String; 3] {
        let change = self.next();
        assert!(change["at"].as_u64() > Some(1_600_000_000_000), "{change}");
        let name = ["tenant", "kind", "name"].map(|of| change[of].as_str().unwrap().to_owned());
        let holder = change["holder"].as_str().unwrap_or_default().to_owned();
        [change["change"].as_str().unwrap().to_owned(), name.join("/"), holder]
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

    let asked = "?tenant=acme&kind=leader&name=prod";
    assert_eq!(acme.rows(asked, 1)[0]["holding"], 1);
    assert_eq!(ci.rows(asked, 0).len() + other.rows(asked, 0).len(), 0);
    // Nobody has it, which those within whose bounds it is are told.
    assert_eq!(other.rows("?tenant=other&kind=leader&name=prod", 1)[0]["holding"], 0);

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
        ("?name=a", "name"),
        ("?tenant=a&kind=lease", "name"),
        ("?tenant=&kind=lease&name=a", "tenant"),
        ("?tenant=a&kind=lease&name=a&offset=1", "name"),
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

#[test]
fn a_store_that_is_away_is_told_of_and_its_rows_are_not_made_up() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&redis.url());
    let caller = Caller::new(&gateway, None);
    caller.claim(0, "acme", "leader", "a");
    caller.rows("", 1);
    redis.kill();
    eventually("the gateway to notice", || {
        let (status, overview) = caller.get("/v1/overview");
        assert_eq!(status, 200, "{overview}");
        let store = &overview["gateway"]["store"];
        (store["state"] == "down" && store["error"].is_string()).then_some(())
    });
    for query in ["", "?offset=5"] {
        eventually("rows to be refused", || {
            let (status, problem) = caller.get(&format!("/v1/resources{query}"));
            assert!([200, 503].contains(&status), "{problem}");
            (status == 503 && problem["code"] == "upstream_unavailable").then_some(())
        });
    }
    let (_, overview) = caller.get("/v1/overview");
    assert_eq!(overview["complete"], false, "{overview}");
    redis.start_again();
    eventually("the rows of an empty store", || {
        let (status, page) = caller.get("/v1/resources");
        (status == 200 && page["total"] == 0).then_some(())
    });
    eventually("people to be told that it grants nothing yet", || {
        let (_, overview) = caller.get("/v1/overview");
        let store = &overview["gateway"]["store"];
        (store["state"] == "up" && store["error"].is_string()).then_some(())
    });
}

#[test]
fn five_thousand_in_redis_are_found_in_small_steps() {
    const COUNT: usize = 5_000;
    let redis = RedisServer::start();
    let fill = format!(
        "for i = 1, {COUNT} do \
           if i % 5 > 0 then redis.call('SET', 'leader:role-' .. i, 'another program', 'EX', 600) \
           else redis.call('ZADD', 'tenant:acme:adv-sem:semaphore_main:' .. i, 9e9, 'm') end \
           redis.call('SET', 'of nobody ' .. i, '') \
         end \
         redis.call('ZADD', 'adv-sem:semaphore_main:over', 1, 'm') \
         redis.call('SET', 'adv-sem:semaphore_main:strange', 'x')"
    );
    redis.command::<()>(&["EVAL", &fill, "0"]);
    redis.command::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
    redis.command::<()>(&["SLOWLOG", "RESET"]);
    let gateway = Gateway::start(&redis.url());
    let caller = Caller::new(&gateway, None);
    let overview = eventually("a whole reading", || {
        let (_, overview) = caller.get("/v1/overview");
        (overview["complete"] == true).then_some(overview)
    });
    assert_eq!(overview["counts"]["leader"], COUNT - COUNT / 5);
    // The times are for whoever measures: other programs may have the machine at any moment.
    let stats: String = redis.command(&["INFO", "commandstats"]);
    let stats = stats.lines().filter(|line| line.contains("scan:") || line.contains("evalsha:"));
    stats.for_each(|line| eprintln!("{line}"));
    // What another program put there by mistake is listed, and does no harm.
    caller.rows("", COUNT + 1);
    let strange = caller.rows("?search=strange", 1).remove(0);
    assert!(strange["error"].as_str().unwrap().contains("WRONGTYPE"), "{strange}");
    assert_eq!(caller.rows("?kind=semaphore&limit=1", COUNT / 5 + 1)[0]["holding"], 1);
    let slow: Vec<(u64, u64, u64, Vec<String>)> = redis
        .command::<Vec<redis::Value>>(&["SLOWLOG", "GET", "-1"])
        .into_iter()
        .filter_map(|it| match it {
            redis::Value::Array(mut it) => {
                it.truncate(4);
                redis::from_redis_value(redis::Value::Array(it)).ok()
            }
            _ => None,
        })
        .collect();
    let took: Vec<_> = slow.iter().map(|(_, _, us, words)| (us, words.get(..4))).collect();
    eprintln!("{} ms for {COUNT}; slower than 1 ms: {took:?}", overview["scanned_ms"]);
}

#[test]
fn agents_are_listed_as_long_as_they_speak_here() {
    let keys = [
        Key::within("laptop", &["--tenant", "default"]),
        Key::within("admin", &["--right", "agents"]),
    ];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&keys[0]));
    let mut program = Campaigner::start(&agent, "program");
    let with = json!({"ttl_ms": 3000});
    let _held = ["a", "b"].map(|name| program.acquire("leader", name, &with));
    let admin = Caller::new(&gateway, Some(&keys[1]));
    let line = eventually("beats", || {
        let (status, listed) = admin.get("/v1/agents");
        assert_eq!(status, 200, "{listed}");
        let of_laptop = |line: &&Value| line["principal"] == "laptop";
        let lines: Vec<_> = listed["agents"].as_array().unwrap().iter().filter(of_laptop).collect();
        assert_eq!(lines.len(), 1, "all its connections are one agent: {listed}");
        let is_whole = lines[0]["claims"] == 2 && lines[0]["beat_late_p99_ms"].is_u64();
        is_whole.then(|| lines[0].clone())
    });
    assert!(line["host"].is_string() && line["address"] == "127.0.0.1", "{line}");
    assert!(line["version"].is_string() && line["last_beat_ms"].is_u64(), "{line}");
    assert!(line["connected_ms"].as_u64() >= line["last_beat_ms"].as_u64(), "{line}");
    // With bounds one sees its own.
    let (_, own) = Caller::new(&gateway, Some(&keys[0])).get("/v1/agents");
    let own = own["agents"].as_array().unwrap();
    assert!(own.iter().all(|line| line["principal"] == "laptop") && !own.is_empty(), "{own:?}");
    let (_, all) = admin.get("/v1/agents");
    assert!(all["agents"].as_array().unwrap().iter().any(|line| line["principal"] == "admin"));
}

#[test]
fn changes_are_told_as_they_happen_and_end_with_the_key() {
    let free = Key::within("free", &["--right", "audit"]);
    let keys = [free, Key::within("other", &["--tenant", "other"])];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let [free, other] = [0, 1].map(|at| Caller::new(&gateway, Some(&keys[at])));
    let mut all = Changes::open(&gateway, Some(&keys[0]));
    let mut bound = Changes::open(&gateway, Some(&keys[1]));
    free.claim(0, "acme", "master", "crew");
    free.claim(1, "acme", "master", "crew");
    free.claim(1, "acme", "master", "crew");
    free.release(0, "acme", "master", "crew");
    other.claim(0, "other", "leader", "a");
    for [change, holder] in
        [["granted", "program 0"], ["waiting", "program 1"], ["released", "program 0"]]
    {
        assert_eq!(all.next_of(), [change, "acme/master/crew", holder]);
    }
    let expected = ["granted", "other/leader/a", "program 0"];
    assert_eq!(all.next_of(), expected);
    assert_eq!(bound.next_of(), expected, "of acme it was told nothing");

    gateway.keys(&["revoke", keys[1].id()]);
    let mut rest = String::new();
    while bound.0.read_line(&mut rest).unwrap() > 0 && !rest.ends_with("0\r\n") {}
    assert!(!rest.contains("event"), "{rest}");
}

#[test]
fn a_gateway_tells_of_what_another_one_did_to_what_somebody_looks_at() {
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::start(&redis.url()));
    let [here, there] = [0, 1].map(|at| Caller::new(&gateways[at], None));
    there.claim(0, "acme", "leader", "a");
    here.rows("", 1);
    let mut changes = Changes::open(&gateways[0], None);
    there.release(0, "acme", "leader", "a");
    assert_eq!(changes.next_of(), ["changed", "acme/leader/a", ""]);
}

fn a_row_says_until_when_a_hold_is_kept(upstream: &str) {
    let gateway = Gateway::start(upstream);
    let [first, second] = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    let mut http = first.http();
    for kind in ["leader", "master", "lease", "semaphore"] {
        let session = http.register(&json!({"project": "role"})).session;
        http.acquire(session, kind, "role", &json!({"hold_at_least_ms": 600_000}));
        assert!(http.end(session));
        let caller = Caller::new(&gateway, None);
        let resource = format!("?tenant=default&kind={kind}&name=role");
        let kept = eventually(&format!("{kind} to be kept"), || {
            let row = caller.rows(&resource, 1).remove(0);
            row["holders"][0]["kept_ms"].as_u64()
        });
        assert!((500_000..600_000).contains(&kept), "{kind}: {kept}");
        // The other host asks the same history.
        let holder = second.http().standing(kind, "role").holders.remove(0);
        assert!(holder.kept_ms.is_some_and(|ms| ms > 500_000), "{kind}: {holder:?}");
        assert!(holder.ended_ms.is_some(), "{kind}: {holder:?}");
    }
}

#[test]
fn what_the_embedded_store_of_a_gateway_keeps_is_told() {
    a_row_says_until_when_a_hold_is_kept("embedded:");
}

#[test]
fn what_the_redis_of_a_gateway_keeps_is_told() {
    a_row_says_until_when_a_hold_is_kept(&RedisServer::start().url());
}
