//! Passwords, users, and servers that will not do.

use std::io::Write;

use tenure_stores::redis::settings::{RedisAccess, RedisServer};
use tenure_stores::remote::Purpose;

use super::server::{Server, access, login, login_by_file, write_secret};
use super::{fake, get, open, refused, says, up};

const ROOT: [&str; 3] = ["-a", "hunter2", "--no-auth-warning"];

#[tokio::test]
async fn passwords() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let with = |user, password| RedisAccess { login: login(user, password), ..server.unix() };
    up(&open(with(None, "hunter2"), Purpose::Commands)).await;
    up(&open(with(Some("default"), "hunter2"), Purpose::Commands)).await;
    refused(server.unix(), "name a file with its password in upstream_secret_file").await;
    refused(with(None, "hunter2 "), "WRONGPASS").await;
    refused(with(Some("me"), "hunter2"), "check the user and the password of upstream").await;

    // One that is put right is let in.
    let link = open(with(None, "later"), Purpose::Commands);
    says(&link, "WRONGPASS").await;
    server.say(&[&ROOT[..], &["CONFIG", "SET", "requirepass", "later"]].concat());
    up(&link).await;
}

#[tokio::test]
async fn a_rotated_password_is_read_at_the_next_sign_in() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let file = server.path("secret");
    write_secret(&file, "hunter2");
    let access = RedisAccess { login: login_by_file(&file), ..server.unix() };
    let links = [Purpose::Commands, Purpose::Feed].map(|purpose| open(access.clone(), purpose));
    for link in &links {
        up(link).await;
    }
    server.say(&[&ROOT[..], &["CONFIG", "SET", "requirepass", "later"]].concat());
    let root = ["-a", "later", "--no-auth-warning"];
    server.say(&[&root[..], &["CLIENT", "KILL", "USER", "default"]].concat());
    let way_out = "the password in upstream_secret_file, which is read at each sign-in";
    for link in &links {
        let said = says(link, way_out).await;
        assert!(said.contains("WRONGPASS") && !said.contains("hunter2"), "{said}");
    }
    write_secret(&file, "later");
    for link in &links {
        up(link).await;
    }

    // A file that is gone leaves the password that was read last.
    std::fs::remove_file(&file).unwrap();
    up(&open(access, Purpose::Beats)).await;
}

#[tokio::test]
async fn a_user_needs_no_right_but_to_its_keys() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let rights = ["ACL", "SETUSER", "me", "on", ">sesame", "~tenure*", "+get"];
    server.say(&[&ROOT[..], &rights].concat());
    let mine = RedisAccess { login: login(Some("me"), "sesame"), ..server.unix() };
    let link = open(mine.clone(), Purpose::Commands);
    assert_eq!(get(&up(&link).await, "tenure:a").await, None);
    refused(
        RedisAccess { db: 1, ..mine },
        "has no permissions to run the 'select' command; give its user the right",
    )
    .await;
}

#[tokio::test]
async fn databases_that_are_not_there() {
    let server = Server::start(&[]);
    let wrong = RedisAccess { db: 16, ..server.unix() };
    refused(wrong, "DB index is out of range; choose another database").await;
}

#[tokio::test]
async fn a_full_server_is_named_as_such() {
    let server = Server::start(&["--maxclients", "1"]);
    for access in [server.unix(), server.tcp()] {
        let first = open(access.clone(), Purpose::Commands);
        up(&first).await;
        let second = open(access, Purpose::Beats);
        says(&second, "max number of clients reached; raise its maxclients").await;
        drop(first);
        up(&second).await;
    }
}

