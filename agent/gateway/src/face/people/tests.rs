//! Many resources, in a store of the engine.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request as Call, State};
use futures_util::future::join_all;
use tenure_core::model::{Claim, ClaimId, Owner, Request, Resource, SessionId, Terms};
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::StoreInfo;
use tenure_wire::Kind;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::access::Access;
use crate::delivery::{Delivery, Networks, Told};
use crate::face::{Budgets, Limits, Plane};
use crate::metrics::Metrics;
use crate::store::{self, Store};
use crate::trail::Trail;

/// Claims that are asked for together; the store has room for some thousands.
const TOGETHER: u64 = 1000;

fn face(store: Store) -> Arc<Face> {
    let metrics = Arc::<Metrics>::default();
    let delivery = Delivery::new(
        store.clone(),
        "embedded",
        metrics.routes.clone(),
        Told::default(),
        Networks::default(),
    );
    Arc::new(Face {
        store,
        access: Access::anybody(),
        keys: None,
        info: StoreInfo { kind: "embedded".to_owned(), guarantee: String::new(), id: None },
        metrics,
        trail: Trail::default(),
        drain: CancellationToken::new(),
        budgets: Budgets::new(&Limits::default()),
        people: People::new("local".to_owned()),
        plane: Plane::new(Duration::from_secs(90)),
        delivery,
        control: crate::face::ControlPlane::new(
            crate::mailbox::Policies::default(),
            crate::mailbox::GatewayRun::default(),
        ),
    })
}

fn claim(number: u64) -> Request {
    let id = Uuid::from_u128(number.into());
    let name = format!("service/{number:06}").into();
    Request::Claim(Claim {
        id: ClaimId(id),
        resource: Resource { tenant: "default".into(), kind: Kind::Leader, name },
        owner: Owner { session: SessionId(id), host: "host".into(), name: "program".into() },
        ttl: Duration::from_secs(600),
        terms: Terms::Leader,
        enqueue: false,
    })
}

fn call(path: &str) -> Call {
    Call::builder().uri(path).body(Body::empty()).unwrap()
}

async fn page(face: &Arc<Face>, query: &str) -> serde_json::Value {
    let path = format!("/v1/resources{query}");
    let Json(rows) = resources::resources(State(Arc::clone(face)), call(&path)).await.unwrap();
    serde_json::to_value(rows).unwrap()
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

async fn all_of(count: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _thread) = store::tests::open(&dir);
    for first in (0..count).step_by(TOGETHER as usize) {
        let claims = (first..first + TOGETHER).map(|number| {
            store.ask(Mark::at_end_of(Uuid::from_u128(number.into())), claim(number))
        });
        join_all(claims).await.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    let (face, before) = (face(store), resident());
    let began = clock::now();
    while !face.people.catalogue.look(&face).await.is_complete {
        tokio::task::yield_now().await;
    }
    let read = clock::now().since(began);
    let took = resident().saturating_sub(before);
    let listing = face.people.catalogue.look(&face).await;
    assert_eq!(listing.names.len() as u64, count);
    assert!(listing.names.is_sorted());

    let began = clock::now();
    let last = page(&face, &format!("?limit=100&offset={}", count - 100)).await;
    let paged = clock::now().since(began);
    let began = clock::now();
    let found = page(&face, "?search=SERVICE/00499").await;
    let searched = clock::now().since(began);
    assert_eq!((&last["total"], last["rows"].as_array().unwrap().len()), (&count.into(), 100));
    assert_eq!(last["rows"][99]["name"], format!("service/{:06}", count - 1));
    assert_eq!(last["rows"][99]["holders"][0]["name"], "program");
    assert_eq!(found["total"], 10);
    let began = clock::now();
    let Json(overview) =
        overview::overview(State(Arc::clone(&face)), call("/v1/overview")).await.unwrap();
    let counted = clock::now().since(began);
    assert_eq!(serde_json::to_value(overview).unwrap()["counts"]["leader"], count);
    eprintln!(
        "{count}: read {read:?} (+{took} bytes), a page {paged:?}, a search {searched:?}, counts {counted:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_are_listed() {
    all_of(5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_are_listed() {
    all_of(50_000).await;
}
