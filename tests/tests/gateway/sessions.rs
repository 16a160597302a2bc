//! The session plane of a gateway, for programs that speak SPEC-032 ("Redis Session Plane"). Tests that show an
//! item of its acceptance list are named after it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, Python, RedisServer, Watched, nothing_is_left, until};

/// A program's way to a gateway, with a key.
pub(super) struct Program<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) key: &'a Key,
}

/// An answer: its status, its head, and its body.
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Program<'_> {
    #[track_caller]
    fn call(&self, head: &str, session: &str, body: &str) -> Answer {
        let session = match session {
            "" => String::new(),
            id => format!("X-Prism-Session-Id: {id}\r\n"),
        };
        let headers = format!("{}{session}", self.key.header());
        let (status, answer) = self.gateway.call_with(&headers, head, body).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Answer { status, head: head.to_lowercase(), body }
    }

    #[track_caller]
    pub(super) fn ask(&self, head: &str, session: &str, body: &str) -> Value {
        let Answer { status, body, .. } = self.call(head, session, body);
        assert_eq!(status, 200, "{head}: {body}");
        body
    }

    #[track_caller]
    pub(super) fn register(&self, identity: &str, surface: &str) -> Value {
        self.ask(REGISTER, "", &wanted(identity, surface))
    }

    #[track_caller]
    fn heartbeat(&self, session: &str) -> Value {
        self.ask(HEARTBEAT, session, "")
    }

    #[track_caller]
    pub(super) fn release(&self, session: &str) {
        assert_eq!(self.ask(RELEASE, session, "")["released"], true);
    }

    #[track_caller]
    fn status(&self, session: &str) -> Value {
        self.ask(STATUS, session, "")
    }

    #[track_caller]
    pub(super) fn events(&self, session: &str) -> Events {
        Events::open(self.gateway, self.key, session)
    }
}

pub(super) const REGISTER: &str = "POST /api/v1/controller/register";
const HEARTBEAT: &str = "POST /api/v1/controller/heartbeat";
const RELEASE: &str = "POST /api/v1/controller/release";
const STATUS: &str = "GET /api/v1/controller/status";
const EVENTS: &str = "GET /api/v1/controller/events";

/// Short enough for a test to wait for its end.
const SHORT: &[&str] = &["--ttl-max", "3s", "--right", "owners"];
/// Sees the sessions of other principals.
pub(super) const SEES: &[&str] = &["--right", "owners"];

pub(super) fn wanted(identity: &str, surface: &str) -> String {
    json!({"project_id": "atlas", "agent_identity": identity, "agent_surface": surface, "machine_id": "m-1"})
        .to_string()
}

pub(super) fn id(registered: &Value) -> &str {
    registered["session_id"].as_str().unwrap()
}

/// The events of a session. Dropping them leaves a thread that ends with its stream.
pub(super) struct Events(pub(super) Arc<Watched<Heard>>);

#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) events: Vec<Value>,
    lines: usize,
    has_ended: bool,
}

impl Events {
    #[track_caller]
    fn open(gateway: &Gateway, key: &Key, session: &str) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
        let key = key.header();
        write!(
            stream,
            "{EVENTS} HTTP/1.1\r\nHost: localhost\r\n{key}X-Prism-Session-Id: {session}\r\n\r\n"
        )
        .unwrap();
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().unwrap().unwrap();
        assert_eq!(status, "HTTP/1.1 200 OK");
        let heard = Arc::new(Watched::<Heard>::default());
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                hears.change(|heard| {
                    // Chunks of the body are told apart by lines of their own.
                    heard.lines += usize::from(line.starts_with(':'));
                    let event = line.strip_prefix("data: ");
                    heard.events.extend(event.map(|event| serde_json::from_str(event).unwrap()));
                    heard.has_ended |= line == "0";
                });
            }
            hears.change(|heard| heard.has_ended = true);
        });
        let events = Events(heard);
        events.wait("the first bytes", |heard| (heard.lines > 0).then_some(()));
        events
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, look: impl FnMut(&Heard) -> Option<T>) -> T {
        self.0.wait(look).unwrap_or_else(|heard| panic!("waited in vain for {what}: {heard:?}"))
    }

    #[track_caller]
    pub(super) fn next(&self, kind: &str, session: &str) -> Value {
        self.wait(&format!("{kind} of {session}"), |heard| {
            let mut all = heard.events.iter();
            all.find(|event| event["type"] == kind && event["session"] == session).cloned()
        })
    }

    fn count(&self, kind: &str) -> usize {
        self.0.lock().events.iter().filter(|event| event["type"] == kind).count()
    }
}

