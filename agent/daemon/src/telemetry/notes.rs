//! State changes as log lines: one line each, with stable fields. The heart decides which are logged; the
//! log's own thread makes the text.

use std::time::Instant;

use tenure_core::keeper::Note;
use tenure_service::telemetry::{Unformatted, on_log_thread};
use tenure_wire::Tether;
use tracing::level_filters::LevelFilter;
use tracing::{debug, info, warn};

use super::budget::{Budget, LeftOut, Sort};
use super::repeats::Repeats;

/// Decides about state changes, and hands those over that are to be logged.
#[derive(Debug, Default)]
pub(super) struct Notes {
    jeopardy: Repeats,
    safe: Repeats,
    refused: Repeats,
    budget: Budget,
}

impl Notes {
    #[expect(clippy::disallowed_methods, reason = "only paces log lines")]
    pub(super) fn note(&mut self, note: &Note) {
        if level(note) <= LevelFilter::current() {
            self.note_at(Instant::now(), note);
        }
    }

    fn note_at(&mut self, now: Instant, note: &Note) {
        for left_out in self.budget.left_out(now) {
            on_log_thread(Line::LeftOut(left_out));
        }
        if let Some((uid, sort)) = cause(note)
            && !self.budget.admit(now, uid, sort)
        {
            return;
        }
        let withheld = match note {
            // One upstream that does not answer endangers every hold at once.
            Note::Jeopardy { .. } => self.jeopardy.admit(),
            Note::Safe { .. } => self.safe.admit(),
            Note::Refused { .. } => self.refused.admit(),
            _ => Some(0),
        };
        if let Some(withheld) = withheld {
            on_log_thread(Line::Note { note: note.clone(), withheld });
        }
    }
}

/// What comes into the log.
#[derive(Debug)]
pub(super) enum Line {
    Note {
        note: Note,
        /// Those like it that were not logged since the last one.
        withheld: u64,
    },
    LeftOut(LeftOut),
}

impl Unformatted for Line {
    fn write(&self) {
        match self {
            Line::Note { note, withheld } => write(note, *withheld),
            Line::LeftOut(LeftOut { uid, lines }) => {
                warn!(uid, lines, "log lines of this user left out: too many in a short time");
            }
        }
    }
}

fn level(note: &Note) -> LevelFilter {
    match note {
        Note::Beat { .. } => LevelFilter::DEBUG,
        Note::Jeopardy { .. }
        | Note::Lost { .. }
        | Note::Refused { .. }
        | Note::LimitChanged { .. } => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    }
}

fn write(note: &Note, withheld: u64) {
    // Mostly none, and then nothing is said of it.
    let withheld = (withheld > 0).then_some(withheld);
    match note {
        Note::Registered { session, name, uid, pid, tether, resumed } => {
            let tether = match tether {
                Tether::Connection => "connection",
                Tether::Process => "process",
                Tether::Keepalive => "keepalive",
            };
            info!(%session, %name, uid, pid, tether, resumed, "registered");
        }
        Note::Ended { session, uid, name, why, exit } => {
            info!(%session, uid, %name, reason = why, exit_status = exit, "session ended");
        }
        Note::Exited { session, uid: _, pid, exit } => {
            info!(%session, pid, exit_status = exit, "process exited");
        }
        Note::Granted { hold, session, uid: _, resource, token, waited } => {
            let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            let (tenant, kind, name) = (&resource.tenant, resource.kind, &resource.name);
            info!(%hold, %session, %tenant, %kind, %name, token, waited_us, "granted");
        }
        Note::Jeopardy { hold, session, resource, token, cause } => {
            let (tenant, kind, name) = (&resource.tenant, resource.kind, &resource.name);
            let reason = cause;
            warn!(%hold, %session, %tenant, %kind, %name, token, %reason, withheld, "in jeopardy");
        }
        Note::Safe { hold, session, resource, token } => {
            let (tenant, kind, name) = (&resource.tenant, resource.kind, &resource.name);
            info!(%hold, %session, %tenant, %kind, %name, token, withheld, "safe again");
        }
        Note::Lost { hold, session, uid: _, resource, token, reason, revocation } => {
            let (tenant, kind, name) = (&resource.tenant, resource.kind, &resource.name);
            let by = revocation.as_ref().map(|it| it.by.as_str());
            let detail = revocation.as_ref().and_then(|it| it.reason.as_deref());
            warn!(%hold, %session, %tenant, %kind, %name, token, %reason, by, detail, "lost");
        }
        Note::Released { hold, session, uid: _, resource, token, cause } => {
            let (tenant, kind, name) = (&resource.tenant, resource.kind, &resource.name);
            let reason = super::metrics::released_word(*cause);
            info!(%hold, %session, %tenant, %kind, %name, token, reason, "released");
        }
        Note::Beat { late } => debug!(late_us = late.as_micros(), "beat sent"),
        Note::Refused { limit, uid } => {
            if limit.starts_with("remembered") || *limit == "history" {
                warn!(limit, uid, withheld, "forgotten early: a limit is reached");
            } else {
                warn!(limit, uid, withheld, "refused: a limit is reached");
            }
        }
        Note::LimitChanged { session, uid, resource, from, to } => {
            let (tenant, name) = (&resource.tenant, &resource.name);
            warn!(%session, uid, %tenant, %name, from, to, "semaphore's limit changed for everybody");
        }
        Note::Adopted { kind, holds } => info!(%kind, holds, "holds taken up again"),
    }
}

