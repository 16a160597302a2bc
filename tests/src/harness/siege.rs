//! Workers of two hosts at guarded resources, while something is done to their store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{
    Agent, Client, Events, Fence, Granted, Http, Proxy, RedisServer, SharedStore, Worker,
    boottime_ns, start_agent, until,
};

/// Beats so often that a fault is noticed while a test waits.
const BEATS: &str = "[leader]\nbeat = \"300ms\"\n[lease]\nbeat = \"300ms\"\n\
                     [semaphore]\nbeat = \"300ms\"\n";
/// How long a worker stays.
const STAY: Duration = Duration::from_millis(20);

/// Has a fault last so long.
#[track_caller]
pub fn wait_s(seconds: u64) {
    let over = boottime_ns() + seconds * 1_000_000_000;
    until("the fault to have lasted", || boottime_ns() >= over);
}

/// Two agents, each behind a network of its own, and workers of both at one leadership, one permit
/// and one lease.
pub struct Siege<S: SharedStore = RedisServer> {
    /// The workers.
    pub workers: Vec<Worker>,
    /// The agents.
    pub agents: Vec<Agent>,
    /// Their networks.
    pub proxies: Vec<Proxy>,
    /// The Redis, or whatever they share.
    pub redis: S,
    fences: Vec<Arc<Fence>>,
}

impl<S: SharedStore> Siege<S> {
    /// Starts everything, and waits until every worker has had a turn.
    #[track_caller]
    pub fn begin(redis: S) -> Siege<S> {
        let proxies: Vec<Proxy> = (0..2).map(|_| redis.proxy()).collect();
        let agents: Vec<Agent> = proxies
            .iter()
            .enumerate()
            .map(|(host, proxy)| start_agent(host, &proxy.url(), BEATS))
            .collect();
        Siege::with_agents(redis, proxies, agents)
    }

    /// The same with agents that find their Redis by themselves, through this URL.
    #[track_caller]
    pub fn begin_at(redis: S, url: &str) -> Siege<S> {
        let agents = (0..2).map(|host| start_agent(host, url, BEATS)).collect();
        Siege::with_agents(redis, Vec::new(), agents)
    }

    #[track_caller]
    fn with_agents(redis: S, proxies: Vec<Proxy>, agents: Vec<Agent>) -> Siege<S> {
        let asks = [
            json!({"kind": "leader", "name": "job", "ttl_ms": 3000}),
            json!({"kind": "semaphore", "name": "permit", "limit": 1, "ttl_ms": 3000}),
            json!({"kind": "lease", "name": "box", "ttl_ms": 3000, "grace_ms": 500}),
        ];
        let fences: Vec<Arc<Fence>> = asks.iter().map(|_| Arc::default()).collect();
        let workers = asks
            .iter()
            .zip(&fences)
            .flat_map(|(ask, fence)| {
                agents.iter().map(move |agent| Worker::start(&agent.socket(), ask, fence, STAY))
            })
            .collect();
        let siege = Siege { workers, agents, proxies, redis, fences };
        siege.everybody_gets_another_turn();
        siege
    }

    /// Waits until every worker has been granted what it wants once more: no wake-up was lost.
    #[track_caller]
    pub fn everybody_gets_another_turn(&self) {
        let before: Vec<u64> = self.workers.iter().map(Worker::grants).collect();
        until("every worker to have another turn", || {
            self.workers.iter().zip(&before).all(|(worker, before)| worker.grants() > *before)
        });
    }

    /// Ends the workers; nobody may have found anybody else at work, and nothing may be left.
    #[track_caller]
    pub fn end(self) {
        self.end_without_exclusion().iter().for_each(|fence| fence.refused_nobody());
    }

    /// The same where two may have held at once: whoever came late was refused by its token.
    #[track_caller]
    pub fn end_without_exclusion(self) -> Vec<Arc<Fence>> {
        let Siege { workers, agents, proxies: _proxies, redis, fences } = self;
        workers.into_iter().for_each(Worker::finish);
        for agent in &agents {
            until("every session and hold to end", || agent.counts() == (0, 0, 0));
        }
        redis.has_nothing_left();
        assert!(fences.iter().all(|fence| fence.writes() > 0), "they have worked");
        fences
    }
}

/// One who holds something and does nothing but listen. Ends with the session.
pub struct Holder {
    http: Http,
    session: Uuid,
    pub events: Events,
    pub held: Granted,
}

impl Holder {
    /// Takes a leadership that nobody else wants.
    #[track_caller]
    pub fn of_leadership(agent: &Agent, name: &str, ttl_ms: u64) -> Holder {
        let mut http = agent.http();
        let session = http.register(&json!({"name": name, "keepalive_ms": 600_000})).session;
        let events = agent.events(session);
        let held = http.acquire(session, "leader", name, &json!({"ttl_ms": ttl_ms}));
        Holder { http, session, events, held }
    }

    /// True once an event said that its hold is lost.
    pub fn has_lost(&self) -> bool {
        self.events.has("lost", self.held.hold)
    }

    /// Waits until it is told that it is in danger, and then that it is not any more.
    #[track_caller]
    pub fn is_in_jeopardy_and_safe_again(&self, restore: impl FnOnce()) {
        self.events.jeopardy(self.held.hold);
        restore();
        until("it to be safe again", || self.events.has("safe", self.held.hold));
        assert!(!self.has_lost());
    }

    /// Releases what it still holds, and ends its session.
    #[track_caller]
    pub fn leave(mut self) {
        if !self.has_lost() {
            assert!(self.http.release(self.session, self.held.hold), "it was not there any more");
        }
        self.http.end(self.session);
    }
}
