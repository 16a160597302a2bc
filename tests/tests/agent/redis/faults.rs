//! Faults of a Redis and of the network to it, and their effect on clients.
//!
//! Behind every test workers of two hosts take turns at guarded resources: none of them may find
//! another one at work, each must get a turn again afterwards, and nothing of theirs may be left.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{
    Campaigner, Client, Direction, Fleet, Holder, RedisServer, Siege, TenureRun, boottime_ns,
    until, wait_s,
};

/// Redis is silent for a while: what has time left survives, and the rest ends in time.
#[track_caller]
fn silent_for(
    seconds: u64,
    silence: impl FnOnce(&mut RedisServer),
    speak: impl FnOnce(&RedisServer),
) {
    let mut siege = Siege::begin(RedisServer::setup().debug_commands().start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    let short = Holder::of_leadership(&siege.agents[1], "short", 700);
    let before = boottime_ns();
    silence(&mut siege.redis);
    if seconds >= 3 {
        // By its own timer: Redis has not said a word.
        let page = short.held.valid_until_boottime_ns;
        assert_eq!(short.events.lost(short.held.hold).reason, LostReason::Expired);
        assert!(page <= boottime_ns());
        long.events.jeopardy(long.held.hold);
        let over = before + seconds * 1_000_000_000;
        until("the silence to be over", || boottime_ns() >= over);
        speak(&siege.redis);
        until("the long hold to be safe", || long.events.has("safe", long.held.hold));
    } else {
        wait_s(seconds);
        speak(&siege.redis);
    }
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost(), "it had time left");
    let standing = siege.agents[1].http().standing("leader", "long");
    assert_eq!(standing.holders[0].token, long.held.token);
    [long, short].into_iter().for_each(Holder::leave);
    siege.end();
}

fn stopped_for(seconds: u64) {
    silent_for(seconds, RedisServer::pause, RedisServer::resume);
}

#[test]
fn redis_is_stopped_for_one_second() {
    stopped_for(1);
}

#[test]
fn redis_is_stopped_for_five_seconds() {
    stopped_for(5);
}

#[test]
fn redis_is_stopped_for_twenty_seconds() {
    stopped_for(20);
}

#[test]
fn redis_pauses_all_clients() {
    let pause = |redis: &mut RedisServer| redis.command(&["CLIENT", "PAUSE", "4000", "ALL"]);
    silent_for(4, pause, |_| {});
}

#[test]
fn redis_pauses_all_writes() {
    let pause = |redis: &mut RedisServer| redis.command(&["CLIENT", "PAUSE", "4000", "WRITE"]);
    silent_for(4, pause, |_| {});
}

#[test]
fn redis_is_busy_with_something_slow() {
    let sleep = |redis: &mut RedisServer| {
        let mut connection = redis.connect();
        std::thread::spawn(move || {
            redis::cmd("DEBUG").arg("SLEEP").arg("4").query::<()>(&mut connection)
        });
    };
    silent_for(4, sleep, |_| {});
}

#[test]
fn redis_is_restarted_with_its_data() {
    let mut siege = Siege::begin(RedisServer::setup().durable().start());
    let holders: Vec<Holder> = siege
        .agents
        .iter()
        .enumerate()
        .map(|(i, agent)| Holder::of_leadership(agent, &format!("own-{i}"), 30_000))
        .collect();
    for _ in 0..3 {
        siege.redis.kill();
        siege.redis.start_again();
        siege.everybody_gets_another_turn();
    }
    for (i, holder) in holders.into_iter().enumerate() {
        assert!(!holder.has_lost(), "Redis still knew it");
        let standing = siege.agents[1 - i].http().standing("leader", &format!("own-{i}"));
        assert_eq!(standing.holders[0].token, holder.held.token);
        holder.leave();
    }
    siege.end();
}

