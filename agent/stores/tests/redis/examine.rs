//! Examinations of real Redis servers, each with what can be wrong with it.

use tenure_harness::{DEADLINE, until};
use tenure_stores::Upstream;
use tenure_stores::redis::address::Address;
use tenure_stores::redis::connection::Connection;
use tenure_stores::redis::examine::acl_rules;
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::RedisAccess;
use tenure_stores::remote::{FeedState, Purpose, examination, examine};
use tenure_wire::{Check, Verdict};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::deeds::{self, Doer};
use super::server::{Server, login};
use super::{dialer, open};

pub(crate) const PASSWORD: &str = "hunter2-and-more";

/// The agent's own examination.
async fn find(access: RedisAccess) -> Vec<Check> {
    let examination = examination(dialer(access), None, FeedState::Up);
    let checks = timeout(DEADLINE, examination).await.expect("it has a deadline of its own");
    assert!(!format!("{checks:?}").contains(PASSWORD), "{checks:?}");
    checks
}

/// Over a connection that no link would make, since the server is no good.
async fn find_at(server: &Server) -> Vec<Check> {
    let address = Address::new(server.unix(), Layout::default());
    examine(&address, connect(server).await).await
}

async fn connect(server: &Server) -> Connection {
    let stream = UnixStream::connect(server.socket()).await.unwrap();
    let (mut connection, pump) = Connection::new(Box::new(stream), |_, _| {});
    tokio::spawn(pump);
    redis::cmd("HELLO").arg(3).exec_async(&mut connection).await.unwrap();
    connection
}

async fn find_as(server: &Server, user: &str) -> Vec<Check> {
    find(RedisAccess { login: login(Some(user), PASSWORD), ..server.unix() }).await
}

#[track_caller]
fn one<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let mut found = checks.iter().filter(|check| check.name == name);
    let check = found.next().unwrap_or_else(|| panic!("no {name} in {checks:#?}"));
    assert!(found.next().is_none(), "{name} is there twice");
    check
}

#[track_caller]
fn check(checks: &[Check], name: &str, verdict: Verdict, says: &str) {
    let found = one(checks, name);
    assert_eq!(found.verdict, verdict, "{found:#?}");
    assert!(found.detail.contains(says), "{says:?} is not in {found:#?}");
    assert_eq!(found.remedy.is_none(), verdict == Verdict::Ok, "{found:#?}");
}

/// Everything is well but for these.
#[track_caller]
fn well_but(checks: &[Check], but: &[&str]) {
    // A server of a test keeps nothing.
    let but = [but, &["redis.persistence"]].concat();
    for check in checks.iter().filter(|check| !but.contains(&&*check.name)) {
        assert_eq!(check.verdict, Verdict::Ok, "{check:#?}");
    }
}

pub(crate) fn add_user(server: &Server, rules: &str) {
    let mut words = vec!["ACL", "SETUSER", "agent", "reset", "on"];
    let password = format!(">{PASSWORD}");
    words.push(&password);
    words.extend(rules.split(' '));
    assert_eq!(server.say(&words), "OK");
}

/// Does what the remedy says, to the letter.
fn follow(server: &Server, check: &Check) {
    let remedy = check.remedy.as_deref().unwrap();
    let (command, _) = remedy.split_once(", and ACL SAVE").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(server.say(&words), "OK", "{command}");
}

#[tokio::test]
async fn a_server_as_it_should_be() {
    let server = Server::start(&[]);
    let checks = find(server.unix()).await;
    well_but(&checks, &[]);
    check(&checks, "redis.connection", Verdict::Ok, server.socket().to_str().unwrap());
    check(&checks, "redis.server", Verdict::Ok, "Redis ");
    check(&checks, "redis.database", Verdict::Ok, "number 0");
    check(&checks, "redis.persistence", Verdict::Warning, "append-only file off");
    check(&checks, "redis.rights", Verdict::Ok, "user default");
    check(&checks, "redis.clock", Verdict::Ok, "this host's clock is");
    check(&checks, "redis.scores", Verdict::Ok, "0 held and 0 queued semaphores");
    let names: Vec<&str> = checks.iter().map(|check| &*check.name).collect();
    assert_eq!(names.len(), 18, "{names:?}");
    assert_eq!(server.say(&["DBSIZE"]), "0", "an examination leaves nothing behind");

    let other = RedisAccess { db: 3, ..server.tcp() };
    check(&find(other).await, "redis.database", Verdict::Ok, "number 3");
}

