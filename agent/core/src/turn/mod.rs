//! PURE. One turn of whoever runs a keeper: what is taken in and in which order, how much of it, and
//! in which order is done what comes of it.
//!
//! In: timers, then reports of the upstream, then ended processes and closed streams, then messages.
//! Out: the journal, then pages that are voided, then the other pages, then calls to an upstream beyond
//! this process, then replies and events, then notes.
//!
//! Invariant: a turn has a [`Budget`]. What does not fit waits for the next one, which begins with
//! timers: no queue, however long, delays a beat by more than one turn.
//!
//! Invariant: nothing of a turn is told, and no page shows a new grant, before the journal has all of
//! it and the pages of those who lost are void.

mod order;
mod standstill;
#[cfg(test)]
mod tests;

pub use order::{Order, Sound, Step};
pub use standstill::{Standstill, Standstills};

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::keeper::journal::Entry;
use crate::keeper::{Command, Keeper, Note, StreamId};
use crate::model::{CallId, ClaimId, Report, Request, SessionId, spare};
use crate::time::Boottime;

/// How much one turn does.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Reports of the upstream.
    pub reports: usize,
    /// Ended processes and closed streams.
    pub endings: usize,
    /// Messages of clients.
    pub messages: usize,
    /// For so long something new is taken in. One of each kind is always taken.
    pub time: Duration,
    /// So many replies and events are told however long the turn took; more within twice the time.
    pub told: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            reports: 4096,
            endings: 256,
            messages: 64,
            time: Duration::from_millis(5),
            told: 256,
        }
    }
}

/// Something that tied a session, or a grant, to life is over.
#[derive(Debug, Clone, Copy)]
pub enum Ending {
    /// A stream was closed, or its reader was too slow.
    Stream(StreamId),
    /// A caller that was answered with this grant is gone, and has not read it.
    Undelivered(ClaimId),
    /// A process cannot be watched.
    Unwatched(SessionId),
    /// A process has ended.
    Process {
        /// Whose.
        session: SessionId,
        /// Its exit code, or 128 + the signal, where the kernel tells.
        status: Option<i32>,
    },
}

/// The surroundings of a keeper: the source of inputs and the receiver of effects. Nothing here
/// waits.
pub trait Shell {
    /// A question of a client, or of the lifecycle.
    type Message;

    /// The present instant, later at every call or the same.
    fn now(&mut self) -> Boottime;

    /// The next thing that the upstream has to say.
    fn next_report(&mut self) -> Option<Report>;

    /// The next ending.
    fn next_ending(&mut self) -> Option<Ending>;

    /// The next message.
    fn next_message(&mut self) -> Option<Self::Message>;

    /// Does what the upstream within this process has due.
    fn wake_upstream(&mut self, now: Boottime);

    /// Hands a message to the keeper.
    fn receive(&mut self, keeper: &mut Keeper, now: Boottime, message: Self::Message);

    /// True if calls take effect together with the journal of this turn, and are answered at once.
    fn shares_journal(&self) -> bool;

    /// Starts a call.
    fn submit(&mut self, call: CallId, request: Request);

    /// Has the calls leave that were started.
    fn dispatch(&mut self) {}

    /// Writes down an entry.
    fn write(&mut self, entry: Entry);

    /// Makes what was written down outlive the process.
    fn secure(&mut self);

    /// Does a command that is not for the upstream, the journal or the log.
    fn perform(&mut self, command: Command);

    /// Logs and counts.
    fn note(&mut self, note: &Note);
}

/// The work that is left, within a turn and from one to the next.
#[derive(Debug, Default)]
pub struct Turn<O = Sound> {
    budget: Budget,
    order: O,
    /// Calls to an upstream that shares the journal.
    within: VecDeque<(CallId, Request)>,
    /// Calls that wait for the journal and the pages: what a release gives to another host must be
    /// off the page of its former holder first.
    beyond: VecDeque<(CallId, Request)>,
    /// Pages that are voided.
    voids: Vec<Command>,
    /// The holds in those.
    voided: HashSet<ClaimId>,
    /// Other pages, and watches on processes.
    here: Vec<Command>,
    /// Replies and events.
    told: VecDeque<Command>,
    notes: Vec<Note>,
}

