//! Disks that are full, for a moment or for long. Takes root, for file systems of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::{Acquired, Code, HoldState};
use tenure_tests::harness::{Agent, Client, Http, boottime_ns, other_users, until};
use uuid::Uuid;

fn agent() -> Option<Agent> {
    other_users()?;
    Some(Agent::setup().small_disks().start())
}

fn ready(agent: &Agent) -> bool {
    agent.http().get("/readyz").status == 200
}

/// As soon as the space ahead is used up, nothing more is granted; how that is said.
#[track_caller]
fn until_refused(http: &mut Http, session: Uuid) -> String {
    for round in 0..5000 {
        let answer = http.ask(session, "leader", &format!("{round}"), &json!({}));
        if answer.status != 200 {
            return answer.problem(Code::UpstreamUnavailable).detail;
        }
        let granted: Acquired = answer.expect(200);
        http.post("/v1/release", &json!({"session": session, "hold": granted.hold})).json(200);
    }
    panic!("a full disk is noticed");
}

#[test]
fn renewals_on_a_full_disk_survive_the_agent() {
    let Some(mut agent) = agent() else { return };
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let ttl = Duration::from_secs(10);
    let asked = json!({"ttl_ms": ttl.as_millis()});
    let held = http.acquire(session, "leader", "held", &asked);
    agent.disks()[0].fill();
    until_refused(&mut http, session);
    // The last valid-until that may be in the journal.
    let noted = boottime_ns() + u64::try_from(ttl.as_nanos()).expect("it fits");
    until("that to pass", || boottime_ns() > noted);
    agent.kill();
    agent.start_again();
    let status = agent.http().status();
    let mut holds = status.sessions.iter().flat_map(|session| &session.holds);
    let found = holds.next().map(|hold| (hold.hold, hold.state));
    assert_eq!(found, Some((held.hold, HoldState::Held)));
}

#[test]
fn a_full_runtime_directory_refuses_new_holds_and_keeps_the_old() {
    let Some(mut agent) = agent() else { return };
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let held = http.acquire(session, "leader", "held", &json!({"ttl_ms": 60_000}));
    let other = http.acquire(session, "leader", "released", &json!({}));
    let [runtime, _] = agent.disks();
    runtime.fill();
    let refused = until_refused(&mut http, session);
    assert!(refused.contains("runtime_dir"), "{refused}");
    let ready_now = agent.http().get("/readyz").problem(Code::UpstreamUnavailable);
    assert!(ready_now.detail.contains("journal"), "{}", ready_now.detail);
    // Present holds go on, are released, and survive.
    http.post("/v1/checkpoint", &json!({"session": session})).json(200);
    http.post("/v1/release", &json!({"session": session, "hold": other.hold})).json(200);
    agent.kill();
    agent.start_again();
    let status = agent.http().status();
    let holds: Vec<_> = status.sessions.iter().flat_map(|session| &session.holds).collect();
    assert_eq!(holds.len(), 1, "{holds:?}");
    assert_eq!((holds[0].hold, holds[0].state), (held.hold, HoldState::Held));
    let [runtime, _] = agent.disks();
    runtime.empty();
    until("the journal to be written again", || ready(&agent));
    agent.http().acquire(session, "leader", "new", &json!({}));
    // The planned restart after it knows everything.
    agent.signal(nix::sys::signal::Signal::SIGUSR2);
    agent.wait_exit();
    agent.start_again();
    assert_eq!(agent.counts().1, 2);
}

#[test]
fn a_full_state_directory_costs_no_hold() {
    let Some(mut agent) = agent() else { return };
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000, "project": "p"})).session;
    let held = http.acquire(session, "leader", "held", &json!({}));
    let [_, state] = agent.disks();
    state.fill();
    for _ in 0..3 {
        http.post("/v1/checkpoint", &json!({"session": session})).json(200);
    }
    // The ledger has its space since it was made: also what is longer than ever is granted.
    http.acquire(session, "leader", "long", &json!({"ttl_ms": 3_600_000}));
    agent.kill();
    agent.start_again();
    assert!(ready(&agent));
    let mut http = agent.http();
    http.post("/v1/checkpoint", &json!({"session": session})).json(200);
    let next = http.acquire(session, "leader", "next", &json!({}));
    assert!(next.token > held.token);
    assert_eq!(agent.counts().1, 3);
}

#[test]
fn a_first_start_on_a_full_state_directory_grants_as_soon_as_there_is_space() {
    let Some(mut agent) = agent() else { return };
    agent.kill();
    fs::remove_file(agent.dir().join("state/ledger")).expect("it has one");
    agent.disks()[1].fill();
    agent.start_again();
    let mut http = agent.http();
    let unready = http.get("/readyz").problem(Code::UpstreamUnavailable);
    assert!(unready.detail.contains("state_dir"), "{}", unready.detail);
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let refused = http.ask(session, "leader", "x", &json!({})).problem(Code::UpstreamUnavailable);
    assert!(refused.detail.contains("the ledger in state_dir"), "{}", refused.detail);
    agent.disks()[1].empty();
    until("the ledger to be written", || ready(&agent));
    agent.http().acquire(session, "leader", "x", &json!({}));
}

