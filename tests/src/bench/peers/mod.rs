//! The locks that people use today, each on a server of this run's own.

mod etcd;
mod etcd_cluster;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) use etcd::Etcd;
pub(super) use etcd_cluster::{EtcdClient, EtcdCluster};

use super::shared_redis::SharedRedis;
use crate::harness::{Postgres, Program, binary, boottime_ns};

/// The sources of the clients: `python/peers.py` and `node/peers.mjs`.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// A lock that people use today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brand {
    AdvancedSemaphores,
    RedisPy,
    PythonRedisLock,
    Etcd,
    Postgres,
    Redlock,
    ProperLockfile,
    /// Tenure's own packages, to which the agent's socket is the server.
    TenurePython,
    TenureTypescript,
    /// Their classes that imitate redis-py's Lock and Redlock.
    CompatPython,
    CompatTypescript,
}

impl Brand {
    /// Those that keep hosts apart, and hold for somebody else to wait for.
    pub(super) const ALL: [Brand; 5] = [
        Brand::AdvancedSemaphores,
        Brand::RedisPy,
        Brand::PythonRedisLock,
        Brand::Etcd,
        Brand::Postgres,
    ];

    /// The name in the report.
    pub(super) fn label(self) -> &'static str {
        match self {
            Brand::AdvancedSemaphores => "Python asyncio-advanced-semaphores 0.0.9",
            Brand::RedisPy => "Python redis-py Lock",
            Brand::PythonRedisLock => "Python python-redis-lock",
            Brand::Etcd => "etcd lock service over HTTP",
            Brand::Postgres => "Postgres advisory lock",
            Brand::Redlock => "Node redlock 4.2.0",
            Brand::ProperLockfile => "Node proper-lockfile 4.1.2, files of one host",
            Brand::TenurePython => "Python package",
            Brand::TenureTypescript => "TypeScript package in Node",
            Brand::CompatPython => "Python package, as redis-py's Lock",
            Brand::CompatTypescript => "TypeScript package in Node, as Redlock",
        }
    }

    /// The name in `peers.py`.
    fn name(self) -> &'static str {
        match self {
            Brand::AdvancedSemaphores => "asyncio-advanced-semaphores",
            Brand::RedisPy => "redis-py",
            Brand::PythonRedisLock => "python-redis-lock",
            Brand::Etcd => "etcd",
            Brand::Postgres => "postgres",
            Brand::Redlock => "redlock",
            Brand::ProperLockfile => "proper-lockfile",
            Brand::TenurePython | Brand::TenureTypescript => "tenure",
            Brand::CompatPython | Brand::CompatTypescript => "tenure-compat",
        }
    }

    /// The clients' program in its interpreter, with the packages that tests/prepare puts in the build
    /// directory.
    fn program(self) -> anyhow::Result<Command> {
        let profile = binary("bench");
        let target = profile.ancestors().nth(2).context("a profile lies in a directory")?;
        let there = |path: &str| {
            let path = target.join(path);
            anyhow::ensure!(
                path.exists(),
                "{} is missing: tests/bench/run makes it",
                path.display()
            );
            Ok(path)
        };
        let source = |path: &str| format!("{SOURCES}/{path}");
        let mut command = match self {
            Brand::Redlock
            | Brand::ProperLockfile
            | Brand::TenureTypescript
            | Brand::CompatTypescript => {
                let mut node = Command::new("node");
                node.arg(source("node/peers.mjs"));
                node.env("NODE_PACKAGES", there("node")?);
                node.env("TENURE_TYPESCRIPT", there("typescript/dist/index.js")?);
                node
            }
            _ => {
                let mut python = Command::new(there("python/bin/python")?);
                python.arg(source("python/peers.py"));
                python.env("PYTHONPATH", source("../client-sdk/python/src"));
                python.env("PYTHONDONTWRITEBYTECODE", "1");
                python
            }
        };
        command.arg(self.name());
        Ok(command)
    }
}

