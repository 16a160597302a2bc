//! Agents of several hosts on one Redis: what one host's programs hold, the other's wait for.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure::wire::{Code, Event, LostReason, ReleasedCause, Standing, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Events, Fleet, RedisServer, boottime_ns, until,
};
use uuid::Uuid;

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

fn terms(kind: &str) -> Value {
    match kind {
        "semaphore" => json!({"limit": 1}),
        _ => json!({}),
    }
}

fn name_of(kind: &str) -> &'static str {
    if kind == "master" { "p" } else { "role" }
}

#[test]
fn a_release_hands_over_to_the_other_host_and_back() {
    let fleet = Fleet::start();
    let mut sides = [
        Campaigner::start(&fleet.agents[0], "on alpha"),
        Campaigner::start(&fleet.agents[1], "on beta"),
    ];
    for kind in KINDS {
        let first = sides[0].acquire(kind, "role", &terms(kind));
        let (mut held, mut token) = (first.hold, first.token);
        for round in 0..10 {
            let (holder, waiter) = (round % 2, (round + 1) % 2);
            let waiting = sides[waiter].queue(kind, "role", &terms(kind));
            assert!(!sides[waiter].has(waiting));
            sides[holder].release(held);
            assert_eq!(sides[holder].events.released(held).cause, ReleasedCause::Client);
            let granted = sides[waiter].events.granted(waiting);
            assert!(granted.token > token, "{kind}: a new grant has a greater token");
            (held, token) = (waiting, granted.token);
        }
        sides[0].release(held);
    }
    drop(sides);
    fleet.is_left_empty();
}

#[test]
fn a_killed_holder_hands_over_to_the_other_host() {
    let fleet = Fleet::start();
    for kind in KINDS {
        let mut holder = Campaigner::start(&fleet.agents[0], "holder");
        let mut next = Campaigner::start(&fleet.agents[1], "next");
        let held = holder.acquire(kind, "role", &terms(kind));
        let waiting = next.queue(kind, "role", &terms(kind));
        holder.kill();
        let granted = next.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}");
        until("the dead holder to be forgotten", || fleet.agents[0].counts() == (0, 0, 0));
    }
    fleet.is_left_empty();
}

#[test]
fn a_refusal_names_the_holder_on_the_other_host() {
    let fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "nightly");
    let mut other = Campaigner::start(&fleet.agents[1], "other");
    for kind in KINDS {
        let held = holder.acquire(kind, "role", &terms(kind));
        let refused = other.puppet.ask(other.session, kind, "role", &terms(kind));
        let named = refused.problem(Code::Contended).holder.expect("the holder is known");
        assert_eq!((named.host.as_str(), named.name.as_str()), ("alpha", "nightly"), "{kind}");
        assert_eq!(named.token, held.token);
    }
}

#[test]
fn both_hosts_see_the_same_standing() {
    let fleet = Fleet::start();
    let mut programs: Vec<Campaigner> =
        (0..6).map(|i| Campaigner::start(&fleet.agents[i % 2], &format!("program {i}"))).collect();
    let two = json!({"limit": 2});
    let tokens: Vec<u64> =
        (0..2).map(|i| programs[i].acquire("semaphore", "gpu", &two).token).collect();
    for program in &mut programs[2..] {
        program.queue("semaphore", "gpu", &two);
    }
    programs[3].acquire("leader", "role", &json!({}));
    programs[4].acquire("master", "", &json!({}));

    for agent in &fleet.agents {
        let seen = agent.http().standing("semaphore", "gpu");
        assert_eq!(seen.limit, Some(2));
        let holders: Vec<(&str, &str, u64)> =
            seen.holders.iter().map(|h| (h.host.as_str(), h.name.as_str(), h.token)).collect();
        let expected = [("alpha", "program 0", tokens[0]), ("beta", "program 1", tokens[1])];
        assert_eq!(holders, expected);
        let waiters: Vec<(&str, &str, u64)> =
            seen.waiters.iter().map(|w| (w.host.as_str(), w.name.as_str(), w.position)).collect();
        let expected = [
            ("alpha", "program 2", 1),
            ("beta", "program 3", 2),
            ("alpha", "program 4", 3),
            ("beta", "program 5", 4),
        ];
        assert_eq!(waiters, expected);
        assert_eq!(agent.http().standing("leader", "role").holders[0].name, "program 3");
        let master = agent.http().standing("master", "p");
        assert_eq!(master.holders[0].name, "program 4");
        let mut sessions = master.sessions;
        sessions.sort();
        let expected: Vec<String> = (0..6).map(|i| format!("program {i}")).collect();
        assert_eq!(sessions, expected);
    }
}

