//! Sentinels of the test's own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use redis::{FromRedisValue, RedisResult};
use tempfile::TempDir;

use super::{RedisServer, show_log};
use crate::{Program, free_port, until};

/// The name of a master and its replicas to the sentinels.
pub const SENTINEL_SERVICE: &str = "tenure";

/// A sentinel that decides alone. Dropping it kills it.
pub struct Sentinel {
    port: u16,
    password: Option<String>,
    _process: Program,
    dir: TempDir,
}

impl Sentinel {
    /// Watches a master, and knows its replica before it returns: a failover needs one.
    #[track_caller]
    pub fn start(master: &RedisServer) -> Sentinel {
        let sentinel = Sentinel::start_alone(master, None);
        sentinel.wait_for_replica();
        sentinel
    }

    /// Watches a master that may have no replica. Asks its clients for a password if one is given.
    #[track_caller]
    pub fn start_alone(master: &RedisServer, password: Option<&str>) -> Sentinel {
        let dir = TempDir::with_prefix("sentinel-").expect("a temporary directory can be made");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let mut text = format!(
            "port {port}\nbind 127.0.0.1\ndir {dir}\n\
             sentinel monitor {SENTINEL_SERVICE} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {SENTINEL_SERVICE} 1000\n\
             sentinel failover-timeout {SENTINEL_SERVICE} 5000\n",
            dir = dir.path().display(),
            master = master.port(),
        );
        if let Some(password) = password {
            text += &format!("requirepass {password}\n");
        }
        fs::write(&config, text).expect("the directory is ours");
        let log = File::create(dir.path().join("sentinel.log")).expect("the directory is ours");
        let mut command = Command::new("redis-server");
        command.arg(&config).arg("--sentinel").stdin(Stdio::null()).stdout(log);
        let process = Program::start(&mut command);
        let password = password.map(str::to_owned);
        let sentinel = Sentinel { port, password, _process: process, dir };
        until("the sentinel to answer", || sentinel.try_command::<String>(&["PING"]).is_ok());
        sentinel
    }

    /// Waits until it knows a replica that is in step with its master.
    #[track_caller]
    pub fn wait_for_replica(&self) {
        until("the sentinel to see a replica that is in step", || {
            let words = ["SENTINEL", "REPLICAS", SENTINEL_SERVICE];
            let replicas: RedisResult<Vec<BTreeMap<String, String>>> = self.try_command(&words);
            replicas.is_ok_and(|replicas| {
                replicas.iter().any(|it| it["flags"] == "slave" && it["master-link-status"] == "ok")
            })
        });
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of whatever server is the master, as an agent takes it.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{SENTINEL_SERVICE}/0", self.port)
    }

    /// The port of the present master.
    #[track_caller]
    pub fn master_port(&self) -> u16 {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SENTINEL_SERVICE];
        let (_, port): (String, u16) = self.try_command(&words).expect("a sentinel answers");
        port
    }

    /// One command on a connection of its own, as words.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let password = self.password.as_deref().unwrap_or_default();
        let client = redis::Client::open(format!("redis://:{password}@127.0.0.1:{}", self.port))?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut client.get_connection()?)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_log("the sentinel", &self.dir.path().join("sentinel.log"));
        }
    }
}
