//! Changes of who holds what, on their way upstream for people who ask later.
//!
//! Nothing waits for them: they are sent in batches, one at a time, and nothing is decided by an answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Happened, LostReason, ReleasedCause};

use super::calls::Call;
use super::command::Note;
use super::hold::Hold;
use super::request::{Reply, Ticket};
use super::timers::{Alarm, Timer};
use super::{Keeper, Phase};
use crate::model::{
    self, Answer, Ending, Failure, HistoryEntry, Holder, RECORD_MAX, Revocation, spare,
};
use crate::time::Boottime;

/// Batches leave this far apart at least.
const EVERY: Duration = Duration::from_millis(100);
/// Most changes that wait, about 400 bytes each; beyond, the oldest is forgotten. With [`RECORD_MAX`] in a batch a
/// host tells of 1280 changes a second for as long as it likes.
pub const RECORDS_WAITING_MAX: usize = 4096;
/// How old a change may be that the upstream has not taken.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Changes that the upstream has not confirmed.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// With the instant of each, oldest first.
    waiting: VecDeque<(Boottime, HistoryEntry)>,
    /// So many of the first are on their way.
    sent: usize,
    /// Failed calls in a row.
    failures: u32,
    alarm: Alarm,
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if an agent that stops need not wait for them.
    pub(super) fn lets_stop(&self) -> bool {
        self.waiting.is_empty() || self.failures > 0
    }
}

/// An agent that stops does not keep what it has to tell, but does not tell all in one turn.
fn pause(phase: Phase) -> Duration {
    match phase {
        Phase::Running => EVERY,
        Phase::Stopping | Phase::Restarting => Duration::from_nanos(1),
    }
}

/// For how long a hold that ends now is kept from others.
fn kept(now: Boottime, hold: &Hold) -> Duration {
    hold.kept_until(now).map(|until| until.since(now)).unwrap_or_default()
}

impl Keeper {
    /// A hold was granted.
    pub(super) fn record_grant(&mut self, now: Boottime, hold: model::ClaimId) {
        if let Some(hold) = self.holds.get(&hold) {
            let entry = self.change_of(now, hold, Happened::Granted, Ending::default());
            self.record(now, entry);
        }
    }

    /// A hold that was held is lost.
    pub(super) fn record_loss(
        &mut self,
        now: Boottime,
        hold: &Hold,
        reason: LostReason,
        revocation: Option<&Arc<Revocation>>,
        detail: Option<String>,
    ) {
        // An agent that stood still finds it out later, when somebody else may have been granted it.
        let ended_at = match reason {
            LostReason::Expired | LostReason::Slept => {
                now.min(hold.valid_until).max(hold.granted_at)
            }
            _ => now,
        };
        let end = Ending {
            reason: Some(Arc::from(reason.as_str())),
            detail: detail.map(Arc::from),
            by: revocation.map(|it| Arc::from(it.by.as_str())),
            exit_status: None,
            kept: kept(ended_at, hold),
        };
        let entry = self.change_of(ended_at, hold, Happened::Lost, end);
        self.record_as_of(now, ended_at, entry);
    }

    /// A hold that was held has ended as wished.
    pub(super) fn record_release(
        &mut self,
        now: Boottime,
        hold: &Hold,
        cause: ReleasedCause,
        exit: Option<i32>,
    ) {
        let session = self.sessions.get(&hold.session());
        let leaving = session.and_then(|it| it.leaving.as_ref());
        let command = session.and_then(|it| it.ended_command.as_ref());
        let why = leaving.map(|leaving| match command {
            Some(command) => Arc::from(format!("{}; {}", leaving.why, command.epitaph(now))),
            None => Arc::from(leaving.why),
        });
        let (reason, detail) = match cause {
            ReleasedCause::Client => ("released", None),
            ReleasedCause::WaitTimeout => ("wait_timeout", None),
            ReleasedCause::SessionEnded => ("session_ended", why),
        };
        let exit = exit.or_else(|| leaving?.exit).or_else(|| command?.exit_status);
        let reason = Some(Arc::from(reason));
        let end = Ending { reason, detail, exit_status: exit, by: None, kept: kept(now, hold) };
        let entry = self.change_of(now, hold, Happened::Released, end);
        self.record(now, entry);
    }

