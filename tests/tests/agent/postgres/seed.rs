//! A single lease on a Postgres, under which one of several replicas runs its background loops.
//!
//! The first tests are those that such a lease is asked for. The others show that five faults
//! are absent which implementations by hand have.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::{Acquired, Code, LostReason, Standing, Waiting};
use tenure_tests::harness::{
    Agent, Answer, Campaigner, Client, Postgres, SharedStore, TenureRun, boottime_ns, eventually,
    run_to_end, start_agent, until,
};
use uuid::Uuid;

const KIND: &str = "leader";
const NAME: &str = "reconciler";
/// Those who want the lease at the same time.
const REPLICAS: usize = 20;

fn hosts(count: usize) -> (Postgres, Vec<Agent>) {
    let postgres = Postgres::setup().start();
    let agents = (0..count).map(|host| start_agent(host, &postgres.url(), "")).collect();
    (postgres, agents)
}

fn ttl(ttl_ms: u64) -> Value {
    json!({"ttl_ms": ttl_ms})
}

/// A replica that asks, and does not wait.
fn replica(agent: &Agent) -> Uuid {
    agent.http().register(&json!({"name": "replica", "keepalive_ms": 600_000})).session
}

fn try_to_acquire(agent: &Agent, replica: Uuid) -> Answer {
    agent.http().ask(replica, KIND, NAME, &json!({}))
}

/// All replicas ask at once, half of them of each of the two agents; who is granted the lease.
fn all_at_once(agents: [&Agent; 2], replicas: &[Uuid]) -> Vec<Acquired> {
    std::thread::scope(|scope| {
        let asking = replicas.iter().enumerate().map(|(at, replica)| {
            let agent = agents[at % 2];
            scope.spawn(move || try_to_acquire(agent, *replica))
        });
        let asking: Vec<_> = asking.collect();
        let answers = asking.into_iter().map(|it| it.join().expect("it asks"));
        answers.filter(|it| it.status == 200).map(|it| it.expect(200)).collect()
    })
}

fn replicas_of(agents: [&Agent; 2]) -> Vec<Uuid> {
    (0..REPLICAS).map(|at| replica(agents[at % 2])).collect()
}

#[test]
fn acquire_when_none_and_refused_when_held() {
    let (_postgres, agents) = hosts(2);
    let mut first = Campaigner::start(&agents[0], "first");
    let held = first.acquire(KIND, NAME, &json!({}));
    let mut second = Campaigner::start(&agents[1], "second");
    let refused = second.puppet.ask(second.session, KIND, NAME, &json!({}));
    let holder = refused.problem(Code::Contended).holder.expect("it is named");
    assert_eq!((&*holder.name, holder.token), ("first", held.token));
}

#[test]
fn of_twenty_concurrent_acquirers_one_succeeds() {
    let (_postgres, agents) = hosts(2);
    let agents = [&agents[0], &agents[1]];
    let replicas = replicas_of(agents);
    assert_eq!(all_at_once(agents, &replicas).len(), 1);
    assert_eq!(agents[0].http().standing(KIND, NAME).holding, 1);
}

#[test]
fn a_renewal_extends_and_an_active_lease_cannot_be_stolen() {
    let (postgres, agents) = hosts(2);
    let mut holder = Campaigner::start(&agents[0], "holder");
    let held = holder.acquire(KIND, NAME, &json!({"ttl_ms": 1500}));
    let until_of = || postgres.count("select until from tenure.claim where token is not null");
    let first = until_of();
    let thief = replica(&agents[1]);
    // Far past the time that the first grant had.
    until("three ttls to be over", || {
        let refused = try_to_acquire(&agents[1], thief).problem(Code::Contended);
        assert_eq!(refused.holder.expect("it is named").token, held.token);
        until_of() > first + 3 * 1_500_000
    });
    assert_eq!(agents[1].http().standing(KIND, NAME).holders[0].token, held.token);
}

#[test]
fn of_twenty_stealers_of_an_expired_lease_one_succeeds() {
    let (_postgres, mut agents) = hosts(3);
    let mut dead = Campaigner::start(&agents[2], "dead");
    let held = dead.acquire(KIND, NAME, &ttl(1000));
    let replicas = replicas_of([&agents[0], &agents[1]]);
    agents[2].kill();
    let mut stolen = Vec::new();
    until("the lease to expire", || {
        stolen = all_at_once([&agents[0], &agents[1]], &replicas);
        !stolen.is_empty()
    });
    assert_eq!(stolen.len(), 1);
    assert!(stolen[0].token > held.token);
    assert_eq!(all_at_once([&agents[0], &agents[1]], &replicas).len(), 0);
}