impl Turn {
    /// A turn with that budget.
    pub fn new(budget: Budget) -> Turn {
        Turn::in_order(budget, Sound)
    }
}

impl<O: Order> Turn<O> {
    /// A turn that puts out its effects in that order.
    pub fn in_order(budget: Budget, order: O) -> Turn<O> {
        Turn {
            budget,
            order,
            within: VecDeque::new(),
            beyond: VecDeque::new(),
            voids: Vec::new(),
            voided: HashSet::new(),
            here: Vec::new(),
            told: VecDeque::new(),
            notes: Vec::new(),
        }
    }

    /// True if something waits for the next turn that nothing will wake it up for.
    pub fn has_more(&self) -> bool {
        !self.told.is_empty() || !self.within.is_empty()
    }

    /// Takes a turn; says how many messages it took.
    pub fn take(&mut self, keeper: &mut Keeper, shell: &mut impl Shell) -> usize {
        let began = shell.now();
        let taken = self.take_in(began, keeper, shell);
        self.put_out(Some(began), shell);
        taken
    }

    /// Does everything that the keeper wants done, and leaves nothing for another turn.
    pub fn flush(&mut self, keeper: &mut Keeper, shell: &mut impl Shell) {
        self.settle(None, keeper, shell);
        self.put_out(None, shell);
    }

    fn take_in(&mut self, began: Boottime, keeper: &mut Keeper, shell: &mut impl Shell) -> usize {
        let mut now = began;
        loop {
            if keeper.poll_timeout().is_some_and(|due| due <= now) {
                keeper.handle_timeout(now);
                self.follow(began, keeper, shell);
            }
            if !keeper.is_overdue(now) {
                break;
            }
            if self.is_spent(began, now) {
                return 0;
            }
            now = shell.now();
        }
        shell.wake_upstream(now);
        self.settle(Some(began), keeper, shell);

        for count in 0..self.budget.endings {
            if count > 0 && !self.goes_on(began, &mut now, keeper, shell) {
                break;
            }
            let Some(ending) = shell.next_ending() else { break };
            match ending {
                Ending::Stream(stream) => keeper.handle_stream_closed(now, stream),
                Ending::Undelivered(hold) => keeper.handle_undelivered(now, hold),
                Ending::Unwatched(session) => keeper.handle_unwatched(now, session),
                Ending::Process { session, status } => keeper.handle_exit(now, session, status),
            }
            self.follow(began, keeper, shell);
        }

        let mut taken = 0;
        while taken < self.budget.messages {
            if taken > 0 && !self.goes_on(began, &mut now, keeper, shell) {
                break;
            }
            let Some(message) = shell.next_message() else { break };
            taken += 1;
            shell.receive(keeper, now, message);
            self.follow(began, keeper, shell);
        }
        taken
    }

    fn is_spent(&self, began: Boottime, now: Boottime) -> bool {
        now.since(began) > self.budget.time
    }

    /// True if another input may be taken: there is time, and no beat is due.
    fn goes_on(
        &self,
        began: Boottime,
        now: &mut Boottime,
        keeper: &Keeper,
        shell: &mut impl Shell,
    ) -> bool {
        let later = shell.now();
        if self.is_spent(began, later) || keeper.is_overdue(later) {
            return false;
        }
        *now = later;
        true
    }

    /// Takes what an input has led to. Only an upstream within this process has answers to that at once.
    fn follow(&mut self, began: Boottime, keeper: &mut Keeper, shell: &mut impl Shell) {
        if shell.shares_journal() {
            self.settle(Some(began), keeper, shell);
        } else {
            self.sort(keeper, shell);
        }
    }

