//! Standing, observe, routes, checkpoint, revoke, metrics and the OpenAPI document.

use serde_json::{Value, json};
use tenure::wire::{Checkpointed, Event, HoldState, Problem, Role, Routes, Standing, Status};
use tenure_tests::harness::{Agent, Client, Events, until};

#[track_caller]
fn observe(agent: &Agent, kind: &str, name: &str) -> Events {
    let path = format!("/v1/observe?kind={kind}&name={name}");
    Events::try_open(&agent.socket(), &path, None).expect("no session is needed")
}

#[track_caller]
fn wait_standing(events: &Events, what: &str, pick: impl Fn(&Standing) -> bool) -> Standing {
    let found = events.wait_for(what, |event| match event {
        Event::Standing(standing) if pick(standing) => Some(standing.clone()),
        _ => None,
    });
    found.1
}

#[test]
fn standing_shows_who_holds_and_who_waits() {
    let agent = Agent::start();
    let mut http = agent.http();
    let sessions: Vec<_> =
        (0..5).map(|i| http.register(&json!({"name": format!("s{i}")})).session).collect();
    let mut tokens = Vec::new();
    for (i, &session) in sessions.iter().enumerate() {
        let more = json!({"limit": 2});
        if i < 2 {
            tokens.push(http.acquire(session, "semaphore", "gpu", &more).token);
        } else {
            http.queue(session, "semaphore", "gpu", &more);
        }
    }
    let standing = http.standing("semaphore", "gpu");
    assert_eq!(standing.limit, Some(2));
    assert_eq!(standing.tenant, "default");
    let holders: Vec<(&str, u64)> =
        standing.holders.iter().map(|h| (h.name.as_str(), h.token)).collect();
    assert_eq!(holders, [("s0", tokens[0]), ("s1", tokens[1])]);
    let waiters: Vec<(&str, u64)> =
        standing.waiters.iter().map(|w| (w.name.as_str(), w.position)).collect();
    assert_eq!(waiters, [("s2", 1), ("s3", 2), ("s4", 3)]);
    assert_eq!(standing.holders[0].pid, Some(std::process::id()));

    let nobody = http.standing("leader", "nobody");
    assert_eq!((nobody.holders.len(), nobody.waiters.len(), nobody.limit), (0, 0, None));
}

#[test]
fn a_new_limit_is_for_everybody() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    let first = http.acquire(session, "semaphore", "gpu", &json!({"limit": 1}));
    let waiting = http.queue(session, "semaphore", "gpu", &json!({"limit": 1}));
    // Raising grants at once.
    let third = http.queue(session, "semaphore", "gpu", &json!({"limit": 2}));
    assert_eq!(events.granted(waiting.hold).limit, Some(2));
    // Lowering evicts nobody.
    let fourth = http.queue(session, "semaphore", "gpu", &json!({"limit": 1}));
    assert_eq!(http.standing("semaphore", "gpu").limit, Some(1));
    assert_eq!(http.standing("semaphore", "gpu").holders.len(), 2);
    http.release(session, first.hold);
    assert_eq!(http.standing("semaphore", "gpu").holders.len(), 1);
    http.release(session, waiting.hold);
    events.granted(third.hold);
    // A cancelled wait leaves nothing behind.
    assert!(http.release(session, fourth.hold));
    assert_eq!(http.standing("semaphore", "gpu").waiters, []);
}

#[test]
fn observers_need_no_session() {
    let agent = Agent::start();
    for kind in ["leader", "lease", "semaphore"] {
        let events = observe(&agent, kind, "watched");
        let mut http = agent.http();
        let session = http.register(&json!({"name": "busy"})).session;
        let held = http.acquire(session, kind, "watched", &json!({}));
        let standing = wait_standing(&events, "a holder", |s| !s.holders.is_empty());
        assert_eq!(standing.holders[0].name, "busy");
        assert_eq!(standing.holders[0].token, held.token);
        let before = events.all().len();
        http.release(session, held.hold);
        until("the holder to be gone", || {
            events.all()[before..].iter().any(|seen| {
                matches!(&seen.event, Event::Standing(standing) if standing.holders.is_empty())
            })
        });
        assert!(events.all().iter().all(|seen| seen.id == 0), "no session, no numbers");
    }
}

#[test]
fn the_routing_table_follows_the_leases() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"name": "proxy"})).session;
    let empty: Routes = http.get("/v1/routes").expect(200);
    assert!(empty.routes.is_empty());

    let attributes = json!({"address": "10.0.0.7:8982", "proxy_id": "p7"});
    let more = json!({"attributes": attributes, "grace_ms": 0});
    let held = http.acquire(session, "lease", "mailbox-a", &more);
    http.acquire(session, "lease", "mailbox-b", &json!({"attributes": {"partition": 9}}));
    let routes: Routes = http.get("/v1/routes").expect(200);
    assert!(routes.version > empty.version);
    let names: Vec<&str> = routes.routes.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["mailbox-a", "mailbox-b"]);
    let line = &routes.routes[0];
    assert_eq!((line.address.as_str(), line.proxy_id.as_str()), ("10.0.0.7:8982", "p7"));
    assert_eq!((line.holder.as_str(), line.token), ("proxy", held.token));
    assert_eq!(line.partition, crc32_mod_256(b"mailbox-a"));
    assert_eq!(line.status, "active");
    assert_eq!(routes.routes[1].partition, 9);

    let one: Routes = http.get("/v1/routes?name=mailbox-b").expect(200);
    assert_eq!(one.routes.len(), 1);

    http.release(session, held.hold);
    let after: Routes = http.get("/v1/routes").expect(200);
    assert!(after.version > routes.version, "the version only grows");
    assert_eq!(after.routes.len(), 1);
}

