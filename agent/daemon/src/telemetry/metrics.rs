//! The agent's numbers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tenure_core::keeper::Note;
use tenure_core::model::Failure;
use tenure_service::telemetry::Process;
use tenure_wire::{Kind, LostReason, ReleasedCause, UpstreamState};

use super::answers::{Answers, Requests};

const STATES: [&str; 3] = ["held", "jeopardy", "waiting"];
const LOST: [LostReason; 9] = [
    LostReason::Expired,
    LostReason::Preempted,
    LostReason::Stalled,
    LostReason::MaxHold,
    LostReason::Revoked,
    LostReason::UpstreamReset,
    LostReason::Conflict,
    LostReason::AgentStopping,
    LostReason::Slept,
];
const UPSTREAM: [(UpstreamState, &str); 4] = [
    (UpstreamState::Connecting, "connecting"),
    (UpstreamState::Up, "up"),
    (UpstreamState::Down, "down"),
    (UpstreamState::Quarantined, "quarantined"),
];

/// Limits that refuse requests or connections. Each is there from the start: a counter that comes into
/// being with its first refusal shows no increase.
const LIMITS: [&str; 19] = [
    "allow_holds",
    "allow_sessions",
    "buffered_bytes",
    "buffered_bytes_per_uid",
    "connections",
    "connections_per_uid",
    "history",
    "holds",
    "holds_per_session",
    "holds_per_uid",
    "page_slots",
    "page_slots_per_uid",
    "remembered",
    "remembered_per_uid",
    "sessions",
    "sessions_per_uid",
    "streams",
    "streams_per_session",
    "streams_per_uid",
];
const RELEASED: [ReleasedCause; 3] =
    [ReleasedCause::Client, ReleasedCause::WaitTimeout, ReleasedCause::SessionEnded];

type Count = Gauge<u64, AtomicU64>;
type Label = [(&'static str, &'static str); 1];

/// All numbers of the agent. Shared; every update is an atomic operation or, for histograms and
/// what is rare, a short lock.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    sessions: Count,
    holds: [[Count; 3]; 4],
    grant_latency: [Histogram; 4],
    adopted: [Counter; 4],
    losses: [Counter; 9],
    releases: Family<Label, Counter>,
    beat_lateness: Histogram,
    upstream_latency: Histogram,
    upstream_unavailable: Counter,
    upstream_denied: Counter,
    upstream_unknown: Counter,
    upstream_state: [Count; 4],
    event_lag: Histogram,
    refusals: Family<Label, Counter>,
    requests: Requests,
    pub connections: Count,
    pub streams: Count,
    /// Streams that ended because their reader was too slow.
    pub streams_cut_off: Counter,
    /// Log lines that nobody took in time.
    pub log_lines_dropped: Counter,
    /// Reloads of the configuration that put it into effect, and those that were refused.
    pub reloads: Outcomes,
}

