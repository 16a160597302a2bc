//! The password of the store is rotated, and its server drops every connection: all holds stay, and the agent needs no
//! restart.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use redis::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::{HoldState, HoldView, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Granted, Postgres, RedisServer, boottime_ns, start_agent, until,
};

/// A session has 63 holds at most.
const SESSIONS: usize = 2;
const HOLDS_OF_SESSION: usize = 50;
/// An agent that is not let in asks again after 15 s at the latest.
const CONFIG: &str =
    "[session]\nttl = \"120s\"\nbeat = \"1s\"\n[leader]\nttl = \"120s\"\nbeat = \"1s\"\n";
const PASSWORDS: [&str; 3] = ["first-password", "second-password", "third-password"];
const USER: &str = "tenure";

/// A store whose password is rotated.
trait Store {
    /// Where the agent connects, without a password.
    fn url(&self) -> String;

    /// From now on the server takes this password, and no other.
    fn rotate(&mut self, password: &str);

    /// The numbers of the agent's connections.
    fn connections(&mut self) -> BTreeSet<u64>;

    /// The server drops the agent's connections.
    fn drop_connections(&mut self);
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

/// A hundred holds of two programs.
struct Holds {
    programs: Vec<Campaigner>,
    granted: Vec<Vec<Granted>>,
}

impl Holds {
    fn take(agent: &Agent) -> Holds {
        let mut programs: Vec<_> =
            (0..SESSIONS).map(|at| Campaigner::start(agent, &format!("program-{at}"))).collect();
        let granted = programs.iter_mut().enumerate().map(|(at, program)| {
            let name = |number| format!("role-{at}-{number}");
            let acquire = |number| program.acquire("leader", &name(number), &json!({}));
            (0..HOLDS_OF_SESSION).map(acquire).collect::<Vec<_>>()
        });
        let granted = granted.collect();
        Holds { programs, granted }
    }

    /// The agent's view of all that is held.
    fn views(agent: &Agent) -> Vec<HoldView> {
        let sessions = agent.http().status().sessions;
        sessions.into_iter().flat_map(|session| session.holds).collect()
    }

    /// All are held with the tokens of their grants, and were renewed after that instant. Nobody was told of a loss.
    #[track_caller]
    fn are_renewed_after(&self, agent: &Agent, instant_ns: u64) {
        let renewed = |view: &HoldView| {
            // A margin later, since it is taken off the ttl.
            let sent_ns = view.valid_until_boottime_ns.saturating_sub(view.ttl_ms * 1_000_000);
            view.state == HoldState::Held && sent_ns > instant_ns
        };
        until("every hold to be renewed", || Holds::views(agent).iter().all(renewed));
        let mut now: Vec<_> =
            Holds::views(agent).iter().map(|view| (view.hold, view.token)).collect();
        let mut before: Vec<_> =
            self.granted.iter().flatten().map(|grant| (grant.hold, Some(grant.token))).collect();
        now.sort();
        before.sort();
        assert_eq!(before.len(), SESSIONS * HOLDS_OF_SESSION);
        assert_eq!(now, before);
        for (program, granted) in self.programs.iter().zip(&self.granted) {
            for grant in granted {
                assert!(!program.events.has("lost", grant.hold), "{} is lost", grant.hold);
            }
        }
    }
}

fn is_up(agent: &Agent) -> bool {
    agent.http().status().upstream.state == UpstreamState::Up
}

/// Waits until the agent has connections again, none of which is of these.
#[track_caller]
fn has_others(agent: &Agent, store: &mut impl Store, earlier: &BTreeSet<u64>) {
    until("the agent to connect again", || {
        let now = store.connections();
        !now.is_empty() && now.is_disjoint(earlier) && is_up(agent)
    });
}

/// Reloads; this is so many reloads after the start. The last line about it.
#[track_caller]
fn reload(agent: &Agent, times: usize) -> Value {
    agent.signal(Signal::SIGHUP);
    let mut reloaded = Vec::new();
    until("a reload", || {
        let log = agent.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        reloaded = lines.filter(|line| line["message"] == "configuration reloaded").collect();
        reloaded.len() == times
    });
    reloaded.pop().expect("there is one")
}

fn a_rotation_ends_no_hold(mut store: impl Store) {
    let file = SecretFile::new();
    let config = format!("upstream_secret_file = \"{}\"\n{CONFIG}", file.path().display());
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
    fn url(&self) -> String {
        format!("{}&user={USER}", self.0.url())
    }

    fn rotate(&mut self, password: &str) {
        let password = format!(">{password}");
        let () = self.0.command(&["ACL", "SETUSER", USER, "on", "resetpass", &password]);
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        ids(&mut self.0.connect(), USER)
    }

    fn drop_connections(&mut self) {
        let _: u64 = self.0.command(&["CLIENT", "KILL", "USER", USER]);
    }
}

/// The numbers of a user's connections; those of the test have no name.
fn ids(connection: &mut Connection, user: &str) -> BTreeSet<u64> {
    let list: String =
        redis::cmd("CLIENT").arg("LIST").query(connection).expect("Redis lists its clients");
    let of_agent = list.lines().filter(|line| {
        let words: Vec<_> = line.split(' ').collect();
        words.contains(&&*format!("user={user}")) && line.contains(" name=tenured-")
    });
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    of_agent.filter_map(id).collect()
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
    fn url(&self) -> String {
        self.redis.url()
    }

    fn rotate(&mut self, password: &str) {
        self.say(&["CONFIG", "SET", "requirepass", password]);
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
    fn url(&self) -> String {
        self.0.tcp_url(USER, "?sslmode=disable")
    }

    fn rotate(&mut self, password: &str) {
        self.0.sql(&format!("alter role {USER} password '{password}'"));
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        let found =
            self.0.sql(&format!("select pid from pg_stat_activity where usename = '{USER}'"));
        found.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn drop_connections(&mut self) {
        let text = "select pg_terminate_backend(pid) from pg_stat_activity where usename =";
        self.0.sql(&format!("{text} '{USER}'"));
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
