//! Numbers of the delivery of routes.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::routes::Outcome;

type Count = Gauge<u64, AtomicU64>;
type Label = [(&'static str, &'static str); 1];

const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Delivered, "delivered"),
    (Outcome::Refused, "refused"),
    (Outcome::Failed, "failed"),
    (Outcome::Late, "late"),
];

/// The numbers of all proxies together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// Proxies that are told of routes, those of them that answer, and those that lack something for over a second.
    pub proxies: Count,
    pub connected: Count,
    pub behind: Count,
    /// Open streams of routes.
    pub watchers: Count,
    pushes: [Counter; 4],
    lag: Histogram,
}

impl Numbers {
    pub fn new(registry: &mut Registry, lag: Histogram) -> Numbers {
        let mut gauge = |name, help| {
            let gauge = Count::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let proxies = gauge("proxies", "Proxies that are told of routes");
        let connected = gauge("proxies_connected", "Proxies that took the last push");
        let behind = gauge("proxies_behind", "Proxies that lack a route for over a second");
        let watchers = gauge("route_streams", "Open streams of routes");
        let pushes = Family::<Label, Counter>::default();
        registry.register("route_pushes", "Pushes of a route to a proxy", pushes.clone());
        let help = "From the news of a route to its confirmation by a proxy";
        registry.register_with_unit("route_lag", help, Unit::Seconds, lag.clone());
        let pushes =
            OUTCOMES.map(|(_, outcome)| pushes.get_or_create_owned(&[("outcome", outcome)]));
        Numbers { proxies, connected, behind, watchers, pushes, lag }
    }

    pub(super) fn pushed(&self, outcome: Outcome, lag: Option<Duration>) {
        for (counter, (of, _)) in self.pushes.iter().zip(OUTCOMES) {
            if of == outcome {
                counter.inc();
            }
        }
        if let Some(lag) = lag {
            self.lag.observe(lag.as_secs_f64());
        }
    }
}
