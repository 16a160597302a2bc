//! A Redis as several hosts share it.

use std::collections::BTreeMap;

use redis::Connection;

use crate::harness::RedisServer;

/// A Redis that is reached over TCP, as from another host; floors and peers reach it the same way.
pub(super) struct SharedRedis {
    server: RedisServer,
    pid: u32,
}

impl SharedRedis {
    /// Starts one on the loopback interface.
    pub(super) fn start() -> SharedRedis {
        let mut server = RedisServer::setup().tcp().start();
        let pid = server.process().pid();
        SharedRedis { server, pid }
    }

    /// Its URL.
    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.server.port())
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// A new connection.
    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        Ok(redis::Client::open(self.url())?.get_connection()?)
    }

    /// How many calls of each command there have been.
    pub(super) fn commandstats(&self) -> BTreeMap<String, u64> {
        self.server.commandstats()
    }
}
