//! The next holder when a holder or a waiter is killed, or gives back.

use serde_json::{Value, json};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Gateway, Postgres, RedisServer, start_agent, until,
};
use uuid::Uuid;

#[track_caller]
fn killed_holder_hands_over(kind: &str, more: &Value) {
    let agent = Agent::start();
    let mut first = Campaigner::start(&agent, "first");
    let mut second = Campaigner::start(&agent, "second");
    let held = first.puppet.acquire(first.session, kind, "role", more);
    let waiting = second.puppet.queue(second.session, kind, "role", more);
    assert!(!second.events.has("granted", waiting.hold));
    first.kill();
    let granted = second.events.granted(waiting.hold);
    assert!(granted.token > held.token, "a new grant has a greater token");
    assert_eq!(agent.counts(), (1, 1, 0), "nothing of the first is left");
}

#[test]
fn a_killed_leader_hands_over() {
    killed_holder_hands_over("leader", &json!({}));
}

#[test]
fn a_killed_master_hands_over() {
    killed_holder_hands_over("master", &json!({}));
}

#[test]
fn a_killed_lease_holder_hands_over() {
    killed_holder_hands_over("lease", &json!({}));
}

#[test]
fn a_killed_permit_holder_hands_over() {
    killed_holder_hands_over("semaphore", &json!({"limit": 1}));
}

