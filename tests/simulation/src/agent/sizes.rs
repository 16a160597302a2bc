//! The sizes of an agent's tables, held against their limits.

use tenure_core::keeper::{
    LOSSES_BYTES_MAX, PENDING_ENDS_MAX, RECORDS_WAITING_MAX, REMEMBERED_MAX, RING_BYTES_MAX,
    STREAMS_PER_SESSION_MAX,
};

use super::super::core::Core;
use super::super::invariants::Invariant;
use super::Agent;

impl Agent {
    pub(super) fn check_sizes(&self, core: &mut Core) {
        let Some(keeper) = &self.keeper else { return };
        let settings = &core.plan.settings;
        let sizes = keeper.sizes();
        let of = |name: &str| sizes.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
        let (sessions, holds, departures) = (of("sessions"), of("holds"), of("pending releases"));
        // Every alarm has one entry at most: of a hold its deadline, its patience and its beat, of a session
        // its tether, its progress and its beat, of a contest its next attempt and its next telling.
        let alarms = 3 * (holds + sessions) + 2 * of("queues") + departures;
        let alarms = alarms + of("watches") + of("pending ends") + 4;
        let observed = self.callers.observing();
        let (sessions_saved, holds_saved) = self.journal.rows.len();
        let bounds = [
            ("sessions", sessions, settings.sessions_max),
            ("holds, those that leave counted,", holds + departures, settings.holds_max),
            ("pending ends", of("pending ends"), PENDING_ENDS_MAX),
            // A master may be of three projects, and everything of two tenants.
            ("queues", of("queues"), (core.plan.prizes.len() + 2) * 2),
            ("streams", of("streams"), sessions * STREAMS_PER_SESSION_MAX + observed),
            ("watches", of("watches"), of("streams") + sessions),
            ("events", of("events"), sessions * (settings.ring_max + 1)),
            (
                "bytes of events and losses",
                of("bytes of events"),
                sessions * (RING_BYTES_MAX + LOSSES_BYTES_MAX),
            ),
            ("remembered", of("remembered"), REMEMBERED_MAX),
            ("changes to record", of("changes to record"), RECORDS_WAITING_MAX),
            ("timers", of("timers"), alarms),
            ("sessions in its journal", sessions_saved, sessions),
            ("holds in its journal", holds_saved, holds + departures),
        ];
        for (name, count, max) in bounds {
            let verdict = core.checks.bounded.within(self.host, name, count, max);
            core.judge(Invariant::Bounded, verdict);
        }
        // Every request is answered, and forgotten then.
        let unanswered = match &self.store {
            Some(store) => store.unanswered(),
            None => self.link.in_flight.len(),
        };
        if !self.turn.has_more() {
            let unanswered = unanswered + self.inbox.heard.len();
            let verdict = core.checks.bounded.within(self.host, "calls", of("calls"), unanswered);
            core.judge(Invariant::Bounded, verdict);
        }
    }
}
