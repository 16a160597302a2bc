//! The best that Redis can do: a client that does nothing but what must be done, on a connection of
//! its own, blocking.

use std::sync::mpsc::sync_channel;

use redis::{Connection, Script, ToRedisArgs};

use super::samples::timed_us;
use super::shared_redis::SharedRedis;
use crate::harness::boottime_ns;

const KEY: &str = "floor:role";
const FENCE: &str = "floor:fence";
const CHANNEL: &str = "floor:released";
const OWNER: &str = "6b0f5e3e-3f0c-4b61-9f1c-2d1a0a1f7c11";
const TTL_MS: u64 = 30_000;

/// Takes a free key and a fencing token. Keys: role, fence. Arguments: owner, ttl in ms. Result: the
/// token, or 0.
const CLAIM: &str = "
    if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
    local time = redis.call('TIME')
    local last = tonumber(redis.call('GET', KEYS[2])) or 0
    local token = math.max(last + 1, time[1] * 1000000 + time[2])
    redis.call('SET', KEYS[2], string.format('%.0f', token))
    return token";

/// Gives a key back and tells so. Keys: role. Arguments: owner, channel. Result: 1, or 0 if it was
/// somebody else's.
const RELEASE: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', ARGV[2], KEYS[1])
    return 1";

/// Renews what is ours. Keys: any number. Arguments: owner, ttl in ms. Result: how many were.
const RENEW: &str = "
    local ours = 0
    for _, key in ipairs(KEYS) do
        if redis.call('GET', key) == ARGV[1] then
            ours = ours + redis.call('PEXPIRE', key, ARGV[2])
        end
    end
    return ours";

/// A client that uses Redis directly.
pub(super) struct Straight {
    connection: Connection,
    claim: Script,
    release: Script,
    renew: Script,
}

impl Straight {
    /// A client of that server.
    pub(super) fn new(server: &SharedRedis) -> anyhow::Result<Straight> {
        Ok(Straight {
            connection: server.connect()?,
            claim: Script::new(CLAIM),
            release: Script::new(RELEASE),
            renew: Script::new(RENEW),
        })
    }

    /// One Redis round trip.
    pub(super) fn round_trip(&mut self) -> anyhow::Result<()> {
        let value: Option<String> = redis::cmd("GET").arg(KEY).query(&mut self.connection)?;
        anyhow::ensure!(value.is_none(), "{KEY} is held by {value:?}");
        Ok(())
    }

    /// One acquire and one release: two scripts, two round trips.
    pub(super) fn pair(&mut self) -> anyhow::Result<()> {
        self.take()?;
        self.give_back()
    }

    fn take(&mut self) -> anyhow::Result<()> {
        let mut call = self.claim.key(KEY);
        let token: u64 = call.key(FENCE).arg(OWNER).arg(TTL_MS).invoke(&mut self.connection)?;
        anyhow::ensure!(token > 0, "{KEY} is not free");
        Ok(())
    }

    fn give_back(&mut self) -> anyhow::Result<()> {
        let mut call = self.release.key(KEY);
        let released: bool = call.arg(OWNER).arg(CHANNEL).invoke(&mut self.connection)?;
        anyhow::ensure!(released, "{KEY} was not ours");
        Ok(())
    }

    /// Holds these keys.
    pub(super) fn hold(&mut self, keys: &[String], ttl_ms: u64) -> anyhow::Result<()> {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("SET").arg(key).arg(OWNER).arg("PX").arg(ttl_ms).ignore();
        }
        pipe.query::<()>(&mut self.connection)?;
        Ok(())
    }

    /// Renews these keys in one call.
    pub(super) fn renew<K: ToRedisArgs>(&mut self, keys: &[K], ttl_ms: u64) -> anyhow::Result<()> {
        let mut call = self.renew.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        let ours: usize = call.arg(OWNER).arg(ttl_ms).invoke(&mut self.connection)?;
        anyhow::ensure!(ours == keys.len(), "{ours} of {} keys were ours", keys.len());
        Ok(())
    }
}

/// Times from just before a release by one client until another one, which is told by a message,
/// has claimed, ms.
pub(super) fn hand_overs_ms(server: &SharedRedis, rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut listener = server.connect()?;
    let mut messages = listener.as_pubsub();
    messages.subscribe(CHANNEL)?;
    let (claimed, claims) = sync_channel(1);
    let mut next = Straight::new(server)?;
    let mut holder = Straight::new(server)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            for _ in 0..rounds {
                messages.get_message()?;
                next.take()?;
                claimed.send(boottime_ns())?;
                // Nobody is told of this one.
                redis::cmd("DEL").arg(KEY).exec(&mut next.connection)?;
                claimed.send(0)?;
            }
            anyhow::Ok(())
        });
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            holder.take()?;
            let released_at = boottime_ns();
            holder.give_back()?;
            times.push((claims.recv()? - released_at) as f64 / 1e6);
            claims.recv()?;
        }
        waiter.join().expect("no client panics")?;
        Ok(times)
    })
}

/// Time of one call that renews keys, by how many it renews, µs.
pub(super) fn renewal_us(
    server: &SharedRedis,
    keys: usize,
    rounds: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut straight = Straight::new(server)?;
    let keys: Vec<String> = (0..keys).map(|key| format!("floor:renewed:{key}")).collect();
    straight.hold(&keys, TTL_MS)?;
    (0..rounds)
        .map(|_| {
            let (us, renewed) = timed_us(|| straight.renew(&keys, TTL_MS));
            renewed.map(|()| us)
        })
        .collect()
}
