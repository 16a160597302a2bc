//! The order in which requests get to the store: those of one principal as they came, principals in turn.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll};

use tenure_core::model::Request;
use tenure_stores::gateway::scope::Mark;
use tokio::sync::mpsc;

use super::{Message, WAITING_MAX};
use crate::access::rows;

/// The work of a turn, in claims or rows that are read: a principal that sends many beats at once, or reads all there is,
/// keeps the others from the store no longer.
const WORK_PER_TURN: usize = 4096;

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
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_empty()
            && let Poll::Ready(next) = self.messages.poll_recv(context)
        {
            self.turns.push(next.unwrap_or(Message::Stop));
        }
        !self.is_empty()
    }

    /// Takes in what has come, so that it gets its turn. No more than some thousand wait here.
    pub(super) fn fill(&mut self) {
        while self.turns.len < WAITING_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            self.turns.push(message);
        }
    }

    /// The messages of a turn, `max` at most.
    pub(super) fn take(&mut self, max: usize) -> Vec<Message> {
        self.turns.take(max)
    }
}

/// Pure. Messages that wait, each principal's in a line of their own; in one more those of nobody.
#[derive(Debug, Default)]
struct Turns {
    lines: HashMap<Option<Mark>, VecDeque<Message>>,
    /// Those that have a line, the next one first.
    order: VecDeque<Option<Mark>>,
    len: usize,
}

impl Turns {
    fn push(&mut self, message: Message) {
        let of = match &message {
            Message::Request { mark, .. } | Message::Listen(mark, _) => Some(*mark),
            _ => None,
        };
        let line = self.lines.entry(of).or_default();
        if line.is_empty() {
            self.order.push_back(of);
        }
        line.push_back(message);
        self.len += 1;
    }

    fn take(&mut self, max: usize) -> Vec<Message> {
        let (mut messages, mut work) = (Vec::new(), 0);
        while messages.len() < max && work < WORK_PER_TURN {
            let Some(message) = self.next() else { break };
            work += work_of(&message);
            messages.push(message);
        }
        messages
    }

    fn next(&mut self) -> Option<Message> {
        let of = self.order.pop_front()?;
        let line = self.lines.get_mut(&of)?;
        let message = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&of);
        } else {
            self.order.push_back(of);
        }
        self.len -= usize::from(message.is_some());
        message
    }
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
        let beat = Beat { subject, ttl: std::time::Duration::from_secs(1) };
        message(of, Request::Renew(vec![beat; count]))
    }

    fn names(messages: &[Message]) -> Vec<String> {
        let name = |message: &Message| match message {
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
            turns.push(inspect("greedy", &format!("g{number}")));
        }
        turns.push(inspect("other", "o0"));
        turns.push(inspect("other", "o1"));
        assert_eq!(names(&turns.take(3)), ["g0", "o0", "g1"]);
        turns.push(inspect("third", "t0"));
        assert_eq!(names(&turns.take(9)), ["o1", "g2", "t0", "g3"]);
        assert!(turns.len == 0 && turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_turn_has_few_large_reads() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(message("greedy", Request::Holders(resource("semaphore"))));
        }
        turns.push(inspect("other", "o0"));
        let turn = turns.take(256);
        assert_eq!((names(&turn), turn.len()), (vec!["o0".to_owned()], 3));
    }

    #[test]
    fn a_turn_has_an_end_by_its_work() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(beats("greedy", 512));
        }
        turns.push(inspect("other", "o0"));
        let turn = turns.take(256);
        assert_eq!(names(&turn), ["o0"]);
        assert_eq!(turn.len(), 1 + WORK_PER_TURN / 512);
    }
}
