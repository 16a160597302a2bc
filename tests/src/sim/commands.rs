//! Doing what the keeper wants: the journal first, then the rest in the order given.

use tenure::wire::{Event, HoldState, LostReason};
use tenured::host::clock::Boottime;
use tenured::keeper::{Command, Note, Peer, Reply, Request, Ticket};
use tenured::model::{ClaimId, Quota, SessionId};

use super::agent::{AGENT_UID, Agent, PageSlot};
use super::core::{Core, Happening, Told};
use super::invariants::{Invariant, Moment, Slot};
use super::planted::Planted;
use super::upstream::Upstream;

/// The harness's own questions come under this ticket.
const INSPECTION: Ticket = Ticket(u64::MAX);

/// What is done in a turn, in order.
enum Deed {
    /// What the keeper wants done.
    Command(Box<Command>),
    /// What an upstream within the agent did in between. It is in the same transaction as the
    /// journal; the pages that were written before it count as written.
    Inner(Vec<Moment>),
}

impl Agent {
    /// Does everything that the keeper wants done in this turn.
    pub(super) fn commit(&mut self, core: &mut Core, upstream: &mut Upstream, now: Boottime) {
        let mut commands = Vec::new();
        let inner = core.plan.embedded;
        if inner {
            commands.push(Deed::Inner(upstream.moments()));
        }
        while let Some(keeper) = &mut self.keeper
            && let Some(command) = keeper.poll_command()
        {
            match command {
                Command::Call { call, request } if inner => {
                    let (answer, changes) = upstream.call(core, request);
                    commands.push(Deed::Inner(upstream.moments()));
                    keeper.handle_answer(now, call, now, Ok(answer));
                    Agent::hint(keeper, now, changes);
                }
                Command::Call { call, request } if core.has(Planted::EarlyCalls) => {
                    self.command(core, upstream, now, Command::Call { call, request });
                }
                command => commands.push(Deed::Command(Box::new(command))),
            }
        }
        if core.has(Planted::EarlyCalls) && self.crash_at_commit && !commands.is_empty() {
            self.crash(core);
            return;
        }
        let commands = self.write_journal(core, now, commands);
        let all = commands.len();
        let doing = if self.crash_at_commit && all > 0 {
            core.random.below(all as u64) as usize
        } else {
            all
        };
        for command in commands.into_iter().take(doing) {
            match command {
                Deed::Command(command) => self.command(core, upstream, now, *command),
                Deed::Inner(moments) => core.judge_moments(moments),
            }
        }
        if doing < all {
            self.crash_at_commit = false;
            core.line(|| format!("agent {}: {doing} of {all} commands done", self.host));
            self.crash(core);
        }
    }

    /// Writes what is to be journaled, and gives the commands that are left.
    fn write_journal(&mut self, core: &mut Core, now: Boottime, commands: Vec<Deed>) -> Vec<Deed> {
        for entry in std::mem::take(&mut self.unwritten) {
            self.rows.write(entry);
        }
        let mut left = Vec::with_capacity(commands.len());
        for command in commands {
            let command = match command {
                Deed::Command(command) => *command,
                inner @ Deed::Inner(_) => {
                    left.push(inner);
                    continue;
                }
            };
            match command {
                Command::Persist(entry) if core.has(Planted::LateJournal) => {
                    self.unwritten.push(entry);
                }
                Command::Persist(entry) => {
                    core.line(|| format!("agent {}: journal {entry:?}", self.host));
                    self.rows.write(entry);
                }
                // What is noted has happened, even if the agent dies before it says so.
                Command::Note(note) => self.note(core, now, &note),
                command => left.push(Deed::Command(Box::new(command))),
            }
        }
        left
    }

    fn note(&mut self, core: &mut Core, now: Boottime, note: &Note) {
        if let Note::Beat { late } = note {
            let verdict = core.checks.beats.sent(now, self.host, *late);
            core.judge(Invariant::BeatsInTime, verdict);
            return;
        }
        core.line(|| format!("agent {}: notes {note:?}", self.host));
        if let Note::Lost { hold, token: 1.., reason, .. } = note {
            core.seen(reason.as_str());
            if matches!(reason, LostReason::Expired | LostReason::Slept) {
                let believed = core.checks.exclusion.believed(core.now, self.host);
                let verdict = core.checks.beats.ran_out(*hold, *reason, &believed);
                core.judge(Invariant::BeatsInTime, verdict);
            }
            if self.waking {
                let verdict = core.checks.truth.after_sleep(*hold, *reason);
                core.judge(Invariant::TruthFirst, verdict);
            }
            if core.is_calm() {
                let verdict = core.checks.beats.lost_in_calm(*hold, *reason);
                core.judge(Invariant::BeatsInTime, verdict);
            }
        }
        let verdict = core.checks.one_end.noted(self.host, note);
        core.judge(Invariant::OneEnd, verdict);
    }

