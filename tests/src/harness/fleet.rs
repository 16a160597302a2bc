//! Agents of several hosts on one Redis.

use tenure_core::model::{AGENTS_PROJECT, AGENTS_TENANT};
use tenure_harness::{Contents, Entry};

use super::{Agent, RedisServer, until};

/// Names of hosts, in order.
const HOSTS: [&str; 3] = ["alpha", "beta", "gamma"];
/// How long what tells of an ended claim may stay, ms.
const TURNS_MS: u64 = 24 * 3_600_000;
const TOMBSTONE_MS: u64 = 60_000;
const HISTORY_MS: u64 = 7 * TURNS_MS;

/// Agents of several hosts, and the Redis that they share.
pub struct Fleet {
    /// The agents; their hosts are called `alpha`, `beta`, `gamma`.
    pub agents: Vec<Agent>,
    /// The Redis.
    pub redis: RedisServer,
}

impl Fleet {
    /// Two agents on a Redis of their own.
    #[track_caller]
    pub fn start() -> Fleet {
        Fleet::start_with(RedisServer::start(), 2, "")
    }

    /// That many agents with this configuration on that Redis.
    #[track_caller]
    pub fn start_with(redis: RedisServer, count: usize, config: &str) -> Fleet {
        let agents = (0..count).map(|host| start_agent(host, &redis.url(), config)).collect();
        Fleet { agents, redis }
    }

    /// Waits until every agent says that nothing is there, and Redis has nothing of any client.
    #[track_caller]
    pub fn is_left_empty(&self) {
        for agent in &self.agents {
            until("every session and hold to end", || agent.counts() == (0, 0, 0));
        }
        nothing_is_left(&self.redis);
    }
}

/// Starts the agent of one of the hosts, on the Redis at that URL.
#[track_caller]
pub fn start_agent(host: usize, url: &str, config: &str) -> Agent {
    let config = format!("host_name = \"{}\"\n{config}", HOSTS[host]);
    Agent::setup().upstream(url).config(&config).start()
}

/// True of what an agent makes itself known with.
fn is_agent(key: &str, entry: &Entry) -> bool {
    let is_session = matches!(&entry.contents, Contents::Hash(fields)
        if fields.get("tenant_id").is_some_and(|tenant| tenant == AGENTS_TENANT));
    is_session || key.ends_with(&format!(":{AGENTS_TENANT}:{AGENTS_PROJECT}:sessions"))
}

/// Waits until Redis has nothing of any client: no more than the last token, the epoch, versions of routing
/// tables, the list of sets to sweep, the caretaker, the agents themselves, and what goes by itself: marks of ended
/// claims, where programs poll, and histories.
#[track_caller]
pub fn nothing_is_left(redis: &RedisServer) {
    let mut last = Vec::new();
    until("nothing to be left in Redis", || {
        let mut left = redis.dump();
        left.retain(|key, entry| {
            let own = ["tenure:fence", "tenure:routes", "tenure:store", "tenure:sets"]
                .iter()
                .any(|it| key.ends_with(it))
                || key.starts_with("tenure:epoch")
                || key.starts_with("tenure:caretaker:")
                || is_agent(key, entry);
            let goes_within = |most| entry.expires_in_ms.is_some_and(|ms| ms <= most);
            let mark = key.contains("tenure:claim:") && goes_within(TOMBSTONE_MS)
                || key.contains("tenure:queue_turns:") && goes_within(TURNS_MS)
                || key.contains("tenure:histor") && goes_within(HISTORY_MS);
            !own && !mark
        });
        let now: Vec<_> = left.keys().cloned().collect();
        if now != last && !now.is_empty() {
            let ends: Vec<_> = left.values().map(|entry| entry.expires_in_ms).collect();
            eprintln!("left in Redis: {now:?}, for so many ms: {ends:?}");
        }
        last = now;
        last.is_empty()
    });
}