#[test]
fn a_release_allows_an_immediate_takeover() {
    let (postgres, agents) = hosts(2);
    let mut first = Campaigner::start(&agents[0], "first");
    // Expiry would come after the test's deadline.
    let held = first.acquire(KIND, NAME, &ttl(300_000));
    first.release(held.hold);
    let second = replica(&agents[1]);
    let taken: Acquired = try_to_acquire(&agents[1], second).expect(200);
    assert!(taken.token > held.token);
    assert!(agents[1].http().release(second, taken.hold));
    drop(first);
    postgres.has_nothing_left();
}

#[test]
fn a_stale_release_and_a_renewal_after_a_theft_change_nothing() {
    let (_postgres, mut agents) = hosts(2);
    let mut stale = Campaigner::start(&agents[0], "stale");
    let held = stale.acquire(KIND, NAME, &ttl(1000));
    agents[0].pause();
    let mut thief = Campaigner::start(&agents[1], "thief");
    let waiting = thief.queue(KIND, NAME, &json!({}));
    let taken = thief.events.granted(waiting);
    agents[0].resume();
    // Its renewal is refused, and nobody hears of a lease of its any more.
    assert_eq!(stale.events.lost(held.hold).reason, LostReason::Expired);
    let release = json!({"session": stale.session, "hold": held.hold});
    stale.puppet.post("/v1/release", &release).problem(Code::HoldLost);
    let standing = agents[0].http().standing(KIND, NAME);
    let tokens: Vec<u64> = standing.holders.iter().map(|it| it.token).collect();
    assert_eq!(tokens, [taken.token]);
}

#[test]
fn a_failover_resumes_the_work_on_the_new_holder() {
    let (_postgres, mut agents) = hosts(2);
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log");
    let args = ["--leader", NAME, "--ttl", "2s"];
    let script =
        |name: &str| format!("while :; do echo {name} >> {}; sleep 0.05; done", log.display());
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    let mut first =
        TenureRun::new(&agents[0].socket(), &args, &["sh", "-c", &script("first")]).start();
    until("the first to work", || lines().contains("first"));
    let mut second =
        TenureRun::new(&agents[1].socket(), &args, &["sh", "-c", &script("second")]).start();
    until("the second to wait", || agents[0].http().standing(KIND, NAME).waiting == 1);
    assert!(!lines().contains("second"));
    // The whole host: its work ends with the program that guards it.
    agents[0].kill();
    until("the second to work", || lines().contains("second"));
    let told = lines();
    let after = told.split_once("second").expect("it is there").1;
    assert!(!after.contains("first"), "the first worked on beside the second");
    assert_eq!(first.wait_code(), 74, "it was stopped because its lease was lost");
    second.signal(Signal::SIGTERM);
    second.wait_code();
}

#[test]
fn a_passing_error_of_a_renewal_drops_nothing() {
    let (postgres, agents) = hosts(2);
    let mut holder = Campaigner::start(&agents[0], "holder");
    let held = holder.acquire(KIND, NAME, &ttl(3000));
    let mut other = Campaigner::start(&agents[1], "other");
    let waiting = other.queue(KIND, NAME, &json!({}));
    let until_of = || postgres.count("select until from tenure.claim where token is not null");
    for _ in 0..5 {
        let before = until_of();
        postgres.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tenure %'",
        );
        until("the next renewal", || until_of() > before);
    }
    assert!(!holder.events.has("lost", held.hold));
    assert!(!other.has(waiting), "nobody else may have had it meanwhile");
    // A renewal may have come through before the connection for calls is there again.
    let standing = format!("/v1/standing?kind={KIND}&name={NAME}");
    let standing: Standing = eventually("the agent to reach Postgres again", || {
        Some(agents[0].http().get(&standing)).filter(|it| it.status != 503)
    })
    .expect(200);
    assert_eq!(standing.holders[0].token, held.token);
}