#[test]
fn redis_is_down_for_longer_than_some_holds_last() {
    let mut siege = Siege::begin(RedisServer::setup().durable().start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    let short = Holder::of_leadership(&siege.agents[0], "short", 1000);
    siege.redis.kill();
    assert_eq!(short.events.lost(short.held.hold).reason, LostReason::Expired);
    let jeopardy = long.events.jeopardy(long.held.hold);
    assert!(jeopardy.valid_ms > 0 && !jeopardy.cause.is_empty(), "{jeopardy:?}");
    siege.redis.start_again();
    until("the long hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    [long, short].into_iter().for_each(Holder::leave);
    siege.end();
}

/// Lost holds may be valid for so long, and nothing is granted meanwhile.
fn short() -> Value {
    json!({"ttl_ms": 3000})
}

#[test]
fn redis_is_restarted_without_its_data() {
    let mut fleet = Fleet::start();
    let kinds = ["leader", "lease", "semaphore", "master"];
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut waiter = Campaigner::start(&fleet.agents[1], "waiter");
    let held = kinds.map(|kind| holder.acquire(kind, "role", &short()));
    let waiting = kinds.map(|kind| waiter.queue(kind, "role", &short()));
    let newest = held.iter().map(|held| held.token).max().expect("there are holds");

    fleet.redis.kill();
    fleet.redis.start_again();
    for (held, waiting) in held.iter().zip(waiting) {
        assert_eq!(
            holder.events.lost(held.hold).reason,
            LostReason::UpstreamReset,
            "{}",
            held.kind
        );
        // It stands in line again by itself. A store that knows of no token grants a greater one.
        assert!(waiter.events.granted(waiting).token > newest, "{}", held.kind);
    }
    until("the sessions to be announced again", || {
        let mut names = fleet.agents[0].http().standing("master", "p").sessions;
        names.sort();
        names == ["holder", "waiter"]
    });
    drop((holder, waiter));
    fleet.is_left_empty();
}

#[test]
fn redis_is_restarted_with_older_data() {
    let mut fleet = Fleet::start();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let mut waiter = Campaigner::start(&fleet.agents[1], "waiter");
    let early = holder.acquire("leader", "early", &short());
    let earlier = holder.acquire("leader", "late", &short());
    holder.release(earlier.hold);
    // A release is answered before the store has it.
    until("its release", || fleet.agents[1].http().standing("leader", "late").holders.is_empty());
    let _: () = fleet.redis.command(&["SAVE"]);
    // None of these is in the snapshot.
    for _ in 0..5 {
        let passing = waiter.acquire("leader", "late", &short());
        waiter.release(passing.hold);
        until("its release", || {
            fleet.agents[1].http().standing("leader", "late").holders.is_empty()
        });
    }
    let late = holder.acquire("leader", "late", &short());
    let waiting = waiter.queue("leader", "late", &short());
    assert!(late.token > earlier.token);

    fleet.redis.kill();
    fleet.redis.start_again();
    assert_eq!(holder.events.lost(late.hold).reason, LostReason::UpstreamReset);
    assert!(waiter.events.granted(waiting).token > late.token);
    assert!(!holder.events.has("lost", early.hold), "the snapshot has it");
    let standing = fleet.agents[1].http().standing("leader", "early");
    assert_eq!(standing.holders[0].token, early.token);
    drop((holder, waiter));
    fleet.is_left_empty();
}

#[test]
fn workers_go_on_after_redis_lost_its_data() {
    let mut siege = Siege::begin(RedisServer::start());
    for _ in 0..3 {
        siege.redis.kill();
        siege.redis.start_again();
        siege.everybody_gets_another_turn();
    }
    siege.end();
}

#[test]
fn scripts_are_flushed() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    for _ in 0..20 {
        let _: () = siege.redis.command(&["SCRIPT", "FLUSH"]);
        siege.everybody_gets_another_turn();
    }
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn replies_are_cut() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    let mut cut = [0; 2];
    for round in 0..18 {
        let host = round % 2;
        let part = [":job", ":permit", ":box"][round / 2 % 3];
        siege.proxies[host].cut_reply_to(part);
        cut[host] += 1;
        siege.proxies[host].wait_replies_cut(cut[host]);
    }
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn a_grant_whose_reply_was_cut_is_granted_once() {
    let siege = Siege::begin(RedisServer::start());
    let mut http = siege.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let holders = |name: &str| siege.agents[1].http().standing("leader", name).holders;
    let mut cuts = 0;
    // Each time another name, so that it is not the reply to the release before that is cut.
    let mut cut_reply_to = |name: &str| {
        siege.proxies[0].cut_reply_to(name);
        cuts += 1;
        cuts
    };
    for round in 1..=5 {
        let name = format!("waits-{round}");
        let cut = cut_reply_to(&name);
        let held = http.acquire(session, "leader", &name, &json!({"wait": "block"}));
        siege.proxies[0].wait_replies_cut(cut);
        assert_eq!(holders(&name)[0].token, held.token);
        http.release(session, held.hold);
        // A release is answered before the store has it.
        until("its release", || holders(&name).is_empty());

        // A caller that does not wait is told that it is not known, and a grant is given back.
        let name = format!("asks-{round}");
        let cut = cut_reply_to(&name);
        http.ask(session, "leader", &name, &json!({})).problem(Code::UpstreamUnavailable);
        siege.proxies[0].wait_replies_cut(cut);
        until("it to be free", || holders(&name).is_empty());

        // The command asks once more. What it has itself, until the first grant is given back, is no holder to it.
        let name = format!("runs-{round}");
        let cut = cut_reply_to(&name);
        let waits = ["--leader", &name, "--no-wait", "--store-wait", "1m"];
        let (code, _, said) = TenureRun::new(&siege.agents[0].socket(), &waits, &["true"]).finish();
        assert_eq!(code, 0, "{said}");
        siege.proxies[0].wait_replies_cut(cut);
        until("it to be free again", || holders(&name).is_empty());
    }
    http.end(session);
    siege.end();
}

#[test]
fn connections_are_cut_again_and_again() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    for round in 0..30 {
        siege.proxies[round % 2].cut();
        if round % 5 == 4 {
            siege.everybody_gets_another_turn();
        }
    }
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn one_host_is_cut_off_and_the_other_goes_on() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    let short = Holder::of_leadership(&siege.agents[0], "short", 1000);
    siege.proxies[0].refuse();
    assert_eq!(short.events.lost(short.held.hold).reason, LostReason::Expired);
    for worker in siege.workers.iter().skip(1).step_by(2) {
        worker.gets_another_turn();
    }
    long.is_in_jeopardy_and_safe_again(|| siege.proxies[0].heal());
    siege.everybody_gets_another_turn();
    [long, short].into_iter().for_each(Holder::leave);
    siege.end();
}

#[test]
fn bytes_vanish_in_one_direction() {
    for direction in [Direction::Requests, Direction::Replies] {
        let siege = Siege::begin(RedisServer::start());
        let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
        siege.proxies[0].swallow(direction);
        long.is_in_jeopardy_and_safe_again(|| siege.proxies[0].heal());
        siege.everybody_gets_another_turn();
        long.leave();
        siege.end();
    }
}

#[test]
fn pushes_vanish_and_nobody_waits_for_ever() {
    let siege = Siege::begin(RedisServer::start());
    for proxy in &siege.proxies {
        proxy.swallow_news();
    }
    for _ in 0..3 {
        siege.everybody_gets_another_turn();
    }
    siege.end();
}

#[test]
fn everything_takes_long() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 30_000);
    for proxy in &siege.proxies {
        proxy.delay(Duration::from_millis(200));
    }
    siege.everybody_gets_another_turn();
    for proxy in &siege.proxies {
        proxy.heal();
    }
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn agents_are_killed_under_their_workers() {
    let mut siege = Siege::begin(RedisServer::start());
    for round in 0..6 {
        let agent = &mut siege.agents[round % 2];
        agent.kill();
        agent.start_again();
        siege.everybody_gets_another_turn();
    }
    siege.end();
}

#[test]
fn an_agent_is_stopped_for_longer_than_its_holds_last() {
    let mut siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    let short = Holder::of_leadership(&siege.agents[0], "short", 1000);
    let mut http = siege.agents[1].http();
    let other = http.register(&json!({"keepalive_ms": 600_000})).session;
    siege.agents[0].pause();
    // The other host goes on as soon as what the stopped one holds has run out.
    let held = http.acquire(other, "leader", "short", &json!({"wait": "block"}));
    assert!(held.token > short.held.token);
    for worker in siege.workers.iter().skip(1).step_by(2) {
        worker.gets_another_turn();
    }
    siege.agents[0].resume();
    assert_eq!(short.events.lost(short.held.hold).reason, LostReason::Expired);
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost(), "it had time left");
    http.end(other);
    [long, short].into_iter().for_each(Holder::leave);
    siege.end();
}