/// A whole life, with calls and events through any gateways of one store.
fn round_trip(calls: &Gateway, events: &Gateway, key: &Key, short: &Key) {
    let (program, other) = (Program { gateway: calls, key }, Program { gateway: events, key });
    let brief = Program { gateway: events, key: short };

    let first = program.register("donna", "claude_code");
    assert_eq!((&first["role"], &first["is_master"]), (&"master".into(), &true.into()));
    let told = other.events(id(&first));
    let beaten = other.heartbeat(id(&first));
    assert_eq!(beaten, json!({"ok": true, "ttl_remaining": 90, "role": "master"}));

    let peer = brief.register("frank", "claude_code");
    assert_eq!(peer["role"], "peer");
    assert_eq!(peer["controller_status"]["master"]["session_id"], first["session_id"]);
    assert_eq!(program.status(id(&first))["sessions"].as_array().unwrap().len(), 2);

    let desktop = program.register("lola", "claude_desktop");
    assert_eq!(desktop["role"], "master");
    let preempted = told.wait("the preemption", |heard| {
        heard.events.iter().find(|event| event["type"] == "MasterPreempted").cloned()
    });
    assert_eq!(preempted["by"]["session"], desktop["session_id"]);
    assert_eq!(other.heartbeat(id(&first))["role"], "peer");

    let ended = told.next("session_ended", id(&peer));
    assert_eq!((&ended["name"], &ended["host"]), (&json!("frank"), &json!("m-1")));
    assert_eq!(brief.call(HEARTBEAT, id(&peer), "").status, 410);

    other.release(id(&desktop));
    told.next("master_released", id(&desktop));
    told.next("session_ended", id(&desktop));
    let again = program.ask(REGISTER, id(&first), &wanted("donna", "claude_code"));
    assert_eq!((id(&again), &again["role"]), (id(&first), &"master".into()));
    program.release(id(&first));
    told.next("session_ended", id(&first));
    told.wait("the end of the stream", |heard| heard.has_ended.then_some(()));
    for kind in ["MasterPreempted", "master_released"] {
        let expected = if kind == "MasterPreempted" { 1 } else { 2 };
        assert_eq!(told.count(kind), expected, "{kind} is told once for each event");
    }
    assert_eq!(told.count("session_ended"), 3);
}

#[test]
fn smoke_covers_the_full_round_trip_with_the_embedded_store() {
    let (key, short) = (Key::within("laptop", SEES), Key::within("brief", SHORT));
    let gateway = Gateway::start_with("embedded:", &[&key, &short]);
    round_trip(&gateway, &gateway, &key, &short);
}

#[test]
fn smoke_covers_the_full_round_trip_through_redis() {
    let (key, short) = (Key::within("laptop", SEES), Key::within("brief", SHORT));
    let redis = RedisServer::start();
    let gateway = Gateway::start_with(&redis.url(), &[&key, &short]);
    round_trip(&gateway, &gateway, &key, &short);
    nothing_is_left(&redis);
}

