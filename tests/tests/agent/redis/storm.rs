//! Programs of every sort that share keys with agents, and those of two agents, on one Redis, killed at random
//! together with the agents: never more holders than places, queues in their order, a turn for everybody, and
//! nothing left at the end.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{
    Campaigner, Client, Contents, Fleet, Pending, Python, RedisServer, boottime_ns, until,
};

/// Set to let the storm last longer, s.
const LASTS: &str = "TENURE_STORM_SECONDS";
const LASTS_S_DEFAULT: u64 = 25;
/// Set to the seed of an earlier storm to have its strikes again.
const SEED: &str = "TENURE_STORM_SEED";
const LIMIT: u64 = 2;
/// How long a holder stays at most, ms, and how long programs that poll pause afterwards; those of agents do not.
const STAY_MS: u64 = 20;
const PAUSE_MS: u64 = 400;
/// How long keys of programs without an agent outlive them, s; the package recommends no less than 10.
const OUTLIVE_S: u64 = 6;
const PACKAGE_OUTLIVE_S: u64 = 10;

#[derive(Debug, Clone, Copy)]
enum Sort {
    /// A program of an agent: its kind, and its host.
    Ours(&'static str, usize),
    /// ADR-0004.
    Candidate,
    /// redis-py's Lock on the same key.
    Lock,
    /// SPEC-032.
    Backend,
    /// asyncio-advanced-semaphores.
    Package,
}

const CAST: [Sort; 10] = [
    Sort::Ours("leader", 0),
    Sort::Ours("leader", 1),
    Sort::Candidate,
    Sort::Lock,
    Sort::Ours("master", 0),
    Sort::Ours("master", 1),
    Sort::Backend,
    Sort::Ours("semaphore", 0),
    Sort::Ours("semaphore", 1),
    Sort::Package,
];

/// The sorts that are killed more rarely: they hold for as long as their keys outlive them.
const WITHOUT_AGENT: [usize; 4] = [2, 3, 6, 9];

fn name_of(kind: &str) -> &'static str {
    match kind {
        "leader" => "cleanup",
        "master" => "p",
        _ => "gpu",
    }
}

struct Actor {
    program: Python,
    cycles: Vec<Pending>,
}

struct Storm {
    fleet: Fleet,
    /// A directory for each kind, with a file for each place.
    slots: TempDir,
    actors: Vec<Actor>,
    /// How often somebody of each place in the cast has been inside, of those that are gone.
    earlier: [usize; CAST.len()],
    order: Order,
    chance: ChaCha8Rng,
}

impl Storm {
    fn gather() -> Storm {
        let seed = number(SEED).unwrap_or_else(boottime_ns);
        eprintln!("{SEED}={seed}");
        let fleet = Fleet::start();
        let mut storm = Storm {
            order: Order::of(&fleet.redis),
            fleet,
            slots: TempDir::new().expect("a temporary directory can be made"),
            actors: Vec::new(),
            earlier: [0; CAST.len()],
            chance: ChaCha8Rng::seed_from_u64(seed),
        };
        for kind in ["leader", "master", "semaphore"] {
            std::fs::create_dir(storm.slots.path().join(kind)).expect("the directory is ours");
        }
        storm.actors = CAST.iter().map(|sort| storm.actor(*sort)).collect();
        storm
    }

