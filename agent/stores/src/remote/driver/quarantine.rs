//! A store that lost data, and grants nothing for a while.

use std::time::Duration;

use tenure_core::model::Report;
use tenure_core::time::Boottime;
use tenure_wire::UpstreamState;
use tracing::{info, warn};

use super::{Driver, Reply, Task};
use crate::remote::backend::Backend;
use crate::remote::link::Connector;

impl<B: Backend> Driver<B> {
    /// Follows the knowledge of a store that lost data. At the end of its quarantine the keeper asks for everything
    /// that waits: the store sends no hint.
    pub(super) fn follow_quarantine(&mut self, now: Boottime) {
        let grants_at = self.links.dialer.connector().grants_at(now);
        match (self.condition.grants_at, grants_at) {
            (None, Some(at)) => {
                let left = at.since(now).as_secs() + 1;
                warn!(
                    "the upstream lost data: nothing is granted for {left} s, in which earlier holds may be valid"
                );
            }
            (Some(_), None) => {
                info!("the quarantine of the upstream is over: it grants again");
                self.reports.push_back(Report::FeedLost);
            }
            _ => {}
        }
        self.condition.grants_at = grants_at;
    }

    /// The state that people see of a store, and why the store grants nothing, if it does not.
    pub(super) fn quarantined(&self, state: UpstreamState) -> (UpstreamState, Option<String>) {
        let Some(at) = self.condition.grants_at.filter(|_| state == UpstreamState::Up) else {
            return (state, None);
        };
        let command = if B::ENDS_QUARANTINES { "tenured" } else { "tenured-gateway" };
        let words = format!(
            "quarantine: the upstream lost data, and what it granted before may be valid for another {} s; \
             `{command} quarantine end` ends it at once",
            at.since(self.links.dialer.now()).as_secs() + 1
        );
        (UpstreamState::Quarantined, Some(words))
    }

    /// Ends the store's quarantine by an administrator's order; returns what was left of it.
    pub(super) fn begin_to_grant(&mut self, now: Boottime) -> Option<Duration> {
        let left = self.condition.grants_at.filter(|_| B::ENDS_QUARANTINES)?.since(now);
        self.start_in_background(now, Task::EndQuarantine, async move |backend, line| {
            backend.end_quarantine(line).await.map(|()| Reply::QuarantineEnded)
        });
        Some(left)
    }
}
