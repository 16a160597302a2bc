//! Effects of a turn on the agent's host, each held against the invariants.

use tenure::wire::{Event, HoldState, LostReason};
use tenure_core::keeper::{Command, Note, Reply, Ticket};
use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;

use super::super::agent::{Agent, PageSlot};
use super::super::core::{Core, Happening, Told};
use super::super::invariants::{Invariant, Slot};
use super::super::planted::Planted;
use super::super::time::TrueTime;

impl Agent {
    pub(super) fn note(
        &mut self,
        core: &mut Core,
        now: Boottime,
        note: &Note,
        believed: &[(SessionId, ClaimId, TrueTime)],
    ) {
        if let Note::Beat { late } = note {
            let verdict = core.checks.beats.sent(now, self.host, *late);
            core.judge(Invariant::BeatsInTime, verdict);
            return;
        }
        core.line(|| format!("agent {}: notes {note:?}", self.host));
        let tied = &mut core.checks.tied;
        let verdict = match note {
            Note::Granted { session, .. } => tied.granted(core.now, *session),
            Note::Ended { session, .. } if self.life.stopping => tied.forget(*session),
            Note::Ended { session, why, .. } => {
                tied.ended(core.now, *session, why, &self.machine.processes)
            }
            Note::Lost { hold, session, reason, .. } => {
                tied.lost(core.now, *session, *hold, *reason, believed)
            }
            Note::Released { hold, cause, .. } if !self.life.stopping => {
                tied.released(*hold, *cause, believed)
            }
            _ => Ok(()),
        };
        core.judge(Invariant::Tied, verdict);
        if let Note::Lost { hold, session, token: 1.., reason, .. } = note {
            core.seen(reason.as_str());
            if matches!(reason, LostReason::Expired | LostReason::Slept) {
                let verdict = core.checks.beats.ran_out(*hold, *reason, believed);
                core.judge(Invariant::BeatsInTime, verdict);
            }
            if self.life.waking {
                let verdict = core.checks.truth.after_sleep(*hold, *reason);
                core.judge(Invariant::TruthFirst, verdict);
            }
            // Nobody tells an agent that was started again whether guarded work goes on: it is not renewed.
            if core.is_calm() && !self.journal.rows.is_guarded(*session) {
                let verdict = core.checks.beats.lost_in_calm(*hold, *reason);
                core.judge(Invariant::BeatsInTime, verdict);
            }
        }
        let verdict = core.checks.one_end.noted(self.host, note);
        core.judge(Invariant::OneEnd, verdict);
    }

    pub(super) fn command(&mut self, core: &mut Core, now: Boottime, command: Command) {
        match command {
            Command::Reply { ticket, reply } => {
                let Some(((client, life), _)) = self.callers.tickets.remove(&ticket) else {
                    // It was cancelled in this very turn.
                    self.unread(core, reply.as_ref().ok());
                    return;
                };
                self.check_reply(core, now, ticket, reply.as_ref().ok());
                if let Ok(Reply::Checkpointed(_)) = &reply
                    && core.has(Planted::EarlyCheckpoint)
                {
                    self.callers
                        .checkpointed
                        .extend(reply.clone().ok().map(|it| ((client, life), it)));
                }
                core.checks.tied.answered(core.now, (client, life));
                core.tell(client, life, Told::Reply(ticket, reply));
            }
            Command::Send { stream, event } => {
                let Some(open) = self.callers.streams.get(&stream).filter(|open| !open.is_full)
                else {
                    return;
                };
                if let Some(session) = open.session {
                    let verdict = core.checks.one_end.carried(session, &event);
                    core.judge(Invariant::OneEnd, verdict);
                }
                let (client, life) = (open.client, open.life);
                self.check_event(core, &event.event);
                core.tell(client, life, Told::Event(stream, event));
            }
            Command::CloseStream { stream, end } => {
                let Some(open) = self.callers.streams.remove(&stream) else { return };
                let told = Told::Closed(stream, Some(end));
                core.tell(open.client, open.life, told);
            }
            Command::Watch { session, process, .. } => {
                let Some(process) = process else { return };
                self.callers.watches.insert(session, process);
                if !self.machine.processes.contains(&process.pid) {
                    let happening = Happening::Exited(self.host, self.life.incarnation, session);
                    let after = core.random.us(10, 300);
                    core.after(after, happening);
                }
            }
            Command::Unwatch { session } => {
                self.callers.watches.remove(&session);
            }
            Command::OpenPage { session, keep, .. } => {
                let page = self.machine.pages.entry(session).or_default();
                page.retain(|slot, _| keep.contains(slot));
                core.checks.exclusion.voided(self.host, session, &keep);
            }
            Command::WritePage { session, slot, hold, token, valid_until, .. } => {
                self.write_page(core, session, slot, (hold, token, valid_until));
            }
            Command::ClosePage { session } => {
                self.machine.pages.remove(&session);
                core.checks.exclusion.removed(self.host, session);
            }
            Command::Call { .. } | Command::Persist(_) | Command::Note(_) => {}
        }
    }

