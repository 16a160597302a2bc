//! What fleets cost their Redis, and how they share what it has: asserted as counts of a model.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::Kind;
use tenure_core::keeper::Reply;
use tenure_simulation::fleet::{Counts, Fleet, NEAR, Planted, Worker};
use uuid::Uuid;

const KINDS: [Kind; 4] = [Kind::Leader, Kind::Lease, Kind::Semaphore, Kind::Master];
/// How long workers hold what they got.
const HOLDS: Duration = Duration::from_millis(5);
/// How often an agent looks at a project that its sessions are of.
const LOOKS_PER_S: u64 = 4;

fn share(counts: &Counts, of: Duration) -> f64 {
    counts.busy.as_secs_f64() / of.as_secs_f64()
}

fn per(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// A fleet that holds permits, each of a semaphore of its own.
struct AtRest {
    refused: u64,
    lost: u64,
    filled_in: Duration,
    permits: u64,
    /// How long it rests.
    rest: Duration,
    /// Of its rest.
    counts: Counts,
}

/// Fills a fleet: every agent takes its permits one after the other, all agents at once.
fn at_rest(agents: usize, permits: usize, rest_s: u64, planted: Option<Planted>) -> AtRest {
    let mut fleet = Fleet::with(&vec![NEAR; agents], planted);
    let sessions: Vec<Uuid> = (0..agents).map(|agent| fleet.register(agent, &json!({}))).collect();
    let (mut refused, began) = (0, fleet.elapsed());
    for permit in 0..permits {
        let take = |(agent, session): (usize, &Uuid)| {
            let name = format!("{agent} {permit}");
            fleet.acquire(agent, *session, Kind::Semaphore, &name, false)
        };
        let tickets: Vec<_> = sessions.iter().enumerate().map(take).collect();
        for ticket in tickets {
            refused += u64::from(!matches!(fleet.reply(ticket), Ok(Reply::Acquired(_))));
        }
        fleet.run_for(Duration::from_millis(5));
    }
    let filled_in = fleet.elapsed() - began;
    fleet.run_for(Duration::from_secs(10));
    let rest = Duration::from_secs(rest_s);
    let counts = fleet.counts_for(rest);
    let permits = (agents * permits) as u64;
    AtRest { refused, lost: fleet.lost(), filled_in, permits, rest, counts }
}

impl AtRest {
    fn print(&self, title: &str) {
        let AtRest { refused, lost, filled_in, permits, rest, counts } = self;
        let each = |count| per(count, *permits) * 60.0 / rest.as_secs_f64();
        println!(
            "{title}: filled in {filled_in:.1?}, {refused} refused, {lost} lost; busy {:.2} %, longest \
             script {:?}, PING p99 {:?}; per permit and minute {:.2} pushes, {:.2} commands",
            100.0 * share(counts, *rest),
            counts.longest,
            counts.ping_p99(),
            each(counts.pushes),
            each(counts.commands),
        );
    }

    /// The first target that is missed.
    fn verdict(&self) -> Result<(), &'static str> {
        let AtRest { refused, lost, filled_in, permits, rest, counts } = self;
        let check = |holds: bool, missed| if holds { Ok(()) } else { Err(missed) };
        check(refused + lost + counts.ran_out == 0, "permits were refused or lost")?;
        check(*filled_in <= Duration::from_secs(15), "it takes more than 15 s to fill")?;
        check(share(counts, *rest) <= 0.1, "it is busy for more than a tenth of the time")?;
        check(counts.longest <= Duration::from_millis(1), "a script takes more than 1 ms")?;
        check(counts.ping_p99() <= Duration::from_millis(20), "a PING waits for more than 20 ms")?;
        // Its own agent hears of a beat, and the caretaker; beats that meet are told of together.
        let beats = permits * rest.as_secs() / 9;
        check(counts.pushes <= beats, "it tells more than once of a beat")
    }
}

#[test]
fn a_fleet_at_rest_leaves_redis_alone() {
    for (agents, permits, rest_s) in [(30, 300, 60), (100, 100, 20)] {
        let found = at_rest(agents, permits, rest_s, None);
        found.print(&format!("{agents} agents with {permits} permits"));
        assert_eq!(found.verdict(), Ok(()));
    }
}

#[test]
fn agents_that_all_look_after_every_semaphore_are_noticed() {
    let found = at_rest(20, 50, 10, Some(Planted::AllCare));
    found.print("planted: 20 agents with 50 permits, all look after all");
    assert!(found.verdict().is_err());
    assert_eq!(at_rest(20, 50, 10, None).verdict(), Ok(()));
}

/// What a change costs.
struct Cost {
    scripts: f64,
    pushes: f64,
    busy_us: f64,
}

