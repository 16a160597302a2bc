//! Sentinels of the test's own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use redis::{FromRedisValue, RedisResult};
use tempfile::TempDir;

use super::super::{Program, until};
use super::{RedisServer, free_port, show_log};

/// What the sentinels call the servers that they watch.
const SERVICE: &str = "tenure";

/// A sentinel that decides alone. Dropping it kills it.
pub struct Sentinel {
    port: u16,
    _process: Program,
    dir: TempDir,
}

impl Sentinel {
    /// Watches a master, and knows its replica before it returns: a failover needs one.
    ///
    /// # Panics
    ///
    /// When it cannot be started, or sees no replica.
    #[track_caller]
    pub fn start(master: &RedisServer) -> Sentinel {
        let dir = TempDir::with_prefix("sentinel-").expect("a temporary directory can be made");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {dir}\n\
             sentinel monitor {SERVICE} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {SERVICE} 1000\n\
             sentinel failover-timeout {SERVICE} 5000\n",
            dir = dir.path().display(),
            master = master.port(),
        );
        fs::write(&config, text).expect("the directory is ours");
        let log = File::create(dir.path().join("sentinel.log")).expect("the directory is ours");
        let mut command = Command::new("redis-server");
        command.arg(&config).arg("--sentinel").stdin(Stdio::null()).stdout(log);
        let process = Program::start(&mut command);
        let sentinel = Sentinel { port, _process: process, dir };
        until("the sentinel to see a replica that is in step", || {
            let words = ["SENTINEL", "REPLICAS", SERVICE];
            let replicas: RedisResult<Vec<BTreeMap<String, String>>> = sentinel.try_command(&words);
            replicas.is_ok_and(|replicas| {
                replicas.iter().any(|it| it["flags"] == "slave" && it["master-link-status"] == "ok")
            })
        });
        sentinel
    }

    /// The URL of whatever server is the master, as an agent takes it.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{SERVICE}/0", self.port)
    }

    /// The port of the present master.
    ///
    /// # Panics
    ///
    /// When the sentinel does not answer.
    #[track_caller]
    pub fn master_port(&self) -> u16 {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let (_, port): (String, u16) = self.try_command(&words).expect("a sentinel answers");
        port
    }

    fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
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
