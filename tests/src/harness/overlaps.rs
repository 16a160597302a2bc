//! Holders from before a loss of data, and programs that want the same resources afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tenure::wire::UpstreamState;
use uuid::Uuid;

use super::{Agent, Client, Fence, Granted, Http, PageFile, boottime_ns, until};

/// Holds of each agent.
const EACH: usize = 50;
/// The ttl of these holds.
pub const LOST_TTL_MS: u64 = 6000;

/// A hold from before the loss, as its program sees it.
struct FormerHold {
    name: String,
    page: PathBuf,
    slot: u32,
    hold: Uuid,
    token: u64,
    fence: Arc<Fence>,
}

impl FormerHold {
    /// True if the program still sees the hold as valid.
    fn is_believed(&self) -> bool {
        let slot = PageFile::open(&self.page).slot(self.slot);
        slot.hold == self.hold && boottime_ns() < slot.valid_until_ns
    }
}

/// Holds of a program of this agent, for as long as its session lasts.
fn take(agent: &Agent, host: usize) -> Vec<FormerHold> {
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let take = |i| {
        let name = format!("of-{host}-{i}");
        let held = http.acquire(session.session, "leader", &name, &json!({"ttl_ms": LOST_TTL_MS}));
        let (page, fence) = (PathBuf::from(&session.page), Arc::default());
        FormerHold { name, page, slot: held.slot, hold: held.hold, token: held.token, fence }
    };
    (0..EACH).map(take).collect()
}

/// Has a program of another agent acquire each of these as soon as possible. The new holder writes to the guarded
/// resource then, and the former holder does while it sees its hold as valid. Returns the number of overlaps.
fn steal(socket: &Path, theirs: &[FormerHold]) -> usize {
    let mut http = Http::new(socket);
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let page = PathBuf::from(&session.page);
    let mut missing: Vec<&FormerHold> = theirs.iter().collect();
    let mut overlaps = 0;
    until("everything to be granted again", || {
        missing.retain(|held| {
            held.fence.write(held.token, || held.is_believed());
            let ask = json!({"ttl_ms": LOST_TTL_MS});
            let answer = http.ask(session.session, "leader", &held.name, &ask);
            if answer.status != 200 {
                return true;
            }
            let granted: Granted = serde_json::from_value(answer.json(200)).expect("a grant");
            assert!(granted.token > held.token, "{}", held.name);
            overlaps += usize::from(held.is_believed());
            let ours = || PageFile::open(&page).slot(granted.slot).valid_until_ns > boottime_ns();
            held.fence.write(granted.token, ours);
            held.fence.write(held.token, || held.is_believed());
            false
        });
        missing.is_empty()
    });
    overlaps
}

/// Has each agent hold 50 resources, loses the holds, and has the next agent acquire the same. At no instant do two
/// programs see themselves as the holder.
#[track_caller]
pub fn nobody_overlaps(agents: &[Agent], lose: impl FnOnce()) {
    let held: Vec<Vec<FormerHold>> =
        agents.iter().enumerate().map(|(host, agent)| take(agent, host)).collect();
    lose();
    let overlaps: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = held
            .iter()
            .enumerate()
            .map(|(host, theirs)| {
                let socket = agents[(host + 1) % agents.len()].socket();
                scope.spawn(move || steal(&socket, theirs))
            })
            .collect();
        threads.into_iter().map(|it| it.join().expect("no thread panics")).sum()
    });
    assert_eq!(overlaps, 0, "pairs of holders that overlap by valid-until");
    held.iter().flatten().for_each(|held| held.fence.refused_nobody());
}

/// Expects that each agent grants new holds as soon as its store is up: nothing was lost.
#[track_caller]
pub fn grants_go_on(agents: &[Agent]) {
    for agent in agents {
        until("the store to be up", || agent.http().status().upstream.state == UpstreamState::Up);
        let mut http = agent.http();
        let session = http.register(&json!({})).session;
        http.acquire(session, "leader", &format!("new-{session}"), &json!({}));
    }
}
