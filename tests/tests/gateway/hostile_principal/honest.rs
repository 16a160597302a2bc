//! Callers that want nothing unusual, and how they are served.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use uuid::Uuid;

use super::link::Link;

/// Between two pairs of a claim and its release.
const PAUSE: Duration = Duration::from_millis(20);
/// Of the hold that is kept throughout.
const TTL: Duration = Duration::from_secs(6);
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// What one caller saw.
#[derive(Default)]
struct Service {
    /// Latencies of its calls since the last look, µs.
    latencies_us: Mutex<Vec<u64>>,
    /// Calls that were not answered as asked, each with its answer.
    refused: Mutex<Vec<String>>,
    /// Beats of its hold.
    beats: AtomicU64,
}

/// Callers with a thread each, until they are dropped.
pub(crate) struct Honest {
    services: Vec<Arc<Service>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Honest {
    /// Starts a caller for each principal and its key, each at one of these gateways.
    pub(crate) fn start(ports: &[u16], keys: &[(String, String)]) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let services: Vec<_> = keys.iter().map(|_| Arc::<Service>::default()).collect();
        let threads = keys.iter().zip(&services).zip(ports.iter().cycle());
        let threads = threads.map(|(((principal, key), service), port)| {
            let caller = Caller::new(principal, Link::new(*port, key), Arc::clone(service));
            let stop = Arc::clone(&stop);
            thread::spawn(move || caller.run(&stop))
        });
        let threads = threads.collect();
        Honest { services, threads, stop }
    }

    /// The latencies since the last look, in ascending order, µs.
    pub(crate) fn take_latencies(&self) -> Vec<u64> {
        let all = self.services.iter().flat_map(|service| take(&service.latencies_us));
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        all
    }

    /// Waits until each hold has been beaten so often again.
    pub(crate) fn are_served(&self, beats: u64) {
        let counts = || self.services.iter().map(|service| service.beats.load(Relaxed));
        let before: Vec<u64> = counts().collect();
        tenure_tests::harness::until("every hold to be beaten", || {
            counts().zip(&before).all(|(now, before)| now >= before + beats)
        });
    }

    /// The calls that failed.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.services.iter().flat_map(|service| take(&service.refused)).collect()
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a caller is in the test's output.
            let _ = thread.join();
        }
    }
}

fn take<T>(of: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut of.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Caller {
    link: Link,
    service: Arc<Service>,
    mark: Mark,
    session: Uuid,
    principal: String,
}

impl Caller {
    fn new(principal: &str, link: Link, service: Arc<Service>) -> Caller {
        let mark = Mark::of(principal);
        let session = mark.scoped(Uuid::new_v4());
        Caller { link, service, mark, session, principal: principal.to_owned() }
    }

    fn run(mut self, stop: &AtomicBool) {
        let (held, kept) =
            (self.mark.scoped(Uuid::new_v4()), format!("kept by {}", self.principal));
        let token = self.claim(held, &kept);
        assert!(token.is_some(), "{kept}: {:?}", take(&self.service.refused));
        let mut beaten = clock::now();
        while !stop.load(Relaxed) {
            let claim = self.mark.scoped(Uuid::new_v4());
            let name = format!("taken by {}", self.principal);
            if self.claim(claim, &name).is_some() {
                let body = json!({"claim": claim, "resource": leader(&name)});
                self.call("/v1/upstream/release", &body, |it| it["found"] == true);
            }
            if clock::now().since(beaten) >= BEAT_EVERY {
                beaten = clock::now();
                let subject = json!({"Claim": {"claim": held, "resource": leader(&kept)}});
                let body = json!({"beats": [{"subject": subject, "ttl": seconds(TTL)}]});
                // The same token says that it was never anybody else's meanwhile.
                self.call("/v1/upstream/renew", &body, |it| {
                    it["beats"][0]["Held"]["token"].as_u64() == token
                });
                self.service.beats.fetch_add(1, Relaxed);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Claims a leadership; its token.
    fn claim(&mut self, id: Uuid, name: &str) -> Option<u64> {
        let owner = json!({"session": self.session, "host": "honest", "name": self.principal});
        let body = json!({"id": id, "resource": leader(name), "owner": owner, "ttl": seconds(TTL),
            "terms": "Leader", "enqueue": false});
        let token = |it: &Value| it["Held"]["token"].as_u64();
        self.call("/v1/upstream/claim", &body, |it| token(it).is_some()).as_ref().and_then(token)
    }

    /// One call that is measured; its answer, if it is as it should be.
    fn call(
        &mut self,
        path: &str,
        body: &Value,
        is_good: impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        let began = clock::now();
        let answer = self.link.post(path, &body.to_string());
        let us = u64::try_from(clock::now().since(began).as_micros()).unwrap_or(u64::MAX);
        self.service.latencies_us.lock().unwrap_or_else(PoisonError::into_inner).push(us);
        let read = |text: &str| serde_json::from_str::<Value>(text).ok().filter(&is_good);
        let good =
            answer.as_ref().ok().filter(|(status, _)| *status == 200).and_then(|it| read(&it.1));
        if good.is_none() {
            let refused = format!("{}: {path}: {answer:?} after {us} us", self.principal);
            self.service.refused.lock().unwrap_or_else(PoisonError::into_inner).push(refused);
        }
        good
    }
}

fn leader(name: &str) -> Value {
    json!({"tenant": "good", "kind": "leader", "name": name})
}

fn seconds(time: Duration) -> Value {
    json!({"secs": time.as_secs(), "nanos": 0})
}
