//! What all parts of a run share: true time, chance, the queue, the trace and the rules.

use std::rc::Rc;
use std::sync::Arc;

use tenure::wire::Problem;
use tenured::keeper::{Numbered, Peer, Reply, Request, StreamEnd, StreamId, StreamTarget, Ticket};
use tenured::model::{Answer, CallId, Change, Failure, SessionId};

use super::invariants::{
    BeatsInTime, Bounded, Exclusion, Fifo, Invariant, Ledger, Moment, NoStarvation, NothingLeft,
    OneEnd, RestartKeeps, RisingTokens, TruthFirst, Verdict, Violation,
};
use super::plan::{Plan, Weather};
use super::planted::Planted;
use super::queue::Queue;
use super::random::Random;
use super::time::TrueTime;
use super::trace::Trace;

/// What a program asks of its agent.
#[derive(Debug)]
pub enum Message {
    /// A request.
    Request {
        /// Under this ticket.
        ticket: Ticket,
        /// By whom.
        peer: Peer,
        /// What.
        request: Box<Request>,
    },
    /// The caller went away.
    Cancel(Ticket),
    /// Open a stream.
    OpenStream {
        /// Under this number.
        stream: StreamId,
        /// By whom.
        peer: Peer,
        /// About what.
        target: StreamTarget,
    },
    /// The reader closed it.
    CloseStream(StreamId),
}

/// What a program hears from its agent.
#[derive(Debug)]
pub enum Told {
    /// The answer to a request.
    Reply(Ticket, Result<Reply, Box<Problem>>),
    /// The connection broke: no answer will come.
    Broken(Ticket),
    /// A stream could not be opened.
    Refused(StreamId, Box<Problem>),
    /// A stream carries an event.
    Event(StreamId, Arc<Numbered>),
    /// A stream ended, with a word or without one.
    Closed(StreamId, Option<StreamEnd>),
}

/// What an agent hears from its upstream.
#[derive(Debug, Clone)]
pub enum Report {
    /// The answer to a call, from the upstream in that life of its data.
    Answer {
        /// Which call.
        call: CallId,
        /// The answer.
        answer: Answer,
        /// The life.
        epoch: u64,
    },
    /// The call came to nothing.
    Failed(CallId, Failure),
    /// A hint.
    Change {
        /// The hint.
        change: Change,
        /// From which life.
        epoch: u64,
    },
    /// The connection is there again.
    Connected(u64),
}

/// What happens next.
#[derive(Debug)]
pub enum Happening {
    /// An agent may have something to do.
    Turn(usize),
    /// An agent goes on after it was stopped, or its machine wakes.
    Thaw(usize),
    /// An agent is started.
    Start(usize),
    /// An agent that stops has taken as long as it may.
    StopDeadline(usize, u64),
    /// A process that the agent of a host watches has ended.
    Exited(usize, u64, SessionId),
    /// A program's message reaches its agent.
    ToAgent(usize, (usize, u64), Message),
    /// An agent's message reaches a program in that life.
    ToClient(usize, u64, Told),
    /// A program may have something to do.
    Think(usize, u64),
    /// A stopped program goes on.
    ClientThaw(usize),
    /// A killed program is started anew.
    Reborn(usize),
    /// A call reaches the upstream.
    ToUpstream((usize, u64, u64), CallId, Rc<tenured::model::Request>),
    /// Something of the upstream reaches an agent in that life.
    FromUpstream(usize, u64, Report),
    /// The upstream may have something to do.
    UpstreamTurn,
    /// The upstream goes on after it stood still.
    UpstreamThaw,
    /// The link between a host and the upstream works again.
    Mended(usize, u64),
    /// Something goes wrong.
    Trouble,
    /// A look at everything that waits.
    Look,
    /// The faults stop.
    Calm,
    /// Programs end.
    Farewell,
    /// Programs that are left are killed.
    LastOrders,
    /// Everything must be gone.
    Finish,
}

/// Which part of a run this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Faults.
    Storm,
    /// No faults: whoever waits is served.
    Calm,
    /// Programs end: nothing remains.
    Farewell,
}

/// The rules and what they remember.
#[derive(Default)]
pub struct Checks {
    pub ledger: Ledger,
    pub exclusion: Exclusion,
    pub tokens: RisingTokens,
    pub fifo: Fifo,
    pub starvation: NoStarvation,
    pub left: NothingLeft,
    pub one_end: OneEnd,
    pub beats: BeatsInTime,
    pub truth: TruthFirst,
    pub restart: RestartKeeps,
    pub bounded: Bounded,
}

/// What all parts of a run share.
pub struct Core {
    pub now: TrueTime,
    pub step: u64,
    pub phase: Phase,
    pub random: Random,
    pub queue: Queue<Happening>,
    pub trace: Trace,
    pub checks: Checks,
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub violation: Option<Violation>,
    pub next_number: u64,
    pub told_until: Vec<TrueTime>,
    pub said_until: Vec<TrueTime>,
}

impl Core {
    /// Plans a happening for `after` from now.
    pub fn after(&mut self, after: std::time::Duration, what: Happening) {
        self.queue.push(self.now + after, what);
    }

    /// Sends something to a program. What is said to one program stays in order.
    pub fn tell(&mut self, client: usize, life: u64, told: Told) {
        let at = self.now + self.random.us(10, 200);
        let at = Core::in_order(&mut self.told_until, client, at);
        self.queue.push(at, Happening::ToClient(client, life, told));
    }

    /// Sends something from a program to its agent. What one program says stays in order.
    pub fn say(&mut self, host: usize, sender: (usize, u64), message: Message) {
        let at = self.now + self.random.us(5, 150);
        let at = Core::in_order(&mut self.said_until, sender.0, at);
        self.queue.push(at, Happening::ToAgent(host, sender, message));
    }

    fn in_order(until: &mut Vec<TrueTime>, client: usize, at: TrueTime) -> TrueTime {
        if until.len() <= client {
            until.resize(client + 1, TrueTime::default());
        }
        until[client] = at.max(until[client]);
        until[client]
    }

    /// A number that was not used before.
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Adds a line to the trace.
    pub fn line(&mut self, line: impl FnOnce() -> String) {
        self.trace.line(self.step, self.now, line);
    }

    /// Keeps the first violation.
    pub fn judge(&mut self, invariant: Invariant, verdict: Verdict) {
        if let Err(what) = verdict
            && self.violation.is_none()
        {
            self.line(|| format!("VIOLATION {invariant}: {what}"));
            self.violation = Some(Violation { invariant, what });
        }
    }

    /// Holds what the upstream did against what pages say.
    pub fn judge_moments(&mut self, moments: Vec<Moment>) {
        for moment in moments {
            let checks = &mut self.checks;
            let verdict = checks.exclusion.moment(self.now, &checks.ledger, &moment);
            self.judge(Invariant::Exclusion, verdict);
        }
    }

    /// The network as it is now.
    pub fn weather(&self) -> Weather {
        if self.phase == Phase::Storm {
            self.plan.weather.clone()
        } else {
            self.plan.weather.calm()
        }
    }

    /// Whether this fault is planted.
    pub fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }
}
