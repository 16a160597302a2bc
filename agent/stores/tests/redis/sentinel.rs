//! Masters that move.

use tenure_harness::{SENTINEL_SERVICE, Sentinel, free_port};
use tenure_stores::redis::settings::{Login, RedisAccess, RedisServer};
use tenure_stores::remote::Purpose;

use super::server::{Server, access, local, login, login_by_file, write_secret};
use super::{Link, eventually, get, open, refused, up};

const PASSWORD: &str = "hunter2";

fn sentinel(master: &Server) -> Sentinel {
    Sentinel::start_alone(master, Some(PASSWORD))
}

fn through(ports: &[u16], master: &str, login: Login) -> RedisAccess {
    let sentinels = ports.iter().map(|port| local(*port)).collect();
    access(RedisServer::Sentinel { sentinels, master: master.to_owned(), login })
}

async fn at(link: &Link, port: u16) {
    let place = local(port).to_string();
    let looking = async {
        while up(link).await.server.place != place {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::DEADLINE, looking).await.expect("it goes to the new master");
}

/// A master with a replica that is in step with it, and a Sentinel that knows both.
async fn trio() -> (Server, Server, Sentinel) {
    let master = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    eventually("the replica to be in step", || {
        replica.say(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    })
    .await;
    let sentinel = sentinel(&master);
    sentinel.wait_for_replica();
    (master, replica, sentinel)
}

#[tokio::test]
async fn when_the_master_dies_its_successor_is_found() {
    let (mut master, replica, sentinel) = trio().await;
    // The first one that is named is not there.
    let ports = [free_port(), sentinel.port()];
    let link = open(through(&ports, SENTINEL_SERVICE, login(None, PASSWORD)), Purpose::Commands);
    at(&link, master.port()).await;
    master.kill();
    at(&link, replica.port()).await;
    assert_eq!(get(&up(&link).await, "a").await, None);
}

#[tokio::test]
async fn when_the_master_hands_over_its_successor_is_found() {
    let (master, replica, sentinel) = trio().await;
    let link =
        open(through(&[sentinel.port()], SENTINEL_SERVICE, login(None, PASSWORD)), Purpose::Beats);
    at(&link, master.port()).await;
    eventually("the hand-over to begin", || {
        sentinel.try_command::<()>(&["SENTINEL", "FAILOVER", SENTINEL_SERVICE]).ok()
    })
    .await;
    at(&link, replica.port()).await;
}

#[tokio::test]
async fn a_rotated_password_of_the_sentinels_is_read_at_the_next_question() {
    let master = Server::start(&[]);
    let sentinel = sentinel(&master);
    let file = master.path("secret");
    write_secret(&file, PASSWORD);
    let asking = through(&[sentinel.port()], SENTINEL_SERVICE, login_by_file(&file));
    let link = open(asking.clone(), Purpose::Commands);
    at(&link, master.port()).await;
    let generation = up(&link).await.generation;
    sentinel.try_command::<()>(&["ACL", "SETUSER", "default", "resetpass", ">later"]).unwrap();
    let way_out = "the password in redis.sentinel_secret_file, which is read at each sign-in";
    refused(asking, way_out).await;
    write_secret(&file, "later");
    master.say(&["CLIENT", "KILL", "TYPE", "normal"]);
    let again = async {
        while up(&link).await.generation == generation {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::DEADLINE, again).await.expect("it connects again");
}

#[tokio::test]
async fn a_master_that_sentinels_abandoned_is_left_although_it_answers() {
    let (old, new) = (Server::start(&[]), Server::start(&[]));
    let sentinel = sentinel(&old);
    let link =
        open(through(&[sentinel.port()], SENTINEL_SERVICE, login(None, PASSWORD)), Purpose::Beats);
    at(&link, old.port()).await;
    let say =
        |words: &[&str]| sentinel.try_command::<()>(&[&["SENTINEL"], words].concat()).unwrap();
    say(&["REMOVE", SENTINEL_SERVICE]);
    say(&["MONITOR", SENTINEL_SERVICE, "127.0.0.1", &new.port().to_string(), "1"]);
    at(&link, new.port()).await;
}

#[tokio::test]
async fn sentinels_that_do_not_help_are_named_with_what_they_said() {
    let master = Server::start(&[]);
    let sentinel = sentinel(&master);
    let (nobody, port) = (free_port(), sentinel.port());
    let known = login(None, PASSWORD);
    refused(
        through(&[nobody, port], "other", known.clone()),
        &format!(
            "Connection refused (os error 111); Sentinel at 127.0.0.1:{port} knows no such master"
        ),
    )
    .await;
    let text = "no Sentinel says where the master \"tenure\" is; check upstream";
    refused(through(&[nobody], SENTINEL_SERVICE, known.clone()), text).await;
    refused(through(&[port], SENTINEL_SERVICE, Login::default()), "redis.sentinel_secret_file")
        .await;
    refused(
        through(&[port], SENTINEL_SERVICE, login(None, "wrong")),
        "check sentinel_user and sentinel_password",
    )
    .await;

    // As if it were a Redis.
    let plain = access(RedisServer::Tcp(local(port)));
    let plain = RedisAccess { login: known.clone(), ..plain };
    refused(plain, "is a Sentinel; write the upstream as redis+sentinel://").await;

    // It calls a replica the master until it has looked.
    master.say(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(through(&[port], SENTINEL_SERVICE, known), "although a Sentinel calls it the master")
        .await;
}