impl Cost {
    /// Of each of so many, if the rest is for something else.
    fn each(all: &Counts, rest: &Counts, of: u64) -> Cost {
        let part = |all: f64, rest: f64| (all - rest) / of as f64;
        Cost {
            scripts: part(all.scripts as f64, rest.scripts as f64),
            pushes: part(all.pushes as f64, rest.pushes as f64),
            busy_us: part(all.busy.as_secs_f64(), rest.busy.as_secs_f64()) * 1e6,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { scripts, pushes, busy_us } = self;
        write!(f, "{scripts:.2} scripts, {pushes:.2} pushes, {busy_us:.0} µs")
    }
}

/// The cost of an acquire and release beside so many agents that hold something else.
fn pair(kind: Kind, agents: usize, planted: Option<Planted>) -> Cost {
    /// A multiple of the grid on which leaders and permits are beaten.
    const WINDOW: Duration = Duration::from_millis(2 * 9216);
    const PAIRS: u32 = 288;
    let mut fleet = Fleet::with(&vec![NEAR; agents], planted);
    for agent in 0..agents {
        let session = fleet.register(agent, &json!({}));
        for own in [Kind::Leader, Kind::Semaphore] {
            fleet.take(agent, session, own, &format!("{agent}"));
        }
    }
    let session = fleet.register(0, &project_of(kind));
    fleet.run_for(Duration::from_secs(12));
    let rest = fleet.counts_for(WINDOW);
    let (before, began) = (fleet.counts(), fleet.elapsed());
    for number in 1..=PAIRS {
        let hold = fleet.take(0, session, kind, "x");
        fleet.release(0, session, hold);
        let next = began + WINDOW / PAIRS * number;
        fleet.run_for(next.saturating_sub(fleet.elapsed()));
    }
    Cost::each(&fleet.counts().since(&before), &rest, u64::from(PAIRS))
}

/// The fields of a session that wants something of that kind.
fn project_of(kind: Kind) -> Value {
    if kind == Kind::Master { json!({"project": "p"}) } else { json!({}) }
}

#[test]
fn a_change_costs_the_same_beside_a_hundred_agents_that_did_not_ask() {
    for kind in [Kind::Leader, Kind::Lease, Kind::Semaphore, Kind::Master] {
        let (alone, many) = (pair(kind, 1, None), pair(kind, 100, None));
        println!("{kind}: acquire + release with 1 agent: {alone}; with 100: {many}");
        assert!(many.busy_us <= 1.2 * alone.busy_us, "{kind}");
        assert!(many.pushes <= alone.pushes + 0.1, "{kind}");
    }
}

#[test]
fn telling_everybody_is_noticed() {
    let told = [1, 100].map(|agents| pair(Kind::Leader, agents, Some(Planted::Broadcast)));
    println!("planted: everybody is told, with 1 agent: {}; with 100: {}", told[0], told[1]);
    assert!(told[1].busy_us > 1.2 * told[0].busy_us);
    let heard = [1, 100].map(|agents| pair(Kind::Master, agents, Some(Planted::AllHear)));
    println!("planted: everybody hears, with 1 agent: {}; with 100: {}", heard[0], heard[1]);
    assert!(heard[1].busy_us > 1.2 * heard[0].busy_us);
}

/// How long workers hand over to each other.
const HANDS_OVER: Duration = Duration::from_secs(3);

/// The cost of a hand-over while so many hosts wait, and how many there were.
fn hand_over(kind: Kind, waiting: usize, planted: Option<Planted>) -> (Cost, u64) {
    hand_over_after(HOLDS, kind, waiting, &Counts::default(), planted)
}

/// The same, by hosts that keep it for so long; what they do at rest is taken off.
fn hand_over_after(
    holds: Duration,
    kind: Kind,
    waiting: usize,
    rest: &Counts,
    planted: Option<Planted>,
) -> (Cost, u64) {
    let mut fleet = Fleet::with(&vec![NEAR; waiting + 1], planted);
    let mut workers = workers(&mut fleet, kind, 1);
    workers.iter_mut().for_each(|worker| worker.holds = holds);
    fleet.work(workers.clone(), Duration::from_secs(1));
    fleet.run_for(Duration::from_secs(3));
    let before = fleet.counts();
    let grants = fleet.work(workers, HANDS_OVER).iter().map(|it| it.grants).sum();
    let counts = fleet.counts().since(&before);
    assert_eq!((counts.ran_out, fleet.lost()), (0, 0));
    (Cost::each(&counts, rest, grants), grants)
}

/// What so many hosts cost that wait while nothing changes.
fn at_rest_waiting(kind: Kind, waiting: usize) -> Counts {
    let mut fleet = Fleet::new(waiting + 1);
    for agent in 0..=waiting {
        let session = fleet.register(agent, &project_of(kind));
        fleet.acquire(agent, session, kind, "x", true);
    }
    fleet.run_for(Duration::from_secs(5));
    fleet.counts_for(HANDS_OVER)
}

/// So many on each host that want the same thing.
fn workers(fleet: &mut Fleet, kind: Kind, each: usize) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..each {
        for agent in 0..fleet.count() {
            let session = fleet.register(agent, &project_of(kind));
            workers.push(Worker::new(agent, session, kind, "x", HOLDS));
        }
    }
    workers
}