    fn change_of(&self, now: Boottime, hold: &Hold, what: Happened, end: Ending) -> HistoryEntry {
        let saved = self.sessions.get(&hold.session()).map(|session| &session.saved);
        let held = match what {
            Happened::Granted => Duration::ZERO,
            Happened::Released | Happened::Lost => now.since(hold.granted_at),
        };
        HistoryEntry {
            resource: hold.claim.resource.clone(),
            claim: hold.id(),
            owner: hold.claim.owner.clone(),
            token: hold.token,
            what,
            holder: Holder {
                pid: saved.and_then(|saved| saved.process).map(|process| process.pid),
                uid: saved.map(|saved| saved.uid),
                program: saved.map(|saved| saved.program.clone()).unwrap_or_default(),
            },
            end,
            held,
            ago: Duration::ZERO,
        }
    }

    fn record(&mut self, now: Boottime, entry: HistoryEntry) {
        self.record_as_of(now, now, entry);
    }

    fn record_as_of(&mut self, now: Boottime, at: Boottime, entry: HistoryEntry) {
        let records = &mut self.calls.records;
        if records.waiting.len() >= RECORDS_WAITING_MAX
            && let Some((_, forgotten)) = records.waiting.remove(records.sent)
        {
            let uid = forgotten.holder.uid.unwrap_or(self.settings.agent_uid);
            self.out.note(Note::Refused { limit: "history", uid });
        }
        records.waiting.push_back((at, entry));
        if records.sent == 0 && records.alarm.due().is_none() {
            let due = Some(now + pause(self.agent.phase));
            self.timers.set(&mut records.alarm, Timer::Records, due);
        }
    }

    /// An agent that stops does not let what waits wait any longer.
    pub(super) fn hurry_records(&mut self, now: Boottime) {
        if self.calls.records.alarm.due().is_some() {
            self.timers.set(&mut self.calls.records.alarm, Timer::Records, Some(now));
        }
    }

    pub(super) fn records_fired(&mut self, now: Boottime) {
        if !self.timers.fired(&mut self.calls.records.alarm, Timer::Records, now) {
            return;
        }
        let first = self.calls.records.waiting.iter().take(RECORD_MAX);
        let entries: Vec<_> = first
            .map(|(at, entry)| HistoryEntry { ago: now.since(*at), ..entry.clone() })
            .collect();
        self.calls.records.sent = entries.len();
        if !entries.is_empty() {
            self.ask(model::Request::Record(entries), Call::Record);
        }
    }

    pub(super) fn record_answered(&mut self, now: Boottime, result: &Result<Answer, Failure>) {
        let records = &mut self.calls.records;
        let sent = std::mem::take(&mut records.sent);
        let wait = match result {
            // A change that is denied once is denied again.
            Ok(_) | Err(Failure::Denied(_)) => {
                records.failures = 0;
                records.waiting.drain(..sent);
                pause(self.agent.phase)
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                records.failures += 1;
                while records.waiting.front().is_some_and(|(at, _)| *at + PATIENCE < now) {
                    records.waiting.pop_front();
                }
                self.settings.back_off(records.failures).max(EVERY)
            }
        };
        spare::shrink_queue(&mut records.waiting);
        let next = (!records.waiting.is_empty()).then(|| now + wait);
        self.timers.set(&mut records.alarm, Timer::Records, next);
    }

    pub(super) fn history_answered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        match result {
            Ok(Answer::History(changes)) => self.out.answer(ticket, Reply::History(changes)),
            other => self.refuse_unanswered(ticket, other),
        }
    }
}
