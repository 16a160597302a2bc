//! Campaigns of the Rust SDK: the place in line while the work of a lost term still ends.

use std::time::Duration;

use serde_json::json;
use tenure::wire::LostReason;
use tenure::{Campaign, Hold, Reason, Session};
use tenure_tests::harness::{Agent, Client, open_session, until, within};
use tokio::task::JoinHandle;

async fn term(campaign: &mut Campaign) -> Hold {
    within("a term", campaign.next()).await.expect("it goes on").expect("a hold")
}

/// Waits for it in a task of its own, until it is in line at that place.
async fn in_line(agent: &Agent, session: &Session, waiting: u64) -> JoinHandle<Hold> {
    let role = session.leader("role");
    let waits = tokio::spawn(async move { role.acquire().await.expect("a hold") });
    until("it to wait", || agent.http().standing("leader", "role").waiting == waiting);
    waits
}

async fn lose(agent: &Agent, term: &Hold) {
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    assert_eq!(within("the loss", term.lost()).await.reason, Reason::Lost(LostReason::Revoked));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_stands_in_line_while_the_work_of_a_lost_term_ends() {
    let agent = Agent::start();
    let [first, second] = [(); 2].map(|()| open_session(agent.socket()));
    let (first, second) = (first.await, second.await);
    let mut campaign = first.leader("role").campaign();
    let lost = term(&mut campaign).await;
    let holder = in_line(&agent, &second, 1).await;
    lose(&agent, &lost).await;
    let holder = within("the next holder", holder).await.expect("no panic");
    // Its work has not ended: nobody asks for the next term.
    until("the campaign to wait", || agent.http().standing("leader", "role").waiting == 1);
    let later = in_line(&agent, &second, 2).await;
    holder.release().await.expect("it is held");
    let next_token = || agent.http().standing("leader", "role").holders.first().map(|it| it.token);
    until("the campaign to hold it", || next_token().is_some_and(|token| token > lost.token()));
    let granted = next_token();
    let next = term(&mut campaign).await;
    assert_eq!(Some(next.token()), granted);
    assert!(next.is_held() && !later.is_finished());
    drop((next, campaign));
    within("the last", later).await.expect("no panic").release().await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_does_not_end_keeps_the_next_term_from_others_for_one_ttl() {
    let agent = Agent::start();
    let [first, second] = [(); 2].map(|()| open_session(agent.socket()));
    let (first, second) = (first.await, second.await);
    let mut campaign = first.leader("role").ttl(Duration::from_secs(2)).campaign();
    let lost = term(&mut campaign).await;
    lose(&agent, &lost).await;
    until("the campaign to hold it", || {
        agent.http().standing("leader", "role").holders.iter().any(|it| it.token > lost.token())
    });
    let other = in_line(&agent, &second, 1).await;
    let other = within("the other", other).await.expect("no panic");
    assert_eq!(agent.http().standing("leader", "role").waiting, 0, "it stands once");
    let mut next = Box::pin(campaign.next());
    assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err());
    until("the campaign to stand again", || agent.http().standing("leader", "role").waiting == 1);
    other.release().await.expect("it is held");
    let next = within("the next term", next).await.expect("it goes on").expect("a hold");
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_campaign_leaves_the_line() {
    let agent = Agent::start();
    let [first, second] = [(); 2].map(|()| open_session(agent.socket()));
    let (first, second) = (first.await, second.await);
    let mut campaign = first.leader("role").campaign();
    let lost = term(&mut campaign).await;
    let holder = in_line(&agent, &second, 1).await;
    lose(&agent, &lost).await;
    let holder = within("the next holder", holder).await.expect("no panic");
    until("the campaign to wait", || agent.http().standing("leader", "role").waiting == 1);
    drop(campaign);
    until("nobody to wait", || agent.http().standing("leader", "role").waiting == 0);
    // A term that was granted to it is given back as well.
    let mut campaign = first.leader("role").campaign();
    let mut next = Box::pin(campaign.next());
    assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err());
    holder.release().await.expect("it is held");
    let lost = within("a term", next).await.expect("it goes on").expect("a hold");
    lose(&agent, &lost).await;
    until("the campaign to hold it", || {
        agent.http().standing("leader", "role").holders.iter().any(|it| it.token > lost.token())
    });
    drop(campaign);
    until("nobody to hold it", || agent.http().standing("leader", "role").holders.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_asks_for_its_own_later_term_is_told_so_at_once() {
    let agent = Agent::start();
    let session = open_session(agent.socket()).await;
    let role = session.leader("role");
    let mut campaign = role.campaign();
    let lost = term(&mut campaign).await;
    lose(&agent, &lost).await;
    let next = term(&mut campaign).await;
    let refused = within("a refusal", role.acquire()).await;
    assert!(matches!(refused, Err(tenure::AcquireError::HeldBySelf(_))), "{refused:?}");
    assert!(next.is_held());
}
