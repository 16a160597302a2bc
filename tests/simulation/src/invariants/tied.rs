//! I11: a session lasts as long as what ties it to life, no shorter and no longer.
//!
//! No shorter: a session whose program called in time, whose process lives, or whose event stream any
//! process has open, does not end by itself; nor does anything that guarded work relies on go to others.
//! The time in which an agent stood still counts against nobody. No longer: what a program holds that
//! is hung, has ended or has closed its stream is gone shortly after its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::wire::{LostReason, ReleasedCause, Tether};
use tenure_core::keeper::StreamId;
use tenure_core::keeper::journal::SavedSession;
use tenure_core::model::{ClaimId, GoneReason, SessionId};

use super::super::core::Caller;
use super::super::time::TrueTime;
use super::Verdict;
use super::ledger::{End, Moment};

/// The longest promise, as measured by clocks that drift.
const SLACK: Duration = Duration::from_millis(25);
/// So soon after its deadline an agent that runs has ended what is over.
const BOUND: Duration = Duration::from_millis(500);
/// A session has at least so long to open its first stream.
const FIRST_STREAM: Duration = Duration::from_secs(3);
/// A standstill of this length is noticed wherever it begins.
const NOTICED: Duration = Duration::from_millis(1300);

/// The true state of a session.
#[derive(Debug)]
struct Tie {
    host: usize,
    saved: SavedSession,
    caller: Option<Caller>,
    called: Sign,
    beaten: Sign,
    /// From when on the agent may have counted the tether, and the promise of progress, at the latest.
    moved: TrueTime,
    progressed: TrueTime,
    /// When its last stream was closed.
    closed: TrueTime,
    /// The program asked for its end.
    leaves: bool,
    /// Nobody has opened a stream since the agent started again.
    orphaned: bool,
}

/// The last call that has reached the agent's socket.
#[derive(Debug)]
struct Sign {
    at: TrueTime,
    /// Registration is none: when it was served is not known exactly.
    is_call: bool,
    /// When one came late: the agent may be about to act on that.
    late: Option<TrueTime>,
}

impl Sign {
    fn came(&mut self, now: TrueTime, within: Option<Duration>) {
        if within.is_none_or(|within| now.since(self.at) + SLACK >= within) {
            self.late = Some(now);
        }
        self.at = now;
        self.is_call = true;
    }

    /// True if the next one is not due yet.
    fn is_fresh(&self, now: TrueTime, within: Duration) -> bool {
        let is_forgiven = self.late.is_none_or(|late| now.since(late) > BOUND);
        self.is_call && is_forgiven && now.since(self.at) + SLACK < within
    }
}

impl Tie {
    fn guards_a_stream(&self) -> bool {
        self.saved.guarded && self.saved.tether == Tether::Connection
    }
}

/// A hold that guarded work relies on, which goes on after the program that acquired it.
#[derive(Debug)]
struct Reliance {
    host: usize,
    stream: StreamId,
    /// True if the agent can see that the work goes on.
    is_seen: bool,
    /// It is lost, and was valid until then: by then the work has stopped by itself.
    lost: Option<TrueTime>,
    /// When the upstream let go of it.
    released: Option<TrueTime>,
}

/// Compares what agents do with what they were to go by.
#[derive(Default)]
pub(crate) struct Tied {
    ties: BTreeMap<SessionId, Tie>,
    /// Streams that some process has open.
    open: BTreeMap<StreamId, SessionId>,
    /// Streams that are closed. An agent may take one later: its opening was on the way.
    gone: BTreeSet<StreamId>,
    reliances: BTreeMap<ClaimId, Reliance>,
}

impl Tied {
    /// The agent has written a session down.
    pub(crate) fn written(&mut self, now: TrueTime, host: usize, saved: &SavedSession) {
        let tie = self.ties.entry(saved.id).or_insert_with(|| Tie {
            host,
            saved: saved.clone(),
            caller: None,
            called: Sign { at: now, is_call: false, late: None },
            beaten: Sign { at: now, is_call: false, late: None },
            moved: now,
            progressed: now,
            closed: now,
            leaves: false,
            orphaned: false,
        });
        tie.saved = saved.clone();
    }

    /// A call about a session has reached its agent's socket.
    pub(crate) fn called(&mut self, now: TrueTime, caller: Caller, session: SessionId, beat: bool) {
        let Some(tie) = self.ties.get_mut(&session) else { return };
        tie.caller = Some(caller);
        tie.called.came(now, Some(tie.saved.keepalive));
        tie.moved = now;
        if beat {
            tie.beaten.came(now, tie.saved.progress);
        }
        // Any call ends a stall, which the agent sees by its own clock.
        let stalled =
            tie.saved.progress.is_some_and(|within| now.since(tie.progressed) + SLACK >= within);
        if beat || stalled {
            tie.progressed = now;
        }
    }