    /// Takes what the keeper wants done, and what the upstream has to say, until both are silent or
    /// the turn that began then is over.
    fn settle(&mut self, began: Option<Boottime>, keeper: &mut Keeper, shell: &mut impl Shell) {
        let mut heard = 0;
        loop {
            self.sort(keeper, shell);
            if let Some(report) = shell.next_report() {
                let now = shell.now();
                hear(keeper, now, report);
                heard += 1;
                let over = |began| heard >= self.budget.reports || self.is_spent(began, now);
                if !began.is_some_and(over) {
                    continue;
                }
                self.sort(keeper, shell);
                return;
            }
            match self.within.pop_front() {
                Some((call, request)) => shell.submit(call, request),
                None => return,
            }
        }
    }

    /// Puts the keeper's commands where they wait for their time.
    fn sort(&mut self, keeper: &mut Keeper, shell: &mut impl Shell) {
        while let Some(command) = keeper.poll_command() {
            match command {
                Command::Call { call, request } if shell.shares_journal() => {
                    // A renewal is of what was granted and is held: nothing before it is about that.
                    match request {
                        Request::Renew(_) => self.within.push_front((call, request)),
                        _ => self.within.push_back((call, request)),
                    }
                }
                Command::Call { call, request } => self.beyond.push_back((call, request)),
                Command::Persist(entry) => shell.write(entry),
                Command::Note(note) => self.notes.push(note),
                Command::Reply { .. } | Command::Send { .. } | Command::CloseStream { .. } => {
                    self.told.push_back(command);
                }
                Command::WritePage { .. }
                | Command::OpenPage { .. }
                | Command::ClosePage { .. }
                | Command::Watch { .. }
                | Command::Unwatch { .. } => self.show(command),
            }
        }
    }

    /// Puts a page, or a watch, where it waits.
    fn show(&mut self, command: Command) {
        match &command {
            Command::WritePage { hold, valid_until: Boottime::ZERO, .. } => {
                self.voided.insert(*hold);
                self.voids.push(command);
            }
            // A page that is opened loses what it is not to keep.
            Command::OpenPage { .. } => self.voids.push(command),
            _ => self.here.push(command),
        }
    }

    /// Does what came of the turn, and leaves what it has no time left for, if it began then.
    fn put_out(&mut self, began: Option<Boottime>, shell: &mut impl Shell) {
        for step in self.order.steps() {
            match step {
                Step::Journal => shell.secure(),
                Step::Voids => self.voids.drain(..).for_each(|command| shell.perform(command)),
                Step::Pages => self.write_pages(shell),
                Step::Told => self.tell(began, shell),
                Step::Calls if self.beyond.is_empty() => {}
                Step::Calls => {
                    self.beyond.drain(..).for_each(|(call, request)| shell.submit(call, request));
                    shell.dispatch();
                }
            }
        }
        self.voided.clear();
        // Nobody waits for the log.
        self.notes.drain(..).for_each(|note| shell.note(&note));
        self.voids.shrink_to(spare::KEPT);
        self.here.shrink_to(spare::KEPT);
        self.notes.shrink_to(spare::KEPT);
    }

    fn write_pages(&mut self, shell: &mut impl Shell) {
        for command in self.here.drain(..) {
            // A hold that was granted and lost within the turn never shows.
            let over =
                matches!(&command, Command::WritePage { hold, .. } if self.voided.contains(hold));
            if !over {
                shell.perform(command);
            }
        }
    }

    fn tell(&mut self, began: Option<Boottime>, shell: &mut impl Shell) {
        let mut told = 0;
        while let Some(command) = self.told.pop_front() {
            shell.perform(command);
            told += 1;
            if let Some(began) = began
                && told % self.budget.told == 0
                && shell.now().since(began) > self.budget.time * 2
            {
                break;
            }
        }
        spare::shrink_queue(&mut self.told);
    }
}

fn hear(keeper: &mut Keeper, now: Boottime, report: Report) {
    match report {
        Report::Answer { call, sent_at, result } => {
            keeper.handle_answer(now, call, sent_at, result);
        }
        Report::Change(change) => keeper.handle_change(now, change),
        Report::Lost { claim, reason, revocation } => {
            keeper.handle_lost(now, claim, reason, revocation.as_ref());
        }
        Report::FeedLost => keeper.handle_feed_lost(now),
    }
}
