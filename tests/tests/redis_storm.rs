//! Clients of the package and of two agents on one semaphore, killed at random: never more holders
//! than permits, nobody waits for ever, and nothing of theirs remains.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{Fleet, Python, boottime_ns, until};

/// Set to let the storm last longer, s.
const LASTS: &str = "TENURE_STORM_SECONDS";
const LASTS_S_DEFAULT: u64 = 25;
const LIMIT: u64 = 3;
/// Clients of agents, and processes of the package.
const OURS: usize = 5;
const THEIRS: usize = 2;
/// How long the package's programs outlive their last ping, s: the shortest that it recommends.
const HEARTBEAT_S: u64 = 10;

struct Storm {
    fleet: Fleet,
    slots: TempDir,
    ours: Vec<Python>,
    theirs: Vec<Python>,
    /// How often somebody has been inside, of those that were killed.
    turns_of_the_dead: usize,
    chance: ChaCha8Rng,
}

impl Storm {
    fn gather() -> Storm {
        let seed = boottime_ns();
        eprintln!("the storm's seed is {seed}");
        let mut storm = Storm {
            fleet: Fleet::start(),
            slots: TempDir::new().expect("a temporary directory can be made"),
            ours: Vec::new(),
            theirs: Vec::new(),
            turns_of_the_dead: 0,
            chance: ChaCha8Rng::seed_from_u64(seed),
        };
        storm.ours = (0..OURS).map(|i| storm.client(i)).collect();
        storm.theirs = (0..THEIRS).map(|_| storm.package()).collect();
        storm
    }

    fn slots(&self) -> &str {
        self.slots.path().to_str().expect("its name is UTF-8")
    }

    fn client(&self, host: usize) -> Python {
        let socket = self.fleet.agents[host % 2].socket();
        let socket = socket.to_str().expect("its name is UTF-8");
        let limit = LIMIT.to_string();
        Python::start(
            "agent_client.py",
            &[socket, "semaphore", "gpu", &limit, self.slots(), "20", "0"],
        )
    }

    fn package(&self) -> Python {
        let mut package = Python::package(&self.fleet.redis.python_url());
        for _ in 0..2 {
            package.begin(
                "cycle",
                &json!({
                    "name": "gpu", "value": LIMIT, "slots": self.slots(), "stay_ms": 20,
                    "heartbeat_max_interval": HEARTBEAT_S, "max_acquire_time": 30,
                }),
            );
        }
        package
    }

    fn everybody(&self) -> impl Iterator<Item = &Python> {
        self.ours.iter().chain(&self.theirs)
    }

    #[track_caller]
    fn nobody_is_one_too_many(&self) {
        self.everybody().for_each(check);
    }

    /// Kills one and starts another in its place.
    #[track_caller]
    fn strike(&mut self) {
        let target = self.chance.next_u32() as usize;
        // A program that dies without an agent keeps its permit for a whole heartbeat: not too often.
        let mut victim = if target.is_multiple_of(24) {
            let next = self.package();
            let at = target / 24 % THEIRS;
            std::mem::replace(&mut self.theirs[at], next)
        } else {
            let at = target % OURS;
            let next = self.client(at);
            std::mem::replace(&mut self.ours[at], next)
        };
        check(&victim);
        self.turns_of_the_dead += turns(&victim);
        victim.program().kill();
    }
}

#[track_caller]
fn check(client: &Python) {
    let too_many: Vec<_> =
        client.events().into_iter().filter(|event| event["event"] == "too_many").collect();
    assert!(too_many.is_empty(), "more than {LIMIT} held at once: {too_many:?}");
}

fn turns(client: &Python) -> usize {
    client.events().iter().filter(|event| event["event"] == "entered").count()
}

#[test]
fn clients_of_both_sorts_are_killed_at_random() {
    let lasts = std::env::var(LASTS).map_or(LASTS_S_DEFAULT, |text| {
        text.parse().unwrap_or_else(|_| panic!("{LASTS}={text:?} is not a number of seconds"))
    });
    let mut storm = Storm::gather();
    let over = boottime_ns() + Duration::from_secs(lasts).as_nanos() as u64;
    while boottime_ns() < over {
        let pause = 100 + u64::from(storm.chance.next_u32()) % 500;
        let strike_at = boottime_ns() + pause * 1_000_000;
        until("the next strike", || {
            storm.nobody_is_one_too_many();
            boottime_ns() >= strike_at
        });
        storm.strike();
    }

    // No lost wake-up: whoever lives now gets a turn, however many permits died with their holders.
    for client in storm.everybody() {
        until("everybody alive to have a turn", || {
            check(client);
            turns(client) > 0
        });
    }
    let turns = storm.turns_of_the_dead + storm.everybody().map(turns).sum::<usize>();
    eprintln!("{turns} turns in the storm");

    storm.nobody_is_one_too_many();
    storm.ours.drain(..).chain(storm.theirs.drain(..)).for_each(Python::finish);
    storm.fleet.is_left_empty();
}