/// Scripts that tell the history of a hand-over. Two hosts that have it in turn tell of many at once; of many hosts each
/// tells by itself what it had.
const HISTORY: f64 = 1.0;

#[test]
fn a_hand_over_costs_the_same_however_many_hosts_wait() {
    for kind in KINDS {
        let (one, _) = hand_over(kind, 1, None);
        println!("{kind}: hand-over with 1 host waiting: {one}");
        for waiting in [10, 50] {
            let (many, grants) = hand_over(kind, waiting, None);
            println!("{kind}: hand-over with {waiting} hosts waiting: {many}");
            // Each host with a session of the project looks who its master is, at most so often, and is told
            // of the next one then.
            let looks = if kind == Kind::Master { LOOKS_PER_S * HANDS_OVER.as_secs() } else { 0 };
            let looks = per(looks * (waiting as u64 + 1), grants);
            assert!(many.scripts <= 1.2 * one.scripts + looks + HISTORY, "{kind}");
            assert!(many.pushes <= 1.2 * one.pushes + looks, "{kind}");
        }
    }
}

#[test]
fn a_hand_over_costs_the_same_after_long_waits() {
    // Of fifty hosts each waits for more than a second.
    const KEPT: Duration = Duration::from_millis(25);
    for kind in KINDS {
        let [one, ten, fifty] = [1, 10, 50].map(|waiting| {
            let rest = at_rest_waiting(kind, waiting);
            let (cost, grants) = hand_over_after(KEPT, kind, waiting, &rest, None);
            println!("{kind}: hand-over after {KEPT:?} with {waiting} hosts waiting: {cost}");
            // Each host with a session of the project looks who its master is, and learns its place with that.
            let looks = if kind == Kind::Master { LOOKS_PER_S * HANDS_OVER.as_secs() } else { 0 };
            (cost, per(looks * (waiting as u64 + 1), grants))
        });
        for (many, looks) in [ten, fifty] {
            assert!(many.scripts <= 1.2 * one.0.scripts + looks, "{kind}");
            // The caretaker hears of waiters for a permit, too.
            let more = if kind == Kind::Semaphore { 1.3 } else { 1.2 };
            assert!(many.pushes <= more * one.0.pushes + looks, "{kind}");
        }
    }
}

#[test]
fn a_herd_after_each_release_is_noticed() {
    let planted = Some(Planted::NoQueue);
    let [one, many] = [1, 10].map(|waiting| hand_over(Kind::Leader, waiting, planted).0);
    println!("planted: no queue, with 1 host waiting: {one}; with 10: {many}");
    assert!(many.scripts > 1.2 * one.scripts);
}

#[test]
fn hosts_that_campaign_for_many_roles_cost_little_and_take_over_without_a_storm() {
    const HOSTS: usize = 30;
    const ROLES: usize = 100;
    const SECOND: Duration = Duration::from_secs(1);
    let mut fleet = Fleet::new(HOSTS);
    let sessions: Vec<Uuid> = (0..HOSTS).map(|agent| fleet.register(agent, &json!({}))).collect();
    for role in 0..ROLES {
        fleet.take(0, sessions[0], Kind::Leader, &format!("role {role}"));
    }
    let mut waiting = Vec::new();
    for (agent, session) in sessions.iter().enumerate().skip(1) {
        for role in 0..ROLES {
            let name = format!("role {role}");
            waiting.push(fleet.acquire(agent, *session, Kind::Leader, &name, true));
        }
        fleet.run_for(Duration::from_millis(50));
    }
    fleet.run_for(Duration::from_secs(12));
    let rest = Duration::from_secs(10);
    let at_rest = fleet.counts_for(rest);
    let (commands, busy) = (at_rest.commands as f64 / rest.as_secs_f64(), share(&at_rest, rest));

    let before = fleet.counts();
    fleet.stop(0);
    let mut taken_over = 0;
    let began = fleet.elapsed();
    while taken_over < ROLES {
        fleet.run_for(Duration::from_millis(1));
        for ticket in &waiting {
            if let Some(reply) = fleet.reply_so_far(*ticket) {
                assert!(matches!(reply, Ok(Reply::Acquired(_))), "{reply:?}");
                taken_over += 1;
            }
        }
        assert!(fleet.elapsed() - began < Duration::from_secs(10), "{taken_over} taken over");
    }
    let took = fleet.elapsed() - began;
    fleet.run_for((began + SECOND).saturating_sub(fleet.elapsed()));
    let storm = fleet.counts().since(&before);
    let scripts = storm.scripts.saturating_sub(at_rest.scripts / rest.as_secs());
    println!(
        "{HOSTS} hosts for {ROLES} roles: {commands:.0} commands/s at rest, busy {:.2} %; the leader leaves: \
         taken over within {took:?}, {scripts} scripts more than at rest, {} claims, {} pushes",
        100.0 * busy,
        storm.claims,
        storm.pushes
    );
    // Its waiters ask for their places together, at four instants of a second; and connections are checked.
    assert!(commands <= 8.0 * HOSTS as f64 && busy <= 0.1);
    // Its release, the beat that confirms the grant, and what that makes the winner watch and verify.
    assert!(scripts <= 4 * ROLES as u64 && storm.pushes <= 4 * ROLES as u64);
    assert_eq!((storm.claims, storm.ran_out, fleet.lost()), (0, 0, 0));
}