    /// The program has asked for the end of its session.
    pub(crate) fn leaves(&mut self, session: SessionId) {
        if let Some(tie) = self.ties.get_mut(&session) {
            tie.leaves = true;
        }
    }

    /// A call of this program waits no more: from now on it has to show itself.
    pub(crate) fn answered(&mut self, now: TrueTime, caller: Caller) {
        for tie in self.ties.values_mut().filter(|tie| tie.caller == Some(caller)) {
            tie.moved = now;
        }
    }

    /// A session was granted something: a call that waits is too little from now on.
    pub(crate) fn granted(&mut self, now: TrueTime, session: SessionId) -> Verdict {
        if let Some(tie) = self.ties.get_mut(&session) {
            tie.moved = now;
        }
        Ok(())
    }

    /// The sessions of a program that has a call waiting.
    pub(crate) fn sessions_of(&self, caller: Caller) -> Vec<SessionId> {
        let own = self.ties.iter().filter(|(_, tie)| tie.caller == Some(caller));
        own.map(|(session, _)| *session).collect()
    }

    /// The agent has taken a stream.
    pub(crate) fn opened(&mut self, now: TrueTime, stream: StreamId, session: SessionId) {
        if !self.gone.contains(&stream) {
            self.open.insert(stream, session);
        }
        if let Some(tie) = self.ties.get_mut(&session) {
            tie.moved = now;
            tie.orphaned = false;
        }
    }

    /// The last process that had a stream has closed it.
    pub(crate) fn closed(&mut self, now: TrueTime, stream: StreamId) {
        self.reliances.retain(|_, reliance| reliance.stream != stream);
        self.gone.insert(stream);
        let Some(session) = self.open.remove(&stream) else { return };
        if let Some(tie) = self.ties.get_mut(&session) {
            tie.closed = now;
        }
    }

    /// The agent has cut off a stream whose reader takes nothing more.
    pub(crate) fn cut_off(&mut self, now: TrueTime, stream: StreamId) {
        let session = self.open.get(&stream).and_then(|session| self.ties.get(session));
        if !session.is_some_and(Tie::guards_a_stream) {
            self.closed(now, stream);
        }
    }

    /// A program has died, and a process that goes on relies on what it held.
    pub(crate) fn relies(&mut self, host: usize, stream: StreamId, holds: &[ClaimId]) {
        let is_seen = self.open.contains_key(&stream);
        let reliances = holds
            .iter()
            .map(|claim| (*claim, Reliance { host, stream, is_seen, lost: None, released: None }));
        self.reliances.extend(reliances);
    }

    /// An agent did not run for so long.
    pub(crate) fn interrupted(&mut self, now: TrueTime, host: usize, length: Duration) {
        for tie in self.ties.values_mut().filter(|tie| tie.host == host) {
            tie.moved = now;
            tie.progressed = now;
            if length > NOTICED {
                for sign in [&mut tie.called, &mut tie.beaten] {
                    sign.at = now.min(sign.at + length);
                }
            }
        }
    }

    /// An agent died, and with it its connections.
    pub(crate) fn crashed(&mut self, host: usize) {
        let ties = &self.ties;
        self.open.retain(|_, session| ties.get(session).is_some_and(|tie| tie.host != host));
        for reliance in self.reliances.values_mut().filter(|reliance| reliance.host == host) {
            reliance.is_seen = false;
        }
    }

    /// An agent started; `knows` says which sessions it took up.
    pub(crate) fn started(
        &mut self,
        now: TrueTime,
        host: usize,
        knows: impl Fn(SessionId) -> bool,
    ) {
        self.ties.retain(|session, tie| tie.host != host || knows(*session));
        for tie in self.ties.values_mut().filter(|tie| tie.host == host) {
            tie.moved = now;
            tie.progressed = now;
            tie.closed = now;
            tie.orphaned = tie.guards_a_stream();
        }
    }

    /// The journal of a host is gone.
    pub(crate) fn forgot(&mut self, host: usize) {
        self.reliances.retain(|_, reliance| reliance.host != host);
    }

    /// An agent has ended a session of its own accord; `lives` are the processes of its host.
    pub(crate) fn ended(
        &mut self,
        now: TrueTime,
        session: SessionId,
        why: &str,
        lives: &BTreeSet<u32>,
    ) -> Verdict {
        let open = self.open.iter().find(|(_, of)| **of == session).map(|(stream, _)| *stream);
        self.open.retain(|_, of| *of != session);
        let Some(tie) = self.ties.remove(&session).filter(|tie| !tie.leaves) else { return Ok(()) };
        let lives = tie.saved.process.is_some_and(|process| lives.contains(&process.pid));
        let early = |since: TrueTime, by: Duration| now.since(since) + SLACK < by;
        let what = match tie.saved.tether {
            Tether::Process if lives => "its process lives".to_owned(),
            Tether::Connection if open.is_some() => format!("{open:?} is open"),
            Tether::Connection if lives && early(tie.closed, tie.saved.linger) => {
                format!("its last stream was open until {:?}", tie.closed)
            }
            Tether::Keepalive if tie.called.is_fresh(now, tie.saved.keepalive) => {
                format!("a call of its program came at {:?}", tie.called.at)
            }
            _ => return Ok(()),
        };
        Err(format!("session {session} was ended ({why}) although {what}: {:?}", tie.saved))
    }

