//! The numbers of the control plane.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Count, histogram};

/// A method that runners call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Acquire,
    Heartbeat,
    Release,
}

const CALLS: [(Call, &str); 3] =
    [(Call::Acquire, "acquire"), (Call::Heartbeat, "heartbeat"), (Call::Release, "release")];

impl Call {
    /// The call that has this path.
    pub fn of(path: &str) -> Option<Call> {
        match path.rsplit('/').next()? {
            "AcquireLease" => Some(Call::Acquire),
            "MailboxHeartbeat" => Some(Call::Heartbeat),
            "ReleaseLease" => Some(Call::Release),
            _ => None,
        }
    }
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered, if with no.
    Done,
    /// The caller could have known better.
    Refused,
    /// For want of the store or of time.
    Failed,
}

const OUTCOMES: [&str; 3] = ["done", "refused", "failed"];

/// The runners whose calls come through this gateway, and what their heartbeats say in all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub mailboxes: u64,
    pub runners: u64,
    pub events_stored: u64,
    pub queries_served: u64,
    pub storage_bytes: u64,
}

/// A call has one counter an outcome and one histogram, whatever the number of mailboxes.
#[derive(Debug)]
pub struct Mailboxes {
    calls: [[Counter; 3]; 3],
    latency: [Histogram; 3],
    gauges: [Count; 5],
}

impl Mailboxes {
    pub(super) fn register(registry: &mut Registry) -> Mailboxes {
        let registry = registry.sub_registry_with_prefix("mailbox");
        let calls = Family::<[(&'static str, &'static str); 2], Counter>::default();
        registry.register("calls", "Answered calls of runners by their outcome", calls.clone());
        let help = "From a runner's call to its answer";
        let latency = Family::<super::Label, Histogram>::new_with_constructor(histogram);
        registry.register_with_unit("latency", help, Unit::Seconds, latency.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Count::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let gauges = [
            gauge("leased", "Mailboxes whose heartbeats come through this gateway"),
            gauge("runners", "Runners of them"),
            gauge("events_stored", "Events stored in them, as their last heartbeats say"),
            gauge("queries_served", "Queries served by them, as their last heartbeats say"),
            gauge("storage_bytes", "Bytes stored in them, as their last heartbeats say"),
        ];
        Mailboxes {
            calls: CALLS.map(|(_, call)| {
                OUTCOMES.map(|outcome| {
                    calls.get_or_create_owned(&[("call", call), ("outcome", outcome)])
                })
            }),
            latency: CALLS.map(|(_, call)| latency.get_or_create_owned(&[("call", call)])),
            gauges,
        }
    }

    /// Counts an answer; without an outcome it was one.
    pub fn answered(&self, call: Call, outcome: Option<Outcome>, took: Duration) {
        let outcome = outcome.unwrap_or(Outcome::Done);
        self.calls[call as usize][outcome as usize].inc();
        self.latency[call as usize].observe(took.as_secs_f64());
    }

    pub fn set(&self, tally: Tally) {
        let Tally { mailboxes, runners, events_stored, queries_served, storage_bytes } = tally;
        let values = [mailboxes, runners, events_stored, queries_served, storage_bytes];
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(value);
        }
    }
}
