//! A Redis as several hosts share it.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Connection;

use crate::harness::{Proxy, RedisServer};

/// Calls of scripts.
pub(super) const SCRIPTS: [&str; 6] =
    ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

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

    /// Notes commands that take longer from now on.
    pub(super) fn log_slower_than(&self, limit: Duration) -> anyhow::Result<()> {
        let mut redis = self.connect()?;
        let limit = limit.as_micros().to_string();
        redis::cmd("CONFIG")
            .arg(&["SET", "slowlog-log-slower-than", &limit, "slowlog-max-len", "10000"])
            .exec(&mut redis)?;
        redis::cmd("SLOWLOG").arg("RESET").exec(&mut redis)?;
        Ok(())
    }

    /// How long those took, in ms and ascending order.
    pub(super) fn slower(&self) -> anyhow::Result<Vec<f64>> {
        let mut redis = self.connect()?;
        let entries: Vec<Vec<redis::Value>> =
            redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut redis)?;
        let mut times = Vec::new();
        for entry in entries {
            let us: u64 =
                redis::from_redis_value(entry.get(2).unwrap_or(&redis::Value::Nil).clone())?;
            times.push(us as f64 / 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// A way to it that can be made longer.
    pub(super) fn proxy(&self) -> Proxy {
        Proxy::before(&self.server)
    }

    /// How many scripts it has run.
    pub(super) fn scripts(&self) -> u64 {
        let calls = self.commandstats();
        SCRIPTS.iter().filter_map(|name| calls.get(*name)).sum()
    }

    /// How many scripts it has run, and the time of all of them, µs.
    pub(super) fn script_time(&self) -> (u64, f64) {
        let info = self.connect().and_then(|mut redis| {
            Ok(redis::cmd("INFO").arg("commandstats").query::<String>(&mut redis)?)
        });
        let stats = |name: &str| -> Option<(u64, f64)> {
            let line = info.as_ref().ok()?.lines();
            let line = line
                .filter_map(|line| line.strip_prefix("cmdstat_"))
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(":calls="))?;
            let (calls, rest) = line.split_once(",usec=")?;
            Some((calls.parse().ok()?, rest.split(',').next()?.parse().ok()?))
        };
        let found = SCRIPTS.iter().filter_map(|name| stats(name));
        found.fold((0, 0.0), |sum, (calls, us)| (sum.0 + calls, sum.1 + us))
    }

    /// The mean time of the scripts since then, µs.
    pub(super) fn script_mean_us(&self, before: (u64, f64)) -> f64 {
        let (calls, us) = self.script_time();
        (us - before.1) / (calls - before.0).max(1) as f64
    }

    /// How many calls of each command there have been.
    pub(super) fn commandstats(&self) -> BTreeMap<String, u64> {
        self.server.commandstats()
    }
}