#[test]
fn an_observer_on_the_other_host_is_told_of_changes() {
    let fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    for kind in KINDS {
        let path = format!("/v1/observe?kind={kind}&name={}", name_of(kind));
        let observer = Events::try_open(&fleet.agents[1].socket(), &path, None)
            .unwrap_or_else(|error| panic!("{path} did not open: {error:?}"));
        let held = holder.acquire(kind, "role", &terms(kind));
        sees(&observer, "the grant", |seen| seen.holders.iter().any(|h| h.token == held.token));
        holder.release(held.hold);
        let told = observer.all().len();
        until("the release to be told", || {
            observer.all()[told.saturating_sub(1)..].iter().any(|seen| match &seen.event {
                Event::Standing(standing) => standing.holders.is_empty(),
                _ => false,
            })
        });
    }
}

#[track_caller]
fn sees(observer: &Events, what: &str, holds: impl Fn(&Standing) -> bool) {
    observer.wait_for(what, |event| match event {
        Event::Standing(standing) => holds(standing).then_some(()),
        _ => None,
    });
}

#[test]
fn permits_go_to_both_hosts_in_the_order_of_asking() {
    const WAITERS: usize = 20;
    let fleet = Fleet::start();
    let one = json!({"limit": 1});
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut last_token = holder.acquire("semaphore", "gpu", &one).token;
    let mut queue: Vec<(Campaigner, Uuid)> = (0..WAITERS)
        .map(|i| {
            // Two of each host in a row, so that order is not a matter of taking turns.
            let mut waiter = Campaigner::start(&fleet.agents[i / 2 % 2], &format!("waiter {i}"));
            let waiting = waiter.puppet.queue(waiter.session, "semaphore", "gpu", &one);
            assert_eq!(waiting.position, Some(i as u64 + 1));
            (waiter, waiting.hold)
        })
        .collect();
    holder.kill();
    for i in 0..WAITERS {
        let (waiter, hold) = &mut queue[i];
        let granted = waiter.events.granted(*hold);
        assert!(granted.token > last_token, "tokens grow in the order of grants");
        last_token = granted.token;
        if i % 2 == 0 {
            waiter.release(granted.of.hold);
        } else {
            waiter.kill();
        }
        for (later, hold) in queue.get(i + 2..).unwrap_or_default() {
            assert!(!later.has(*hold), "nobody overtakes waiter {}", i + 1);
        }
    }
    drop(queue);
    fleet.is_left_empty();
}

#[test]
fn a_killed_waiter_on_the_other_host_is_passed_over() {
    let fleet = Fleet::start();
    for kind in ["leader", "lease", "semaphore"] {
        let mut holder = Campaigner::start(&fleet.agents[0], "holder");
        let mut head = Campaigner::start(&fleet.agents[1], "head");
        let mut next = Campaigner::start(&fleet.agents[0], "next");
        let held = holder.acquire(kind, "role", &terms(kind));
        head.queue(kind, "role", &terms(kind));
        let waiting = next.queue(kind, "role", &terms(kind));
        // No wait in between: the grant and the death race.
        head.puppet.program().signal(Signal::SIGKILL);
        holder.release(held.hold);
        next.events.granted(waiting);
    }
    fleet.is_left_empty();
}

#[test]
fn a_raised_limit_serves_waiters_of_the_other_host() {
    let fleet = Fleet::start();
    let mut first = Campaigner::start(&fleet.agents[0], "first");
    let mut second = Campaigner::start(&fleet.agents[1], "second");
    first.acquire("semaphore", "gpu", &json!({"limit": 1}));
    let waiting: Vec<Uuid> =
        (0..3).map(|_| first.queue("semaphore", "gpu", &json!({"limit": 1}))).collect();
    let last = second.queue("semaphore", "gpu", &json!({"limit": 3}));
    for hold in &waiting[..2] {
        first.events.granted(*hold);
    }
    assert!(!first.has(waiting[2]), "no more than the limit");
    let standing = fleet.agents[0].http().standing("semaphore", "gpu");
    assert_eq!((standing.limit, standing.holders.len()), (Some(3), 3));
    // Lowering evicts nobody.
    second
        .puppet
        .ask(second.session, "semaphore", "gpu", &json!({"limit": 1}))
        .problem(Code::Contended);
    let standing = fleet.agents[1].http().standing("semaphore", "gpu");
    assert_eq!((standing.limit, standing.holders.len()), (Some(1), 3));
    assert!(!second.has(last));
}