    fn actor(&self, sort: Sort) -> Actor {
        let slots = |kind| {
            let path = self.slots.path().join(kind);
            path.to_str().expect("its name is UTF-8").to_owned()
        };
        let url = self.fleet.redis.python_url();
        let [stay, pause] = [STAY_MS, PAUSE_MS].map(|ms| ms.to_string());
        let cycling = |mut program: Python, with: serde_json::Value, tasks: usize| {
            let cycles = (0..tasks).map(|_| program.begin("cycle", &with)).collect();
            Actor { program, cycles }
        };
        match sort {
            Sort::Ours(kind, host) => {
                let socket = self.fleet.agents[host].socket();
                let socket = socket.to_str().expect("its name is UTF-8");
                let limit = if kind == "semaphore" { LIMIT } else { 1 }.to_string();
                let with = [socket, kind, name_of(kind), &limit, &slots(kind), &stay, "0"];
                Actor { program: Python::start("agent_client.py", &with), cycles: Vec::new() }
            }
            Sort::Lock => {
                let with = [
                    &url,
                    "leader:cleanup",
                    &OUTLIVE_S.to_string(),
                    &slots("leader"),
                    &stay,
                    &pause,
                ];
                Actor { program: Python::start("lock_client.py", &with), cycles: Vec::new() }
            }
            Sort::Candidate => {
                let with = json!({
                    "prefix": "leader:", "role": "cleanup", "lease_ttl": OUTLIVE_S, "interval": 0.1,
                    "slots": slots("leader"), "stay_ms": STAY_MS, "pause_ms": PAUSE_MS,
                });
                cycling(Python::candidate(&url), with, 1)
            }
            Sort::Backend => {
                let with = json!({
                    "tenant": "default", "project": "p", "surface": "cli", "identity": "Donna",
                    "ttl": OUTLIVE_S, "slots": slots("master"), "stay_ms": STAY_MS, "pause_ms": 100,
                });
                cycling(Python::backend(&url), with, 1)
            }
            Sort::Package => {
                let with = json!({
                    "name": "gpu", "value": LIMIT, "slots": slots("semaphore"), "stay_ms": STAY_MS,
                    "heartbeat_max_interval": PACKAGE_OUTLIVE_S, "max_acquire_time": 30,
                });
                cycling(Python::package(&url), with, 2)
            }
        }
    }

    /// Nobody is one too many, and nobody overtook.
    #[track_caller]
    fn check(&mut self) {
        for (actor, sort) in self.actors.iter().zip(CAST) {
            let events = actor.program.events();
            let too_many: Vec<_> = events.iter().filter(|it| it["event"] == "too_many").collect();
            assert!(too_many.is_empty(), "{sort:?} was one too many: {too_many:?}");
        }
        self.order.look();
    }

    /// Starts whoever ended with its agent again.
    fn tend(&mut self) {
        for (at, sort) in CAST.iter().enumerate() {
            if self.actors[at].program.program().ended().is_some() {
                assert!(matches!(sort, Sort::Ours(..)), "{sort:?} ended by itself");
                self.replace(at);
            }
        }
    }

    fn replace(&mut self, at: usize) -> Actor {
        self.earlier[at] += turns(&self.actors[at]);
        let next = self.actor(CAST[at]);
        std::mem::replace(&mut self.actors[at], next)
    }

    /// Kills an agent, a program of one, or more rarely another program, and starts one in its place.
    #[track_caller]
    fn strike(&mut self) {
        let lot = self.chance.next_u32() as usize;
        let at = match lot % 12 {
            0 | 1 => {
                let agent = &mut self.fleet.agents[lot / 12 % 2];
                agent.kill();
                agent.start_again();
                return;
            }
            2 => WITHOUT_AGENT[lot / 12 % WITHOUT_AGENT.len()],
            _ => lot / 12 % CAST.len(),
        };
        if lot % 12 != 2 && WITHOUT_AGENT.contains(&at) {
            return;
        }
        self.actors[at].program.program().kill();
        self.replace(at);
    }

    /// Removes sessions without an expiry. A backend writes a session by one command and its expiry by another, and
    /// leaves the session for ever if it is killed in between. An agent writes both in one script.
    fn remove_endless_sessions(&self) {
        let redis = &self.fleet.redis;
        for (key, entry) in redis.dump() {
            let is_session =
                key.starts_with("prism:session:") && matches!(entry.contents, Contents::Hash(_));
            if is_session && entry.expires_in_ms.is_none() {
                eprintln!("left by a killed backend: {key}");
                let _: u64 = redis.command(&["DEL", &key]);
            }
        }
    }
}