    fn command(
        &mut self,
        core: &mut Core,
        upstream: &mut Upstream,
        now: Boottime,
        command: Command,
    ) {
        match command {
            Command::Reply { ticket: INSPECTION, reply } => self.inspected = reply.ok(),
            Command::Reply { ticket, reply } => {
                let Some(((client, life), _)) = self.tickets.remove(&ticket) else { return };
                self.check_reply(core, now, reply.as_ref().ok());
                core.tell(client, life, Told::Reply(ticket, reply));
            }
            Command::Call { call, request } => {
                core.line(|| format!("agent {}: {call:?} {request:?}", self.host));
                self.link.asked.insert(call, Agent::claims_of(&request));
                let sender = (self.host, self.incarnation, upstream.life);
                self.link.submit(core, now, sender, call, request);
            }
            Command::Send { stream, event } => {
                let Some(open) = self.streams.get(&stream) else { return };
                if let Some(session) = open.session {
                    let verdict = core.checks.one_end.carried(session, &event);
                    core.judge(Invariant::OneEnd, verdict);
                }
                let (client, life) = (open.client, open.life);
                self.check_event(core, &event.event);
                core.tell(client, life, Told::Event(stream, event));
            }
            Command::CloseStream { stream, end } => {
                let Some(open) = self.streams.remove(&stream) else { return };
                let told = Told::Closed(stream, Some(end));
                core.tell(open.client, open.life, told);
            }
            Command::Watch { session, process, .. } => {
                let Some(process) = process else { return };
                self.watches.insert(session, process);
                if !self.processes.contains(&process.pid) {
                    let happening = Happening::Exited(self.host, self.incarnation, session);
                    let after = core.random.us(10, 300);
                    core.after(after, happening);
                }
            }
            Command::Unwatch { session } => {
                self.watches.remove(&session);
            }
            Command::OpenPage { session, keep, .. } => {
                let page = self.pages.entry(session).or_default();
                page.retain(|slot, _| keep & (1 << slot) != 0);
                core.checks.exclusion.voided(self.host, session, keep);
            }
            Command::WritePage { session, slot, hold, token, valid_until, .. } => {
                self.write_page(core, session, slot, (hold, token, valid_until));
            }
            Command::ClosePage { session } => {
                self.pages.remove(&session);
                core.checks.exclusion.removed(self.host, session);
            }
            Command::Persist(_) | Command::Note(_) => {}
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
        let page = self.pages.entry(session).or_default();
        page.insert(slot, PageSlot { hold, valid_until });
        let until = (valid_until > Boottime::ZERO).then(|| self.clock.when(valid_until));
        if until.is_some() {
            let verdict = core.checks.truth.said(&core.checks.ledger, "a page", hold, token);
            core.judge(Invariant::TruthFirst, verdict);
        }
        let at = Slot { host: self.host, session, slot };
        let checks = &mut core.checks;
        let verdict = checks.exclusion.written(core.now, &checks.ledger, at, hold, until);
        core.judge(Invariant::Exclusion, verdict);
    }

    fn check_reply(&self, core: &mut Core, now: Boottime, reply: Option<&Reply>) {
        if let Some(Reply::Acquired(acquired)) = reply {
            let (claim, until) = (ClaimId(acquired.hold), acquired.valid_until_boottime_ns);
            let verdict = core.checks.truth.in_time("a reply", claim, until, now);
            core.judge(Invariant::TruthFirst, verdict);
        }
        let held: Vec<(ClaimId, u64)> = match reply {
            Some(Reply::Acquired(acquired)) => vec![(ClaimId(acquired.hold), acquired.token)],
            Some(Reply::Checkpointed(checked)) => held(&checked.holds),
            _ => Vec::new(),
        };
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

    /// Everything that the keeper knows, by its own status.
    pub(super) fn inspect(&mut self, core: &Core) -> Vec<tenure::wire::SessionStatus> {
        let now = self.boottime(core);
        let peer = Peer {
            uid: AGENT_UID,
            gid: AGENT_UID,
            process: None,
            watchable: false,
            quota: Quota::default(),
        };
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        keeper.handle_request(now, INSPECTION, peer, Request::Status);
        while let Some(command) = keeper.poll_command() {
            if let Command::Reply { ticket: INSPECTION, reply: Ok(Reply::Status(status)) } = command
            {
                return status.visible;
            }
        }
        Vec::new()
    }
}

fn held(holds: &[tenure::wire::HoldView]) -> Vec<(ClaimId, u64)> {
    holds
        .iter()
        .filter(|view| matches!(view.state, HoldState::Held | HoldState::Jeopardy))
        .map(|view| (ClaimId(view.hold), view.token.unwrap_or(0)))
        .collect()
}
