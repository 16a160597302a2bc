//! The shell of a keeper in a run, as `heart/shell.rs` is in a real agent.

use tenure::wire::{Event, HoldState, LostReason, Release, Wait};
use tenure_core::keeper::journal::Entry;
use tenure_core::keeper::{
    Command, Keeper, Note, Peer, Reply, Request, StatusPage, StreamTarget, Ticket,
};
use tenure_core::model::{
    self, Answer, BeatAnswer, CallId, ClaimAnswer, ClaimId, Quota, SessionId,
};
use tenure_core::time::Boottime;
use tenure_core::turn::{self, Ending};

use super::agent::{AGENT_UID, Agent, OpenStream, PageSlot, session_of};
use super::core::{Caller, Core, Happening, Message, Phase, Report, Told};
use super::deeds::Deed;
use super::invariants::{Invariant, Moment, Slot};
use super::planted::Planted;
use super::time::TrueTime;
use super::upstream::Upstream;

/// The harness's own questions come under this ticket.
const INSPECTION: Ticket = Ticket(u64::MAX);
/// An agent that is to be killed while it writes does at most so many writes before.
const LAST_WRITES_MAX: u64 = 6;
/// Calls that a planted fault makes come under this one.
pub(super) const UNASKED: Ticket = Ticket(u64::MAX - 1);
/// An agent that is to be killed within a turn does at most so much of it before.
const LAST_DEEDS_MAX: u64 = 10;

/// A turn of an agent, with everything around its keeper.
pub(super) struct Around<'a> {
    agent: &'a mut Agent,
    core: &'a mut Core,
    upstream: &'a mut Upstream,
    /// Entries to be journaled.
    written: Vec<Entry>,
    /// Effects of an upstream within the agent in this turn. They are in the same transaction as the
    /// journal; pages that are voided in the turn count as void before it.
    inner: Vec<Moment>,
    /// The pages when the turn was secured.
    believed: Vec<(SessionId, ClaimId, TrueTime)>,
    /// Commands put off until the calls have left, for a planted fault.
    held_back: Vec<Command>,
    /// So much is done before the agent is killed.
    left: Option<u64>,
    is_dead: bool,
    did_anything: bool,
    is_secured: bool,
    /// The agent was killed before the journal had the turn, which so never was.
    never_was: bool,
}

