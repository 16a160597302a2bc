//! The order in which requests get to the store: those of one principal as they came, but for its beats, which wait for no
//! other call; principals in turn, and greedy ones after the others.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::model::Request;
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use tokio::sync::mpsc;

use super::shares::{Shares, StoreCall, Turn};
use super::{Message, WAITING_MAX};
use crate::access::rows;

/// The work of a turn, in claims or rows that are read: a principal that sends many beats at once, or reads all there is,
/// keeps the others from the store no longer.
const WORK_PER_TURN: usize = 4096;

/// Longest wait of a call whose principal takes too much of the store's time. There is none while so many messages wait that
/// others might find no room.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);
const CROWD: usize = WAITING_MAX / 2;

/// Messages to the store's thread, in turn.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: mpsc::Receiver<Message>,
    turns: Turns,
}

impl Inbox {
    pub(super) fn new(messages: mpsc::Receiver<Message>) -> Inbox {
        Inbox { messages, turns: Turns::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.len == 0
    }

    /// True once there is something to take. When nobody can ask any more, that is the order to end.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, now: Boottime) -> bool {
        while !self.has_next(now)
            && self.turns.len < WAITING_MAX
            && let Poll::Ready(next) = self.messages.poll_recv(context)
        {
            self.turns.push(now, next.unwrap_or(Message::Stop));
        }
        self.has_next(now)
    }

    /// True if a message that was taken in may go to the store.
    pub(super) fn has_next(&mut self, now: Boottime) -> bool {
        self.turns.sort(now);
        !self.turns.order.is_empty()
    }

    /// When one may go that is held back now, unless a call is answered before.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        self.turns.next_at
    }

    /// Takes in what has come, so that it gets its turn. No more than some thousand wait here.
    pub(super) fn fill(&mut self, now: Boottime) {
        while self.turns.len < WAITING_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            self.turns.push(now, message);
        }
    }

    /// The messages of a turn, `max` at most.
    pub(super) fn take(&mut self, now: Boottime, max: usize) -> Vec<NextMessage> {
        self.turns.take(now, max)
    }

    /// The store has answered a call.
    pub(super) fn answered(&mut self, now: Boottime, sent: StoreCall) {
        self.turns.shares.answered(now, sent);
    }
}

/// A message that goes to the store.
#[derive(Debug)]
pub(super) struct NextMessage {
    pub(super) message: Message,
    /// For [`Inbox::answered`].
    pub(super) sent: Option<StoreCall>,
    /// It has waited for too long, and is to be refused.
    pub(super) is_late: bool,
}

/// Whose messages stand in a line, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    Calls(Mark),
    Beats(Mark),
    Nobody,
}

impl Line {
    fn of(message: &Message) -> Line {
        match message {
            Message::Request { mark, request, .. } => match **request {
                Request::Renew(_) => Line::Beats(*mark),
                _ => Line::Calls(*mark),
            },
            Message::Listen(mark, _) => Line::Calls(*mark),
            _ => Line::Nobody,
        }
    }
}

/// Pure. Messages that wait: a line for the calls and one for the beats of each principal, and one for messages without a
/// principal.
#[derive(Debug, Default)]
struct Turns {
    /// Each message with the instant at which it came.
    lines: MarkMap<VecDeque<(Boottime, Message)>, Line>,
    /// The lines whose turn comes, the next one first.
    order: VecDeque<Line>,
    /// The lines of principals that are held back.
    held_back: Vec<Line>,
    /// When the first of them may be held back no longer.
    next_at: Option<Boottime>,
    len: usize,
    shares: Shares,
}

impl Turns {
    fn push(&mut self, now: Boottime, message: Message) {
        let of = Line::of(&message);
        let line = self.lines.entry(of).or_default();
        if line.is_empty() {
            self.order.push_back(of);
        }
        line.push_back((now, message));
        self.len += 1;
    }

