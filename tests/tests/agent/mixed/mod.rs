//! Python, TypeScript, Rust, the command and curl contend for the same resources on two hosts, and are killed
//! at random: never too many inside, first come first served, nothing left behind.

mod contenders;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use contenders::{Contenders, KINDS, LANGUAGES, Part, SDKS};
use tenure::wire::Standing;
use tenure_tests::harness::{Client, Fleet, Http, boottime_ns, until};
use witness::{Judge, Outcome, Queue, Witness};

/// The seconds that they contend at least; `tests/long mixed` has minutes.
const SECONDS_VARIABLE: &str = "TENURE_MIXED_S";
const SEED_VARIABLE: &str = "TENURE_MIXED_SEED";
/// Grants of every kind for every language, at least.
const TURNS_MIN: usize = 8;
/// Kills of every language, at least.
const KILLS_MIN: u64 = 3;
/// A crowd: processes of one SDK on each host, and the threads or tasks of each.
const CROWD_PROCESSES: usize = 3;
const CROWD_THREADS: usize = 8;
/// Grants of each kind to a crowd, and its kills, at least.
const CROWD_TURNS_MIN: usize = 100;
const CROWD_KILLS_MIN: u64 = 6;

#[test]
fn whoever_contends_is_never_inside_with_another_and_leaves_nothing() {
    let cast = |sockets: &[PathBuf]| {
        let all = LANGUAGES.iter().flat_map(|language| {
            ["leader", "semaphore", "semaphore", "master"].map(|kind| (*language, kind))
        });
        let sockets = sockets.iter().cycle();
        let part = |((language, kind), socket): (_, &PathBuf)| Part {
            kind,
            language,
            socket: socket.clone(),
            threads: None,
        };
        all.zip(sockets).map(part).collect()
    };
    contend(cast, all_had_enough);
}

#[test]
fn threads_of_processes_on_two_hosts_have_it_in_turn_in_every_sdk() {
    for language in SDKS {
        let cast = |sockets: &[PathBuf]| {
            let part = |socket: &PathBuf| Part {
                kind: "either",
                language,
                socket: socket.clone(),
                threads: Some(CROWD_THREADS),
            };
            (0..CROWD_PROCESSES).flat_map(|_| sockets.iter().map(part)).collect()
        };
        contend(cast, |judge, kills| {
            let turns = turns(judge);
            let had = |kind| turns.get(&(kind, language)).is_some_and(|n| *n >= CROWD_TURNS_MIN);
            had("leader")
                && had("semaphore")
                && kills.get(language).is_some_and(|n| *n >= CROWD_KILLS_MIN)
        });
    }
}

/// Has this cast contend on two hosts, and kills them at random, until they had enough.
fn contend(
    cast: impl Fn(&[PathBuf]) -> Vec<Part>,
    had_enough: impl Fn(&Judge, &BTreeMap<&str, u64>) -> bool,
) {
    let number =
        |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number(SEED_VARIABLE).unwrap_or_else(boottime_ns);
    eprintln!("{SEED_VARIABLE}={seed}");
    let began = boottime_ns();
    let enough_at = began + number(SECONDS_VARIABLE).unwrap_or(0) * 1_000_000_000;
    let fleet = Fleet::start();
    let sockets: Vec<PathBuf> = fleet.agents.iter().map(|agent| agent.socket()).collect();
    let witness = Witness::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch_queues(&sockets, &witness, &is_over));
        // Ends the watcher also when this panics.
        let _over = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        let mut contenders = Contenders::start(cast(&sockets), &witness, seed);
        while boottime_ns() < enough_at || !had_enough(&witness.judge(), &contenders.kills) {
            let before = witness.judge().outcomes.len();
            until("another grant", || {
                contenders.look_after();
                witness.judge().outcomes.len() > before
            });
            let faults = &witness.judge().faults;
            assert!(faults.is_empty(), "{faults:#?}");
        }
        eprintln!("kills: {:?}", contenders.kills);
        contenders.end();
    });
    fleet.is_left_empty();
    let mut judge = witness.judge();
    let compared = judge.check_order();
    let seconds = (boottime_ns() - began) / 1_000_000_000;
    let losses = judge.losses;
    eprintln!("grants in {seconds} s: {:?}, {losses} holds lost inside", turns(&judge));
    eprintln!("{} queues seen, {compared} neighbours in them compared", judge.queues.len());
    assert!(judge.faults.is_empty(), "{:#?}", judge.faults);
    assert!(compared > 0, "nobody was seen to wait");
}