/// How often something went well, and how often not.
#[derive(Debug, Clone)]
pub struct Outcomes {
    pub done: Counter,
    pub refused: Counter,
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut all = Registry::default();
        // Under the names that every program uses.
        all.register_collector(Box::new(Process));
        let registry = all.sub_registry_with_prefix("tenured");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "This agent", build);

        let sessions = Count::default();
        registry.register("sessions", "Sessions of all users", sessions.clone());
        let holds = Family::<[(&'static str, &'static str); 2], Count>::default();
        registry.register("holds", "Holds by kind and state", holds.clone());
        let of_kind = |kind: Kind| [("kind", kind.as_str())];
        let latency = Family::<Label, Histogram, _>::new_with_constructor(histogram as fn() -> _);
        let help = "From the request to the grant";
        registry.register_with_unit("grant_latency", help, Unit::Seconds, latency.clone());
        let adopted = Family::<Label, Counter>::default();
        registry.register("adopted", "Holds taken up again after a restart", adopted.clone());
        let losses = Family::<Label, Counter>::default();
        registry.register("losses", "Lost holds by reason", losses.clone());
        let releases = Family::<Label, Counter>::default();
        registry.register("releases", "Holds and waits that ended as wished", releases.clone());
        let beat_lateness = histogram();
        let help = "From when a beat was due to when it was sent";
        registry.register_with_unit("beat_lateness", help, Unit::Seconds, beat_lateness.clone());
        let upstream_latency = histogram();
        let help = "From a call to the upstream to its answer";
        registry.register_with_unit(
            "upstream_latency",
            help,
            Unit::Seconds,
            upstream_latency.clone(),
        );
        let errors = Family::<Label, Counter>::default();
        let help = "Failed calls to the upstream: never sent, denied, or with unknown outcome";
        registry.register("upstream_errors", help, errors.clone());
        let states = Family::<Label, Count>::default();
        let help = "1 for the state that the upstream is in";
        registry.register("upstream_state", help, states.clone());
        let event_lag = histogram();
        let help = "From the turn that made an event to its writing to a stream";
        registry.register_with_unit("event_lag", help, Unit::Seconds, event_lag.clone());
        let refusals = Family::<Label, Counter>::default();
        registry.register("refusals", "Requests refused, by the limit they hit", refusals.clone());
        let requests = Requests::default();
        registry.register("requests", "Answered requests by endpoint and status", requests.clone());
        let connections = Count::default();
        registry.register("connections", "Open connections", connections.clone());
        let streams = Count::default();
        registry.register("streams", "Open event streams", streams.clone());
        let streams_cut_off = Counter::default();
        let help = "Event streams cut off because their reader was too slow";
        registry.register("streams_cut_off", help, streams_cut_off.clone());
        let log_lines_dropped = Counter::default();
        let help = "Log lines dropped because the log was read too slowly";
        registry.register("log_lines_dropped", help, log_lines_dropped.clone());
        let reloads = Family::<Label, Counter>::default();
        let help = "Reloads of the configuration, by whether it was put into effect";
        registry.register("reloads", help, reloads.clone());

        for limit in LIMITS {
            drop(refusals.get_or_create_owned(&[("limit", limit)]));
        }
        for cause in RELEASED {
            drop(releases.get_or_create_owned(&[("cause", released_word(cause))]));
        }

        Metrics {
            sessions,
            holds: Kind::ALL.map(|kind| {
                let [of_kind] = of_kind(kind);
                STATES.map(|state| holds.get_or_create_owned(&[of_kind, ("state", state)]))
            }),
            grant_latency: Kind::ALL.map(|kind| latency.get_or_create_owned(&of_kind(kind))),
            adopted: Kind::ALL.map(|kind| adopted.get_or_create_owned(&of_kind(kind))),
            losses: LOST.map(|reason| losses.get_or_create_owned(&[("reason", reason.as_str())])),
            releases,
            beat_lateness,
            upstream_latency,
            upstream_unavailable: errors.get_or_create_owned(&[("outcome", "unavailable")]),
            upstream_denied: errors.get_or_create_owned(&[("outcome", "denied")]),
            upstream_unknown: errors.get_or_create_owned(&[("outcome", "unknown")]),
            upstream_state: UPSTREAM
                .map(|(_, word)| states.get_or_create_owned(&[("state", word)])),
            event_lag,
            refusals,
            requests,
            connections,
            streams,
            streams_cut_off,
            log_lines_dropped,
            reloads: Outcomes {
                done: reloads.get_or_create_owned(&[("outcome", "done")]),
                refused: reloads.get_or_create_owned(&[("outcome", "refused")]),
            },
            registry: all,
        }
    }

    pub fn note(&self, note: &Note) {
        match note {
            Note::Granted { resource, waited, .. } => {
                self.grant_latency[index(resource.kind)].observe(waited.as_secs_f64());
            }
            Note::Lost { reason, .. } => {
                if let Some(at) = LOST.iter().position(|known| known == reason) {
                    self.losses[at].inc();
                }
            }
            Note::Released { cause, .. } => {
                self.releases.get_or_create(&[("cause", released_word(*cause))]).inc();
            }
            Note::Beat { late } => self.beat_lateness.observe(late.as_secs_f64()),
            Note::Refused { limit, .. } => self.refused(limit),
            Note::Adopted { kind, holds } => {
                self.adopted[index(*kind)].inc_by(*holds);
            }
            Note::Registered { .. }
            | Note::Ended { .. }
            | Note::Exited { .. }
            | Note::Jeopardy { .. }
            | Note::LimitChanged { .. }
            | Note::Safe { .. } => {}
        }
    }

    /// Sets what is there now: sessions, and holds by kind in the order of [`Kind::ALL`]: held, in
    /// jeopardy, waiting.
    pub fn set_present(&self, sessions: u64, holds: &[[u64; 3]; 4]) {
        self.sessions.set(sessions);
        for (gauges, counts) in self.holds.iter().zip(holds) {
            for (gauge, count) in gauges.iter().zip(counts) {
                gauge.set(*count);
            }
        }
    }

    /// Counts an answer of the upstream, or the lack of one.
    pub fn upstream_answered(&self, took: Duration, failure: Option<&Failure>) {
        match failure {
            None => self.upstream_latency.observe(took.as_secs_f64()),
            Some(Failure::Unavailable(_)) => {
                self.upstream_unavailable.inc();
            }
            Some(Failure::Denied(_)) => {
                self.upstream_denied.inc();
            }
            Some(Failure::Unknown(_)) => {
                self.upstream_unknown.inc();
            }
        }
    }

    /// Sets the state that the upstream is in.
    pub fn set_upstream_state(&self, state: UpstreamState) {
        for (gauge, (of, _)) in self.upstream_state.iter().zip(UPSTREAM) {
            gauge.set(u64::from(of == state));
        }
    }

    /// The counter of an endpoint's answers. `endpoint` is the route, never the path as it came:
    /// the number of series must be bounded.
    pub fn answers(&self, endpoint: &'static str) -> Answers {
        Answers::new(endpoint, self.requests.clone())
    }

    /// Counts a refusal for a limit.
    pub fn refused(&self, limit: &'static str) {
        self.refusals.get_or_create(&[("limit", limit)]).inc();
    }

    /// Notes how long after it was made an event was written to a stream.
    pub fn event_written(&self, lag: Duration) {
        self.event_lag.observe(lag.as_secs_f64());
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

/// From 10 µs, a fast local grant, to 164 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-6, 4.0, 13))
}