#[test]
fn long_answers_come_in_pages_and_clients_follow_them() {
    let agent = Agent::start();
    let mut http = agent.http();
    for number in 0..5 {
        let session = http.register(&json!({"name": "many", "keepalive_ms": 600_000})).session;
        for lease in 0..40 {
            http.acquire(session, "lease", &format!("{number}-{lease:02}"), &json!({}));
        }
    }
    let first: Status = http.get("/v1/status").expect(200);
    assert_eq!((first.total, first.agent.holds), (5, 200));
    let listed =
        |status: &Status| status.sessions.iter().map(|it| 1 + it.holds.len()).sum::<usize>();
    assert_eq!(listed(&first), 100);
    let cursor = first.cursor.expect("more");
    let second: Status = http.get(&format!("/v1/status?limit=1000&cursor={cursor}")).expect(200);
    assert_eq!((listed(&second), second.cursor), (106, None), "one session is on both pages");
    let table: Routes = http.get("/v1/routes").expect(200);
    assert_eq!((table.routes.len(), table.total), (100, Some(200)));
    for wrong in ["status?limit=0", "status?limit=1001", "status?cursor=x", "routes?limit=many"] {
        let problem: Problem = http.get(&format!("/v1/{wrong}")).expect(422);
        assert!(wrong.contains(problem.field.as_deref().unwrap_or("?")), "{problem}");
    }

    let client = tenure::client::Client::connect(Some(&agent.socket())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (status, routes) = runtime.block_on(async {
        (client.status().await.unwrap(), client.routes(None, None).await.unwrap())
    });
    assert_eq!((status.sessions.len(), listed(&status), status.cursor), (5, 205, None));
    assert_eq!((routes.routes.len(), routes.cursor), (200, None));
}

/// CRC-32/IEEE bit by bit, so that the expectation shares nothing with the agent.
fn crc32_mod_256(name: &[u8]) -> u16 {
    let mut crc = u32::MAX;
    for byte in name {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    u16::try_from(!crc % 256).expect("less than 256")
}

#[test]
fn during_grace_only_the_former_holder_may_have_a_lease() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let former = http.register(&json!({"name": "former", "keepalive_ms": 600_000})).session;
    let other = http.register(&json!({"name": "other", "keepalive_ms": 600_000})).session;
    let events = agent.events(former);
    let more = json!({"ttl_ms": 2000, "grace_ms": 600_000, "attributes": {"address": "here"}});
    let held = http.acquire(former, "lease", "mailbox", &more);
    agent.pause();
    until("the upstream's expiry", || {
        let ttl_ns = 2_000_000_000;
        tenure_tests::harness::boottime_ns() > held.valid_until_boottime_ns + ttl_ns
    });
    agent.resume();
    events.lost(held.hold);
    http.ask(other, "lease", "mailbox", &json!({})).problem(tenure::wire::Code::Contended);
    let routes: Routes = http.get("/v1/routes").expect(200);
    assert_eq!(routes.routes[0].status, "expiring");
    let again = http.acquire(former, "lease", "mailbox", &more);
    assert!(again.token > held.token);
    assert_ne!(again.hold, held.hold);
}

#[test]
fn a_checkpoint_beats_now_and_tells_the_role() {
    let agent = Agent::start();
    let mut http = agent.http();
    let alone = http.register(&json!({})).session;
    let master = http.register(&json!({"project": "p"})).session;
    let peer = http.register(&json!({"project": "p"})).session;
    let held = http.acquire(master, "master", "", &json!({}));
    let mut checkpoint = |session| -> Checkpointed {
        http.post("/v1/checkpoint", &json!({"session": session})).expect(200)
    };
    let answer = checkpoint(master);
    assert!(answer.ok);
    assert!(answer.ttl_remaining_ms > 0);
    assert_eq!(answer.role, Role::Master);
    assert_eq!(answer.holds.len(), 1);
    assert_eq!((answer.holds[0].hold, answer.holds[0].state), (held.hold, HoldState::Held));
    assert!(answer.holds[0].valid_until_boottime_ns >= held.valid_until_boottime_ns);
    assert_eq!(checkpoint(peer).role, Role::Peer);
    assert_eq!(checkpoint(alone).role, Role::None);
}

#[test]
fn revoke_takes_away_one_grant_or_all() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    let holds: Vec<_> =
        (0..3).map(|_| http.acquire(session, "semaphore", "gpu", &json!({"limit": 3}))).collect();
    let mut revoke = |body: Value| http.post("/v1/revoke", &body).json(200)["revoked"].clone();
    let one = revoke(json!({"kind": "semaphore", "name": "gpu", "token": holds[1].token}));
    assert_eq!(one, 1);
    assert_eq!(events.lost(holds[1].hold).reason, tenure::wire::LostReason::Revoked);
    let again = revoke(json!({"kind": "semaphore", "name": "gpu", "token": holds[1].token}));
    assert_eq!(again, 0);
    assert_eq!(revoke(json!({"kind": "semaphore", "name": "gpu"})), 2);
    events.lost(holds[0].hold);
    events.lost(holds[2].hold);
    assert_eq!(revoke(json!({"kind": "leader", "name": "nobody"})), 0);
}

