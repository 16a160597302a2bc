//! The Rust SDK when it cannot hear its agent: lost replies, silence, broken connections, restarts.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tenure::client::CallError;
use tenure::wire::LostReason;
use tenure::{AcquireError, Reason, SessionState, page};
use tenure_tests::harness::{
    Agent, Client, Gate, PageFile, boottime_ns, open_session, until, within,
};

/// A session behind a gate, and its hold of a role.
async fn hold_role(agent: &Agent) -> (Gate, tenure::Session, tenure::Hold) {
    let gate = Gate::before(&agent.socket());
    let session = open_session(gate.socket()).await;
    let hold = session.leader("role").acquire().await.expect("it is free");
    (gate, session, hold)
}

fn revoke(agent: &Agent, name: &str) {
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": name})).json(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_not_a_second_hold() {
    let agent = Agent::start();
    let gate = Gate::before(&agent.socket());
    let session = open_session(gate.socket()).await;
    gate.lose_replies(1);
    let hold = session.leader("a").try_acquire().await.expect("an answer").expect("a hold");
    assert_eq!((gate.caught(), agent.counts().1), (1, 1));
    assert_eq!(hold.token(), agent.http().standing("leader", "a").holders[0].token);
    gate.lose_replies(1);
    hold.release().await.expect("released");
    assert_eq!((gate.caught(), agent.counts().1), (2, 0));
    gate.lose_replies(5);
    let hold = within("a hold", session.leader("b").acquire()).await.expect("a hold");
    assert_eq!((gate.caught(), agent.counts().1), (7, 1));
    assert_eq!(hold.token(), agent.http().standing("leader", "b").holders[0].token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_on_the_page_is_enough() {
    let agent = Agent::start();
    let gate = Gate::before(&agent.socket());
    let session = open_session(gate.socket()).await;
    let leader = session.leader("role").ttl(Duration::from_millis(3000));
    let hold = leader.acquire().await.expect("it is free");
    gate.set_silent(true);
    let first = page::boottime_ns() + hold.valid_for().as_nanos() as u64;
    let past_first = async {
        until("its first end to pass", || page::boottime_ns() > first);
    };
    hold.guard(past_first).await.expect("the agent goes on renewing it");
    assert!(hold.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_an_event_is_a_loss_too() {
    let agent = Agent::start();
    let (gate, _session, hold) = hold_role(&agent).await;
    gate.set_silent(true);
    revoke(&agent, "role");
    until("the page to say so", || !hold.is_held());
    assert_eq!(within("the loss", hold.lost()).await.reason, Reason::Forgotten);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_gives_back_what_it_got() {
    let agent = Agent::start();
    let gate = Gate::before(&agent.socket());
    let session = open_session(gate.socket()).await;
    gate.set_silent(true);
    let leader = session.leader("role");
    let call = tokio::spawn(async move { leader.acquire().await });
    until("the grant", || agent.counts().1 == 1);
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    gate.set_silent(false);
    until("it to be given back", || agent.counts() == (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_agent_loses_no_wait() {
    let mut agent = Agent::start();
    let gate = Gate::before(&agent.socket());
    let (first, second) = (open_session(gate.socket()).await, open_session(gate.socket()).await);
    let hold = first.leader("role").acquire().await.expect("it is free");
    let waiting = tokio::spawn({
        let leader = second.leader("role");
        async move { leader.acquire().await }
    });
    until("the second to wait", || agent.counts().2 == 1);
    agent.kill();
    let asking = tokio::spawn({
        let leader = second.leader("meanwhile");
        async move { leader.acquire().await }
    });
    assert!(hold.is_held(), "the page is valid meanwhile");
    agent.start_again();
    let other = within("what was asked meanwhile", asking).await.expect("no panic");
    assert!(other.expect("it is free").is_held());
    assert!(hold.is_held() && hold.guard(async {}).await.is_ok());
    hold.release().await.expect("it is held");
    let granted = within("the grant", waiting).await.expect("no panic").expect("a hold");
    assert!(granted.is_held());
    until("its stream to be back", || second.state() == SessionState::Connected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_does_not_know_any_more_is_lost() {
    let mut agent = Agent::start();
    let (gate, _session, hold) = hold_role(&agent).await;
    gate.close();
    revoke(&agent, "role");
    // Its events are forgotten as well.
    agent.kill();
    agent.start_again();
    gate.open();
    assert_eq!(within("the loss", hold.lost()).await.reason, Reason::Forgotten);
    assert!(!hold.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_agent_does_not_know_is_gone() {
    let mut agent = Agent::start();
    let (_gate, session, hold) = hold_role(&agent).await;
    agent.kill();
    agent.delete_journal();
    agent.start_again();
    assert_eq!(within("the loss", hold.lost()).await.reason, Reason::SessionGone);
    let gone = within("the end", session.gone()).await;
    assert!(gone.to_string().contains("there is no session"), "{gone}");
    let refused = session.leader("b").acquire().await;
    assert!(matches!(refused, Err(AcquireError::SessionGone(_))), "{refused:?}");
}

/// With one thread nothing of the SDK runs before the check, as after a stop of the program.
#[tokio::test]
async fn a_hold_that_a_restarted_agent_renewed_elsewhere_is_held() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let role = session.leader("role").ttl(Duration::from_secs(1));
    let hold = role.acquire().await.expect("it is free");
    agent.pause();
    until("valid-until", || !hold.is_held());
    let path = &session.registered().page;
    let (id, mut content) = (hold.id(), fs::read(path).expect("a page"));
    let at = content.windows(16).position(|part| part == id.as_bytes()).expect("its slot");
    let other = content.len() - page::SLOT_SIZE;
    let valid_until = boottime_ns() + 60_000_000_000;
    content.copy_within(at..at + page::SLOT_SIZE, other);
    content[at + page::VALID_UNTIL_AT..][..8].fill(0);
    content[other + page::VALID_UNTIL_AT..][..8].copy_from_slice(&valid_until.to_le_bytes());
    fs::remove_file(path).expect("removed");
    fs::write(path, content).expect("written");
    assert_eq!(hold.check(), Ok(()));
    assert!(hold.is_held());
    agent.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_goes_on_where_it_ended() {
    let agent = Agent::start();
    let (gate, _session, hold) = hold_role(&agent).await;
    gate.close();
    revoke(&agent, "role");
    gate.open();
    assert_eq!(within("the loss", hold.lost()).await.reason, Reason::Lost(LostReason::Revoked));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_has_ended_does_not_wait_for_an_agent_that_hangs() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let running = session.leader("role").run(|_| async {
        agent.pause();
        42
    });
    assert_eq!(within("the work", running).await.expect("it was held"), 42);
    let page = PageFile::open(std::path::Path::new(&session.registered().page));
    let left = page.slot(0).valid_until_ns.saturating_sub(boottime_ns());
    assert!(left > 0, "it waited until the hold was over");
    agent.resume();
    until("it to be given back", || agent.counts() == (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_an_answer_does_not_say_that_others_have_it() {
    let mut agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let wait = Duration::from_millis(50);
    agent.pause();
    let error = within("an end", session.leader("role").acquire_timeout(wait)).await;
    let error = error.expect_err("the agent is stopped");
    assert!(matches!(error, AcquireError::Call(CallError::TimedOut { .. })), "{error:?}");
    agent.kill();
    let error = within("an end", session.leader("role").acquire_timeout(wait)).await;
    let error = error.expect_err("the agent is dead");
    assert!(matches!(error, AcquireError::Call(CallError::Unreachable { .. })), "{error:?}");
}
