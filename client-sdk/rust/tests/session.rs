//! Sessions and holds against an agent that misbehaves on request: it loses replies, forgets, or falls
//! silent. What an agent does otherwise is tried against the real one, in `tests/tests/sdk.rs`.
#![allow(clippy::expect_used, missing_docs, reason = "tests")]

mod fake;

use std::time::Duration;

use fake::{FakeAgent, asked, soon};
use tenure::wire::{HoldState, LostReason};
use tenure::{AcquireError, Agent, Reason, SessionState, page};

#[tokio::test]
async fn a_lost_reply_is_not_a_second_hold() {
    let agent = FakeAgent::start().await;
    let session = agent.session().await;
    agent.lose_replies(1);
    let hold = session.leader("a").try_acquire().await.expect("an answer").expect("a hold");
    assert_eq!(hold.token(), 1);
    assert_eq!(agent.state().holds.len(), 1);
    agent.lose_replies(1);
    hold.release().await.expect("released");
    agent.lose_replies(5);
    let hold = soon("a hold", session.leader("b").acquire()).await.expect("a hold");
    assert_eq!(hold.token(), 2);
    assert_eq!(agent.state().holds.len(), 1);
}

#[tokio::test]
async fn a_silent_agent_loses_holds_at_valid_until() {
    let agent = FakeAgent::start().await;
    agent.state().valid = Duration::from_millis(150);
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    // Nothing leaves the agent any more; events would not be sent anyway.
    agent.hold_replies(true);
    let valid_until = agent.state().holds[0].valid_until;
    let lost = soon("the loss", hold.lost()).await;
    assert!(page::boottime_ns() >= valid_until, "lost before its time");
    assert_eq!(lost.reason, Reason::Expired);
    assert!(!hold.is_held());
    assert!(hold.guard(async {}).await.is_err());
    // The agent may think that it is held; the guard gives it back.
    agent.hold_replies(false);
    drop(hold);
    agent.until("given back", |state| state.holds.is_empty()).await;
}

#[tokio::test]
async fn a_renewal_on_the_page_is_enough() {
    let agent = FakeAgent::start().await;
    agent.state().valid = Duration::from_millis(150);
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    let first = agent.state().holds[0].clone();
    let later = fake::page::boottime_in(Duration::from_secs(300));
    let slot = page::SLOT_SIZE * (first.slot as usize + 1);
    let renew = later.to_le_bytes();
    agent.state().page.as_ref().expect("a page").patch(slot + page::VALID_UNTIL_AT, &renew);
    let past_first = async {
        while page::boottime_ns() < first.valid_until + 50_000_000 {
            #[expect(
                clippy::disallowed_methods,
                reason = "between looks at the clock that is asked about"
            )]
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(hold.guard(past_first).await.is_ok() && hold.is_held());
}

#[tokio::test]
async fn a_page_without_an_event_is_a_loss_too() {
    let agent = FakeAgent::start().await;
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    agent.state().end("cleanup", HoldState::Held, page::STATE_LOST);
    assert!(!hold.is_held());
    assert_eq!(soon("the loss", hold.lost()).await.reason, Reason::Forgotten);
}

#[tokio::test]
async fn a_cancelled_call_gives_back_what_it_got() {
    let agent = FakeAgent::start().await;
    let session = agent.session().await;
    agent.hold_replies(true);
    let leader = session.leader("cleanup");
    let call = tokio::spawn(async move { leader.acquire().await });
    agent.until("granted", |state| state.holds.len() == 1).await;
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    agent.hold_replies(false);
    agent.until("given back", |state| state.holds.is_empty()).await;
}

#[tokio::test]
async fn a_restart_of_the_agent_loses_nothing() {
    let mut agent = FakeAgent::start().await;
    agent.state().taken.push("queue".into());
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    let waiting = tokio::spawn({
        let leader = session.leader("queue");
        async move { leader.acquire().await }
    });
    agent.until("in the queue", |state| state.acquires.len() == 3).await;
    agent.kill();
    let asking = tokio::spawn({
        let leader = session.leader("meanwhile");
        async move { leader.acquire().await }
    });
    assert!(hold.is_held(), "the page is valid meanwhile");
    {
        let mut state = agent.state();
        // The new agent knows the hold, with another page, but nothing of the wait.
        state.holds.retain(|hold| hold.name == "cleanup");
        state.ring.clear();
        state.replace_page();
    }
    agent.start_again();
    agent.until("asked for again", |state| state.holds.iter().any(|h| h.name == "queue")).await;
    let request = agent.state().acquires[1].clone();
    let same = agent.state().holds.iter().any(|h| h.name == "queue" && h.request == request);
    assert!(same, "under another id");
    agent.state().grant("queue");
    let granted = soon("the grant", waiting).await.expect("no panic").expect("a hold");
    let other = soon("the other grant", asking).await.expect("no panic").expect("a hold");
    assert!(granted.is_held() && other.is_held());
    assert_eq!(session.state(), SessionState::Connected);
    let still = hold.guard(async {}).await;
    assert!(still.is_ok(), "{still:?}");
    assert!(hold.is_held());
}

#[tokio::test]
async fn what_a_restarted_agent_does_not_know_is_lost() {
    let mut agent = FakeAgent::start().await;
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    agent.kill();
    {
        let mut state = agent.state();
        state.holds.clear();
        state.ring.clear();
    }
    agent.start_again();
    assert_eq!(soon("the loss", hold.lost()).await.reason, Reason::Forgotten);
    assert!(!hold.is_held(), "though the old page says so");
}

#[tokio::test]
async fn a_session_that_the_agent_does_not_know_is_gone() {
    let mut agent = FakeAgent::start().await;
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    agent.kill();
    agent.state().session = None;
    agent.start_again();
    assert_eq!(soon("the loss", hold.lost()).await.reason, Reason::SessionGone);
    let gone = soon("the end", session.gone()).await;
    assert!(gone.to_string().contains("no such session"), "{gone}");
    assert!(matches!(session.leader("b").acquire().await, Err(AcquireError::SessionGone(_))));
}

#[tokio::test]
async fn a_broken_stream_goes_on_where_it_ended() {
    let agent = FakeAgent::start().await;
    let session = agent.session().await;
    let hold = session.leader("cleanup").acquire().await.expect("a hold");
    {
        let mut state = agent.state();
        // Told while nobody listens: only the ring has it.
        state.streams.clear();
    }
    agent.lose("cleanup", LostReason::Revoked);
    assert_eq!(soon("the loss", hold.lost()).await.reason, Reason::Revoked);
    agent.until("listened again", |state| asked(state, "/v1/events") == 2).await;
}

#[tokio::test]
async fn no_agent_is_an_error_that_helps() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("api.sock");
    let error = Agent::connect_to(&path).await.expect_err("nobody").to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("start the agent"));
    std::fs::write(&path, "").expect("a file");
    let error = Agent::connect_to(&path).await.expect_err("nobody").to_string();
    assert!(error.contains("start it again"), "{error}");
}