/// The servers of the peers.
pub(super) struct Peers {
    /// Not the agents' own: an agent wakes the waiters of foreign semaphores, too.
    redis: SharedRedis,
    etcd: anyhow::Result<Etcd>,
    postgres: Result<Postgres, String>,
}

impl Peers {
    /// Starts those that can be started; the others are missing where they are asked for.
    pub(super) fn start() -> Peers {
        Peers { redis: SharedRedis::start(), etcd: Etcd::start(), postgres: Postgres::start() }
    }

    /// The etcd server.
    pub(super) fn etcd(&self) -> anyhow::Result<&Etcd> {
        self.etcd.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// A client in a process of its own, of its brand's server.
    pub(super) fn client(&self, brand: Brand, lock: &str) -> anyhow::Result<Peer> {
        match brand {
            Brand::Etcd => Peer::start(brand, self.etcd()?.endpoint(), lock),
            Brand::Postgres => match &self.postgres {
                Ok(postgres) => Peer::start(brand, &postgres.dir().display().to_string(), lock),
                Err(error) => anyhow::bail!("{error}"),
            },
            _ => Peer::start(brand, &self.redis.url(), lock),
        }
    }
}

/// A client of a peer. Dropping it kills it.
pub(super) struct Peer {
    program: Program,
    replies: BufReader<ChildStdout>,
}

impl Peer {
    /// A client in a process of its own, of a server at that address.
    pub(super) fn start(brand: Brand, address: &str, lock: &str) -> anyhow::Result<Peer> {
        let mut command = brand.program()?;
        command.args([address, lock]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::start(&mut command);
        let replies = program.pipes().stdout.take().context("standard output is piped")?;
        Ok(Peer { program, replies: BufReader::new(replies) })
    }

    fn tell(&mut self, command: &str) -> anyhow::Result<()> {
        let stdin = self.program.pipes().stdin.as_mut().context("standard input is piped")?;
        Ok(writeln!(stdin, "{command}")?)
    }

    fn reply<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the peer answered {line:?}"))
    }

    fn instant(&mut self) -> anyhow::Result<u64> {
        let reply: Value = self.reply()?;
        reply["at_ns"].as_u64().with_context(|| format!("no instant in {reply}"))
    }

    /// Acquires and releases so often: the time of each, µs.
    pub(super) fn pairs(&mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        self.tell(&format!("pairs {count}"))?;
        self.reply()
    }

    /// Asks a hold so often whether it is held, and then to check: the times of one look, ns. Tenure's own only.
    pub(super) fn looks(&mut self, count: usize) -> anyhow::Result<[f64; 2]> {
        self.tell(&format!("looks {count}"))?;
        self.reply()
    }

    /// Has eight threads or tasks acquire and release for so long; [`Peer::turns`] says how often they did.
    pub(super) fn start_turns(&mut self, seconds: u64) -> anyhow::Result<()> {
        self.tell(&format!("turns {seconds}"))
    }

    /// Waits for the end of the turns that were started, and returns their number.
    pub(super) fn turns(&mut self) -> anyhow::Result<u64> {
        self.reply()
    }

    /// Acquires, and returns when that was done, CLOCK_BOOTTIME ns.
    pub(super) fn acquire(&mut self) -> anyhow::Result<u64> {
        self.start_acquire()?;
        self.acquired()
    }

    /// Begins to wait; [`Peer::acquired`] says when it was over.
    pub(super) fn start_acquire(&mut self) -> anyhow::Result<()> {
        self.tell("acquire")
    }

    /// Waits until the acquire that was started is done, and returns when that was, CLOCK_BOOTTIME
    /// ns.
    pub(super) fn acquired(&mut self) -> anyhow::Result<u64> {
        self.instant()
    }

    /// Releases, and returns the instant before, CLOCK_BOOTTIME ns.
    pub(super) fn release(&mut self) -> anyhow::Result<u64> {
        self.tell("release")?;
        self.instant()
    }

    /// SIGKILL: waits until it is gone, and returns the instant before, CLOCK_BOOTTIME ns.
    pub(super) fn kill(mut self) -> u64 {
        let at_ns = boottime_ns();
        self.program.kill();
        at_ns
    }
}