    /// Holds lines back, or gives them a turn. At most as many as there may be messages.
    fn sort(&mut self, now: Boottime) {
        self.shares.look(now);
        self.next_at = None;
        if self.held_back.is_empty() && !self.shares.has_greedy() {
            return;
        }
        for line in mem::take(&mut self.held_back) {
            self.order.push_back(line);
        }
        let (lines, shares, next_at) = (&self.lines, &self.shares, &mut self.next_at);
        let (held_back, patience) = (&mut self.held_back, patience(self.len));
        self.order.retain(|line| {
            let Line::Calls(mark) = line else { return true };
            let turn = shares.turn(now, *mark);
            if turn == Turn::Now {
                return true;
            }
            let came = lines.get(line).and_then(|line| line.front()).map(|(came, _)| *came);
            let late_at = came.map(|came| came + patience);
            if late_at.is_some_and(|at| at <= now) {
                return true;
            }
            let free_at = if let Turn::At(at) = turn { Some(at) } else { None };
            *next_at = [*next_at, free_at, late_at].into_iter().flatten().min();
            held_back.push(*line);
            false
        });
    }

    fn take(&mut self, now: Boottime, max: usize) -> Vec<NextMessage> {
        self.sort(now);
        let (mut all, mut work) = (Vec::new(), 0);
        while all.len() < max && work < WORK_PER_TURN {
            let Some(taken) = self.next(now) else { break };
            work += work_of(&taken.message);
            all.push(taken);
        }
        all
    }

    fn next(&mut self, now: Boottime) -> Option<NextMessage> {
        let of = loop {
            let of = self.order.pop_front()?;
            match of {
                // It has had a message in this turn.
                Line::Calls(mark) if self.is_held_back(now, of, mark) => self.held_back.push(of),
                _ => break of,
            }
        };
        let line = self.lines.get_mut(&of)?;
        let (came, message) = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&of);
        } else {
            self.order.push_back(of);
        }
        self.len -= 1;
        let (mut sent, mut is_late) = (None, false);
        if let (Line::Calls(mark), Message::Request { request, .. }) = (of, &message) {
            is_late = now.since(came) >= patience(self.len + 1)
                && self.shares.turn(now, mark) != Turn::Now;
            sent = (!is_late).then(|| self.shares.send(now, mark, request));
        }
        Some(NextMessage { message, sent, is_late })
    }

    fn is_held_back(&self, now: Boottime, line: Line, mark: Mark) -> bool {
        if self.shares.turn(now, mark) == Turn::Now {
            return false;
        }
        let front = self.lines.get(&line).and_then(|line| line.front());
        front.is_none_or(|(came, _)| now.since(*came) < patience(self.len))
    }
}

fn patience(waiting: usize) -> Duration {
    if waiting < CROWD { HELD_BACK_MAX } else { Duration::ZERO }
}

