//! Holders from before a loss of data, and programs that want the same afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tenure::wire::UpstreamState;
use uuid::Uuid;

use super::{Agent, Client, Fence, Granted, Http, PageFile, boottime_ns, until};

/// Holds of each agent.
const EACH: usize = 50;
/// How long they last.
pub const LOST_TTL_MS: u64 = 6000;

/// A hold of before, as its program sees it.
struct FormerHold {
    name: String,
    page: PathBuf,
    slot: u32,
    hold: Uuid,
    token: u64,
    fence: Arc<Fence>,
}

impl FormerHold {
    /// True if its program believes to hold it.
    fn is_believed(&self) -> bool {
        let slot = PageFile::open(&self.page).slot(self.slot);
        slot.hold == self.hold && boottime_ns() < slot.valid_until_ns
    }
}

/// Holds of a program of this agent. They stay as long as the session does.
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

/// Has a program of another agent take each of these as soon as it can. It writes to the guarded resource then, and
/// the former holder does as long as it believes to hold it.
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

/// Has three agents hold 50 each, loses them, and has the next agent take what each had. At no instant two believe to
/// hold one.
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