/// The user whose doing a note is, where a program can bring it about as often as it likes. Jeopardy and
/// refusals have bounds of their own.
fn cause(note: &Note) -> Option<(u32, Sort)> {
    match note {
        Note::Registered { uid, .. }
        | Note::Ended { uid, .. }
        | Note::Exited { uid, .. }
        | Note::Granted { uid, .. }
        | Note::Released { uid, .. }
        | Note::LimitChanged { uid, .. } => Some((*uid, Sort::Routine)),
        Note::Lost { uid, .. } => Some((*uid, Sort::Loss)),
        Note::Jeopardy { .. }
        | Note::Safe { .. }
        | Note::Beat { .. }
        | Note::Refused { .. }
        | Note::Adopted { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{ClaimId, Resource, SessionId};
    use tenure_wire::{Kind, LostReason};
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;
    use uuid::Uuid;

    use super::*;
    use crate::telemetry::repeats::LINES_MAX;

    fn logged(notes: &[Note]) -> Vec<serde_json::Value> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let out = std::sync::Arc::new(file.reopen().unwrap());
        let lines = fmt::layer().json().flatten_event(true).with_writer(out);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let mut log = Notes::default();
            notes.iter().for_each(|note| log.note(note));
        });
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn resource() -> Resource {
        Resource { tenant: "default".into(), kind: Kind::Leader, name: "cleanup".into() }
    }

    #[test]
    fn lines_have_stable_fields() {
        let (session, hold) = (SessionId(Uuid::nil()), ClaimId(Uuid::max()));
        let lines = logged(&[
            Note::Registered {
                session,
                name: "nightly".into(),
                uid: 7,
                pid: Some(8),
                tether: Tether::Process,
                resumed: false,
            },
            Note::Lost {
                hold,
                session,
                uid: 7,
                resource: resource(),
                token: 9,
                reason: LostReason::Expired,
                revocation: None,
            },
            Note::Ended {
                session,
                uid: 7,
                name: "nightly".into(),
                why: "process exited",
                exit: Some(137),
            },
        ]);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["message"], "registered");
        assert_eq!(lines[0]["tether"], "process");
        assert_eq!((&lines[0]["uid"], &lines[0]["pid"]), (&7.into(), &8.into()));
        let lost = &lines[1];
        assert_eq!(lost["level"], "WARN");
        assert_eq!(
            (&lost["hold"], &lost["session"]),
            (&hold.to_string().into(), &session.to_string().into())
        );
        assert_eq!((&lost["kind"], &lost["name"]), (&"leader".into(), &"cleanup".into()));
        assert_eq!((&lost["token"], &lost["reason"]), (&9.into(), &"expired".into()));
        assert_eq!(lines[2]["exit_status"], 137);
    }

    #[test]
    fn one_cause_does_not_fill_the_log() {
        let note = Note::Jeopardy {
            hold: ClaimId(Uuid::nil()),
            session: SessionId(Uuid::nil()),
            resource: resource(),
            token: 1,
            cause: "connection refused".into(),
        };
        let notes = vec![note; 1000];
        let lines = logged(&notes);
        assert_eq!(lines.len(), LINES_MAX as usize);
        assert_eq!(lines[0].get("withheld"), None, "nothing was, so nothing is said of it");
    }

    #[test]
    fn one_user_does_not_fill_the_log() {
        let note = |uid| Note::Ended {
            session: SessionId(Uuid::nil()),
            uid,
            name: "loop".into(),
            why: "it was released",
            exit: None,
        };
        let flood = logged(&vec![note(7); 3000]).len();
        assert!((1..3000).contains(&flood), "{flood}");
        let mut notes = vec![note(7); 3000];
        notes.push(note(8));
        let lines = logged(&notes);
        assert_eq!(lines.last().unwrap()["uid"], 8);
    }
}