    /// An agent that stops has ended a session.
    pub(crate) fn forget(&mut self, session: SessionId) -> Verdict {
        self.open.retain(|_, of| *of != session);
        self.ties.remove(&session);
        Ok(())
    }

    /// An agent says that a hold was lost; `believed` is what pages said before.
    pub(crate) fn lost(
        &mut self,
        now: TrueTime,
        session: SessionId,
        hold: ClaimId,
        reason: LostReason,
        believed: &[(SessionId, ClaimId, TrueTime)],
    ) -> Verdict {
        let until = believed.iter().find(|(_, claim, _)| *claim == hold).map(|(.., until)| *until);
        // Others get it while the work goes on only if it was to end then, whatever happens.
        if !matches!(reason, LostReason::Stalled | LostReason::AgentStopping) {
            self.reliances.remove(&hold);
        }
        if let Some(reliance) = self.reliances.get_mut(&hold) {
            reliance.lost = Some(until.unwrap_or(now));
        }
        let Some(tie) = self.ties.get(&session).filter(|_| reason == LostReason::Stalled) else {
            return Ok(());
        };
        match tie.saved.progress {
            Some(within) if tie.beaten.is_fresh(now, within) => Err(format!(
                "{hold} was lost ({reason}) although a beat of its program came at {:?}, within \
                 {within:?}",
                tie.beaten.at
            )),
            _ => Ok(()),
        }
    }

    /// An agent gave a hold back because its session ended; `believed` is what pages said before.
    pub(crate) fn released(
        &self,
        hold: ClaimId,
        cause: ReleasedCause,
        believed: &[(SessionId, ClaimId, TrueTime)],
    ) -> Verdict {
        let is_valid = believed.iter().any(|(_, claim, _)| *claim == hold);
        if cause != ReleasedCause::SessionEnded || !is_valid || !self.reliances.contains_key(&hold)
        {
            return Ok(());
        }
        Err(format!("{hold} was given back while guarded work relied on it"))
    }

    /// The upstream did something.
    pub(crate) fn moment(&mut self, now: TrueTime, moment: &Moment) {
        let Moment::Ended(claim, End::Gone(GoneReason::Released)) = moment else { return };
        if let Some(reliance) = self.reliances.get_mut(claim) {
            reliance.released.get_or_insert(now);
        }
    }

    /// A look at an agent that runs: it has said why it released what it did.
    pub(crate) fn looked_at_work(&self, host: usize) -> Verdict {
        let early = self.reliances.iter().find(|(_, it)| {
            let over = |released| it.lost.is_some_and(|until| until <= released);
            it.host == host && it.is_seen && it.released.is_some_and(|at| !over(at))
        });
        match early {
            None => Ok(()),
            Some((claim, _)) => {
                Err(format!("{claim} was released while a stream was open that guarded work has"))
            }
        }
    }

    /// A look at an agent that runs: it says that these sessions hold something. `lives` are the
    /// processes of its host.
    pub(crate) fn looked(
        &self,
        now: TrueTime,
        holders: impl Iterator<Item = SessionId>,
        lives: &BTreeSet<u32>,
    ) -> Verdict {
        for session in holders {
            let Some(tie) = self.ties.get(&session) else { continue };
            let linger = tie.saved.linger.max(FIRST_STREAM);
            let overdue = |since: TrueTime, by: Duration| now > since + by + BOUND;
            let what = match tie.saved.tether {
                Tether::Keepalive if overdue(tie.moved, tie.saved.keepalive) => "is silent",
                Tether::Connection
                    if !tie.orphaned
                        && self.open.values().all(|of| *of != session)
                        && overdue(tie.moved.max(tie.closed), linger) =>
                {
                    "has no stream open"
                }
                Tether::Process
                    if tie.saved.process.is_some_and(|process| !lives.contains(&process.pid))
                        && overdue(tie.moved, linger) =>
                {
                    "has ended"
                }
                _ => match tie.saved.progress {
                    Some(within) if overdue(tie.progressed, within) => "makes no progress",
                    _ => continue,
                },
            };
            return Err(format!(
                "session {session} holds something although its program {what} since {:?}, or \
                 {:?}: {:?}",
                tie.moved, tie.progressed, tie.saved
            ));
        }
        Ok(())
    }
}
