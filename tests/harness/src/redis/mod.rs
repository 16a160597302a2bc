//! A `redis-server` of the test's own.

mod dump;
mod listener;
mod proxy;
mod resp;
mod sentinel;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use tempfile::TempDir;

pub use dump::{Contents, Entry};
pub use listener::Listener;
pub use proxy::{Direction, Proxy};
pub use sentinel::{SENTINEL_SERVICE, Sentinel};

use crate::{DEADLINE, Program, eventually, free_port};

/// The server, as the first of its name in PATH. Another Redis, or a Valkey, by that name will do.
const PROGRAM: &str = "redis-server";
/// Lines of the server's log that a failed test shows.
const LOG_TAIL_LINES: usize = 20;

/// How a server is to be started.
#[derive(Default)]
pub struct RedisSetup {
    arguments: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    password: Option<String>,
    tcp: bool,
}

impl RedisSetup {
    /// With this line of the configuration; `--name value` of the command line.
    #[must_use]
    pub fn option(self, name: &str, value: &str) -> RedisSetup {
        self.arguments(&[&format!("--{name}"), value])
    }

    /// Obeys DEBUG from this host. Servers before Redis 7 always do, and do not know the setting.
    #[must_use]
    pub fn debug_commands(self) -> RedisSetup {
        let version = Command::new(PROGRAM).arg("--version").output();
        let version = version.unwrap_or_else(|error| panic!("{PROGRAM}: {error}"));
        match String::from_utf8_lossy(&version.stdout).contains(" v=6.") {
            true => self,
            false => self.option("enable-debug-command", "local"),
        }
    }

    /// With these words at the end of the command line.
    #[must_use]
    pub fn arguments(mut self, words: &[&str]) -> RedisSetup {
        self.arguments.extend(words.iter().map(ToString::to_string));
        self
    }

    /// With this variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> RedisSetup {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Keeps its data over a kill: every change is in the page cache before it is answered.
    #[must_use]
    pub fn durable(self) -> RedisSetup {
        self.option("appendonly", "yes").option("appendfsync", "no")
    }

    /// Asks every client for this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> RedisSetup {
        self.password = Some(password.to_owned());
        self.option("requirepass", password).option("masterauth", password)
    }

    /// Listens on a TCP port of the loopback interface too.
    #[must_use]
    pub fn tcp(mut self) -> RedisSetup {
        self.tcp = true;
        self
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let dir = TempDir::with_prefix("redis-").expect("a temporary directory can be made");
        let port = if self.tcp { free_port() } else { 0 };
        let process = self.spawn(dir.path(), port);
        let mut server = RedisServer { setup: self, dir, port, process };
        server.wait_ready();
        server
    }

    fn spawn(&self, dir: &Path, port: u16) -> Program {
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.join("redis.log"))
            .expect("the directory is ours");
        let mut command = Command::new(PROGRAM);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .arg("--unixsocket")
            .arg(dir.join("redis.sock"))
            .arg("--dir")
            .arg(dir)
            .args(["--save", "", "--daemonize", "no"])
            // This thread gives memory back, and takes as much of a processor as the server itself.
            .args(["--jemalloc-bg-thread", "no"])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        Program::start(&mut command)
    }
}

/// A running server. Dropping it kills it and removes its directory; a test that panics shows the
/// end of its log.
pub struct RedisServer {
    setup: RedisSetup,
    dir: TempDir,
    port: u16,
    process: Program,
}

impl RedisServer {
    /// How a server is to be started.
    pub fn setup() -> RedisSetup {
        RedisSetup::default()
    }

    /// Starts one that forgets everything when it ends.
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisSetup::default().start()
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        assert!(self.port != 0, "this server listens on its Unix socket only");
        self.port
    }

    /// Its URL as an agent takes it, without a password.
    pub fn url(&self) -> String {
        unix_url(&self.socket())
    }

    /// Its URL as redis-py takes it, without a password.
    pub fn python_url(&self) -> String {
        format!("unix://{}?db=0", self.socket().display())
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Program {
        &mut self.process
    }

    /// A new connection.
    pub fn try_connect(&self) -> RedisResult<redis::Connection> {
        let mut login = RedisConnectionInfo::default();
        if let Some(password) = &self.setup.password {
            login = login.set_password(password);
        }
        let address = ConnectionAddr::Unix(self.socket());
        let info = address.into_connection_info()?.set_redis_settings(login);
        let connection = redis::Client::open(info)?.get_connection()?;
        connection.set_read_timeout(Some(DEADLINE))?;
        Ok(connection)
    }

    /// A new connection.
    #[track_caller]
    pub fn connect(&self) -> redis::Connection {
        self.try_connect().unwrap_or_else(|error| panic!("no connection to Redis: {error}"))
    }

    /// One command on a connection of its own, as words.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.try_connect()?)
    }

    /// One command, which must succeed.
    #[track_caller]
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// How many calls of each command there have been, in lower case.
    #[track_caller]
    pub fn commandstats(&self) -> BTreeMap<String, u64> {
        let info: String = self.command(&["INFO", "commandstats"]);
        info.lines()
            .filter_map(|line| {
                let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
            })
            .collect()
    }

    /// Everything that the server keeps.
    #[track_caller]
    pub fn dump(&self) -> BTreeMap<String, Entry> {
        dump::dump(&mut self.connect())
    }

    /// The names of all keys.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// Hears what is published on channels that match one of these patterns, from now on.
    #[track_caller]
    pub fn listen(&self, patterns: &[&str]) -> Listener {
        Listener::start(self.connect(), patterns)
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again in the same place, and waits until it answers. It has its data again if it
    /// is [durable](RedisSetup::durable).
    #[track_caller]
    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
        self.wait_ready();
    }

    /// Starts it again with these words at the end of the command line, and does not wait.
    #[track_caller]
    pub fn start_again_with(&mut self, words: &[&str]) {
        assert!(self.process.ended().is_some(), "the earlier one is still running");
        self.setup.arguments.extend(words.iter().map(ToString::to_string));
        self.process = self.setup.spawn(self.dir.path(), self.port);
    }

    /// Stops all its threads.
    #[track_caller]
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on.
    #[track_caller]
    pub fn resume(&self) {
        self.process.resume();
    }

    #[track_caller]
    fn wait_ready(&mut self) {
        eventually("Redis to answer", || {
            if let Some(status) = self.process.ended() {
                panic!("redis-server ended while starting: {status}");
            }
            let answered = self.try_command::<String>(&["PING"]);
            // Without the password, which only the test may know, it answers too.
            answered.err().is_none_or(|error| error.code() == Some("NOAUTH")).then_some(())
        });
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_log("Redis", &self.dir.path().join("redis.log"));
        }
    }
}

/// Shows the end of a log, for a test that failed.
fn show_log(of: &str, path: &Path) {
    let log = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    eprintln!("--- end of the log of {of}\n{}\n---", tail.join("\n"));
}

/// The URL of a Redis on that socket, as an agent takes it.
fn unix_url(socket: &Path) -> String {
    format!("redis+unix://{}?db=0", socket.display())
}