    fn write_page(
        &mut self,
        core: &mut Core,
        session: SessionId,
        slot: u32,
        (hold, token, valid_until): (ClaimId, u64, Boottime),
    ) {
        core.line(|| {
            format!("agent {}: page {session} {slot}: {hold} until {valid_until:?}", self.host)
        });
        let page = self.machine.pages.entry(session).or_default();
        page.insert(slot, PageSlot { hold, valid_until });
        let until = (valid_until > Boottime::ZERO).then(|| self.machine.clock.when(valid_until));
        if until.is_some() {
            let verdict = core.checks.truth.said(&core.checks.ledger, "a page", hold, token);
            core.judge(Invariant::TruthFirst, verdict);
        }
        let at = Slot { host: self.host, session, slot };
        let checks = &mut core.checks;
        let verdict = checks.exclusion.written(core.now, &checks.ledger, at, hold, until);
        core.judge(Invariant::Exclusion, verdict);
    }

    fn check_reply(&self, core: &mut Core, now: Boottime, ticket: Ticket, reply: Option<&Reply>) {
        if let Some(Reply::Acquired(acquired)) = reply {
            let (claim, until) = (ClaimId(acquired.hold), acquired.valid_until_boottime_ns);
            let verdict = core.checks.truth.in_time(self.host, claim, until, now);
            core.judge(Invariant::TruthFirst, verdict);
        }
        let held: Vec<(ClaimId, u64)> = match reply {
            Some(Reply::Acquired(acquired)) => vec![(ClaimId(acquired.hold), acquired.token)],
            Some(Reply::Checkpointed(checked)) => held(&checked.holds),
            _ => Vec::new(),
        };
        if let Some(Reply::Checkpointed(_)) = reply {
            let verdict = core.checks.truth.checkpointed(ticket, &held);
            core.judge(Invariant::TruthFirst, verdict);
        }
        for (claim, token) in held {
            let verdict = core.checks.truth.said(&core.checks.ledger, "a reply", claim, token);
            core.judge(Invariant::TruthFirst, verdict);
        }
    }

    fn check_event(&self, core: &mut Core, event: &Event) {
        let held: Vec<(ClaimId, u64)> = match event {
            Event::Granted(it) | Event::Safe(it) => vec![(ClaimId(it.of.hold), it.token)],
            Event::Jeopardy(it) => vec![(ClaimId(it.of.hold), it.token)],
            Event::Snapshot(it) => held(&it.holds),
            _ => Vec::new(),
        };
        for (claim, token) in held {
            let verdict = core.checks.truth.said(&core.checks.ledger, "an event", claim, token);
            core.judge(Invariant::TruthFirst, verdict);
        }
    }
}

fn held(holds: &[tenure::wire::HoldView]) -> Vec<(ClaimId, u64)> {
    holds
        .iter()
        .filter(|view| matches!(view.state, HoldState::Held | HoldState::Jeopardy))
        .map(|view| (ClaimId(view.hold), view.token.unwrap_or(0)))
        .collect()
}