fn index(kind: Kind) -> usize {
    match kind {
        Kind::Master => 0,
        Kind::Leader => 1,
        Kind::Lease => 2,
        Kind::Semaphore => 3,
    }
}

pub(super) fn released_word(cause: ReleasedCause) -> &'static str {
    match cause {
        ReleasedCause::Client => "client",
        ReleasedCause::WaitTimeout => "wait_timeout",
        ReleasedCause::SessionEnded => "session_ended",
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{ClaimId, Resource, SessionId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn says_what_was_noted() {
        let metrics = Metrics::new();
        let (session, hold) = (SessionId(Uuid::nil()), ClaimId(Uuid::nil()));
        let resource =
            Resource { tenant: "default".into(), kind: Kind::Semaphore, name: "gpu".into() };
        let waited = Duration::from_millis(5);
        metrics.note(&Note::Granted {
            hold,
            session,
            uid: 7,
            resource: resource.clone(),
            token: 1,
            waited,
        });
        let reason = LostReason::UpstreamReset;
        metrics.note(&Note::Lost {
            hold,
            session,
            uid: 7,
            resource: resource.clone(),
            token: 1,
            reason,
            revocation: None,
        });
        let cause = ReleasedCause::WaitTimeout;
        metrics.note(&Note::Released { hold, session, uid: 7, resource, token: None, cause });
        metrics.note(&Note::Beat { late: Duration::from_micros(300) });
        metrics.note(&Note::Refused { limit: "sessions", uid: 7 });
        metrics.note(&Note::Adopted { kind: Kind::Lease, holds: 12 });
        metrics.set_present(3, &[[0; 3], [1, 0, 0], [0; 3], [7, 8, 9]]);
        metrics.upstream_answered(Duration::from_millis(1), None);
        metrics.upstream_answered(waited, Some(&Failure::Unknown("timeout".to_owned())));
        metrics.set_upstream_state(UpstreamState::Down);
        metrics.set_upstream_state(UpstreamState::Up);
        let answers = metrics.answers("/v1/acquire");
        for status in [409, 409, 418] {
            answers.count(status);
        }
        metrics.answers("/v1/acquire").count(409);
        metrics.connections.inc();
        metrics.streams_cut_off.inc();

        metrics.event_written(Duration::from_micros(40));
        metrics.reloads.refused.inc();

        let text = metrics.encode();
        for line in [
            "tenured_sessions 3",
            "tenured_holds{kind=\"leader\",state=\"held\"} 1",
            "tenured_holds{kind=\"semaphore\",state=\"waiting\"} 9",
            "tenured_grant_latency_seconds_count{kind=\"semaphore\"} 1",
            "tenured_grant_latency_seconds_count{kind=\"leader\"} 0",
            "tenured_losses_total{reason=\"upstream_reset\"} 1",
            "tenured_losses_total{reason=\"expired\"} 0",
            "tenured_releases_total{cause=\"wait_timeout\"} 1",
            "tenured_beat_lateness_seconds_count 1",
            "tenured_refusals_total{limit=\"sessions\"} 1",
            "tenured_refusals_total{limit=\"streams\"} 0",
            "tenured_releases_total{cause=\"client\"} 0",
            "tenured_adopted_total{kind=\"lease\"} 12",
            "tenured_upstream_latency_seconds_count 1",
            "tenured_upstream_errors_total{outcome=\"unknown\"} 1",
            "tenured_upstream_state{state=\"up\"} 1",
            "tenured_upstream_state{state=\"down\"} 0",
            "tenured_requests_total{endpoint=\"/v1/acquire\",code=\"409\"} 3",
            "tenured_requests_total{endpoint=\"/v1/acquire\",code=\"418\"} 1",
            "tenured_connections 1",
            "tenured_streams_cut_off_total 1",
            "tenured_event_lag_seconds_count 1",
            "tenured_log_lines_dropped_total 0",
            "tenured_reloads_total{outcome=\"refused\"} 1",
            "tenured_build_info{version=\"0.1.0\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
        for name in [
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
            "process_cpu_seconds_total",
        ] {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            assert!(
                line.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0),
                "{name} in\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn every_reason_is_counted() {
        for (index, reason) in LOST.into_iter().enumerate() {
            assert_eq!(LOST.iter().position(|known| *known == reason), Some(index));
        }
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(index(kind), at);
        }
    }
}
