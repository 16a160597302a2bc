//! Counts of what was answered.

use super::ENDPOINTS;
use crate::telemetry::{Answers, Metrics};

/// The endpoint under which requests for paths that do not exist are counted: the number of series
/// is bounded, whatever clients send.
const ELSEWHERE: &str = "other";

/// Counts of what was answered, by endpoint.
pub(super) struct Answered {
    endpoints: [Answers; ENDPOINTS.len()],
    elsewhere: Answers,
}

impl Answered {
    pub(super) fn new(metrics: &Metrics) -> Answered {
        Answered {
            endpoints: ENDPOINTS.map(|(_, path)| metrics.answers(path)),
            elsewhere: metrics.answers(ELSEWHERE),
        }
    }

    /// The counter of answers to requests for that path.
    pub(super) fn of(&self, path: &str) -> &Answers {
        let at = ENDPOINTS.iter().position(|(_, known)| *known == path);
        at.map_or(&self.elsewhere, |at| &self.endpoints[at])
    }
}
