//! The Rust SDK against a real agent.

use std::future::Future;
use std::os::fd::AsFd;
use std::time::Duration;

use serde_json::json;
use tenure::wire::{Event, LostReason};
use tenure::{AcquireError, Attempt, Lost, Reason, ReleaseError, RunError};
use tenure_tests::harness::{Agent, Client, Fleet, RedisServer, open_session, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_is_noticed_at_valid_until() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").ttl(Duration::from_millis(3000)).acquire().await;
    let hold = hold.expect("nobody else wants it");
    assert!(hold.is_held());
    agent.pause();
    let lost = within("the loss", hold.lost()).await;
    assert_eq!(lost.reason, Reason::Lost(LostReason::Expired));
    assert_eq!(lost.token, hold.token());
    assert!(!hold.is_held());
    agent.resume();
    assert!(!hold.is_held(), "once lost it stays lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_agent_is_a_reconnect_not_a_loss() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.semaphore("gpu", 2).acquire().await.expect("it is free");
    let token = hold.token();
    let mut lost = Box::pin(hold.lost());
    for _ in 0..3 {
        agent.kill();
        assert!(hold.is_held(), "the page outlives the agent");
        agent.start_again();
        until("the session to be resumed", || {
            agent
                .http()
                .status()
                .sessions
                .iter()
                .any(|s| s.session == session.id() && s.streams > 0)
        });
        assert!(hold.is_held());
    }
    let at_once = tokio::time::timeout(Duration::ZERO, &mut lost).await;
    assert!(at_once.is_err(), "nothing was lost: {at_once:?}");
    let standing = agent.http().standing("semaphore", "gpu");
    assert_eq!(standing.holders[0].token, token);
    drop(lost);
    hold.release().await.expect("it is held");
    assert_eq!(agent.counts().1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_sees_every_term() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let mut campaign = session.leader("role").campaign();
    let mut last_token = 0;
    for _ in 0..3 {
        let term = within("a term", campaign.next()).await.expect("it goes on").expect("a hold");
        assert!(term.token() > last_token);
        last_token = term.token();
        let revoke = json!({"kind": "leader", "name": "role"});
        agent.http().post("/v1/revoke", &revoke).json(200);
        assert_eq!(within("the loss", term.lost()).await.reason, Reason::Lost(LostReason::Revoked));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_hold_is_given_back() {
    let agent = Agent::start();
    let (first, second) = (open_session(agent.socket()).await, open_session(agent.socket()).await);
    let held = first.leader("role").acquire().await.expect("it is free");
    assert!(second.leader("role").try_acquire().await.expect("it answers").is_none());
    let role = second.leader("role");
    let waiting = tokio::spawn(async move { role.acquire().await });
    until("the second to wait", || agent.counts().2 == 1);
    drop(held);
    let hold = within("the second", waiting).await.expect("no panic").expect("a hold");
    assert!(hold.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_asks_for_what_it_holds_is_told_so_at_once() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    for resource in [session.leader("role"), session.lease("mailbox"), session.master()] {
        let hold = resource.acquire().await.expect("nobody else wants it");
        let own = Some(hold.id());
        match within("a refusal", resource.acquire()).await {
            Err(AcquireError::HeldBySelf(problem)) => {
                assert_eq!(problem.holder.expect("it is named").hold, own);
            }
            other => panic!("{other:?}"),
        }
        match within("a refusal", resource.attempt()).await {
            Ok(Attempt::Contended(Some(holder))) => assert_eq!(holder.hold, own),
            other => panic!("{other:?}"),
        }
        assert!(hold.is_held());
        hold.release().await.expect("it is still held");
        drop(within("a new hold", resource.acquire()).await.expect("it was given back"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_wait_leaves_no_waiter() {
    let agent = Agent::start();
    let (first, second) = (open_session(agent.socket()).await, open_session(agent.socket()).await);
    let _held = first.semaphore("gpu", 1).acquire().await.expect("it is free");
    let gpu = second.semaphore("gpu", 1);
    let waiting = tokio::spawn(async move { gpu.acquire().await });
    until("the second to wait", || agent.counts().2 == 1);
    waiting.abort();
    until("the wait to be cancelled", || agent.counts().2 == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn guarded_work_is_dropped_when_the_hold_is_lost() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.lease("mailbox").ttl(Duration::from_millis(3000)).acquire().await;
    let hold = hold.expect("it is free");
    agent.pause();
    let work = std::future::pending::<()>();
    let lost = within("the loss", hold.guard(work)).await.expect_err("the work never ends");
    assert_eq!(lost.reason, Reason::Lost(LostReason::Expired));
    agent.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_session_leaves_nothing() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    drop(hold);
    drop(session);
    until("nothing to be left", || agent.counts() == (0, 0, 0) && agent.pages().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_granted_and_given_back_once() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let leader = session.leader("role").ttl(Duration::from_secs(600));
    let hold = leader.try_acquire().await.expect("an answer").expect("a hold");
    assert!(hold.is_held() && hold.valid_for() > Duration::from_secs(200));
    let standing = agent.http().standing("leader", "role");
    assert_eq!((hold.name(), hold.token()), ("role", standing.holders[0].token));
    let over = hold.over();
    hold.release().await.expect("released");
    within("the end", over).await;
    assert_eq!(agent.counts().1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told_with_its_reason() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    let over = hold.over();
    let work = async {
        agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
        std::future::pending::<()>().await;
    };
    let lost = within("the loss", hold.guard(work)).await.expect_err("the work never ends");
    assert_eq!((lost.reason, lost.token), (Reason::Lost(LostReason::Revoked), hold.token()));
    assert!(!hold.is_held());
    assert_eq!(hold.check(), Err(lost));
    within("the end", over).await;
    assert_eq!(hold.lost().await, lost);
    assert!(matches!(hold.release().await, Err(ReleaseError::Lost(_))));
}

/// With one thread nothing of the SDK runs between the end and the release.
#[tokio::test]
async fn a_release_that_comes_too_late_says_so() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    match hold.release().await {
        Err(ReleaseError::Lost(lost)) => assert_eq!(lost.reason, Reason::Lost(LostReason::Revoked)),
        other => panic!("{other:?}"),
    }
    let hold = session.leader("role").acquire().await.expect("it is free");
    let (token, by_another) = (hold.token(), json!({"session": session.id(), "hold": hold.id()}));
    agent.http().post("/v1/release", &by_another).json(200);
    match hold.release().await {
        Err(ReleaseError::Lost(lost)) => {
            assert_eq!((lost.reason, lost.token), (Reason::Released, token));
        }
        other => panic!("{other:?}"),
    }
}

/// With one thread nothing of the SDK runs between the end and the drop.
#[tokio::test]
async fn a_hold_that_is_dropped_at_its_end_is_lost() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let role = session.leader("role").ttl(Duration::from_secs(1));
    let hold = role.acquire().await.expect("it is free");
    let lost = hold.lost();
    agent.pause();
    until("valid-until", || !hold.is_held());
    let checked = hold.check().expect_err("it has passed");
    assert_eq!(checked.reason, Reason::Lost(LostReason::Expired));
    drop(hold);
    assert_eq!(within("the loss", lost).await, checked);
    agent.resume();

    let role = session.leader("long").ttl(Duration::from_secs(600));
    let hold = role.acquire().await.expect("it is free");
    let (token, lost) = (hold.token(), hold.lost());
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "long"})).json(200);
    until("the page to say so", || !hold.is_held());
    assert_eq!(hold.check(), Err(Lost { token, reason: Reason::Untold }));
    drop(hold);
    assert_eq!(within("the loss", lost).await, Lost { token, reason: Reason::Untold });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_took_too_long_leaves_no_waiter() {
    let agent = Agent::start();
    let (first, second) = (open_session(agent.socket()).await, open_session(agent.socket()).await);
    let _held = first.leader("role").acquire().await.expect("it is free");
    let wait = Duration::from_millis(50);
    let error = second.leader("role").acquire_timeout(wait).await.expect_err("taken");
    assert!(error.to_string().contains("leader/role was not free within 50ms"), "{error}");
    until("the wait to be cancelled", || agent.counts() == (2, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_may_last_longer_than_it_is_wanted() {
    let agent = Agent::start();
    let (first, second) = (open_session(agent.socket()).await, open_session(agent.socket()).await);
    let nightly = first.leader("nightly").hold_at_least(Duration::from_secs(600));
    let hold = nightly.acquire().await.expect("it is free");
    hold.release().await.expect("it is held");
    assert!(second.leader("nightly").try_acquire().await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_ends_with_its_session() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let mut campaign = session.leader("role").campaign();
    let first = within("a term", campaign.next()).await.expect("it goes on").expect("a hold");
    // Given up by the holder itself: the next term waits until it is back.
    drop(first);
    let second = within("a term", campaign.next()).await.expect("it goes on").expect("a hold");
    assert!(second.is_held());
    assert!(agent.http().end(session.id()));
    let end = within("the end", campaign.next()).await.expect("an error");
    assert!(matches!(end, Err(AcquireError::SessionGone(_))), "{end:?}");
    assert!(campaign.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_every_hold_and_a_hold_keeps_its_session() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    session.beat().await.expect("beaten");
    session.close().await.expect("closed");
    assert_eq!(within("the loss", hold.lost()).await.reason, Reason::SessionGone);
    assert!(!hold.is_held());
    assert_eq!(agent.counts(), (0, 0, 0));

    let session = open_session(agent.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    drop(session);
    assert!(hold.is_held());
    drop(hold);
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_lives_while_any_process_has_its_descriptor() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let streams = |expected| {
        until("streams to be counted", || {
            agent.http().status().sessions.iter().all(|session| session.streams == expected)
        });
    };
    let stream = session.client().events(session.id(), None).await.expect("a stream");
    streams(2);
    let inherited = stream.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(stream);
    session.beat().await.expect("an agent that goes on");
    streams(2);
    drop(inherited);
    streams(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_under_a_hold_gives_it_back() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let role = session.leader("role");
    // Kept beyond its work.
    let kept = role.run(|hold| async move {
        assert!(hold.is_held());
        hold
    });
    let kept = kept.await.expect("nobody else wants it");
    assert!(!kept.is_held());
    assert_eq!(kept.check().expect_err("it was given back").reason, Reason::Released);
    assert_eq!(agent.counts().1, 0);
    let error = role.run(|_| async {
        agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
        std::future::pending::<()>().await;
    });
    match within("the loss", error).await {
        Err(RunError::Lost(lost)) => assert_eq!(lost.reason, Reason::Lost(LostReason::Revoked)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jeopardy_is_told_and_passes() {
    let fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let session = open_session(fleet.agents[0].socket()).await;
    let hold = session.leader("role").ttl(Duration::from_secs(20)).acquire().await;
    let hold = hold.expect("it is free");
    let mut redis = fleet.redis;
    redis.pause();
    let left = within("the jeopardy", hold.jeopardy()).await;
    assert!(left > Duration::ZERO && left < Duration::from_secs(20), "{left:?}");
    redis.resume();
    until("it to be safe", || {
        let mut asked = std::pin::pin!(hold.jeopardy());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        asked.as_mut().poll(&mut context).is_pending()
    });
    assert!(hold.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_end_with_their_session() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let mut events = session.events();
    drop(session.leader("role").acquire().await.expect("it is free"));
    loop {
        match within("an event", events.next()).await {
            Some(Ok(Event::Released(_))) => break,
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    session.close().await.expect("closed");
    while let Some(event) = within("the end", events.next()).await {
        assert!(matches!(event, Ok(Event::Shutdown(_))), "{event:?}");
    }
}

#[test]
fn threads_need_no_runtime() {
    let agent = Agent::start();
    let socket = agent.socket();
    let open = || tenure::blocking::open(Some(&socket), |agent| agent.session().name("thread"));
    let (first, second) = (open().expect("a session"), open().expect("a session"));
    let held = first.acquire(&first.leader("role")).expect("it is free");
    assert!(held.is_held());
    assert!(second.try_acquire(&second.leader("role")).expect("it answers").is_none());
    let soon = Duration::from_millis(50);
    let error = second.acquire_timeout(&second.leader("role"), soon).expect_err("taken");
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    let waiting = std::thread::spawn(move || {
        let role = second.leader("role");
        second.run(&role, |hold| hold.token()).expect("it is granted")
    });
    until("it to wait", || agent.counts().2 == 1);
    let earlier = held.token();
    drop(held);
    assert!(waiting.join().expect("no panic") > earlier);
    let held = first.acquire(&first.leader("role")).expect("it is free");
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    assert_eq!(held.wait_until_lost().reason, Reason::Lost(LostReason::Revoked));
    drop((held, first));
    assert_eq!(agent.counts(), (0, 0, 0), "a drop waits for the agent");
}