#[test]
fn a_cancelled_wait_leaves_nothing_behind() {
    let fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut waiter = Campaigner::start(&fleet.agents[1], "waiter");
    let held = holder.acquire("semaphore", "gpu", &json!({"limit": 1}));
    let waiting = waiter.queue("semaphore", "gpu", &json!({"limit": 1}));
    waiter.release(waiting);
    let block = json!({"limit": 1, "wait": "block", "timeout_ms": 50});
    waiter.puppet.ask(waiter.session, "semaphore", "gpu", &block).problem(Code::WaitTimeout);
    assert_eq!(fleet.agents[0].http().standing("semaphore", "gpu").waiters, []);
    holder.release(held.hold);
    drop((holder, waiter));
    fleet.is_left_empty();
}

#[test]
fn an_agent_that_is_killed_or_restarted_keeps_its_holds() {
    let mut fleet = Fleet::start();
    for restart in [Signal::SIGKILL, Signal::SIGUSR2] {
        let with = json!({"linger_ms": 600_000});
        let mut holder = Campaigner::start_with(&fleet.agents[0], "holder", &with);
        let mut other = Campaigner::start(&fleet.agents[1], "other");
        let held: Vec<_> =
            KINDS.map(|kind| (kind, holder.acquire(kind, "role", &terms(kind)))).to_vec();
        let waiting: Vec<Uuid> = KINDS.map(|kind| other.queue(kind, "role", &terms(kind))).to_vec();
        let own = holder.queue("semaphore", "role", &json!({"limit": 1}));

        fleet.agents[0].signal(restart);
        fleet.agents[0].wait_exit();
        fleet.agents[0].start_again();
        holder.come_back();
        for (kind, hold) in &held {
            let standing = fleet.agents[1].http().standing(kind, name_of(kind));
            assert_eq!(standing.holders[0].token, hold.token, "{kind} after {restart}");
        }
        for (hold, kind) in waiting.iter().zip(KINDS) {
            assert!(!other.has(*hold), "{kind} was held all the time");
        }
        for ((_, hold), waiting) in held.iter().zip(&waiting) {
            assert!(!holder.events.has("lost", hold.hold));
            holder.release(hold.hold);
            assert!(other.events.granted(*waiting).token > hold.token);
        }
        // The wait of the restarted host has kept its place.
        other.release(waiting[3]);
        holder.events.granted(own);
    }
    fleet.is_left_empty();
}

#[test]
fn holds_of_a_stopped_agent_pass_on_after_they_have_run_out() {
    let mut fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut next = Campaigner::start(&fleet.agents[1], "next");
    let short = |kind: &str| {
        let mut more = terms(kind);
        more["ttl_ms"] = json!(2000);
        if kind == "lease" {
            more["grace_ms"] = json!(500);
        }
        more
    };
    let held = KINDS.map(|kind| holder.acquire(kind, "role", &short(kind)));
    let waiting = KINDS.map(|kind| next.queue(kind, "role", &terms(kind)));
    let page = fleet.agents[0].page(&holder.registered);
    fleet.agents[0].pause();
    for (held, waiting) in held.iter().zip(waiting) {
        let valid_until = page.slot(held.slot).valid_until_ns;
        let (seen, granted) = next.events.granted_seen(waiting);
        assert!(seen.at_ns >= valid_until, "{}: it was granted too early", held.kind);
        assert!(granted.token > held.token, "{}", held.kind);
    }
    fleet.agents[0].resume();
    for held in &held {
        assert_eq!(holder.events.lost(held.hold).reason, LostReason::Expired, "{}", held.kind);
    }
}

#[test]
fn an_agent_that_stops_hands_everything_over() {
    let mut fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut next = Campaigner::start(&fleet.agents[1], "next");
    let held = KINDS.map(|kind| holder.acquire(kind, "role", &terms(kind)));
    let waiting = KINDS.map(|kind| next.queue(kind, "role", &terms(kind)));
    assert!(fleet.agents[0].stop().success());
    for (held, waiting) in held.iter().zip(waiting) {
        assert!(next.events.granted(waiting).token > held.token, "{}", held.kind);
    }
    fleet.agents.remove(0);
    drop((holder, next));
    fleet.is_left_empty();
}