impl<'a> Around<'a> {
    pub(super) fn new(
        agent: &'a mut Agent,
        core: &'a mut Core,
        upstream: &'a mut Upstream,
    ) -> Around<'a> {
        Around {
            agent,
            core,
            upstream,
            inner: Vec::new(),
            written: Vec::new(),
            believed: Vec::new(),
            held_back: Vec::new(),
            left: None,
            is_dead: false,
            did_anything: false,
            is_secured: false,
            never_was: false,
        }
    }

    /// The turn is over; whether the agent was killed in it.
    pub(super) fn end(mut self) -> bool {
        if self.core.has(Planted::EarlyCalls) {
            if self.agent.crash_at_commit && self.did_anything {
                return true;
            }
            self.write_journal();
            for command in std::mem::take(&mut self.held_back) {
                self.do_now(command);
            }
        }
        if self.core.has(Planted::VoidLast) && !self.is_dead {
            for command in std::mem::take(&mut self.held_back) {
                self.do_now(command);
            }
        }
        if !self.is_dead {
            self.judge_inner();
        }
        if self.never_was {
            return true;
        }
        if self.left.is_some() && self.did_anything {
            self.agent.crash_at_commit = false;
            return true;
        }
        false
    }

    fn clock(&self) -> Boottime {
        self.agent.boottime(self.core)
    }

    /// The effects of the store within the agent in this turn; none if the turn never was.
    fn secure_store(&mut self) -> Option<Vec<Vec<Deed>>> {
        let now = self.clock();
        let agent = &mut *self.agent;
        let Some(store) = &mut agent.store else { return Some(Vec::new()) };
        if self.core.has(Planted::LateJournal) && self.core.random.per_mille(500) {
            // It is written by a later turn.
            return Some(store.told_early());
        }
        if agent.crash_at_commit && self.core.random.per_mille(500) {
            agent.crash_at_commit = false;
            let writes = self.core.random.below(LAST_WRITES_MAX);
            agent.storage.die_at(agent.process, Some(writes));
        }
        store.secure(now)
    }

    fn judge_inner(&mut self) {
        let inner = std::mem::take(&mut self.inner);
        self.core.judge_moments(inner);
    }

    fn write_journal(&mut self) {
        for entry in std::mem::take(&mut self.agent.unwritten) {
            self.agent.rows.write(entry);
        }
        for entry in std::mem::take(&mut self.written) {
            if self.core.has(Planted::LateJournal) {
                self.agent.unwritten.push(entry);
                continue;
            }
            self.core.line(|| format!("agent {}: journal {entry:?}", self.agent.host));
            if let Entry::Session(saved) = &entry {
                self.core.checks.tied.written(self.core.now, self.agent.host, saved);
            }
            self.agent.rows.write(entry);
        }
    }

    /// True if the agent lives long enough to do one thing more.
    fn may_do(&mut self) -> bool {
        self.did_anything = true;
        match &mut self.left {
            _ if self.is_dead => {}
            Some(0) => {
                self.is_dead = true;
                self.core.line(|| format!("agent {}: is killed within a turn", self.agent.host));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        !self.is_dead
    }

    fn do_now(&mut self, command: Command) {
        // A page that is opened loses what it is not to keep, and comes before others are written.
        let is_void = matches!(
            command,
            Command::OpenPage { .. } | Command::WritePage { valid_until: Boottime::ZERO, .. }
        );
        if self.is_secured && !is_void {
            self.judge_inner();
        }
        let now = self.clock();
        self.agent.command(self.core, now, command);
    }

    fn call(&mut self, call: CallId, request: model::Request) {
        let now = self.clock();
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: {call:?} {request:?}", agent.host));
        agent.link.asked.insert(call, Agent::claims_of(&request));
        if let Some(store) = &mut agent.store {
            return store.submit(now, call, request);
        }
        let sender = (agent.host, agent.incarnation, self.upstream.life);
        agent.link.submit(self.core, now, sender, call, request);
    }

    /// Turns what came over the link into what the keeper hears.
    fn hear(&mut self, report: Report) {
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: hears {report:?}", agent.host));
        let epoch = match &report {
            Report::Answer { epoch, .. }
            | Report::Change { epoch, .. }
            | Report::Connected(epoch) => Some(*epoch),
            Report::Failed(..) => None,
        };
        if let Some(epoch) = epoch {
            let last = *agent.link.epoch.get_or_insert(epoch);
            if epoch < last {
                // From a connection to a life of the upstream that is over.
                return;
            }
            agent.link.epoch = Some(epoch);
        }
        match report {
            Report::Answer { call, answer, .. } => {
                let Some(asked) = agent.link.in_flight.remove(&call) else { return };
                if let (Some(claim), Answer::Released(_)) = (asked.releases, &answer) {
                    self.core.checks.left.released(claim);
                }
                let answer = self.distort(answer);
                self.note_gone(call, &answer);
                let late = self.core.has(Planted::FromArrival);
                let sent_at = if late { self.clock() } else { asked.sent_at };
                let result = Ok(answer);
                self.agent.heard.push_back(model::Report::Answer { call, sent_at, result });
            }
            Report::Failed(call, failure) => {
                let Some(asked) = agent.link.in_flight.remove(&call) else { return };
                let (sent_at, result) = (asked.sent_at, Err(failure));
                agent.heard.push_back(model::Report::Answer { call, sent_at, result });
            }
            Report::Change { change, .. } => agent.heard.push_back(model::Report::Change(change)),
            Report::Connected(_) => agent.heard.push_back(model::Report::FeedLost),
        }
    }

    /// Planted: what was taken away seems to have been renewed.
    fn distort(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Renew(_) if !self.core.has(Planted::DeafToLoss) => answer,
            Answer::Renew(answers) => {
                let taken = |answer: &BeatAnswer| {
                    use model::GoneReason::{Preempted, Revoked};
                    matches!(answer, BeatAnswer::Gone(Preempted | Revoked))
                };
                // As if it had not been asked at all.
                let any = answers.iter().any(taken);
                if any { Answer::Announced } else { Answer::Renew(answers) }
            }
            other => other,
        }
    }

    /// A hold that the upstream calls gone must be off the page when the turn ends.
    fn note_gone(&mut self, call: CallId, answer: &Answer) {
        let Some(claims) = self.agent.link.asked.remove(&call) else { return };
        self.core.checks.truth.heard(self.core.now, claims.iter().copied().flatten());
        let gone: Vec<ClaimId> = match answer {
            Answer::Renew(answers) => claims
                .iter()
                .zip(answers)
                .filter(|(_, answer)| matches!(answer, BeatAnswer::Gone(_)))
                .filter_map(|(claim, _)| *claim)
                .collect(),
            Answer::Claim(ClaimAnswer::Gone(_)) => claims.into_iter().flatten().collect(),
            _ => Vec::new(),
        };
        for claim in gone {
            self.core.checks.exclusion.heard(self.agent.host, claim);
        }
    }

    /// The next thing that the keeper is to hear.
    fn hear_next(&mut self) -> Option<model::Report> {
        loop {
            if let Some(report) = self.agent.heard.pop_front() {
                return Some(report);
            }
            let now = self.clock();
            if let Some(store) = &mut self.agent.store {
                let report = store.next_report(now);
                if let Some(report) = &report {
                    self.core.line(|| format!("agent {}: hears {report:?}", self.agent.host));
                    if let model::Report::Lost { claim, .. } = report {
                        self.core.checks.truth.taken(*claim);
                    }
                }
                return report;
            }
            let report = self.agent.reports.pop_front()?;
            self.hear(report);
        }
    }
}