#[test]
fn fifty_programs_are_served_in_order_as_each_holder_is_killed() {
    const WAITERS: usize = 50;
    let agent = Agent::start();
    let more = json!({"limit": 1});
    let mut holder = Campaigner::start(&agent, "holder");
    let mut last_token = holder.puppet.acquire(holder.session, "semaphore", "gpu", &more).token;
    let mut queue: Vec<(Campaigner, Uuid)> = (0..WAITERS)
        .map(|i| {
            let mut waiter = Campaigner::start(&agent, &format!("waiter {i}"));
            let waiting = waiter.puppet.queue(waiter.session, "semaphore", "gpu", &more);
            assert_eq!(waiting.position, Some(i as u64 + 1));
            (waiter, waiting.hold)
        })
        .collect();
    let standing = agent.http().standing("semaphore", "gpu");
    let names: Vec<&str> = standing.waiters.iter().map(|w| w.name.as_str()).collect();
    let expected: Vec<String> = (0..WAITERS).map(|i| format!("waiter {i}")).collect();
    assert_eq!(names, expected);

    holder.kill();
    for i in 0..WAITERS {
        let granted = queue[i].0.events.granted(queue[i].1);
        assert!(granted.token > last_token, "tokens grow in the order of grants");
        last_token = granted.token;
        for (later, hold) in &queue[i + 1..] {
            assert!(!later.events.has("granted", *hold), "nobody overtakes waiter {i}");
        }
        queue[i].0.kill();
    }
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn permits_released_in_turn_go_to_fifty_waiters_in_order() {
    const WAITERS: u64 = 50;
    let agent = Agent::start();
    let more = json!({"limit": 3});
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(session);
    let mut held: Vec<Uuid> =
        (0..3).map(|_| http.acquire(session, "semaphore", "gpu", &more).hold).collect();
    let waiting: Vec<Uuid> =
        (0..WAITERS).map(|_| http.queue(session, "semaphore", "gpu", &more).hold).collect();
    let mut last_token = 0;
    for hold in waiting {
        http.release(session, held.remove(0));
        let granted = events.granted(hold);
        assert!(granted.token > last_token, "tokens grow in the order of the queue");
        last_token = granted.token;
        held.push(hold);
    }
}

#[test]
fn a_waiter_killed_at_the_head_is_passed_over() {
    for kind in ["leader", "lease", "semaphore"] {
        let agent = Agent::start();
        let mut holder = Campaigner::start(&agent, "holder");
        let mut head = Campaigner::start(&agent, "head");
        let mut next = Campaigner::start(&agent, "next");
        let held = holder.puppet.acquire(holder.session, kind, "role", &json!({}));
        head.puppet.queue(head.session, kind, "role", &json!({}));
        let waiting = next.puppet.queue(next.session, kind, "role", &json!({}));
        head.kill();
        until("the head to be forgotten", || {
            let standing = agent.http().standing(kind, "role");
            standing.waiters.iter().map(|w| w.name.as_str()).eq(["next"])
        });
        holder.puppet.release(holder.session, held.hold);
        next.events.granted(waiting.hold);
    }
}

#[test]
fn a_waiter_killed_as_the_permit_comes_to_it_is_passed_over() {
    // No wait in between: the grant and the death race, and either order must end well.
    for kind in ["leader", "semaphore"] {
        let agent = Agent::start();
        let mut holder = Campaigner::start(&agent, "holder");
        let mut next = Campaigner::start(&agent, "next");
        for round in 0..10 {
            let mut head = Campaigner::start(&agent, "head");
            let held = holder.puppet.acquire(holder.session, kind, "role", &json!({}));
            head.puppet.queue(head.session, kind, "role", &json!({}));
            let waiting = next.puppet.queue(next.session, kind, "role", &json!({}));
            if round % 2 == 0 {
                head.puppet.program().signal(nix::sys::signal::Signal::SIGKILL);
                holder.puppet.release(holder.session, held.hold);
            } else {
                holder.puppet.release(holder.session, held.hold);
                head.puppet.program().signal(nix::sys::signal::Signal::SIGKILL);
            }
            next.events.granted(waiting.hold);
            next.puppet.release(next.session, waiting.hold);
        }
    }
}

#[test]
fn a_higher_priority_preempts_and_the_incumbent_is_told() {
    let agent = Agent::start();
    let mut low = Campaigner::start(&agent, "low");
    let mut equal = Campaigner::start(&agent, "equal");
    let mut high = Campaigner::start(&agent, "high");
    let incumbent = low.puppet.acquire(low.session, "master", "", &json!({"priority": 1}));
    let peer = equal.puppet.ask(equal.session, "master", "", &json!({"priority": 1}));
    peer.problem(tenure::wire::Code::Contended);
    let winner = high.puppet.acquire(high.session, "master", "", &json!({"priority": 2}));
    assert!(winner.token > incumbent.token);
    let lost = low.events.lost(incumbent.hold);
    assert_eq!(lost.reason, tenure::wire::LostReason::Preempted);
    let standing = agent.http().standing("master", "p");
    assert_eq!(standing.holders.len(), 1);
    assert_eq!(standing.holders[0].name, "high");
    assert_eq!(standing.sessions.len(), 3, "every session of the project is listed");
}

/// Waits of one session and of another host have a resource in the order in which they asked.
#[track_caller]
fn takes_turns(first: &Agent, second: &Agent) {
    const TURNS: usize = 12;
    let mut http = [first.http(), second.http()];
    let long = json!({"keepalive_ms": 600_000});
    let sessions = http.each_mut().map(|http| http.register(&long).session);
    let events = [first.events(sessions[0]), second.events(sessions[1])];
    let behind_own = json!({"behind_own": true});
    for kind in ["leader", "lease"] {
        let held = http[0].acquire(sessions[0], kind, "role", &json!({}));
        let (mut held, mut last_token) = ((0, held.hold), held.token);
        // Three tasks of one program for each of the other.
        let queue: Vec<(usize, Uuid)> = (0..TURNS)
            .map(|turn| {
                let asker = usize::from(turn % 4 == 3);
                let asked = http[asker].queue(sessions[asker], kind, "role", &behind_own);
                until("it to wait", || {
                    first.http().standing(kind, "role").waiters.len() == turn + 1
                });
                (asker, asked.hold)
            })
            .collect();
        for (turn, (asker, hold)) in queue.iter().enumerate() {
            http[held.0].release(sessions[held.0], held.1);
            let granted = events[*asker].granted(*hold);
            assert!(granted.token > last_token, "{kind}: tokens rise");
            for (later_asker, later) in &queue[turn + 1..] {
                assert!(!events[*later_asker].has("granted", *later), "{kind}: out of turn");
            }
            (held, last_token) = ((*asker, *hold), granted.token);
        }
        http[held.0].release(sessions[held.0], held.1);
    }
}

#[test]
fn tasks_of_one_program_take_turns_with_each_other_and_with_other_programs() {
    let agent = Agent::start();
    takes_turns(&agent, &agent);
}

#[test]
fn tasks_of_one_program_take_turns_with_other_hosts() {
    let redis = RedisServer::start();
    let postgres = Postgres::start().expect("Postgres can be started");
    let gateway = Gateway::start("embedded:");
    for url in [redis.url(), postgres.url(), gateway.url()] {
        takes_turns(&start_agent(0, &url, ""), &start_agent(1, &url, ""));
    }
}
