//! Everything that an agent ever asks of a Redis.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{
    Answer, Beat, CallId, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request, Resource,
    SessionId, SessionRecord, Subject, Terms,
};
use tenure_harness::DEADLINE;
use tenure_host::clock;
use tenure_stores::redis::Redis;
use tenure_stores::redis::connection::Connection;
use tenure_stores::redis::exchange::{
    CareOf, Invocation, Verified, care, cared, stand, stood, verified, verify,
};
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::RedisAccess;
use tenure_stores::remote::Driver;
use tenure_stores::{Report, Upstream};
use tenure_wire::{Attributes, Kind};
use tokio::time::timeout;
use uuid::Uuid;

const TTL: Duration = Duration::from_secs(30);

/// An agent's upstream.
pub(crate) struct Doer {
    pub(crate) upstream: Driver<Redis>,
    calls: u64,
    listens: bool,
}

impl Doer {
    pub(crate) fn new(access: RedisAccess) -> Doer {
        let upstream = Redis::open(access, Layout::default());
        Doer { upstream, calls: 0, listens: false }
    }

    async fn report(&mut self) -> Report {
        let report = poll_fn(|context| self.upstream.poll_report(context));
        let report = timeout(DEADLINE, report).await.expect("it reports");
        self.listens |= matches!(report, Report::FeedLost);
        report
    }

    /// Asks, and is answered.
    pub(crate) async fn ask(&mut self, request: Request) -> Answer {
        let what = format!("{request:?}");
        let result = self.try_ask(request).await;
        result.unwrap_or_else(|failure| panic!("{what}: {failure:?}"))
    }

    /// Asks; the answer or the failure.
    pub(crate) async fn try_ask(&mut self, request: Request) -> Result<Answer, Failure> {
        self.calls += 1;
        let number = CallId(self.calls);
        self.upstream.submit(clock::now(), number, request);
        loop {
            if let Report::Answer { call, result, .. } = self.report().await
                && call == number
            {
                return result;
            }
        }
    }

    /// Waits until it hears what others change.
    pub(crate) async fn listen(&mut self) {
        while !self.listens {
            self.report().await;
        }
    }

    /// Does everything in a tenant, each deed at least once with success.
    pub(crate) async fn do_everything(&mut self, tenant: &str, first: u128) {
        let session = |number: u128| SessionId(Uuid::from_u128(first + number));
        let owner = |number: u128| Owner {
            session: session(number),
            host: Arc::from("host"),
            name: Arc::from("name"),
        };
        let of =
            |kind, name: &str| Resource { tenant: Arc::from(tenant), kind, name: Arc::from(name) };
        let claim = |id: u128, number: u128, resource: Resource, terms: Terms| {
            let enqueue = resource.kind == Kind::Semaphore;
            Claim {
                id: ClaimId(Uuid::from_u128(first + id)),
                resource,
                owner: owner(number),
                ttl: TTL,
                terms,
                enqueue,
            }
        };
        for number in [1, 2] {
            let record = SessionRecord {
                owner: owner(number),
                tenant: Arc::from(tenant),
                project: Arc::from("p"),
                surface: Arc::from("cli"),
                ttl: TTL,
                registered_at: None,
            };
            assert_eq!(self.ask(Request::Announce(record)).await, Answer::Announced);
        }
        let lease = Terms::Lease {
            grace: Duration::from_secs(60),
            attributes: Attributes::default(),
            take_over: None,
        };
        let gpu = Terms::Semaphore { limit: 1, keeps: false, only_own: false };
        let mut claims = vec![
            claim(10, 1, of(Kind::Leader, "role"), Terms::Leader),
            claim(11, 1, of(Kind::Lease, "box"), lease.clone()),
            claim(12, 1, of(Kind::Master, "p"), Terms::Master { priority: 0 }),
            claim(13, 1, of(Kind::Semaphore, "gpu"), gpu.clone()),
        ];
        for claim in &claims {
            let answer = self.ask(Request::Claim(claim.clone())).await;
            assert!(matches!(answer, Answer::Claim(ClaimAnswer::Held { .. })), "{answer:?}");
        }
        // Refused, refused, preempts, waits.
        for second in [
            claim(20, 2, of(Kind::Leader, "role"), Terms::Leader),
            claim(21, 2, of(Kind::Lease, "box"), lease),
            claim(22, 2, of(Kind::Master, "p"), Terms::Master { priority: 5 }),
            claim(23, 2, of(Kind::Semaphore, "gpu"), gpu.clone()),
            claim(24, 2, of(Kind::Semaphore, "gpu"), gpu),
        ] {
            let answer = self.ask(Request::Claim(second.clone())).await;
            assert!(matches!(answer, Answer::Claim(_)), "{answer:?}");
            claims.push(second);
        }
        let beat = |subject| Beat { subject, ttl: TTL };
        let beats = claims.iter().map(|Claim { id, resource, .. }| {
            beat(Subject::Claim { claim: *id, resource: resource.clone() })
        });
        let beats = beats.chain([1, 2].map(|number| {
            let master = of(Kind::Master, "p");
            beat(Subject::Session { session: session(number), master })
        }));
        self.ask(Request::Renew(beats.collect())).await;
        let resources: Vec<Resource> = claims[..4].iter().map(|c| c.resource.clone()).collect();
        for resource in &resources {
            let answer = self.ask(Request::Inspect(resource.clone())).await;
            let Answer::Standing(standing) = answer else { panic!("{answer:?}") };
            assert_eq!(standing.holders.len(), 1, "{resource:?}");
        }
        for name in [None, Some(Arc::from("box"))] {
            self.ask(Request::Routes {
                tenant: Arc::from(tenant),
                name,
                page: tenure_core::model::Page::whole(),
            })
            .await;
        }
        // The permit that waits is given on.
        for resource in &resources {
            let revoke =
                Request::Revoke { resource: resource.clone(), token: None, revocation: None };
            assert_eq!(self.ask(revoke).await, Answer::Revoked(1), "{resource:?}");
        }
        for Claim { id, resource, .. } in &claims {
            let release = Request::Release { claim: *id, resource: resource.clone() };
            self.ask(release).await;
        }
        for number in [1, 2] {
            let (tenant, project) = (Arc::from(tenant), Arc::from("p"));
            let end = Request::EndSession { session: session(number), tenant, project };
            assert_eq!(self.ask(end).await, Answer::Ended(true));
        }
    }
}

/// The work that an agent does by itself.
pub(crate) async fn look_after(connection: &mut Connection, tenant: &str) {
    let layout = Layout::default();
    let gpu = CareOf { tenant: Arc::from(tenant), name: Arc::from("gpu"), shared: true };
    cared(run(connection, &care(&layout, &[gpu], 0)).await).unwrap();
    let claims = [Kind::Leader, Kind::Lease, Kind::Master, Kind::Semaphore].map(|kind| {
        let name = Arc::from("x");
        (ClaimId(Uuid::nil()), Resource { tenant: Arc::from(tenant), kind, name })
    });
    let answer = verified(run(connection, &verify(&layout, &claims)).await);
    assert_eq!(answer.unwrap(), [Verified::Gone; 4]);
    let term = std::time::Duration::from_secs(1);
    stood(run(connection, &stand(&layout, "agent", term)).await).unwrap();
}

async fn run(connection: &mut Connection, invocation: &Invocation) -> Value {
    let load = invocation.script.load();
    load.exec_async(connection).await.unwrap();
    invocation.command().query_async(connection).await.unwrap()
}