/// How long hosts compete.
const COMPETE: Duration = Duration::from_secs(4);

/// Grants per host, and the longest wait of any worker.
fn compete(
    kind: Kind,
    round_trips_ms: &[u64],
    each: usize,
    planted: Option<Planted>,
) -> (Vec<u64>, Duration) {
    let one_way: Vec<_> =
        round_trips_ms.iter().map(|ms| NEAR + Duration::from_millis(*ms) / 2).collect();
    let mut fleet = Fleet::with(&one_way, planted);
    let workers = workers(&mut fleet, kind, each);
    let workers = fleet.work(workers, COMPETE).to_vec();
    let mut grants = vec![0; round_trips_ms.len()];
    for worker in &workers {
        grants[worker.agent] += worker.grants;
    }
    (grants, workers.iter().map(|worker| worker.longest).max().unwrap_or_default())
}

/// The widest gap between hosts as a part of their mean, and the longest wait as one of the fair one.
fn unfairness(grants: &[u64], longest: Duration, workers: usize) -> (f64, f64) {
    let all: u64 = grants.iter().sum();
    let mean = all as f64 / grants.len() as f64;
    let gap = |grants: &u64| (*grants as f64 - mean).abs() / mean;
    // In turns, each worker has it once while all others do.
    let fair = COMPETE.as_secs_f64() / all as f64 * workers as f64;
    (grants.iter().map(gap).fold(0.0, f64::max), longest.as_secs_f64() / fair)
}

/// Round trips beyond the nearest, ms, and workers on each host.
const FLEETS: [(&[u64], usize); 4] =
    [(&[0, 0], 3), (&[0, 0, 0, 0], 2), (&[0, 2], 3), (&[0, 0, 10], 3)];

#[test]
fn hosts_share_what_they_all_want_however_far_they_are() {
    let mut worst = Vec::new();
    for kind in KINDS {
        for (round_trips_ms, each) in FLEETS {
            let (grants, longest) = compete(kind, round_trips_ms, each, None);
            let (gap, wait) = unfairness(&grants, longest, each * grants.len());
            println!(
                "{kind}: {each} workers on each of hosts {round_trips_ms:?} ms further: grants {grants:?}, \
                 longest wait {longest:.1?}, {wait:.2} times the fair one"
            );
            if gap > 0.2 || wait > 3.0 {
                worst.push((kind, round_trips_ms, grants, wait));
            }
        }
    }
    assert!(worst.is_empty(), "{worst:?}");
}

#[test]
fn hosts_that_take_what_they_can_are_noticed() {
    let (grants, longest) = compete(Kind::Leader, &[0, 0, 10], 3, Some(Planted::NoQueue));
    let (gap, wait) = unfairness(&grants, longest, 9);
    println!("planted: no queue, grants {grants:?}, longest wait {wait:.1} times the fair one");
    assert!(gap > 0.2 || wait > 3.0);
}

#[test]
fn the_same_fleet_does_the_same() {
    let run = || {
        let mut fleet = Fleet::with(&[NEAR, NEAR * 10, NEAR * 20], None);
        let workers = workers(&mut fleet, Kind::Semaphore, 2);
        let workers = fleet.work(workers, Duration::from_secs(2)).to_vec();
        (fleet.counts(), workers.iter().map(|it| (it.grants, it.longest)).collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}