impl turn::Shell for Around<'_> {
    type Message = (Caller, Message);

    fn now(&mut self) -> Boottime {
        let random = &mut self.core.random;
        // A busy machine takes the processor away now and then.
        let takes = if random.per_mille(2) { random.us(0, 8000) } else { random.us(0, 3) };
        self.core.now = self.core.now + takes;
        self.agent.storage.set_now(self.core.now);
        self.clock()
    }

    fn next_report(&mut self) -> Option<model::Report> {
        let report = self.hear_next();
        if let Some(model::Report::Answer { call, result, .. }) = &report
            && let Some(claims) = self.agent.link.asked.remove(call)
            && result.is_ok()
        {
            self.core.checks.truth.heard(self.core.now, claims.into_iter().flatten());
        }
        report
    }

    fn next_ending(&mut self) -> Option<Ending> {
        if let Some(hold) = self.agent.undelivered.pop() {
            return Some(Ending::Undelivered(hold));
        }
        let session = self.agent.exits.pop_front()?;
        self.core
            .line(|| format!("agent {}: process of session {session} exited", self.agent.host));
        Some(Ending::Process { session, status: None })
    }

    fn next_message(&mut self) -> Option<(Caller, Message)> {
        self.agent.messages.pop_front()
    }

    fn wake_upstream(&mut self, now: Boottime) {
        if let Some(store) = &mut self.agent.store {
            store.handle_timeout(now);
        }
    }

    fn receive(
        &mut self,
        keeper: &mut Keeper,
        now: Boottime,
        ((client, life), message): (Caller, Message),
    ) {
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: client {client} says {message:?}", agent.host));
        match message {
            Message::Request { ticket, peer, request } => {
                let blocks = match &*request {
                    Request::Acquire(acquire) => acquire.wait == Wait::Block,
                    _ => false,
                };
                if self.core.has(Planted::WalksAll) {
                    let page = StatusPage::first(usize::MAX);
                    keeper.handle_request(now, UNASKED, own_peer(), Request::Status(page));
                }
                if let Request::Release(Release { session, hold: None }) = &*request {
                    self.core.checks.tied.leaves(SessionId(*session));
                }
                if let Some((session, false)) = session_of(&request)
                    && self.core.has(Planted::AnyCallIsProgress)
                {
                    keeper.handle_request(now, UNASKED, peer, Request::Beat(session.0));
                }
                agent.tickets.insert(ticket, ((client, life), blocks));
                if let Request::Checkpoint(_) = *request {
                    self.core.checks.truth.checkpoint(self.core.now, ticket);
                    let is_beating = !agent.link.in_flight.is_empty();
                    let last = agent.checkpointed.get(&(client, life)).filter(|_| is_beating);
                    if let Some(last) = last.cloned() {
                        let command = Command::Reply { ticket, reply: Ok(last) };
                        return agent.command(self.core, now, command);
                    }
                }
                keeper.handle_request(now, ticket, peer, *request);
            }
            Message::Cancel(ticket) => {
                if agent.tickets.remove(&ticket).is_some() {
                    self.core.checks.tied.answered(self.core.now, (client, life));
                    keeper.handle_cancel(now, ticket);
                }
            }
            Message::OpenStream { stream, peer, target } => {
                let session = match &target {
                    StreamTarget::Session { session, .. } => Some(SessionId(*session)),
                    StreamTarget::Resource(_) => None,
                };
                match keeper.open_stream(now, stream, peer, target) {
                    Ok(()) => {
                        if let Some(session) = session {
                            self.core.checks.tied.opened(self.core.now, stream, session);
                        }
                        let is_tether = keeper.is_tether_of_work(stream);
                        let open = OpenStream { client, life, session, is_tether, is_full: false };
                        agent.streams.insert(stream, open);
                    }
                    Err(refusal) => {
                        let told = Told::Refused(stream, refusal);
                        self.core.tell(client, life, told);
                    }
                }
            }
            Message::CloseStream(stream) => {
                let open = agent.streams.remove(&stream);
                let noticed = !self.core.has(Planted::DeafToClose);
                if open.is_some_and(|open| noticed || !open.is_tether) {
                    keeper.handle_stream_closed(now, stream);
                }
            }
        }
    }

    fn shares_journal(&self) -> bool {
        self.agent.store.is_some()
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        self.agent.done += 1;
        // The effects of an upstream within the agent are part of the turn.
        if self.core.plan.embedded || self.may_do() {
            self.call(call, request);
        }
        let random = &mut self.core.random;
        if self.core.plan.embedded && self.core.phase == Phase::Storm && random.per_mille(1) {
            // The whole machine stands still.
            let from = self.clock();
            let random = &mut self.core.random;
            let lasts = random.ms(10, 1500);
            self.core.now = self.core.now + lasts;
            let to = self.clock();
            self.core.interrupted(self.agent.host, from, to);
            self.core.checks.truth.stood_still(self.agent.host, from, to);
            self.core.seen("machine stood still within a turn");
        }
    }

    fn write(&mut self, entry: Entry) {
        self.agent.done += 1;
        if self.core.has(Planted::ForgetRequests) && matches!(entry, Entry::Remembered(_)) {
            return;
        }
        if let Some(store) = &mut self.agent.store {
            store.write(entry.clone());
        }
        self.written.push(entry);
    }

    fn secure(&mut self) {
        self.believed = self.core.checks.exclusion.believed_until(self.core.now, self.agent.host);
        self.is_secured = true;
        if self.core.has(Planted::EarlyCalls) {
            return;
        }
        if let Some(steps) = self.secure_store() {
            for step in steps {
                let moments = self.core.take_down(step);
                self.inner.extend(moments);
            }
        } else {
            self.core.line(|| format!("agent {}: is killed while it writes", self.agent.host));
            self.core.seen("agent killed while it wrote");
            (self.is_dead, self.never_was) = (true, true);
            return;
        }
        self.write_journal();
        if self.agent.crash_at_commit {
            self.left = Some(self.core.random.below(LAST_DEEDS_MAX));
        }
    }

    fn perform(&mut self, command: Command) {
        self.agent.done += 1;
        let is_void = matches!(command, Command::WritePage { valid_until: Boottime::ZERO, .. });
        if self.core.has(Planted::EarlyCalls) {
            self.did_anything = true;
            self.held_back.push(command);
        } else if is_void && self.core.has(Planted::VoidLast) {
            self.held_back.push(command);
        } else if self.may_do() {
            self.do_now(command);
        }
    }

    /// A noted event has happened, even if the agent dies before it says so.
    fn note(&mut self, note: &Note) {
        self.agent.done += 1;
        if self.never_was {
            return;
        }
        let now = self.clock();
        let believed = std::mem::take(&mut self.believed);
        self.agent.note(self.core, now, note, &believed);
        self.believed = believed;
    }
}

