//! The password of the store is rotated, and its server drops every connection: all holds stay, and the agent needs no
//! restart.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use redis::Connection;
use tempfile::TempDir;
use tenure_tests::harness::{
    Client, Holds, Postgres, RedisServer, boottime_ns, start_agent, until,
};

use super::{Connected, USER, end_processes, has_others, ids, is_up, processes, reload};

const PASSWORDS: [&str; 3] = ["first-password", "second-password", "third-password"];

/// A store whose password is rotated.
trait Store: Connected {
    /// From now on the server takes this password, and no other.
    fn rotate(&mut self, password: &str);
}

/// The file with the password.
struct SecretFile {
    dir: TempDir,
}

impl SecretFile {
    fn new() -> SecretFile {
        let file = SecretFile { dir: TempDir::new().expect("a directory can be made") };
        file.replace(PASSWORDS[0]);
        file
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("secret")
    }

    /// Puts a file with that password in the place of the one before it.
    fn replace(&self, password: &str) {
        let next = self.dir.path().join("next");
        fs::write(&next, format!("{password}\n")).expect("it is ours");
        fs::set_permissions(&next, Permissions::from_mode(0o600)).expect("it is ours");
        fs::rename(next, self.path()).expect("it is ours");
    }
}

fn a_rotation_ends_no_hold(mut store: impl Store) {
    let file = SecretFile::new();
    let config = format!("upstream_secret_file = \"{}\"\n{}", file.path().display(), Holds::CONFIG);
    let agent = start_agent(0, &store.url(), &config);
    until("the agent to be let in", || is_up(&agent));
    let holds = Holds::take(&agent);

    // As an administrator should do it: the file, the server, and then the connections.
    let earlier = store.connections();
    file.replace(PASSWORDS[1]);
    let reloaded = reload(&agent, 1);
    let changed = (reloaded["changed"].as_str(), reloaded["restart"].as_str());
    assert_eq!(changed, (Some("upstream_secret_file"), Some("")));
    assert_eq!(reload(&agent, 2)["changed"], "", "it was taken");
    store.rotate(PASSWORDS[1]);
    assert!(store.connections().is_superset(&earlier), "a rotation alone ends no connection");
    store.drop_connections();
    has_others(&agent, &mut store, &earlier);
    holds.are_renewed_after(&agent, boottime_ns());

    // The file comes late, and nobody says that it came.
    let earlier = store.connections();
    store.rotate(PASSWORDS[2]);
    store.drop_connections();
    until("the agent to say where the password belongs", || {
        let upstream = agent.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        error.contains("upstream_secret_file, which is read at each sign-in")
    });
    file.replace(PASSWORDS[2]);
    has_others(&agent, &mut store, &earlier);
    holds.are_renewed_after(&agent, boottime_ns());

    let log = agent.log();
    assert!(PASSWORDS.iter().all(|password| !log.contains(password)), "no password is logged");
}

/// A Redis with a user for the agent.
struct RedisUser(RedisServer);

impl Store for RedisUser {
    fn rotate(&mut self, password: &str) {
        let password = format!(">{password}");
        let () = self.0.command(&["ACL", "SETUSER", USER, "on", "resetpass", &password]);
    }
}

impl Connected for RedisUser {
    fn url(&self) -> String {
        format!("{}&user={USER}", self.0.url())
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        ids(&mut self.0.connect(), USER)
    }

    fn drop_connections(&mut self) {
        let _: u64 = self.0.command(&["CLIENT", "KILL", "USER", USER]);
    }
}

#[test]
fn of_a_user_of_a_redis() {
    let redis = RedisServer::start();
    let password = format!(">{}", PASSWORDS[0]);
    let user = ["ACL", "SETUSER", USER, "on", &password, "~*", "&*", "+@all"];
    let () = redis.command(&user);
    a_rotation_ends_no_hold(RedisUser(redis));
}

/// A Redis with one password for everybody.
struct RedisWithPassword {
    redis: RedisServer,
    /// It was let in by the first password, and stays.
    administrator: Connection,
}

impl RedisWithPassword {
    fn say(&mut self, words: &[&str]) -> redis::Value {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut self.administrator).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }
}

impl Store for RedisWithPassword {
    fn rotate(&mut self, password: &str) {
        self.say(&["CONFIG", "SET", "requirepass", password]);
    }
}

impl Connected for RedisWithPassword {
    fn url(&self) -> String {
        self.redis.url()
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        ids(&mut self.administrator, "default")
    }

    fn drop_connections(&mut self) {
        self.say(&["CLIENT", "KILL", "USER", "default", "SKIPME", "yes"]);
    }
}

#[test]
fn of_a_redis_with_one_password() {
    let redis = RedisServer::setup().password(PASSWORDS[0]).start();
    let administrator = redis.connect();
    a_rotation_ends_no_hold(RedisWithPassword { redis, administrator });
}

/// A Postgres with a role for the agent.
struct PostgresRole(Postgres);

impl Store for PostgresRole {
    fn rotate(&mut self, password: &str) {
        self.0.sql(&format!("alter role {USER} password '{password}'"));
    }
}

impl Connected for PostgresRole {
    fn url(&self) -> String {
        self.0.tcp_url(USER, "?sslmode=disable")
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        processes(&self.0)
    }

    fn drop_connections(&mut self) {
        end_processes(&self.0);
    }
}

#[test]
fn of_a_role_of_a_postgres() {
    let postgres = Postgres::setup().tcp().start();
    postgres.let_in("host all all 127.0.0.1/32 scram-sha-256");
    let password = PASSWORDS[0];
    postgres.sql(&format!("create role {USER} login password '{password}'"));
    postgres.sql(&format!("create schema tenure authorization {USER}"));
    postgres.sql(&format!("grant create on database postgres to {USER}"));
    a_rotation_ends_no_hold(PostgresRole(postgres));
}