fn turns(actor: &Actor) -> usize {
    let events = actor.program.events();
    events.iter().filter(|it| it["event"] == "entered" || it["event"] == "leader").count()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// Looks whether somebody is served before somebody else who stood before him and still waits.
struct Order {
    connection: redis::Connection,
    /// Who waited at the last look, in order.
    waited: [Vec<Waiter>; 3],
    seen: usize,
}

/// The place, which somebody who joins anew does not have again, and the claim.
type Waiter = (String, String);

impl Order {
    /// All of it is read at one instant: for each kind who holds, and who waits.
    const LOOK: &str = "
        local leader, master = redis.call('GET', 'leader:cleanup'), redis.call('GET', 'tenure:master:p')
        return {
            { leader or '' }, redis.call('ZRANGE', 'tenure:queue:leader:cleanup', 0, -1),
            { master or '' }, redis.call('ZRANGE', 'tenure:queue:master:p', 0, -1),
            redis.call('ZRANGE', 'adv-sem:semaphore_main:gpu', 0, -1),
            redis.call('ZRANGE', 'adv-sem:semaphore_waiting:gpu', 0, -1, 'WITHSCORES'),
        }";
    /// Before the claim a place has its rank and its time.
    const CLAIM_AT: usize = 24;

    fn of(redis: &RedisServer) -> Order {
        Order { connection: redis.connect(), waited: Default::default(), seen: 0 }
    }

    #[track_caller]
    fn look(&mut self) {
        let look = redis::cmd("EVAL").arg(Order::LOOK).arg(0).query(&mut self.connection);
        let [leader, leaders, master, masters, permits, queue]: [Vec<String>; 6] =
            look.expect("Redis answers");
        let placed = |places: Vec<String>| {
            let waiter = |place: String| (place.clone(), place[Order::CLAIM_AT..].to_owned());
            places.into_iter().map(waiter).collect()
        };
        let scored = |pair: &[String]| (pair.join(" "), pair[0].clone());
        let now = [
            (leader, placed(leaders)),
            (master, placed(masters)),
            (permits, queue.chunks(2).map(scored).collect::<Vec<Waiter>>()),
        ];
        for (waited, (hold, wait)) in self.waited.iter_mut().zip(now) {
            for (at, (_, served)) in
                waited.iter().enumerate().filter(|(_, it)| hold.contains(&it.1))
            {
                let overtaken = waited[..at].iter().find(|it| wait.contains(it));
                assert!(overtaken.is_none(), "{served} overtook {overtaken:?} of {waited:?}");
                self.seen += 1;
            }
            *waited = wait;
        }
    }
}

#[test]
fn programs_of_every_sort_and_agents_are_killed_at_random() {
    let lasts = number(LASTS).unwrap_or(LASTS_S_DEFAULT);
    let mut storm = Storm::gather();
    let over = boottime_ns() + Duration::from_secs(lasts).as_nanos() as u64;
    while boottime_ns() < over {
        let pause = 100 + u64::from(storm.chance.next_u32()) % 700;
        let strike_at = boottime_ns() + pause * 1_000_000;
        until("the next strike", || {
            storm.check();
            boottime_ns() >= strike_at
        });
        storm.strike();
        storm.tend();
    }

    // No lost wake-up: whoever lives now gets a turn, however many places died with their holders.
    for (at, sort) in CAST.iter().enumerate() {
        until(&format!("a turn of {sort:?}"), || {
            storm.check();
            storm.tend();
            turns(&storm.actors[at]) > 0
        });
    }
    for (at, sort) in CAST.iter().enumerate() {
        eprintln!("{sort:?}: {} turns", storm.earlier[at] + turns(&storm.actors[at]));
    }
    eprintln!("{} hand-overs seen in order", storm.order.seen);
    assert!(storm.order.seen > 0);

    for (Actor { mut program, cycles }, sort) in storm.actors.drain(..).zip(CAST) {
        let stop = if matches!(sort, Sort::Candidate) { "finish" } else { "stop" };
        for (at, cycle) in cycles.into_iter().enumerate() {
            if at == 0 {
                program.call(stop, &json!({}));
            }
            program.result(cycle);
        }
        program.finish();
    }
    storm.remove_endless_sessions();
    // Whoever reads a project takes sessions out of it that are gone.
    until("sessions of killed backends to be gone", || {
        storm.fleet.agents[0].http().standing("master", "p").sessions.is_empty()
    });
    // A claim of a permit takes out the permits of killed programs that have expired.
    let mut last = Campaigner::start(&storm.fleet.agents[0], "last");
    until("permits of killed programs to be over", || {
        let own = last.acquire("semaphore", "gpu", &json!({"limit": LIMIT})).hold;
        let holding = storm.fleet.agents[0].http().standing("semaphore", "gpu").holding;
        last.release(own);
        holding == 1
    });
    drop(last);
    storm.fleet.is_left_empty();
}

impl Drop for Storm {
    fn drop(&mut self) {
        for (actor, sort) in self.actors.iter().zip(CAST).filter(|_| std::thread::panicking()) {
            eprintln!("last of {sort:?}: {:?}", actor.program.events().last());
        }
    }
}
