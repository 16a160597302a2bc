//! Logs and metrics. Neither ever waits for whoever reads them: what delays a log line must not
//! delay a beat.

mod answers;
mod budget;
pub mod metrics;
mod notes;
mod repeats;

use std::sync::Arc;

pub use answers::Answers;
pub use metrics::Metrics;
pub use repeats::Repeats;
use tenure_core::keeper::Note;
pub use tenure_service::telemetry::{LogFormat, log};

/// The receiver of state changes: the log and the metrics.
#[derive(Debug)]
pub struct Recorder {
    metrics: Arc<Metrics>,
    notes: notes::Notes,
}

impl Recorder {
    /// Records to the log of this process and to these metrics.
    pub fn new(metrics: Arc<Metrics>) -> Recorder {
        Recorder { metrics, notes: notes::Notes::default() }
    }

    pub fn note(&mut self, note: &Note) {
        self.metrics.note(note);
        self.notes.note(note);
    }
}
