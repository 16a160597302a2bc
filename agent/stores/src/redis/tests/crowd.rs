//! Ten thousand who wait for one thing: the last is served as the first is, and no call does more than its
//! share for the dead. Counted are commands within scripts, never times.

use tenure_core::model::{BeatAnswer, Claim, ClaimAnswer};

use super::kinds::{MAIN, master, permit};
use super::store::{Store, claim};

const CROWD: u128 = 10_000;
/// Most whose time is up that one call takes out of a queue.
const TAKEN_OUT_MAX: u64 = 500;
/// Most that it looks at besides for somebody who lives.
const LOOKED_AT_MAX: u64 = 100;
/// Most to whom one call gives permits.
const GRANTED_MAX: u64 = 100;
/// Most whose permits one call takes away.
const REVOKED_MAX: u64 = 50;
/// Most commands of a call for one waiter.
const COMMANDS_MAX: u64 = 60;

/// The queue of a kind, and when its waiters' time is up.
const QUEUES: [(&str, &str, &str); 4] = [
    ("leader", "tenure:queue:leader:x", "tenure:queue_ends:leader:x"),
    ("lease", "tenure:queue:lease:x", "tenure:queue_ends:lease:x"),
    ("master", "tenure:queue:master:p", "tenure:queue_ends:master:p"),
    ("semaphore", "adv-sem:semaphore_waiting:g", "adv-sem:semaphore_waiting_heartbeat:g"),
];

fn claim_of(kind: &str, id: u128) -> Claim {
    let mut claim = match kind {
        "master" => master(id, id, 0),
        "semaphore" => permit(id, 1),
        _ => claim(id, id, &format!("{kind}/x")),
    };
    claim.enqueue = true;
    claim
}

/// All commands so far, those of scripts among them.
fn commands(store: &Store) -> u64 {
    let stats: String = store.run(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
    calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
}

/// The commands that this takes; the question itself counts as one.
pub(super) fn cost<T>(store: &Store, what: impl FnOnce() -> T) -> (T, u64) {
    let before = commands(store);
    let answer = what();
    (answer, commands(store) - before - 1)
}

fn waiting(store: &Store, queue: &str) -> u64 {
    store.run(&["ZCARD", queue])
}

/// The time of all in a queue but the last is up.
fn all_die_but_the_last(store: &Store, ends: &str) {
    const DIE: &str = "
        local all = redis.call('ZRANGE', KEYS[1], 0, -2)
        for _, member in ipairs(all) do redis.call('ZADD', KEYS[1], 0, member) end
        return #all";
    let died: u64 = store.run(&["EVAL", DIE, "1", ends]);
    assert_eq!(died, waiting(store, ends) - 1);
}

#[test]
fn ten_thousand_wait_for_one_thing_and_die() {
    for (kind, queue, ends) in QUEUES {
        let store = Store::new();
        let holder = claim_of(kind, 1);
        store.hold(&holder);
        for id in 2..=CROWD {
            let place = match store.claim(&claim_of(kind, id)) {
                ClaimAnswer::Waiting { position, .. } => u128::from(position),
                other => panic!("{kind}: {other:?}"),
            };
            assert_eq!(place, id - 1, "{kind}");
        }
        let last = claim_of(kind, CROWD + 1);
        let (answer, joining) = cost(&store, || store.claim(&last));
        assert!(matches!(answer, ClaimAnswer::Waiting { .. }), "{kind}: {answer:?}");
        let (_, beating) = cost(&store, || store.renew(&last));
        let (_, releasing) = cost(&store, || store.release(&holder));
        let second = store.renew(&claim_of(kind, 2));
        assert!(matches!(second, BeatAnswer::Held { .. }), "{kind}: {second:?}");
        let taken = [joining, beating, releasing];
        assert!(taken.iter().all(|taken| *taken <= COMMANDS_MAX), "{kind}: {taken:?} commands");

        all_die_but_the_last(&store, ends);
        store.release(&claim_of(kind, 2));
        let mut calls = 0;
        loop {
            let before = waiting(&store, queue);
            let answer = store.renew(&last);
            let left = waiting(&store, queue);
            assert!(before - left <= TAKEN_OUT_MAX + LOOKED_AT_MAX, "{kind}: {before} to {left}");
            if matches!(answer, BeatAnswer::Held { .. }) {
                break;
            }
            calls += 1;
            assert!(calls <= CROWD as u64 / TAKEN_OUT_MAX + 1, "{kind}: {left} are left");
        }
        assert_eq!(waiting(&store, queue), 0, "{kind}");
    }
}

#[test]
fn ten_thousand_are_granted_as_a_limit_rises() {
    let store = Store::new();
    let holder = permit(1, 1);
    store.hold(&holder);
    for id in 2..=CROWD {
        store.claim(&permit(id, 1));
    }
    store.claim(&permit(CROWD + 1, CROWD as u32 + 1));
    let queue = QUEUES[3].1;
    let mut left = waiting(&store, queue);
    assert!(left >= CROWD as u64 - GRANTED_MAX, "{left}");
    // Whoever was granted confirms, which grants the next.
    let mut next = 2;
    while left > 0 {
        assert!(matches!(store.renew(&permit(next, 1)), BeatAnswer::Held { .. }), "{next}");
        let now = waiting(&store, queue);
        assert!(left - now <= GRANTED_MAX, "{left} to {now}");
        (left, next) = (now, next + 1);
    }
}

#[test]
fn ten_thousand_lose_their_permits_but_not_at_once() {
    let store = Store::new();
    let limit = CROWD as u32;
    let tokens: Vec<u64> = (1..=CROWD).map(|id| store.hold(&permit(id, limit))).collect();
    store.claim(&permit(CROWD + 1, limit));
    let semaphore = permit(1, limit).resource;
    for token in [tokens[0], tokens[CROWD as usize / 2], tokens[CROWD as usize - 1]] {
        assert_eq!(store.revoke(&semaphore, Some(token)), 1);
        assert_eq!(store.revoke(&semaphore, Some(token)), 0);
    }
    let left = CROWD as u64 - 2;
    assert_eq!(waiting(&store, MAIN), left, "one was granted meanwhile");
    let calls = || store.run::<String>(&["INFO", "commandstats"]);
    let scripts = |stats: String| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.unwrap().split(',').next().unwrap().parse().unwrap()
    };
    let before = scripts(calls());
    assert_eq!(store.revoke(&semaphore, None), left);
    let calls = scripts(calls()) - before;
    assert!((left / REVOKED_MAX..=left / REVOKED_MAX + 2).contains(&calls), "{calls} calls");
    assert_eq!(waiting(&store, MAIN), 0);
}
