//! The gateway's numbers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tenure_core::model::Failure;
use tenure_service::telemetry::Process;
use tenure_stores::Health;
use tenure_stores::gateway::wire::Operation;
use tenure_wire::UpstreamState;

use crate::delivery::Numbers;
mod cluster;
mod mailboxes;

use self::cluster::Cluster;
pub use self::mailboxes::{Call, Mailboxes, Outcome, Tally};

const STORE: [(UpstreamState, &str); 4] = [
    (UpstreamState::Connecting, "connecting"),
    (UpstreamState::Up, "up"),
    (UpstreamState::Down, "down"),
    (UpstreamState::Quarantined, "quarantined"),
];
/// The registration of a program that speaks the session plane.
const REGISTER: &str = "/api/v1/controller/register";
/// Registrations by their outcome: answered, refused, and failed for want of the store or of time.
const REGISTERS: [&str; 3] = ["done", "refused", "failed"];

type Count = Gauge<u64, AtomicU64>;
type Label = [(&'static str, &'static str); 1];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    endpoint: Box<str>,
    code: u32,
}

/// All numbers of the gateway. Shared; every update is an atomic operation or a short lock.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latency: Histogram,
    registers: [Counter; 3],
    /// Open change streams.
    pub streams: Count,
    /// Entries of agents for the history that no claim of theirs vouches for.
    pub history_left_out: Counter,
    /// Numbers of the delivery of routes.
    pub routes: Numbers,
    store_state: [Count; 4],
    store_latency: Histogram,
    store_unavailable: Counter,
    store_unknown: Counter,
    /// Keys that are in effect.
    pub keys: Count,
    /// The control plane.
    pub mailboxes: Mailboxes,
    cluster: Cluster,
    /// When the certificate expires, in s since 1970; 0 without TLS.
    pub certificate_expires: Count,
    /// Log lines that nobody took in time.
    pub log_lines_dropped: Counter,
    /// Reloads that were put into effect, and those that were refused.
    pub reloads: Reloads,
}

#[derive(Debug)]
pub struct Reloads {
    pub done: Counter,
    pub refused: Counter,
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut all = Registry::default();
        // Under the names that every program uses.
        all.register_collector(Box::new(Process));
        let registry = all.sub_registry_with_prefix("tenured_gateway");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "This gateway", build);

        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "Answered requests by endpoint and status", requests.clone());
        let latency = histogram();
        let help = "From a request's head to its answer's";
        registry.register_with_unit("latency", help, Unit::Seconds, latency.clone());
        let registers = Family::<Label, Counter>::default();
        let help = "Registrations of sessions, by agents and by programs";
        registry.register("registers", help, registers.clone());
        let streams = Count::default();
        registry.register("streams", "Open change streams", streams.clone());
        let history_left_out = Counter::default();
        let help =
            "Entries for the history that agents told of claims which are not known as theirs";
        registry.register("history_left_out", help, history_left_out.clone());
        let states = Family::<Label, Count>::default();
        let help = "1 for the state that the store is in";
        registry.register("store_state", help, states.clone());
        let store_latency = histogram();
        let help = "From a question to the store to its answer";
        registry.register_with_unit("store_latency", help, Unit::Seconds, store_latency.clone());
        let errors = Family::<Label, Counter>::default();
        let help = "Questions to the store without an answer: never sent, or with unknown outcome";
        registry.register("store_errors", help, errors.clone());
        let keys = Count::default();
        registry.register("keys", "Keys that let somebody in", keys.clone());
        let mailboxes = Mailboxes::register(registry);
        let cluster = Cluster::register(registry);
        let certificate_expires = Count::default();
        let help =
            "When the certificate of the gateway expires, in seconds since 1970; 0 without TLS";
        let gauge = certificate_expires.clone();
        registry.register_with_unit("certificate_expires", help, Unit::Seconds, gauge);
        let log_lines_dropped = Counter::default();
        let help = "Log lines dropped because the log was read too slowly";
        registry.register("log_lines_dropped", help, log_lines_dropped.clone());
        let reloads = Family::<Label, Counter>::default();
        let help = "Reloads of settings and keys, by whether they were put into effect";
        registry.register("reloads", help, reloads.clone());
        let routes = Numbers::new(registry, histogram());

        Metrics {
            requests,
            latency,
            history_left_out,
            // Each is there from the start: a counter that comes into being with its first refusal shows no
            // increase.
            registers: REGISTERS
                .map(|outcome| registers.get_or_create_owned(&[("outcome", outcome)])),
            streams,
            routes,
            store_state: STORE.map(|(_, word)| states.get_or_create_owned(&[("state", word)])),
            store_latency,
            store_unavailable: errors.get_or_create_owned(&[("outcome", "unavailable")]),
            store_unknown: errors.get_or_create_owned(&[("outcome", "unknown")]),
            keys,
            mailboxes,
            cluster,
            certificate_expires,
            log_lines_dropped,
            reloads: Reloads {
                done: reloads.get_or_create_owned(&[("outcome", "done")]),
                refused: reloads.get_or_create_owned(&[("outcome", "refused")]),
            },
            registry: all,
        }
    }

    /// Counts an answer of this route.
    pub fn answered(&self, endpoint: &str, status: u16, took: Duration) {
        let labels = RequestLabels { endpoint: endpoint.into(), code: u32::from(status) };
        self.requests.get_or_create(&labels).inc();
        self.latency.observe(took.as_secs_f64());
        if endpoint == REGISTER || endpoint == Operation::Announce.path() {
            let outcome = match status {
                200..400 => 0,
                400..500 => 1,
                _ => 2,
            };
            self.registers[outcome].inc();
        }
    }

    /// Counts an answer of the store, or the lack of one.
    pub fn store_answered(&self, took: Duration, failure: Option<&Failure>) {
        match failure {
            None => self.store_latency.observe(took.as_secs_f64()),
            Some(Failure::Unavailable(_) | Failure::Denied(_)) => {
                self.store_unavailable.inc();
            }
            Some(Failure::Unknown(_)) => {
                self.store_unknown.inc();
            }
        }
    }

    /// Sets how the store does; `None` when nobody says.
    pub fn set_store(&self, health: Option<&Health>) {
        let state = health.map(|health| health.state);
        self.cluster.set(health.and_then(|health| health.nodes));
        for (gauge, (of, _)) in self.store_state.iter().zip(STORE) {
            gauge.set(u64::from(Some(of) == state));
        }
    }

    /// Everything as OpenMetrics 1.0.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// From 100 µs to 26 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(100e-6, 2.0, 19))
}