#[test]
fn the_witness_notices_a_planted_second_holder() {
    let witness = Witness::start();
    let mut http = Http::new(&witness.socket());
    let mut enter = |name: &str, token: &str, pid: u32| {
        let word = serde_json::json!({"kind": "leader", "name": name, "pid": pid, "token": token});
        assert_eq!(http.post("/enter", &word).status, 200);
    };
    let own = std::process::id();
    // Whoever is dead counts neither as inside nor as coming.
    let mut dead = std::process::Command::new("true").spawn().expect("true(1) starts");
    let dead_pid = dead.id();
    until("its end", || dead.try_wait().expect("a child can be waited for").is_some());
    enter("dead", "1", dead_pid);
    enter("first", "2", own);
    assert!(witness.judge().faults.is_empty());
    enter("second", "3", own);
    witness.judge().leave("leader", "first");
    witness.judge().leave("leader", "second");
    assert_eq!(witness.judge().faults.len(), 1);
    enter("third", "4", own);
    enter("fourth", "5", own);
    witness.judge().lost("leader", "third");
    witness.judge().leave("leader", "fourth");
    assert_eq!(witness.judge().faults.len(), 1, "the third hold may have ended before");
    enter("late", "2", own);
    assert_eq!(witness.judge().faults.len(), 2, "a token was used twice");
}

#[test]
fn the_witness_notices_who_overtakes() {
    let faults = |tokens: &[(&str, Option<u64>)], before: usize, after: usize| {
        let outcome = |&(name, token): &(&str, Option<u64>)| Outcome {
            kind: "leader".into(),
            name: name.into(),
            token,
        };
        let waiters = vec!["a".to_owned(), "b".to_owned()];
        let mut judge = Judge::default();
        judge.outcomes.extend(tokens.iter().map(outcome));
        judge.queues.push(Queue { kind: "leader", waiters, before, after });
        (judge.check_order(), judge.faults.len())
    };
    assert_eq!(faults(&[("a", Some(1)), ("b", Some(2))], 0, 0), (1, 0));
    assert_eq!(faults(&[("b", Some(1)), ("a", Some(2))], 0, 0), (1, 1));
    // Gave up and came again, was killed, or may have come anew before the queue was seen.
    assert_eq!(faults(&[("b", Some(1)), ("a", None), ("a", Some(2))], 0, 0), (0, 0));
    assert_eq!(faults(&[("b", Some(1))], 0, 0), (0, 0));
    assert_eq!(faults(&[("a", Some(1)), ("b", Some(2)), ("a", Some(3))], 0, 1), (0, 0));
}

/// Looks at the queues through every agent until it is over.
fn watch_queues(sockets: &[PathBuf], witness: &Witness, is_over: &AtomicBool) {
    let mut agents: Vec<Http> = sockets.iter().map(|socket| Http::new(socket)).collect();
    while !is_over.load(Ordering::Relaxed) {
        for agent in &mut agents {
            for kind in KINDS {
                let before = witness.judge().outcomes.len();
                let answer = agent.get(&format!("/v1/standing?kind={kind}&name=mixed"));
                if answer.status != 200 {
                    // A busy machine makes a store late.
                    continue;
                }
                let mut waiters = answer.expect::<Standing>(200).waiters;
                waiters.sort_by_key(|waiter| waiter.position);
                let waiters = waiters.into_iter().map(|waiter| waiter.name).collect();
                let mut judge = witness.judge();
                let after = judge.outcomes.len();
                judge.queues.push(Queue { kind, waiters, before, after });
            }
        }
    }
}

fn turns(judge: &Judge) -> BTreeMap<(&str, &str), usize> {
    let mut turns = BTreeMap::new();
    for outcome in judge.outcomes.iter().filter(|outcome| outcome.token.is_some()) {
        let language = outcome.name.split('-').next().unwrap_or_default();
        *turns.entry((outcome.kind.as_str(), language)).or_default() += 1;
    }
    turns
}

fn all_had_enough(judge: &Judge, kills: &BTreeMap<&str, u64>) -> bool {
    let turns = turns(judge);
    LANGUAGES.iter().all(|language| {
        let granted = |kind: &&str| turns.get(&(*kind, *language)).is_some_and(|n| *n >= TURNS_MIN);
        KINDS.iter().all(granted) && kills.get(language).is_some_and(|n| *n >= KILLS_MIN)
    })
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