#[test]
fn tenants_do_not_see_or_block_each_other() {
    let agent = Agent::start();
    let mut http = agent.http();
    let a = http.register(&json!({"tenant": "a"})).session;
    let b = http.register(&json!({"tenant": "b"})).session;
    for kind in ["leader", "lease", "semaphore", "master"] {
        let first = http.acquire(a, kind, "same", &json!({}));
        let second = http.acquire(b, kind, "same", &json!({}));
        assert!(second.token > first.token);
        assert_eq!(http.standing(kind, "same").holders, [], "nor does the default tenant");
    }
    let routes: Routes = http.get("/v1/routes").expect(200);
    assert!(routes.routes.is_empty());
}

#[test]
fn a_stream_goes_on_after_the_last_event_that_was_seen() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    events.snapshot();
    let first = http.acquire(session, "leader", "a", &json!({}));
    events.granted(first.hold);
    let last = events.last_id();
    drop(events);
    let second = http.acquire(session, "leader", "b", &json!({}));
    http.release(session, first.hold);

    let path = format!("/v1/events?session={session}");
    let events = Events::try_open(&agent.socket(), &path, last).expect("it opens");
    events.released(first.hold);
    let names: Vec<&str> = events.all().iter().map(|seen| seen.event.name()).collect();
    assert_eq!(names, ["granted", "released"], "what was missed, and no more");
    assert!(events.has("granted", second.hold));
    let ids: Vec<u64> = events.all().iter().map(|seen| seen.id).collect();
    assert_eq!(ids, [last.unwrap_or(0) + 1, last.unwrap_or(0) + 2]);
}

#[test]
fn metrics_are_openmetrics() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "role", &json!({}));
    let answer = http.get("/metrics");
    assert_eq!(answer.status, 200);
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut families = 0;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let word = comment.split(' ').next().unwrap_or_default();
            assert!(["HELP", "TYPE", "UNIT", "EOF"].contains(&word), "{line}");
            families += u32::from(word == "TYPE");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("not a number: {line}"));
        let name = series.split('{').next().unwrap_or_default();
        // Those of every process have the names that all programs use.
        assert!(name.starts_with("tenured_") || name.starts_with("process_"), "{line}");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
    }
    assert!(families >= 8, "{text}");
    for what in ["sessions", "holds", "lateness", "upstream", "build"] {
        assert!(text.contains(what), "nothing about {what} in {text}");
    }
    for line in [
        r#"tenured_requests_total{endpoint="/v1/acquire",code="200"} 1"#,
        "tenured_upstream_latency_seconds_count 1",
        "tenured_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
    }
    assert!(!text.contains(&session.to_string()), "ids are no labels");
}

#[test]
fn the_openapi_document_names_every_endpoint() {
    let agent = Agent::start();
    let document = agent.http().get("/openapi.json").json(200);
    assert!(document["openapi"].as_str().unwrap_or_default().starts_with("3.1"));
    for (method, path) in [
        ("post", "/v1/register"),
        ("post", "/v1/acquire"),
        ("post", "/v1/release"),
        ("post", "/v1/checkpoint"),
        ("post", "/v1/beat"),
        ("post", "/v1/revoke"),
        ("get", "/v1/events"),
        ("get", "/v1/observe"),
        ("get", "/v1/standing"),
        ("get", "/v1/status"),
        ("get", "/v1/doctor"),
        ("get", "/v1/can"),
        ("get", "/v1/routes"),
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/v1/log"),
        ("put", "/v1/log"),
        ("get", "/metrics"),
        ("get", "/openapi.json"),
    ] {
        assert!(document["paths"][path][method].is_object(), "{method} {path}");
    }
    for schema in ["Register", "Acquire", "Acquired", "Problem", "Standing", "Status"] {
        assert!(document["components"]["schemas"][schema].is_object(), "{schema}");
    }
}

#[test]
fn health_and_readiness() {
    let agent = Agent::start();
    assert_eq!(agent.http().get("/healthz").status, 200);
    assert_eq!(agent.http().get("/readyz").status, 200);
    let status = agent.http().status();
    assert_eq!(status.agent.pid, agent.pid());
    assert_eq!(status.upstream.kind, "embedded");
    assert_eq!(status.upstream.guarantee, "one host");
    assert_eq!(status.upstream.last_error, None);
}
