//! Nodes in one process, over TCP, each with its own folder.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod disks;
mod folder;
mod hostile;
mod recovery;
mod running;
mod slow;
mod time;
mod tls;
mod upgrade;

use std::sync::Arc;

use tempfile::TempDir;
use tenure_cluster::node::Verdict;
use tenure_cluster::store::{Cluster, feed};
use tenure_core::engine::EngineSettings;
use tenure_core::model::{
    Answer, BeatAnswer, CallId, Change, ClaimAnswer, ClaimId, GoneReason, Request,
};
use tenure_stores::{Report, Upstream};
use tenure_wire as wire;
use uuid::Uuid;

use self::running::{
    beat, claim, cluster, listener, release, resource, start_with, token, try_start, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_hand_over_whoever_is_asked() {
    let nodes = cluster(3).await;
    let first = token(&nodes[1].node.ask(claim(1, false)).await.unwrap());
    assert!(first > 1_000, "{first}");
    let taken = nodes[2].node.ask(claim(2, false)).await.unwrap();
    assert!(matches!(taken, Answer::Claim(ClaimAnswer::Contended { .. })), "{taken:?}");
    let waits = nodes[2].node.ask(claim(3, true)).await.unwrap();
    assert!(matches!(waits, Answer::Claim(ClaimAnswer::Waiting { position: 1, .. })), "{waits:?}");
    assert_eq!(nodes[0].node.ask(release(1)).await.unwrap(), Answer::Released(true));
    let second = token(&nodes[1].node.ask(claim(3, true)).await.unwrap());
    assert!(second > first);
    // A read at any node sees it.
    for running in &nodes {
        let Answer::Standing(standing) =
            running.node.ask(Request::Inspect(resource())).await.unwrap()
        else {
            panic!("a standing");
        };
        assert_eq!((standing.holding, standing.holders[0].token), (1, second));
    }
    for running in &nodes {
        running.node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_out_ends_on_all_nodes_and_they_stay_alike() {
    let nodes = cluster(3).await;
    token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    nodes[1].node.ask(claim(2, true)).await.unwrap();
    // The waiter beats, and the holder does not.
    until("the waiter to have it", async || {
        let answer = nodes[1].node.ask(beat(2)).await.unwrap();
        matches!(&answer, Answer::Renew(beats) if matches!(beats[0], BeatAnswer::Held { .. }))
    })
    .await;
    let gone = nodes[2].node.ask(beat(1)).await.unwrap();
    assert_eq!(gone, Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Expired)]));
    for running in &nodes {
        let lost = ClaimId(Uuid::from_u128(1));
        until("each to hear of it", async || running.heard.0.lock().unwrap().contains(&lost)).await;
    }
    until("all to have applied the same", async || {
        let views: Vec<_> = nodes.iter().map(|it| it.node.view()).collect();
        views.iter().all(|view| (view.applied, view.digest) == (views[0].applied, views[0].digest))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_costs_no_hold_and_comes_back() {
    let mut nodes = cluster(3).await;
    let first = token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    let leader = nodes[0].node.view().leader.unwrap();
    let at = nodes.iter().position(|it| it.node.id() == leader).unwrap();
    let stopped = nodes.remove(at);
    let (folder, listener) = stopped.stop().await;
    // The holder beats through another node; nobody else is let in.
    let beaten = nodes[0].node.ask(beat(1)).await.unwrap();
    assert!(
        matches!(&beaten, Answer::Renew(it) if matches!(it[0], BeatAnswer::Held { token, .. } if token == first))
    );
    let taken = nodes[1].node.ask(claim(2, false)).await.unwrap();
    assert!(matches!(taken, Answer::Claim(ClaimAnswer::Contended { .. })), "{taken:?}");

    let again = start_with(folder, listener, None).await;
    assert_eq!(nodes[0].node.ask(release(1)).await.unwrap(), Answer::Released(true));
    let next = token(&again.node.ask(claim(2, false)).await.unwrap());
    assert!(next > first);
    until("it to be as the others", async || {
        let (one, other) = (again.node.view(), nodes[0].node.view());
        (one.applied, one.digest) == (other.applied, other.digest)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_granted() {
    let nodes = cluster(3).await;
    for gone in &nodes[1..] {
        gone.node.stop().await;
    }
    let refused = nodes[0].node.ask(claim(1, false)).await.unwrap_err();
    assert!(refused.cause().contains("cluster"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_compare_themselves_and_the_doctor_names_those_that_are_silent() {
    let nodes = cluster(3).await;
    token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    until("all to answer", async || nodes[1].node.compare().await == Verdict::Alike).await;
    let (feed, heard) = feed();
    let runtime = tokio::runtime::Handle::current();
    let store = Cluster::over(nodes[1].node.clone(), runtime, (feed, heard));
    let checks = store.examine().await;
    assert!(checks.iter().all(|check| check.verdict == wire::Verdict::Ok), "{checks:?}");
    let silent = format!("node {:x} at 127.0.0.1:", nodes[2].node.id());
    nodes[2].node.stop().await;
    until("the doctor to miss it", async || {
        let checks = store.examine().await;
        let nodes = checks.iter().find(|check| check.name == "cluster.nodes").unwrap();
        nodes.verdict == wire::Verdict::Warning && nodes.detail.contains(&silent)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_tells_losses_before_the_grants_that_follow() {
    let (feed, heard) = feed();
    let folder = TempDir::new().unwrap();
    let listener = listener().await;
    let address = listener.local_addr().unwrap().to_string();
    let listens = Arc::new(feed.clone());
    let node = try_start(folder.path(), listener, None, listens).await.unwrap();
    node.found(address, 1_000, EngineSettings::default(), None).await.unwrap();
    let mut store = Cluster::over(node, tokio::runtime::Handle::current(), (feed, heard));
    let first = std::future::poll_fn(|context| store.poll_report(context)).await;
    assert_eq!(first, Report::FeedLost);

    let now = tenure_host::clock::now();
    // They are asked side by side: either may be the first.
    store.submit(now, CallId(1), claim(1, true));
    store.submit(now, CallId(2), claim(2, true));
    let mut told = Vec::new();
    while told.iter().filter(|report| matches!(report, Report::Answer { .. })).count() < 2 {
        told.push(std::future::poll_fn(|context| store.poll_report(context)).await);
    }
    // One of the two has it, and does not beat.
    let first = told.iter().find_map(|report| match report {
        Report::Answer { call, result: Ok(Answer::Claim(ClaimAnswer::Held { .. })), .. } => {
            Some(call.0)
        }
        _ => None,
    });
    let first = u128::from(first.expect("one of them has it"));
    let (loser, next) = (ClaimId(Uuid::from_u128(first)), ClaimId(Uuid::from_u128(3 - first)));
    store.submit(
        now,
        CallId(3),
        Request::Revoke { resource: resource(), token: None, revocation: None },
    );
    let mut told = Vec::new();
    while !told.iter().any(|report| matches!(report, Report::Answer { call: CallId(3), .. })) {
        told.push(std::future::poll_fn(|context| store.poll_report(context)).await);
    }
    let at = |wanted: &dyn Fn(&Report) -> bool| told.iter().position(wanted).expect("it was told");
    let lost = at(
        &|report| matches!(report, Report::Lost { claim, reason: GoneReason::Revoked, .. } if *claim == loser),
    );
    let granted = at(
        &|report| matches!(report, Report::Change(Change::Granted { claim, .. }) if *claim == next),
    );
    let answered = at(&|report| matches!(report, Report::Answer { .. }));
    assert!(lost < granted && granted < answered, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_founded_once() {
    let nodes = cluster(1).await;
    let found = nodes[0].cluster();
    let address = nodes[0].address.clone();
    let again = nodes[0].node.found(address, 1, EngineSettings::default(), None).await;
    assert!(again.unwrap_err().to_string().contains("already"));
    assert_eq!(nodes[0].cluster(), found);
}