#[test]
fn a_lease_is_listed_on_both_hosts_and_kept_for_its_session_during_grace() {
    let mut fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "proxy 1");
    let mut other = Campaigner::start(&fleet.agents[1], "proxy 2");
    let routes = |agent: &Agent| agent.http().get("/v1/routes").json(200);
    let with = json!({
        "ttl_ms": 4000, "grace_ms": 4000,
        "attributes": {"address": "10.0.0.7:8982", "proxy_id": "p-1", "status": "ready"},
    });
    let held = holder.acquire("lease", "mailbox", &with);
    let (here, there) = (routes(&fleet.agents[0]), routes(&fleet.agents[1]));
    assert_eq!(here, there, "one table for all");
    let route = &there["routes"][0];
    assert_eq!(
        (&route["name"], &route["host"], &route["address"], &route["status"]),
        (&json!("mailbox"), &json!("alpha"), &json!("10.0.0.7:8982"), &json!("ready")),
    );
    let version = there["version"].as_u64().expect("a version");

    // Its last beat was less than a ttl before.
    let in_grace_until = boottime_ns() + 4_000_000_000;
    fleet.agents[0].kill();
    let waiting =
        other.queue("lease", "mailbox", &json!({"attributes": {"address": "10.0.0.8:1"}}));
    let (seen, granted) = other.events.granted_seen(waiting);
    assert!(seen.at_ns > in_grace_until, "nobody else is granted it before grace is over");
    assert!(granted.token > held.token);
    let after = routes(&fleet.agents[1]);
    assert_eq!(after["routes"][0]["address"], json!("10.0.0.8:1"));
    assert!(after["version"].as_u64() > Some(version), "the version only grows");
    other.release(waiting);
    let ended = routes(&fleet.agents[1]);
    assert_eq!(ended["routes"], json!([]));
    assert!(ended["version"].as_u64() > after["version"].as_u64());
}

#[test]
fn tenants_never_meet() {
    let fleet = Fleet::start();
    let mut ours = Campaigner::start(&fleet.agents[0], "ours");
    let mut theirs = Campaigner::start_with(&fleet.agents[1], "theirs", &json!({"tenant": "acme"}));
    for kind in KINDS {
        ours.acquire(kind, "role", &terms(kind));
        theirs.acquire(kind, "role", &terms(kind));
    }
    let keys = fleet.redis.keys();
    for key in ["leader:role", "adv-sem:semaphore_main:role", "tenure:lease:role"] {
        assert!(keys.contains(&key.to_owned()), "{key} is missing in {keys:?}");
        let key = format!("tenant:acme:{key}");
        assert!(keys.contains(&key), "{key} is missing in {keys:?}");
    }
    for key in ["prism:master:default:p", "prism:master:acme:p"] {
        assert!(keys.contains(&key.to_owned()), "{key} is missing in {keys:?}");
    }
    drop((ours, theirs));
    fleet.is_left_empty();
}

#[test]
fn a_hold_can_be_revoked_from_the_other_host() {
    let fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut next = Campaigner::start(&fleet.agents[1], "next");
    for kind in KINDS {
        let held = holder.acquire(kind, "role", &terms(kind));
        let waiting = next.queue(kind, "role", &terms(kind));
        let body = json!({"kind": kind, "name": name_of(kind), "token": held.token});
        let revoked = fleet.agents[1].http().post("/v1/revoke", &body).json(200);
        assert_eq!(revoked["revoked"], 1, "{kind}");
        assert_eq!(holder.events.lost(held.hold).reason, LostReason::Revoked, "{kind}");
        assert!(next.events.granted(waiting).token > held.token);
        next.release(waiting);
    }
}

#[test]
fn three_hosts_share_one_redis_with_a_password_over_tcp() {
    let redis = RedisServer::setup().tcp().password("correct horse").start();
    let secret = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(secret.path(), "correct horse\n").expect("it is ours");
    let config = format!("upstream_secret_file = \"{}\"\n", secret.path().display());
    let url = format!("redis://127.0.0.1:{}/0", redis.port());
    let agents: Vec<Agent> =
        (0..3).map(|host| tenure_tests::harness::start_agent(host, &url, &config)).collect();
    let fleet = Fleet { agents, redis };
    let mut programs: Vec<Campaigner> = fleet
        .agents
        .iter()
        .map(|agent| {
            assert_eq!(agent.http().status().upstream.state, UpstreamState::Up);
            Campaigner::start(agent, "program")
        })
        .collect();
    let mut token = 0;
    for round in 0..6 {
        let program = &mut programs[round % 3];
        let held = program.acquire("leader", "role", &json!({"wait": "block"}));
        assert!(held.token > token);
        token = held.token;
        program.release(held.hold);
    }
    drop(programs);
    fleet.is_left_empty();
    for agent in &fleet.agents {
        assert!(!agent.log().contains("correct horse"), "a password is never logged");
    }
}