/// The holders, tokens and violations that the clients have seen.
#[derive(Default)]
struct Known {
    /// Until when somebody may act as the holder.
    holders: BTreeMap<usize, (usize, u64)>,
    tokens: BTreeSet<u64>,
    grants: u64,
    violations: Vec<String>,
}

struct Torture {
    socket: PathBuf,
    known: Mutex<Known>,
    over: AtomicBool,
}

impl Torture {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no client panics with it")
    }

    /// Asks until there is an answer; the first one, and whether the call may have been made before.
    fn ask(&self, http: &mut Http, path: &str, body: &Value) -> Option<(u16, Value, bool)> {
        let body = body.to_string();
        let mut again = false;
        while !self.over.load(Ordering::Relaxed) {
            match http.try_once("POST", path, body.as_bytes()) {
                // The agent is stopping, or nothing can be granted: nothing was done.
                Ok(answer) if answer.status == 503 => {}
                Ok(answer) => {
                    let value = serde_json::from_str(&answer.text()).unwrap_or_default();
                    return Some((answer.status, value, again));
                }
                Err(_) => again = true,
            }
            thread::park_timeout(Duration::from_millis(2));
        }
        None
    }

    /// One client: holds now this, now that, and looks whether it still has what it was promised.
    fn client(&self, number: usize) -> Option<()> {
        let mut http = Http::new(&self.socket);
        let register = json!({"keepalive_ms": 600_000, "name": format!("client {number}")});
        let (_, registered, _) = self.ask(&mut http, "/v1/register", &register)?;
        let session = registered["session"].clone();
        for round in 0_usize.. {
            let resource = (round * 7 + number) % 3;
            let acquire = json!({
                "session": session, "kind": "leader", "name": format!("r{resource}"),
                "wait": "none", "ttl_ms": 20_000, "request": format!("{number}-{round}"),
            });
            let (status, answer, _) = self.ask(&mut http, "/v1/acquire", &acquire)?;
            if status == 404 || status == 410 && answer["code"] == "session_lost" {
                self.known().violations.push(format!("client {number}: session gone: {answer}"));
                return None;
            }
            if status != 200 {
                continue;
            }
            let granted: Acquired = serde_json::from_value(answer).expect("a grant");
            let until = granted.valid_until_boottime_ns;
            {
                let mut known = self.known();
                known.grants += 1;
                if !known.tokens.insert(granted.token) {
                    known.violations.push(format!("token {} came twice", granted.token));
                }
                let now = boottime_ns();
                if let Some((other, valid)) = known.holders.get(&resource)
                    && *valid > now
                {
                    let told = format!("r{resource} is held by {other} and by {number}");
                    known.violations.push(told);
                }
                known.holders.insert(resource, (number, until));
            }
            thread::park_timeout(Duration::from_millis([0, 1, 5, 40][round % 4]));
            let is_valid = boottime_ns() < until;
            self.known().holders.remove(&resource);
            let release = json!({"session": session, "hold": granted.hold});
            let (status, answer, again) = self.ask(&mut http, "/v1/release", &release)?;
            let kept = status == 200 && (answer["released"] == true || again);
            if is_valid && !kept {
                self.known().violations.push(format!("client {number} lost r{resource}: {answer}"));
            }
        }
        None
    }
}

/// SIGKILL at random instants, under load, with disks that are full now and then.
/// `TENURE_TORTURE_ROUNDS=500` for a long one.
#[test]
fn kills_with_a_flapping_disk_lose_nothing() {
    let Some(mut agent) = agent() else { return };
    let rounds = std::env::var("TENURE_TORTURE_ROUNDS").ok().and_then(|count| count.parse().ok());
    let rounds: u32 = rounds.unwrap_or(12);
    let torture = Arc::new(Torture {
        socket: agent.socket(),
        known: Mutex::default(),
        over: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let torture = Arc::clone(&torture);
            thread::spawn(move || torture.client(number))
        })
        .collect();
    let chance = AtomicU32::new(u32::try_from(boottime_ns() % 4_000_000_007).expect("it fits"));
    let random = |below: u32| {
        let next =
            chance.load(Ordering::Relaxed).wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        chance.store(next, Ordering::Relaxed);
        (next >> 16) % below
    };
    for round in 0..rounds {
        let [runtime, state] = agent.disks();
        for disk in [runtime, state] {
            match random(3) {
                0 => disk.fill(),
                1 => disk.empty(),
                _ => {}
            }
        }
        thread::park_timeout(Duration::from_millis(u64::from(random(80))));
        agent.kill();
        agent.start_again();
        let violations = torture.known().violations.clone();
        assert!(violations.is_empty(), "round {round}: {violations:#?}");
    }
    agent.disks().iter().for_each(|disk| disk.empty());
    let before = torture.known().grants;
    until("grants to go on", || torture.known().grants > before + 20);
    torture.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no client panics");
    }
    let known = torture.known();
    assert!(known.violations.is_empty(), "{:#?}", known.violations);
    eprintln!("{rounds} kills, {} grants", known.grants);
}
