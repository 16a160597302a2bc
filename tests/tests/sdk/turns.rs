//! Tasks and threads of one program wait for each other, in the order in which they ask.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tenure::{AcquireError, Resource, Session};
use tenure_tests::harness::{Agent, Client, Heir, open_session, until, within};

const TASKS: usize = 8;

/// The tokens of the tasks that were inside, one at a time.
#[derive(Clone, Default)]
struct Room {
    inside: Arc<AtomicU32>,
    tokens: Arc<Mutex<Vec<u64>>>,
}

impl Room {
    fn enter(&self, token: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "another one is inside");
        self.tokens.lock().expect("no panic").push(token);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    #[track_caller]
    fn had(&self, count: usize) {
        let tokens = self.tokens.lock().expect("no panic");
        assert_eq!(tokens.len(), count);
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens rise: {tokens:?}");
    }
}

/// Acquires, is inside for a moment, and gives back.
async fn take_turn(resource: Resource, room: Room) -> Result<(), AcquireError> {
    let hold = resource.acquire().await?;
    room.enter(hold.token());
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    room.leave();
    hold.release().await.expect("it is held");
    Ok(())
}

fn exclusive(session: &Session) -> [Resource; 3] {
    [session.leader("role"), session.lease("mailbox"), session.master()]
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_tasks_wait_for_each_other_also_over_two_sessions() {
    let agent = Agent::start();
    let sessions = [open_session(agent.socket()).await, open_session(agent.socket()).await];
    for kind in 0..3 {
        let room = Room::default();
        let tasks = (0..TASKS).map(|task| {
            let resource = exclusive(&sessions[task % 2])[kind].clone();
            tokio::spawn(take_turn(resource, room.clone()))
        });
        for task in tasks.collect::<Vec<_>>() {
            within("its turn", task).await.expect("no panic").expect("each has its turn");
        }
        room.had(TASKS);
    }
    until("nothing to be left", || agent.counts() == (2, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_of_one_task_wait_for_each_other() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let room = Room::default();
    let branch = || take_turn(session.leader("role"), room.clone());
    let branches = async { tokio::try_join!(branch(), branch(), branch()) };
    within("all of them", branches).await.expect("each has its turn");
    room.had(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_served_in_the_order_of_their_calls_also_after_a_loss() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    for is_lost in [false, true] {
        let held = session.leader("role").acquire().await.expect("it is free");
        let order = Arc::<Mutex<Vec<usize>>>::default();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (resource, order) = (session.leader("role"), Arc::clone(&order));
                let asked = tokio::spawn(async move {
                    let hold = resource.acquire().await?;
                    order.lock().expect("no panic").push(task);
                    hold.release().await.expect("it is held");
                    Ok::<_, AcquireError>(())
                });
                until("it to wait", || {
                    agent.http().standing("leader", "role").waiters.len() == task + 1
                });
                asked
            })
            .collect();
        if is_lost {
            let revoke = json!({"kind": "leader", "name": "role", "for_ms": 0});
            agent.http().post("/v1/revoke", &revoke).json(200);
        } else {
            held.release().await.expect("it is held");
        }
        for task in tasks {
            within("its turn", task).await.expect("no panic").expect("each has its turn");
        }
        assert_eq!(*order.lock().expect("no panic"), Vec::from_iter(0..TASKS));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_another_task_has_an_end_and_leaves_no_place() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    let resource = session.leader("role");
    let other = resource.clone();
    let timed = tokio::spawn(async move { other.acquire_timeout(Duration::from_millis(50)).await });
    match within("the end", timed).await.expect("no panic") {
        Err(AcquireError::TimedOut { .. }) => {}
        other => panic!("{other:?}"),
    }
    let waiting = tokio::spawn(async move { resource.acquire().await });
    until("it to wait", || agent.counts().2 == 1);
    waiting.abort();
    until("its place to be gone", || agent.counts() == (1, 1, 0));
    // A program of another session has its place between two of this one.
    let resource = session.leader("role");
    let heir = Heir::wait_for(&agent, "leader", "role");
    let last = tokio::spawn(async move { resource.acquire().await.map(|hold| hold.token()) });
    until("both to wait", || agent.counts().2 == 2);
    hold.release().await.expect("it is held");
    let granted = heir.gets_it();
    agent.http().end(heir.session);
    let token = within("the last", last).await.expect("no panic").expect("it is free");
    assert!(token > granted.token);
}

#[test]
fn eight_threads_wait_for_each_other() {
    let agent = Agent::start();
    let socket = agent.socket();
    let session = tenure::blocking::open(Some(&socket), |agent| agent.session().name("worker"));
    let session = session.expect("the agent is there");
    let room = Room::default();
    thread::scope(|scope| {
        for _ in 0..TASKS {
            scope.spawn(|| {
                let run = session.run(&session.leader("role"), |hold| {
                    room.enter(hold.token());
                    thread::yield_now();
                    room.leave();
                });
                run.expect("each has its turn");
            });
        }
    });
    room.had(TASKS);
    // A thread that would wait for itself is told so, and another one waits.
    let hold = session.acquire(&session.leader("role")).expect("it is free");
    match session.acquire(&session.leader("role")) {
        Err(AcquireError::HeldBySelf(problem)) => {
            assert_eq!(problem.holder.expect("it is named").hold, Some(hold.id()));
        }
        other => panic!("{other:?}"),
    }
    let resource = session.leader("role");
    thread::scope(|scope| {
        let other = scope.spawn(|| session.acquire(&resource).map(|hold| hold.token()));
        until("it to wait", || agent.counts().2 == 1);
        let token = hold.token();
        hold.release().expect("it is held");
        assert!(other.join().expect("no panic").expect("it is free") > token);
    });
}