#[test]
fn a_shutdown_stops_the_work_before_it_releases() {
    let (_postgres, agents) = hosts(2);
    let folder = TempDir::new().expect("a folder");
    let (stopping, stopped) = (folder.path().join("stopping"), folder.path().join("stopped"));
    let go = folder.path().join("go");
    let script = format!(
        "trap 'echo > {}; while ! test -e {} && kill -0 $PPID; do sleep 0.01; done; echo > {}; exit 0' TERM; \
         while kill -0 $PPID; do sleep 0.01; done",
        stopping.display(),
        go.display(),
        stopped.display()
    );
    let args = ["--leader", NAME, "--ttl", "10m", "--kill-after", "60s"];
    let mut run = TenureRun::new(&agents[0].socket(), &args, &["sh", "-c", &script]).start();
    until("the work to begin", || agents[0].http().standing(KIND, NAME).holding == 1);
    let mut next = Campaigner::start(&agents[1], "next");
    let waiting = next.queue(KIND, NAME, &json!({}));
    run.signal(Signal::SIGTERM);
    until("the work to be stopping", || stopping.exists());
    assert!(!next.has(waiting), "the work runs still");
    fs::write(&go, "").expect("a file");
    next.events.granted(waiting);
    assert!(stopped.exists(), "the lease passed on before the work had stopped");
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_hung_database_stops_the_work_in_time() {
    let (mut postgres, agents) = hosts(2);
    let mut holder = Campaigner::start(&agents[0], "holder");
    let held = holder.acquire(KIND, NAME, &ttl(2000));
    postgres.pause();
    // Postgres says nothing: the agent's own timer ends it.
    assert_eq!(holder.events.lost(held.hold).reason, LostReason::Expired);
    assert!(held.valid_until_boottime_ns <= boottime_ns());
    postgres.resume();
    let mut next = Campaigner::start(&agents[1], "next");
    let waiting = next.queue(KIND, NAME, &json!({}));
    next.events.granted(waiting);
}

#[test]
fn who_lost_stands_by_again_while_its_work_ends() {
    let (_postgres, mut agents) = hosts(2);
    let mut slow = Campaigner::start(&agents[0], "slow");
    let held = slow.acquire(KIND, NAME, &ttl(1000));
    agents[0].pause();
    let mut other = Campaigner::start(&agents[1], "other");
    let waiting = other.queue(KIND, NAME, &json!({}));
    let taken = other.events.granted(waiting);
    agents[0].resume();
    slow.events.lost(held.hold);
    // The program has stopped nothing yet, and waits as a new hold.
    let again = slow.queue(KIND, NAME, &json!({}));
    other.release(taken.of.hold);
    assert!(slow.events.granted(again).token > taken.token);
}

#[test]
fn replicas_of_one_host_name_are_told_apart() {
    let postgres = Postgres::setup().start();
    // The same index is the same host name.
    let agents = [start_agent(0, &postgres.url(), ""), start_agent(0, &postgres.url(), "")];
    let mut first = Campaigner::start(&agents[0], "replica");
    let mut second = Campaigner::start(&agents[1], "replica");
    let held = first.acquire(KIND, NAME, &json!({}));
    second.puppet.ask(second.session, KIND, NAME, &json!({})).problem(Code::Contended);
    let waiting = second.queue(KIND, NAME, &json!({}));
    let stale = json!({"session": second.session, "hold": held.hold});
    assert!(!second.puppet.post("/v1/release", &stale).text().contains("\"released\":true"));
    assert_eq!(agents[1].http().standing(KIND, NAME).holders[0].token, held.token);
    first.release(held.hold);
    assert!(second.events.granted(waiting).token > held.token);
}

#[test]
fn a_storm_leaves_no_lock_no_transaction_and_no_row() {
    let (postgres, mut agents) = hosts(2);
    for round in 0..3 {
        let agent_of = |at: usize| &agents[at % 2];
        std::thread::scope(|scope| {
            for program in 0..8 {
                let agent = agent_of(program);
                scope.spawn(move || {
                    let mut http = agent.http();
                    let session =
                        http.register(&json!({"name": "p", "keepalive_ms": 600_000})).session;
                    for turn in 0..10 {
                        let name = format!("role{}", (program + turn) % 3);
                        let answer = http.ask(session, KIND, &name, &json!({"wait": "queue"}));
                        let hold: Uuid = match answer.status {
                            200 => answer.expect::<Acquired>(200).hold,
                            _ => answer.expect::<Waiting>(202).hold,
                        };
                        http.release(session, hold);
                    }
                    assert!(http.end(session));
                });
            }
        });
        if round == 1 {
            agents[0].kill();
            agents[0].start_again();
        }
    }
    postgres.has_nothing_left();
    let idle = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    until("no transaction to stay open", || postgres.count(idle) == 0);
    let advisory = "select count(*) from pg_locks where locktype = 'advisory'";
    until("no advisory lock to stay", || postgres.count(advisory) == 0);
    assert!(agents.iter_mut().all(|agent| agent.stop().success()));
    until("no connection to stay", || {
        postgres
            .count("select count(*) from pg_stat_activity where application_name like 'tenure %'")
            == 0
    });
}