#[cfg(test)]
mod tests {
    use tenure_stores::Nodes;

    use super::*;

    #[test]
    fn says_what_was_counted() {
        let metrics = Metrics::new();
        let took = Duration::from_millis(1);
        for (endpoint, status) in
            [(REGISTER, 200), (REGISTER, 503), (Operation::Announce.path(), 404), ("other", 404)]
        {
            metrics.answered(endpoint, status, took);
        }
        let nodes = Nodes {
            leads: true,
            voters: 3,
            silent: 1,
            behind: 7,
            applied: 40,
            bytes: 9,
            bytes_max: 10,
        };
        let health = Health { nodes: Some(nodes), ..Health::of(UpstreamState::Down) };
        metrics.set_store(Some(&health));
        metrics.store_answered(took, None);
        metrics.store_answered(took, Some(&Failure::Unknown("timeout".to_owned())));
        let text = metrics.encode();
        for line in [
            "tenured_gateway_registers_total{outcome=\"done\"} 1",
            "tenured_gateway_registers_total{outcome=\"refused\"} 1",
            "tenured_gateway_registers_total{outcome=\"failed\"} 1",
            "tenured_gateway_requests_total{endpoint=\"other\",code=\"404\"} 1",
            "tenured_gateway_store_state{state=\"down\"} 1",
            "tenured_gateway_store_state{state=\"up\"} 0",
            "tenured_gateway_cluster_leads 1",
            "tenured_gateway_cluster_voters 3",
            "tenured_gateway_cluster_silent 1",
            "tenured_gateway_cluster_bytes 9",
            "tenured_gateway_cluster_behind 7",
            "tenured_gateway_cluster_applied 40",
            "tenured_gateway_store_errors_total{outcome=\"unknown\"} 1",
            "tenured_gateway_store_latency_seconds_count 1",
            "tenured_gateway_latency_seconds_count 4",
            "tenured_gateway_streams 0",
            "tenured_gateway_reloads_total{outcome=\"refused\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
        assert!(text.contains("\nprocess_resident_memory_bytes ") && text.ends_with("# EOF\n"));
    }
}