#[tokio::test]
async fn servers_that_will_not_do() {
    let server = Server::start(&[]);
    server.say(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(server.unix(), "is a read-only replica; name its master").await;
    // By itself it takes one that the system gives to others.
    let bus = tenure_harness::free_port().to_string();
    let cluster = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    refused(cluster.unix(), "is part of a Cluster, which is not supported").await;
    let nowhere = access(RedisServer::Unix(server.path("nowhere")));
    refused(nowhere, "nowhere: No such file or directory").await;
    let nowhere = access(RedisServer::Tcp(super::server::local(tenure_harness::free_port())));
    refused(nowhere, "Connection refused").await;
}

#[tokio::test]
async fn servers_that_speak_resp2_only() {
    let server = Server::start(&["--rename-command", "HELLO", "", "--requirepass", "hunter2"]);
    let with = |password| RedisAccess { login: login(None, password), ..server.unix() };
    let link = open(with("hunter2"), Purpose::Commands);
    assert_eq!(get(&up(&link).await, "a").await, None);
    refused(with("hunter3"), "check the user and the password of upstream").await;
    refused(server.unix(), "name a file with its password in upstream_secret_file").await;
    server.say(&[&ROOT[..], &["REPLICAOF", "127.0.0.1", "1"]].concat());
    refused(with("hunter2"), "is a read-only replica; name its master").await;

    // Each refuses in words of its own. One does not tell what is behind it.
    const REFUSED: &str = "-ERR unsupported command\r\n";
    let first = "-NOPROTO unsupported protocol version\r\n";
    let proxy =
        [first, REFUSED, REFUSED, REFUSED, "+PONG\r\n", REFUSED, REFUSED, REFUSED, "$-1\r\n"];
    let link = open(fake::server(Box::leak(Box::new(proxy))), Purpose::Commands);
    assert_eq!(get(&up(&link).await, "a").await, None);
    const OLD: &str = "$47\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n\r\n\r\n";
    let old = fake::server(&[REFUSED, REFUSED, REFUSED, REFUSED, "+PONG\r\n", OLD, REFUSED]);
    refused(old, "has version 5.0.14, and must have 6.2 or later; upgrade it").await;
}

#[tokio::test]
async fn a_server_without_hello_does_not_echo_the_password() {
    let server = Server::start(&["--rename-command", "HELLO", "", "--rename-command", "AUTH", ""]);
    let access = RedisAccess { login: login(None, "hunter2"), ..server.unix() };
    refused(access, "unknown command 'AUTH'").await;
}

#[tokio::test]
async fn servers_that_are_no_redis() {
    const HELLO_OLD: &str =
        "%3\r\n+server\r\n+redis\r\n+version\r\n+6.0.16\r\n+role\r\n+master\r\n";
    const OK: &str = "+OK\r\n";
    const TIME: &str = "*2\r\n$1\r\n1\r\n$1\r\n0\r\n";
    let old = fake::server(&[HELLO_OLD, OK, OK, OK, HELLO_OLD, "+PONG\r\n", TIME]);
    refused(old, "has version 6.0.16, and must have 6.2 or later; upgrade it").await;
    let web = fake::server(&["HTTP/1.1 400 Bad Request\r\n\r\n"]);
    refused(web, "does not speak as a Redis does").await;
    let silent = fake::server(&[]);
    refused(silent, "hung up").await;
    let mut denied = fake::server(&["-DENIED Redis is running in protected mode because\r\n"]);
    denied.login = login(None, "hunter2");
    refused(denied, "it answers to its own host alone as long as it has no password").await;
}

#[tokio::test]
async fn a_server_that_loads_is_waited_for() {
    let mut server = Server::start(&[]);
    let script = "for i = 1, 400 do redis.call('SET', 'k' .. i, string.rep('x', 5000)) end";
    server.say(&["CONFIG", "SET", "rdbcompression", "no"]);
    server.say(&["EVAL", script, "0"]);
    server.say(&["SAVE"]);
    server.kill();
    // 5 ms for each key, with a look at the connections in between.
    server.start_again_with(&[
        "--key-load-delay",
        "5000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let link = open(server.unix(), Purpose::Commands);
    let said = says(&link, "is not ready: LOADING").await;
    assert!(said.starts_with("Redis at /"), "{said}");
    assert_eq!(get(&up(&link).await, "k400").await.unwrap().len(), 5000);
    std::io::stdout().flush().unwrap();
}