#[tokio::test]
async fn a_server_that_evicts() {
    let server = Server::start(&["--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"]);
    let checks = find(server.unix()).await;
    well_but(&checks, &["redis.eviction"]);
    check(&checks, "redis.eviction", Verdict::Failure, "maxmemory-policy is volatile-lru");
    server.say(&["CONFIG", "SET", "maxmemory", "0"]);
    check(&find(server.unix()).await, "redis.eviction", Verdict::Warning, "volatile-lru");
    server.say(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1mb"]);
    let checks = find(server.unix()).await;
    check(&checks, "redis.eviction", Verdict::Ok, "noeviction");
    check(&checks, "redis.memory", Verdict::Failure, "MiB");
}

#[tokio::test]
async fn a_master_with_replicas_and_a_replica() {
    let master = Server::start(&[]);
    let replica = Server::start(&[]);
    replica.say(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    until("the replica to follow", || {
        replica.say(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let checks = find_at(&replica).await;
    let says = format!("a replica of 127.0.0.1:{}", master.port());
    check(&checks, "redis.replication", Verdict::Failure, &says);
    check(&find(replica.unix()).await, "redis.connection", Verdict::Failure, "read-only replica");

    let checks = find(master.unix()).await;
    well_but(&checks, &["redis.replication"]);
    check(&checks, "redis.replication", Verdict::Warning, "with 1 replica; they follow");
    master.say(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    check(&find(master.unix()).await, "redis.replication", Verdict::Ok, "min-replicas-to-write");
}

#[tokio::test]
async fn the_recommended_user_may_do_everything() {
    let server = Server::start(&[]);
    add_user(&server, &acl_rules(&Layout::default()));
    let checks = find_as(&server, "agent").await;
    // To see it would take the right to read passwords with CONFIG.
    well_but(&checks, &["redis.keyspace_events"]);
    check(&checks, "redis.keyspace_events", Verdict::Unknown, "nothing of Tenure depends on it");
    check(&checks, "redis.rights", Verdict::Ok, "user agent may do all");
    check(&checks, "redis.tenant_rights", Verdict::Ok, "every tenant");
    assert_eq!(server.say(&["DBSIZE"]), "0", "an examination leaves nothing behind");
}

/// The server logs whatever it denies.
#[tokio::test]
async fn the_recommended_user_is_denied_nothing_that_an_agent_does() {
    let server = Server::start(&[]);
    add_user(&server, &acl_rules(&Layout::default()));
    let access = RedisAccess { login: login(Some("agent"), PASSWORD), ..server.unix() };
    let mut doer = Doer::new(access.clone());
    doer.listen().await;
    let link = open(access, Purpose::Commands);
    let mut connection = link.ready().await.unwrap().connection;
    for (first, tenant) in [(100, "default"), (200, "other")] {
        doer.do_everything(tenant, first).await;
        deeds::look_after(&mut connection, tenant).await;
    }
    assert_eq!(doer.upstream.health().last_error, None);
    let checks = timeout(DEADLINE, doer.upstream.examine()).await.unwrap();
    check(&checks, "redis.feed", Verdict::Ok, "hears at once");
    let log = server.say(&["ACL", "LOG"]);
    let lines: Vec<&str> = log.lines().collect();
    let mut denied: Vec<&str> =
        lines.windows(2).filter(|pair| pair[0] == "object").map(|pair| pair[1]).collect();
    // The Redis client tells servers since 7.2 its name, and takes no for an answer.
    denied.retain(|object| *object != "client|setinfo");
    denied.sort_unstable();
    assert_eq!(denied, ["acl|dryrun", "config|get"], "only what the examination tried: {log}");
}

#[tokio::test]
async fn a_missing_right_is_named_with_the_rule_that_grants_it() {
    let server = Server::start(&[]);
    let all = acl_rules(&Layout::default());
    let without = |rules: &[&str]| {
        let kept = all.split(' ').filter(|rule| !rules.contains(rule));
        kept.collect::<Vec<_>>().join(" ")
    };
    for dry_run in [false, true] {
        let dry_run = if dry_run { " +acl|dryrun" } else { "" };
        for (missing, says) in [
            (&["+zpopmin"][..], "user agent may not run zpopmin"),
            (&["+client|tracking"], "may not run client|tracking"),
            (&["~adv-sem:*"], "user agent may not use keys adv-sem:*"),
            (
                &["+time", "~leader:*", "&prism:events:project:*"],
                "may not run time, nor use keys leader:*, nor use channels prism:events:project:*",
            ),
        ] {
            add_user(&server, &(without(missing) + dry_run));
            let checks = find_as(&server, "agent").await;
            check(&checks, "redis.rights", Verdict::Failure, says);
            let rights = one(&checks, "redis.rights");
            let expected = format!("ACL SETUSER agent {}, and ACL SAVE", missing.join(" "));
            assert!(rights.remedy.as_deref().unwrap().starts_with(&expected), "{rights:#?}");
            follow(&server, rights);
            check(&find_as(&server, "agent").await, "redis.rights", Verdict::Ok, "may do all");
        }
    }
    // A right that is hidden behind a command is named at once as well.
    add_user(&server, "-@all +ping +hello +multi +discard +client|info");
    follow(&server, one(&find_as(&server, "agent").await, "redis.rights"));
    let checks = find_as(&server, "agent").await;
    check(&checks, "redis.rights", Verdict::Ok, "may do all");
    check(&checks, "redis.tenant_rights", Verdict::Warning, "serves no other");
    follow(&server, one(&checks, "redis.tenant_rights"));
    check(&find_as(&server, "agent").await, "redis.tenant_rights", Verdict::Ok, "every tenant");

    add_user(&server, "-@all +ping +hello");
    let checks = find_as(&server, "agent").await;
    check(&checks, "redis.rights", Verdict::Unknown, "without doing harm");
    assert_eq!(server.say(&["DBSIZE"]), "0", "an examination leaves nothing behind");
}

#[tokio::test]
async fn what_may_not_be_asked_is_unknown_and_says_what_to_do() {
    let server = Server::start(&["--rename-command", "CONFIG", ""]);
    let checks = find(server.unix()).await;
    well_but(&checks, &["redis.keyspace_events"]);
    check(&checks, "redis.keyspace_events", Verdict::Unknown, "unknown command");

    let all = acl_rules(&Layout::default());
    for (without, lost) in [
        ("+info", "redis.info"),
        ("+info", "redis.eviction"),
        ("+scan", "redis.scores"),
        ("+client|info", "redis.database"),
    ] {
        let server = Server::start(&[]);
        add_user(&server, &all.replace(&format!(" {without}"), ""));
        let checks = find_as(&server, "agent").await;
        let found = one(&checks, lost);
        assert_eq!(found.verdict, Verdict::Unknown, "{found:#?}");
        assert!(found.remedy.as_deref().unwrap().contains(without), "{found:#?}");
    }
}

#[tokio::test]
async fn a_command_that_was_renamed_is_missed() {
    let server =
        Server::start(&["--rename-command", "ZPOPMIN", "", "--rename-command", "INFO", ""]);
    let checks = find(server.unix()).await;
    check(&checks, "redis.rights", Verdict::Failure, "does not know zpopmin");
    check(&checks, "redis.info", Verdict::Unknown, "unknown command");
    check(&checks, "redis.eviction", Verdict::Ok, "noeviction");
}

#[tokio::test]
async fn programs_whose_clocks_are_ahead() {
    let server = Server::start(&[]);
    let now: u64 = server.say(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let own = "0123456789abcdef0123456789abcdef";
    let record = "tenure:claim:01234567-89ab-cdef-0123-456789abcdef";
    let add = |key: &str, ahead: u64, member: &str| {
        server.say(&["ZADD", key, &(now + ahead).to_string(), member]);
    };
    add("adv-sem:semaphore_waiting:fine", 0, "a");
    add("adv-sem:semaphore_main:fine", 180, "b");
    add("adv-sem:semaphore_main:fine", 10 * 86_400, own);
    add("adv-sem:semaphore_ttl:fine", 2_147_483_637, "b");
    server.say(&["HSET", record, "r", "semaphore:fine"]);
    server.say(&["SET", "adv-sem:semaphore_max:fine", "3"]);
    server.say(&["SADD", "adv-sem:semaphore_waiting:strange", "no sorted set"]);
    let checks = find(server.unix()).await;
    check(&checks, "redis.scores", Verdict::Ok, "1 held and 1 queued semaphores");

    add("adv-sem:semaphore_waiting:gpu", 3_600, "a");
    add("tenant:t:adv-sem:semaphore_waiting:gpu", 7_200, "b");
    add("adv-sem:semaphore_main:tape", 3 * 86_400, "c");
    let checks = find(server.unix()).await;
    well_but(&checks, &["redis.scores"]);
    for says in [
        "2 held and 3 queued semaphores",
        "gpu (a waiter 3",
        "gpu of tenant t (a waiter 7",
        "tape (a holder's end 259",
    ] {
        check(&checks, "redis.scores", Verdict::Warning, says);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached() {
    let mut server = Server::start(&["--requirepass", PASSWORD]);
    let wrong = RedisAccess { login: login(None, "wrong"), ..server.unix() };
    let checks = find(wrong).await;
    assert_eq!(checks.len(), 1, "{checks:#?}");
    check(&checks, "redis.connection", Verdict::Failure, "WRONGPASS");
    check(&find(server.unix()).await, "redis.connection", Verdict::Failure, "NOAUTH");
    let right = RedisAccess { login: login(None, PASSWORD), ..server.unix() };
    check(&find(right.clone()).await, "redis.rights", Verdict::Ok, "user default");

    server.pause();
    check(&find(right.clone()).await, "redis.connection", Verdict::Failure, "within 2000 ms");
    server.kill();
    check(&find(right).await, "redis.connection", Verdict::Failure, "cannot connect to Redis at");
}

#[tokio::test]
async fn a_server_that_stops_meanwhile() {
    let mut server = Server::start(&[]);
    let connection = connect(&server).await;
    server.pause();
    let address = Address::new(server.unix(), Layout::default());
    let checks = timeout(DEADLINE, examine(&address, connection)).await.unwrap();
    check(&checks, "redis.rest", Verdict::Unknown, "too slow to look further");
}

#[tokio::test]
async fn a_user_without_the_keys_that_came_later() {
    let server = Server::start(&[]);
    // The rights that an agent needed before it kept histories and swept sets, key by key.
    let former = [
        "lease:*",
        "leases",
        "routes",
        "fence",
        "claim:*",
        "master:*",
        "caretaker:*",
        "queue*",
        "key*",
    ];
    let former = former.map(|keys| format!("~tenure:{keys}")).join(" ");
    add_user(
        &server,
        &acl_rules(&Layout::default()).replace(" ~tenure:* ", &format!(" {former} ")),
    );
    let checks = find_as(&server, "agent").await;
    well_but(&checks, &["redis.rights", "redis.keyspace_events"]);
    let says = "user agent may not use keys tenure:epoch*, tenure:histories, tenure:history:*, tenure:sets";
    check(&checks, "redis.rights", Verdict::Failure, says);
    let remedy = one(&checks, "redis.rights").remedy.as_deref().unwrap();
    let line = "ACL SETUSER agent ~tenure:history:* ~tenure:histories ~tenure:sets ~tenure:epoch*, and ACL SAVE";
    assert!(remedy.starts_with(line), "{remedy}");
    follow(&server, one(&checks, "redis.rights"));
    well_but(&find_as(&server, "agent").await, &["redis.keyspace_events"]);
}