#[test]
fn publish_lands_on_all_subscribers_with_two_gateways() {
    let (key, short) = (Key::within("laptop", SEES), Key::within("brief", SHORT));
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::start_with(&redis.url(), &[&key, &short]));
    let published = redis.listen(&["prism:events:*"]);
    round_trip(&gateways[0], &gateways[1], &key, &short);
    let channel = "prism:events:project:default:atlas";
    let told = |kind: &str| published.of_type(channel, kind).len();
    until("all to be published", || told("master_released") >= 2 && told("session_ended") >= 3);
    assert_eq!((told("master_released"), told("session_ended")), (2, 3), "one for each end");

    let programs = gateways.each_ref().map(|gateway| Program { gateway, key: &key });
    let sessions = [0, 1].map(|at| programs[at].register(&format!("agent-{at}"), "cli"));
    // Each hears at the gateway through which the other one was registered.
    let told = [0, 1].map(|at| programs[1 - at].events(id(&sessions[at])));
    let _: i64 = redis.command(&["PUBLISH", channel, r#"{"type":"broadcast","session":"all"}"#]);
    for events in &told {
        events.next("broadcast", "all");
    }
    let channel = format!("prism:events:session:{}", id(&sessions[1]));
    let _: i64 = redis.command(&["PUBLISH", &channel, r#"{"type":"targeted","session":"one"}"#]);
    told[1].next("targeted", "one");
    let _: i64 = redis.command(&[
        "PUBLISH",
        "prism:events:project:default:atlas",
        r#"{"type":"broadcast","session":"last"}"#,
    ]);
    for events in &told {
        events.next("broadcast", "last");
        assert_eq!(events.count("broadcast"), 2, "at most once");
    }
    assert_eq!(told[0].count("targeted"), 0, "it was for the other one");
}

#[test]
fn prism_start_writes_redis_and_returns_controller_status() {
    let key = Key::new("laptop");
    let redis = RedisServer::start();
    let gateway = Gateway::start_with(&redis.url(), &[&key]);
    let program = Program { gateway: &gateway, key: &key };
    let started = program.register("donna", "claude_code");
    let session = id(&started);
    let status = &started["controller_status"];
    let hash: Vec<String> = redis.command(&["HGETALL", &format!("prism:session:{session}")]);
    let stored = |name: &str| {
        let at = hash.iter().step_by(2).position(|key| key == name).expect(name);
        Value::from(hash[2 * at + 1].as_str())
    };
    for field in [
        "tenant_id",
        "project_id",
        "agent_identity",
        "agent_surface",
        "machine_id",
        "registered_at",
    ] {
        assert_eq!(status["master"][field], stored(field), "{field}");
    }
    assert_eq!(stored("is_master"), "1");
    assert_eq!(status["sessions"], json!([status["master"]]));
    assert_eq!(&program.status(session), status);
    assert_eq!(&program.ask(&format!("{STATUS}?project_id=atlas"), "", ""), status);
    let master: String = redis.command(&["GET", "prism:master:default:atlas"]);
    let members: Vec<String> = redis.command(&["SMEMBERS", "prism:project:default:atlas:sessions"]);
    assert_eq!((master.as_str(), members), (session, vec![session.to_owned()]));
}

#[test]
fn heartbeat_and_checkpoint_refresh_session_and_master_ttls() {
    let key = Key::new("laptop");
    let redis = RedisServer::start();
    let gateway = Gateway::start_with(&redis.url(), &[&key]);
    let program = Program { gateway: &gateway, key: &key };
    let started = program.register("donna", "claude_code");
    let session_key = format!("prism:session:{}", id(&started));
    let keys = [session_key.as_str(), "prism:master:default:atlas"];
    for body in ["", "{}", r#"{"checkpoint": true, "note": "unknown"}"#] {
        for key in keys {
            let _: i64 = redis.command(&["EXPIRE", key, "20"]);
        }
        let beaten = program.ask(HEARTBEAT, id(&started), body);
        assert_eq!(beaten, json!({"ok": true, "ttl_remaining": 90, "role": "master"}));
        for key in keys {
            let left: i64 = redis.command(&["TTL", key]);
            assert!((80..=90).contains(&left), "{key}: {left}");
        }
    }
}

#[test]
fn ttl_expiry_has_the_next_prism_start_win_master_without_a_worker() {
    let (key, short) = (Key::within("laptop", SEES), Key::within("brief", SHORT));
    for store in ["embedded:", "redis"] {
        let redis = RedisServer::start();
        let url = if store == "redis" { redis.url() } else { store.to_owned() };
        let gateway = Gateway::start_with(&url, &[&key, &short]);
        let (program, brief) =
            (Program { gateway: &gateway, key: &key }, Program { gateway: &gateway, key: &short });
        let dead = brief.register("donna", "claude_code");
        let peer = program.register("frank", "claude_code");
        assert_eq!(peer["role"], "peer");
        until("the master's time to be up", || program.status(id(&peer))["master"].is_null());
        assert_eq!(brief.call(HEARTBEAT, id(&dead), "").status, 410);
        let next = program.register("lola", "claude_code");
        assert_eq!(next["role"], "master", "{store}");
        let status = program.status(id(&next));
        assert_eq!(status["master"]["agent_identity"], "lola");
        assert_eq!(status["sessions"].as_array().unwrap().len(), 2, "the dead are not listed");
    }
}

/// Silent release: a master that dies is told of, although nobody asks.
#[test]
fn an_expired_master_triggers_re_election() {
    let (key, short) = (Key::within("laptop", SEES), Key::within("brief", SHORT));
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::start_with(&redis.url(), &[&key, &short]));
    let published = redis.listen(&["prism:events:*"]);
    let programs = gateways.each_ref().map(|gateway| Program { gateway, key: &key });
    let dead = Program { gateway: &gateways[0], key: &short }.register("donna", "claude_code");
    let peers = [0, 1].map(|at| programs[at].register(&format!("peer-{at}"), "claude_code"));
    let told = [0, 1].map(|at| programs[at].events(id(&peers[at])));
    for events in &told {
        events.next("master_released", id(&dead));
    }
    // Whoever acts first wins.
    let roles = [0, 1].map(|at| {
        let acts = wanted(&format!("peer-{at}"), "claude_code");
        programs[at].ask(REGISTER, id(&peers[at]), &acts)["role"].clone()
    });
    assert_eq!(roles, ["master", "peer"]);
    let published =
        || published.of_type("prism:events:project:default:atlas", "master_released").len();
    until("it to be published", || published() >= 1);
    assert_eq!(published(), 1);
    assert_eq!(told.each_ref().map(|events| events.count("master_released")), [1, 1]);
}

#[test]
fn redis_down_has_prism_start_err_and_heartbeat_return_503() {
    let key = Key::new("laptop");
    let mut redis = RedisServer::setup().durable().start();
    let gateway = Gateway::start_with(&redis.url(), &[&key]);
    let program = Program { gateway: &gateway, key: &key };
    let started = program.register("donna", "claude_code");
    redis.kill();
    for (head, session) in
        [(REGISTER, ""), (HEARTBEAT, id(&started)), (RELEASE, id(&started)), (STATUS, id(&started))]
    {
        let answer = program.call(head, session, &wanted("frank", "claude_code"));
        assert_eq!(answer.status, 503, "{head}: {}", answer.body);
        assert!(answer.head.contains("retry-after: "), "{head}: {}", answer.head);
        assert!(
            answer.head.contains("application/problem+json") && answer.body["detail"].is_string()
        );
    }
    assert_eq!(gateway.call("GET /readyz", "").unwrap().0, 200);
    redis.start_again();
    until("the store to be back", || program.call(HEARTBEAT, id(&started), "").status == 200);
    assert_eq!(program.heartbeat(id(&started))["role"], "master");
}

#[test]
fn of_concurrent_preemptions_one_wins() {
    const DESKTOPS: usize = 8;
    let key = Key::new("laptop");
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::start_with(&redis.url(), &[&key]));
    let programs = gateways.each_ref().map(|gateway| Program { gateway, key: &key });
    let incumbent = programs[0].register("donna", "claude_code");
    let told = programs[0].events(id(&incumbent));
    let registered: Vec<Value> = std::thread::scope(|scope| {
        let register =
            |at: usize| programs[at % 2].register(&format!("desktop-{at}"), "claude_desktop");
        let threads: Vec<_> = (0..DESKTOPS).map(|at| scope.spawn(move || register(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let masters: Vec<_> = registered.iter().filter(|it| it["role"] == "master").collect();
    assert_eq!(masters.len(), 1);
    let beats = registered.iter().map(|it| programs[0].heartbeat(id(it)));
    assert_eq!(beats.filter(|beat| beat["role"] == "master").count(), 1);
    assert_eq!(programs[1].heartbeat(id(&incumbent))["role"], "peer");
    let preempted = told.wait("the preemption", |heard| heard.events.first().cloned());
    assert_eq!(preempted["by"]["session"], masters[0]["session_id"]);
    let status = programs[1].status(id(&incumbent));
    let flags = status["sessions"].as_array().unwrap().iter();
    assert_eq!(flags.filter(|session| session["is_master"] == true).count(), 1);
}

#[test]
fn the_heartbeat_of_the_specification_keeps_a_session_and_stops_when_told() {
    let key = Key::new("laptop");
    let redis = RedisServer::start();
    let mut gateway = Gateway::start_with(&redis.url(), &[&key]);
    let mut client = Python::start("heartbeat_client.py", &[&gateway.url(), &key.text]);
    let body: Value = serde_json::from_str(&wanted("donna", "claude_code")).unwrap();
    let started = client.call("start", &json!({"body": body}));
    let session = id(&started).to_owned();
    let master = "prism:master:default:atlas";
    let rests = |client: &Python| {
        let events = client.events();
        assert!(events.iter().all(|it| it["event"] != "rest" || it["seconds"] == 30.0));
        events.iter().filter(|it| it["event"] == "rest").count()
    };
    until("some heartbeats", || rests(&client) > 3);
    let _: i64 = redis.command(&["EXPIRE", master, "20"]);
    until("the next heartbeat", || redis.command::<i64>(&["TTL", master]) > 80);

    let before = client.events().len();
    gateway.kill();
    let will_retry = |event: &Value| {
        let text = event["text"].as_str()?;
        text.starts_with("heartbeat HTTP error (will retry)").then_some(())
    };
    client.event_after(before, "a retry", will_retry);
    gateway.start_again();
    let _: i64 = redis.command(&["EXPIRE", master, "20"]);
    until("the heartbeat to go on", || redis.command::<i64>(&["TTL", master]) > 80);

    let checkpoint = client.call("beat", &json!({"session": session}));
    assert_eq!(
        (&checkpoint["status"], &checkpoint["body"]["role"]),
        (&200.into(), &"master".into())
    );
    let program = Program { gateway: &gateway, key: &key };
    program.release(&session);
    let rejected =
        |event: &Value| (event["text"] == "heartbeat rejected (status=410)").then_some(());
    client.event_after(before, "a rejection", rejected);
    let wrapped = client.call("wrap", &json!({"session": session}));
    assert_eq!((&wrapped["alive"], &wrapped["status"]), (&false.into(), &200.into()));
    let after = rests(&client);
    let gone = client.call("beat", &json!({"session": session}));
    assert_eq!(gone["status"], 410);
    assert_eq!(gone["body"]["detail"], "session expired, re-register via prism_start");
    assert_eq!(rests(&client), after, "the thread has ended");
    client.finish();
}
