//! Keys of other programs where keys of Tenure belong: the error names the key, its type and the way out.

use std::time::Duration;

use tenure_core::model::{
    Answer, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request, Resource, SessionId,
    SessionRecord, Terms,
};
use tenure_stores::redis::FOREIGN_KEY;
use tenure_stores::redis::examine::acl_rules;
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::RedisAccess;
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

use super::deeds::Doer;
use super::examine::{PASSWORD, add_user};
use super::server::{Server, login};

const TTL: Duration = Duration::from_secs(30);

fn owner() -> Owner {
    Owner { session: SessionId(Uuid::from_u128(1)), host: "host".into(), name: "name".into() }
}

fn resource(kind: Kind, name: &str) -> Resource {
    Resource { tenant: "default".into(), kind, name: name.into() }
}

fn claim(id: u128, kind: Kind, name: &str) -> Request {
    let terms = match kind {
        Kind::Leader => Terms::Leader,
        Kind::Master => Terms::Master { priority: 1 },
        Kind::Semaphore => Terms::Semaphore { limit: 1, keeps: false, only_own: false },
        Kind::Lease => {
            let (grace, attributes) = (Duration::ZERO, Attributes::default());
            Terms::Lease { grace, attributes, take_over: None }
        }
    };
    let (id, resource) = (ClaimId(Uuid::from_u128(id)), resource(kind, name));
    Request::Claim(Claim { id, resource, owner: owner(), ttl: TTL, terms, enqueue: true })
}

fn inspect(kind: Kind, name: &str) -> Request {
    Request::Inspect(resource(kind, name))
}

fn announce() -> Request {
    let (tenant, project, surface) = ("default".into(), "p".into(), "cli".into());
    Request::Announce(SessionRecord {
        owner: owner(),
        tenant,
        project,
        surface,
        ttl: TTL,
        registered_at: None,
    })
}

/// How often the server was asked for the type of a key.
fn looks(server: &Server) -> u64 {
    let stats = server.say(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_type:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Asks for something that meets such a key; the error.
async fn met(doer: &mut Doer, request: Request) -> String {
    let what = format!("{request:?}");
    match doer.try_ask(request).await {
        Err(Failure::Unknown(words)) => words,
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn each_kind_names_the_key_its_type_and_the_way_out() {
    let server = Server::start(&[]);
    let mut doer = Doer::new(server.unix());
    let fence = claim(5, Kind::Leader, "other");
    for (spoil, request, key, setting) in [
        (
            &["HSET", "leader:board", "a", "1"][..],
            claim(1, Kind::Leader, "board"),
            "'leader:board' is a hash where a string belongs",
            "take another name here, or set another redis.leader_prefix",
        ),
        (
            &["RPUSH", "leader:jobs", "1"],
            inspect(Kind::Leader, "jobs"),
            "'leader:jobs' is a list where a string belongs",
            "redis.leader_prefix",
        ),
        (
            &["SET", "adv-sem:semaphore_waiting:gpu", "x"],
            claim(2, Kind::Semaphore, "gpu"),
            "'adv-sem:semaphore_waiting:gpu' is a string where a sorted set belongs",
            "redis.semaphore_namespace",
        ),
        (
            &["XADD", "adv-sem:semaphore_max:cpu", "*", "a", "1"],
            claim(3, Kind::Semaphore, "cpu"),
            "'adv-sem:semaphore_max:cpu' is a stream where a string belongs",
            "redis.semaphore_namespace",
        ),
        (
            &["SADD", "tenure:lease:box", "x"],
            claim(4, Kind::Lease, "box"),
            "'tenure:lease:box' is a set where a hash belongs",
            "redis.tenure_prefix",
        ),
        (
            &["ZADD", "prism:project:default:p:sessions", "1", "x"],
            announce(),
            "'prism:project:default:p:sessions' is a sorted set where a set belongs",
            "redis.session_prefix",
        ),
        (
            &["HSET", "prism:master:default:q", "a", "1"],
            inspect(Kind::Master, "q"),
            "'prism:master:default:q' is a hash where a string belongs",
            "redis.session_prefix",
        ),
        (
            &["HSET", "tenure:fence", "a", "1"],
            fence,
            "'tenure:fence' is a hash where a string belongs",
            "rename it there, or set another redis.tenure_prefix",
        ),
    ] {
        server.say(&["FLUSHALL"]);
        server.say(spoil);
        let words = met(&mut doer, request).await;
        assert!(words.starts_with(FOREIGN_KEY), "{words}");
        for part in [key, setting, "(WRONGTYPE)", "for all agents and gateways"] {
            assert!(words.contains(part), "{part:?} is not in {words}");
        }
    }
    // Once the keys are gone, all is well at once.
    server.say(&["FLUSHALL"]);
    let answer = doer.ask(claim(9, Kind::Leader, "board")).await;
    assert!(matches!(answer, Answer::Claim(ClaimAnswer::Held { .. })), "{answer:?}");
}

#[tokio::test]
async fn the_session_of_a_master_is_named_although_no_call_lists_it() {
    let server = Server::start(&[]);
    let mut doer = Doer::new(server.unix());
    server.say(&["SET", "prism:master:default:p", "lola", "EX", "600"]);
    server.say(&["SET", "prism:session:lola", "{}"]);
    let words = met(&mut doer, claim(1, Kind::Master, "p")).await;
    assert!(words.contains("'prism:session:lola' is a string where a hash belongs"), "{words}");
}

#[tokio::test]
async fn a_call_that_is_repeated_has_its_keys_looked_at_once_in_a_while() {
    const REPEATED: u64 = 20;
    let server = Server::start(&[]);
    let mut doer = Doer::new(server.unix());
    server.say(&["HSET", "leader:board", "a", "1"]);
    let first = met(&mut doer, claim(1, Kind::Leader, "board")).await;
    let once = looks(&server);
    assert!(once > 0);
    for id in 0..REPEATED {
        assert_eq!(met(&mut doer, claim(2 + u128::from(id), Kind::Leader, "board")).await, first);
    }
    let all = looks(&server);
    assert!(all < once * (REPEATED / 2), "{all} of {once} at a time");
}

#[tokio::test]
async fn a_user_with_the_rights_that_the_documentation_names_is_told_the_key() {
    let server = Server::start(&[]);
    let rules = acl_rules(&Layout::default());
    add_user(&server, &rules);
    let login = login(Some("agent"), PASSWORD);
    let access = RedisAccess { login, ..server.unix() };
    server.say(&["RPUSH", "leader:a", "1"]);
    let words = met(&mut Doer::new(access.clone()), claim(1, Kind::Leader, "a")).await;
    assert!(words.contains("'leader:a' is a list where a string belongs"), "{words}");
    // Without the right to ask for types, the words of the server are all there is.
    add_user(&server, &rules.replace(" +type", ""));
    let words = met(&mut Doer::new(access), claim(1, Kind::Leader, "a")).await;
    assert!(words.contains("WRONGTYPE"), "{words}");
}
