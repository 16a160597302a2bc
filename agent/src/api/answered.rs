//! Counts of what was answered.

use super::ENDPOINTS;
use crate::telemetry::{Answers, Metrics};

/// What requests for paths that do not exist are counted under: the number of series is bounded,
/// whatever clients send.
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

    /// Where answers to requests for that path are counted.
    pub(super) fn of(&self, path: &str) -> &Answers {
        let at = ENDPOINTS.iter().position(|(_, known)| *known == path);
        at.map_or(&self.elsewhere, |at| &self.endpoints[at])
    }
}
