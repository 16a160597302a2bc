//! State that all parts of a run share: true time, chance, the queue, the trace and the rules.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::keeper::{
    Numbered, Peer, Refusal, Reply, Request, StreamEnd, StreamId, StreamTarget, Ticket,
};
use tenure_core::model::{Answer, CallId, Change, Failure, SessionId};
use tenure_core::time::Boottime;

use super::invariants::{
    BeatsInTime, Bounded, Exclusion, Fifo, Invariant, Ledger, Moment, NoStarvation, NothingLeft,
    OneAnswer, OneEnd, RestartKeeps, RisingTokens, Tied, TruthFirst, Verdict, Violation,
};
use super::plan::{Plan, Weather};
use super::planted::Planted;
use super::queue::Queue;
use super::random::Random;
use super::time::TrueTime;
use super::trace::Trace;

/// The consequences of faults end this long after them: waits between attempts, and the grants of
/// hosts that were cut off.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);

/// A message of a program to its agent.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request.
    Request {
        /// Under this ticket.
        ticket: Ticket,
        /// By whom.
        peer: Peer,
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

/// A message of an agent to a program.
#[derive(Debug)]
pub(crate) enum Told {
    /// The answer to a request.
    Reply(Ticket, Result<Reply, Refusal>),
    /// The connection broke: no answer will come.
    Broken(Ticket),
    /// A stream could not be opened.
    Refused(StreamId, Refusal),
    /// A stream carries an event.
    Event(StreamId, Numbered),
    /// A stream ended, with a word or without one.
    Closed(StreamId, Option<StreamEnd>),
}

/// A message of the upstream to an agent.
#[derive(Debug, Clone)]
pub(crate) enum Report {
    /// The answer to a call, from the upstream in that life of its data.
    Answer {
        call: CallId,
        /// The answer.
        answer: Answer,
        /// When it was answered, by the upstream's clock.
        at: Boottime,
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

/// A program, and in which life of it.
pub(crate) type Caller = (usize, u64);
/// A host, in which life of its agent, and over a connection to which life of the upstream.
pub(crate) type Origin = (usize, u64, u64);

/// An event of the run.
#[derive(Debug)]
pub(crate) enum Happening {
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
    ToAgent(usize, Caller, Message),
    /// An agent's message reaches a program in that life.
    ToClient(usize, u64, Told),
    /// A program may have something to do.
    Think(usize, u64),
    /// A stopped or hung program goes on.
    ClientThaw(usize),
    /// A killed program is started anew.
    Reborn(usize),
    /// A call reaches the upstream.
    ToUpstream(Origin, CallId, Rc<tenure_core::model::Request>),
    /// Something of the upstream reaches an agent in that life.
    FromUpstream(usize, u64, Report),
    /// The upstream may have something to do.
    UpstreamTurn,
    /// The upstream goes on after it stood still.
    UpstreamThaw,
    /// The link between a host and the upstream works again.
    Mended(usize, u64),
    /// The fault of a host's disks is over, unless there is another by then.
    DiskWell(usize, u64),
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

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults.
    Storm,
    /// No faults: whoever waits is served.
    Calm,
    /// Programs end: nothing remains.
    Farewell,
}

/// The rules and what they remember.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) ledger: Ledger,
    pub(crate) exclusion: Exclusion,
    pub(crate) tokens: RisingTokens,
    pub(crate) fifo: Fifo,
    pub(crate) starvation: NoStarvation,
    pub(crate) left: NothingLeft,
    pub(crate) one_answer: OneAnswer,
    pub(crate) one_end: OneEnd,
    pub(crate) beats: BeatsInTime,
    pub(crate) truth: TruthFirst,
    pub(crate) restart: RestartKeeps,
    pub(crate) bounded: Bounded,
    pub(crate) tied: Tied,
}

/// State that all parts of a run share.
pub(crate) struct Core {
    pub(crate) now: TrueTime,
    pub(crate) step: u64,
    pub(crate) phase: Phase,
    pub(crate) random: Random,
    pub(crate) queue: Queue<Happening>,
    pub(crate) trace: Trace,
    pub(crate) checks: Checks,
    pub(crate) plan: Plan,
    pub(crate) findings: Findings,
    pub(crate) next_number: u64,
    /// What is told to programs.
    pub(crate) told: InOrder,
    /// What programs say.
    pub(crate) said: InOrder,
}

/// The outcome of a run so far.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) violation: Option<Violation>,
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl Findings {
    /// Counts something.
    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

/// Messages of many senders, each of which keeps its order.
#[derive(Default)]
pub(crate) struct InOrder(Vec<TrueTime>);

impl InOrder {
    /// When something arrives that would at `at`, and must not before what went ahead of it.
    fn arrival(&mut self, of: usize, at: TrueTime) -> TrueTime {
        if self.0.len() <= of {
            self.0.resize(of + 1, TrueTime::default());
        }
        self.0[of] = at.max(self.0[of]);
        self.0[of]
    }
}

impl Core {
    /// Plans a happening for `after` from now.
    pub(crate) fn after(&mut self, after: Duration, what: Happening) {
        self.queue.push(self.now + after, what);
    }

    /// Sends something to a program. What is said to one program stays in order.
    pub(crate) fn tell(&mut self, client: usize, life: u64, told: Told) {
        let at = self.now + self.random.us(10, 200);
        let at = self.told.arrival(client, at);
        self.queue.push(at, Happening::ToClient(client, life, told));
    }

    /// Sends something from a program to its agent. What one program says stays in order.
    pub(crate) fn say(&mut self, host: usize, sender: Caller, message: Message) {
        if let Message::CloseStream(stream) = &message {
            self.checks.tied.closed(self.now, *stream);
        }
        let at = self.now + self.random.us(5, 150);
        let at = self.said.arrival(sender.0, at);
        self.queue.push(at, Happening::ToAgent(host, sender, message));
    }

    /// A number that was not used before.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Adds a line to the trace.
    pub(crate) fn line(&mut self, line: impl FnOnce() -> String) {
        self.trace.line(self.step, self.now, line);
    }

    /// Keeps the first violation.
    pub(crate) fn judge(&mut self, invariant: Invariant, verdict: Verdict) {
        if let Err(what) = verdict
            && self.findings.violation.is_none()
        {
            self.line(|| format!("VIOLATION {invariant}: {what}"));
            self.findings.violation = Some(Violation { invariant, what });
        }
    }

    /// Holds what the upstream did against what pages say.
    pub(crate) fn judge_moments(&mut self, moments: Vec<Moment>) {
        for moment in moments {
            let checks = &mut self.checks;
            let verdict = checks.exclusion.moment(self.now, &checks.ledger, &moment);
            self.judge(Invariant::Exclusion, verdict);
            self.checks.tied.moment(self.now, &moment);
        }
    }

    /// The agent of that host did not run in between, by its own clock.
    pub(crate) fn interrupted(&mut self, host: usize, from: Boottime, to: Boottime) {
        self.checks.beats.interrupted(host, from, to);
        self.checks.tied.interrupted(self.now, host, to.since(from));
    }

    /// The network as it is now.
    pub(crate) fn weather(&self) -> Weather {
        if self.phase == Phase::Storm {
            self.plan.weather.clone()
        } else {
            self.plan.weather.calm()
        }
    }

    /// True if the faults and their consequences are over.
    pub(crate) fn is_calm(&self) -> bool {
        self.phase == Phase::Calm && self.now >= TrueTime::default() + self.plan.storm + RECOVERY
    }

    /// Counts something, so that a search can tell what its runs have seen.
    pub(crate) fn seen(&mut self, what: &'static str) {
        self.findings.count(what);
    }

    /// True if this fault is planted.
    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.plan.planted == Some(planted)
    }
}