impl Agent {
    fn note(
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
            Note::Ended { session, .. } if self.stopping => tied.forget(*session),
            Note::Ended { session, why, .. } => {
                tied.ended(core.now, *session, why, &self.processes)
            }
            Note::Lost { hold, session, reason, .. } => {
                tied.lost(core.now, *session, *hold, *reason, believed)
            }
            Note::Released { hold, cause, .. } if !self.stopping => {
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
            if self.waking {
                let verdict = core.checks.truth.after_sleep(*hold, *reason);
                core.judge(Invariant::TruthFirst, verdict);
            }
            // Nobody tells an agent that was started again whether guarded work goes on: it is not renewed.
            if core.is_calm() && !self.rows.is_guarded(*session) {
                let verdict = core.checks.beats.lost_in_calm(*hold, *reason);
                core.judge(Invariant::BeatsInTime, verdict);
            }
        }
        let verdict = core.checks.one_end.noted(self.host, note);
        core.judge(Invariant::OneEnd, verdict);
    }

    fn command(&mut self, core: &mut Core, now: Boottime, command: Command) {
        match command {
            Command::Reply { ticket: INSPECTION, reply } => self.inspected = reply.ok(),
            Command::Reply { ticket, reply } => {
                let Some(((client, life), _)) = self.tickets.remove(&ticket) else {
                    // It was cancelled in this very turn.
                    self.unread(core, reply.as_ref().ok());
                    return;
                };
                self.check_reply(core, now, ticket, reply.as_ref().ok());
                if let Ok(Reply::Checkpointed(_)) = &reply
                    && core.has(Planted::EarlyCheckpoint)
                {
                    self.checkpointed.extend(reply.clone().ok().map(|it| ((client, life), it)));
                }
                core.checks.tied.answered(core.now, (client, life));
                core.tell(client, life, Told::Reply(ticket, reply));
            }
            Command::Send { stream, event } => {
                let Some(open) = self.streams.get(&stream).filter(|open| !open.is_full) else {
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
                page.retain(|slot, _| keep.contains(slot));
                core.checks.exclusion.voided(self.host, session, &keep);
            }
            Command::WritePage { session, slot, hold, token, valid_until, .. } => {
                self.write_page(core, session, slot, (hold, token, valid_until));
            }
            Command::ClosePage { session } => {
                self.pages.remove(&session);
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

    /// Everything that the keeper knows, by its own status.
    pub(super) fn inspect(&mut self, core: &Core) -> Vec<tenure::wire::SessionStatus> {
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let page = tenure_core::keeper::StatusPage::first(usize::MAX);
        keeper.handle_request(now, INSPECTION, own_peer(), Request::Status(page));
        while let Some(command) = keeper.poll_command() {
            if let Command::Reply { ticket: INSPECTION, reply: Ok(Reply::Status(status)) } = command
            {
                return status.visible;
            }
        }
        Vec::new()
    }
}

/// The agent's own user, who sees everything.
pub(super) fn own_peer() -> Peer {
    Peer {
        uid: AGENT_UID,
        gid: AGENT_UID,
        process: None,
        watchable: false,
        quota: Quota::default(),
    }
}

fn held(holds: &[tenure::wire::HoldView]) -> Vec<(ClaimId, u64)> {
    holds
        .iter()
        .filter(|view| matches!(view.state, HoldState::Held | HoldState::Jeopardy))
        .map(|view| (ClaimId(view.hold), view.token.unwrap_or(0)))
        .collect()
}
