//! A client of the Python package `asyncio-advanced-semaphores` 0.0.9, as far as a server can tell: the
//! same commands with the same arguments, one by one instead of in its scripts.

use super::super::layout::SemaphoreKey;
use super::store::Store;

/// The package's number for no longest duration, s.
const NO_TTL: u64 = 2_147_483_637;

pub(super) struct Foreign<'a> {
    store: &'a Store,
    name: &'static str,
    pub(super) id: String,
    pub(super) limit: u64,
    pub(super) heartbeat: u64,
    pub(super) ttl: u64,
    /// How far its clock is ahead, s.
    pub(super) ahead: f64,
}

impl<'a> Foreign<'a> {
    pub(super) fn new(store: &'a Store, name: &'static str, number: u128) -> Foreign<'a> {
        let id = format!("{number:032x}");
        Foreign { store, name, id, limit: 1, heartbeat: 180, ttl: NO_TTL, ahead: 0.0 }
    }

    fn key(&self, key: SemaphoreKey) -> String {
        self.store.layout.semaphore("default", key, self.name)
    }

    fn notification(&self, id: &str) -> String {
        self.store.layout.notification("default", id)
    }

    fn now(&self) -> f64 {
        self.store.now() + self.ahead
    }

    fn expire(&self, key: SemaphoreKey) {
        let ttl = (self.ttl + 10).to_string();
        self.store.run::<()>(&["EXPIRE", &self.key(key), &ttl]);
    }

    fn add(&self, key: SemaphoreKey, options: &[&str], score: f64, id: &str) -> u64 {
        let (key, score) = (self.key(key), score.to_string());
        let mut words = vec!["ZADD", &key];
        words.extend(options);
        words.extend([score.as_str(), id]);
        self.store.run(&words)
    }

    /// `queue.lua`
    pub(super) fn queue(&self) {
        self.add(SemaphoreKey::Waiting, &["NX"], self.now(), &self.id);
        self.expire(SemaphoreKey::Waiting);
        let until = self.now() + self.heartbeat as f64;
        self.add(SemaphoreKey::WaitingHeartbeat, &["NX"], until, &self.id);
        self.expire(SemaphoreKey::WaitingHeartbeat);
    }

    /// `wake_up_nexts.lua`
    pub(super) fn wake_up(&self) -> u64 {
        let run = |words: &[&str]| self.store.run::<Vec<String>>(words);
        let remove = |key, id: &str| self.store.run::<()>(&["ZREM", &self.key(key), id]);
        let now = self.now().to_string();
        for id in run(&["ZRANGEBYSCORE", &self.key(SemaphoreKey::Ttl), "-inf", &now]) {
            remove(SemaphoreKey::Main, &id);
            remove(SemaphoreKey::Ttl, &id);
        }
        let main = self.key(SemaphoreKey::Main);
        self.store.run::<()>(&["ZREMRANGEBYSCORE", &main, "-inf", &now]);
        let held: u64 = self.store.run(&["ZCARD", &main]);
        let heartbeats = self.key(SemaphoreKey::WaitingHeartbeat);
        if held < self.limit {
            for id in run(&["ZRANGEBYSCORE", &heartbeats, "-inf", &now]) {
                remove(SemaphoreKey::WaitingHeartbeat, &id);
                remove(SemaphoreKey::Waiting, &id);
            }
        }
        let mut notified = 0;
        while held + notified < self.limit {
            let next = run(&["ZPOPMIN", &self.key(SemaphoreKey::Waiting)]);
            let Some(id) = next.first() else { break };
            remove(SemaphoreKey::WaitingHeartbeat, id);
            let until = self.now() + self.heartbeat as f64;
            if self.add(SemaphoreKey::Main, &["NX"], until, id) == 1 {
                notified += 1;
                self.expire(SemaphoreKey::Main);
            }
            self.store.run::<()>(&["RPUSH", &self.notification(id), "1"]);
            let kept = (self.heartbeat + 10).to_string();
            self.store.run::<()>(&["EXPIRE", &self.notification(id), &kept]);
        }
        notified
    }

    /// True if `BLPOP` would return.
    pub(super) fn is_notified(&self) -> bool {
        self.store.run::<Option<String>>(&["LPOP", &self.notification(&self.id)]).is_some()
    }

    /// `acquire.lua`: whether it holds.
    pub(super) fn confirm(&self) -> bool {
        let until = self.now() + self.heartbeat as f64;
        let changed = self.add(SemaphoreKey::Main, &["XX", "CH"], until, &self.id) == 1;
        if changed {
            let ends = self.now() + self.ttl as f64;
            self.add(SemaphoreKey::Ttl, &[], ends, &self.id);
            self.expire(SemaphoreKey::Ttl);
        }
        let (limit, kept) = (self.limit.to_string(), (self.ttl + 10).to_string());
        self.store.run::<()>(&["SET", &self.key(SemaphoreKey::Max), &limit, "EX", &kept]);
        changed
    }

    /// `ping.lua`: whether it waits, and whether it holds.
    pub(super) fn ping(&self) -> (u64, u64) {
        self.expire(SemaphoreKey::Waiting);
        self.expire(SemaphoreKey::WaitingHeartbeat);
        self.expire(SemaphoreKey::Main);
        let until = self.now() + self.heartbeat as f64;
        (
            self.add(SemaphoreKey::WaitingHeartbeat, &["XX", "CH"], until, &self.id),
            self.add(SemaphoreKey::Main, &["XX", "CH"], until, &self.id),
        )
    }

    /// `release.lua`
    pub(super) fn release(&self) -> u64 {
        let keys = [SemaphoreKey::Waiting, SemaphoreKey::Ttl, SemaphoreKey::WaitingHeartbeat];
        for key in keys {
            self.store.run::<()>(&["ZREM", &self.key(key), &self.id]);
        }
        self.store.run(&["ZREM", &self.key(SemaphoreKey::Main), &self.id])
    }

    /// Asks for a permit, and gets it.
    #[track_caller]
    pub(super) fn acquire(&self) {
        self.queue();
        self.wake_up();
        assert!(self.is_notified());
        assert!(self.confirm());
    }
}