fn work_of(message: &Message) -> usize {
    match message {
        Message::Request { request, .. } | Message::Look { request, .. } => match &**request {
            Request::Renew(beats) => beats.len().max(1),
            // As claims: what an agent asks for often has few rows.
            Request::Inspect(_) => 1,
            request => rows(request),
        },
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{Beat, ClaimId, Resource, Subject};
    use tenure_wire::Kind;
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::super::Reply;
    use super::*;

    fn resource(name: &str) -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Leader, name: name.into() }
    }

    fn message(of: &str, request: Request) -> Message {
        let reply = Reply { then: None, answer: oneshot::channel().0 };
        Message::Request { mark: Mark::of(of), request: Box::new(request), reply }
    }

    fn inspect(of: &str, name: &str) -> Message {
        message(of, Request::Inspect(resource(name)))
    }

    fn beats(of: &str, count: usize) -> Message {
        let subject = Subject::Claim { claim: ClaimId(Uuid::nil()), resource: resource("n") };
        let beat = Beat { subject, ttl: Duration::from_secs(1) };
        message(of, Request::Renew(vec![beat; count]))
    }

    const NOW: Boottime = Boottime::from_nanos(5_000_000_000);

    fn names(messages: &[NextMessage]) -> Vec<String> {
        let name = |taken: &NextMessage| match &taken.message {
            Message::Request { request, .. } => match &**request {
                Request::Inspect(resource) => Some(resource.name.to_string()),
                _ => None,
            },
            _ => None,
        };
        messages.iter().filter_map(name).collect()
    }

    #[test]
    fn principals_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for number in 0..4 {
            turns.push(NOW, inspect("greedy", &format!("g{number}")));
        }
        turns.push(NOW, inspect("other", "o0"));
        turns.push(NOW, inspect("other", "o1"));
        assert_eq!(names(&turns.take(NOW, 3)), ["g0", "o0", "g1"]);
        turns.push(NOW, inspect("third", "t0"));
        assert_eq!(names(&turns.take(NOW, 9)), ["o1", "g2", "t0", "g3"]);
        assert!(turns.len == 0 && turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_turn_has_few_large_reads() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(NOW, message("greedy", Request::Holders(resource("semaphore"))));
        }
        turns.push(NOW, inspect("other", "o0"));
        let turn = turns.take(NOW, 256);
        assert_eq!((names(&turn), turn.len()), (vec!["o0".to_owned()], 3));
    }

    #[test]
    fn a_turn_has_an_end_by_its_work() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(NOW, beats("greedy", 512));
        }
        turns.push(NOW, inspect("other", "o0"));
        let turn = turns.take(NOW, 256);
        assert_eq!(names(&turn), ["o0"]);
        assert_eq!(turn.len(), 1 + WORK_PER_TURN / 512);
    }

    /// Lines of a principal that has taken nearly all of the store's time, and of another.
    fn with_a_greedy_one() -> (Turns, Boottime) {
        let (mut turns, mut now) = (Turns::default(), NOW);
        let release = Request::Release { claim: ClaimId(Uuid::nil()), resource: resource("n") };
        for (of, ms) in [("greedy", 20), ("other", 1)].into_iter().cycle().take(200) {
            let sent = turns.shares.send(now, Mark::of(of), &release);
            now = now + Duration::from_millis(ms);
            turns.shares.answered(now, sent);
            turns.shares.look(now);
        }
        (turns, now)
    }

    #[test]
    fn calls_of_a_greedy_principal_wait_and_its_beats_and_others_do_not() {
        let (mut turns, mut now) = with_a_greedy_one();
        now = now + Duration::from_millis(200);
        turns.push(now, inspect("greedy", "g0"));
        turns.push(now, inspect("greedy", "g1"));
        turns.push(now, beats("greedy", 1));
        turns.push(now, inspect("other", "o0"));
        let taken = turns.take(now, 9);
        assert_eq!((names(&taken), taken.len()), (vec!["g0".to_owned(), "o0".to_owned()], 3));
        turns.sort(now);
        assert!(turns.order.is_empty(), "nothing is to be done before an answer");
        let sent = taken[0].sent.unwrap();
        now = now + Duration::from_millis(10);
        turns.shares.answered(now, sent);
        assert!(turns.take(now, 9).is_empty(), "it rests");
        let rest = turns.next_at.unwrap();
        assert!(rest > now && rest < now + Duration::from_millis(80), "{:?}", rest.since(now));
        assert_eq!(names(&turns.take(rest, 9)), ["g1"]);
        assert_eq!(turns.len, 0);
    }

    #[test]
    fn those_that_are_held_back_leave_room_to_others() {
        let (mut turns, now) = with_a_greedy_one();
        for number in 0..CROWD + 10 {
            turns.push(now, inspect("greedy", &number.to_string()));
        }
        turns.push(now, inspect("other", "o0"));
        let taken = turns.take(now, 256);
        assert_eq!(taken.iter().filter(|taken| taken.is_late).count(), 11);
        assert!(taken.len() == 12 && turns.len == CROWD - 1, "{} of {}", taken.len(), turns.len);
    }

    #[test]
    fn one_that_is_held_back_for_long_is_refused() {
        let (mut turns, now) = with_a_greedy_one();
        turns.push(now, inspect("greedy", "g0"));
        let first = turns.take(now + Duration::from_millis(200), 9);
        assert!(first.iter().all(|taken| !taken.is_late && taken.sent.is_some()));
        let release = Request::Release { claim: ClaimId(Uuid::nil()), resource: resource("n") };
        turns.shares.send(now, Mark::of("other"), &release);
        turns.push(now, inspect("greedy", "g1"));
        assert!(turns.take(now + HELD_BACK_MAX / 2, 9).is_empty());
        assert_eq!(turns.next_at, Some(now + HELD_BACK_MAX));
        let late = turns.take(now + HELD_BACK_MAX, 9);
        assert!(late.len() == 1 && late[0].is_late && late[0].sent.is_none());
    }
}
