//! The lines that wait for the disk.

use std::collections::HashMap;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;
use tokio::sync::oneshot;

use super::line::Entry;
use super::sources::{Source, Sources, Sum};

/// Most lines that wait.
pub(super) const LINES_MAX: usize = 16_384;
/// Most bytes of lines that wait.
const BYTES_MAX: usize = 8 << 20;
/// The part that is for refusals, which strangers can cause at will: the rest is kept for what succeeded.
const PART_OF_REFUSALS: usize = 2;
/// The part that one source may take: a principal can claim and release as fast as the store answers. The rest is kept for
/// other sources.
const PART_OF_A_SOURCE: usize = 2;
/// The pace of lines with sums.
pub(super) const SUM_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Message {
    Line(Box<Entry>),
    /// Open the file again: it may have been moved away.
    Reopen,
    /// All before it is to be written.
    Flush(oneshot::Sender<()>),
}

/// The next work of the thread of the trail.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub messages: Vec<Message>,
    /// Refusals that were left out for longer than an interval, or before a flush.
    pub sums: Vec<Sum>,
    /// Other lines that found no room.
    pub lost: u64,
    /// Nobody can add a line any more.
    pub is_last: bool,
}

/// Lines on their way to the thread of the trail. Nobody who adds one waits for the disk.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Debug)]
struct Waiting {
    messages: Vec<Message>,
    all: Room,
    refusals: Room,
    /// The room that each source takes.
    shares: HashMap<Source, Room>,
    lost: u64,
    sources: Sources,
    /// When sums are to be told; `None` if nothing was left out.
    sums_at: Option<Boottime>,
    is_flushed: bool,
    is_closed: bool,
}

/// The room that a sort of lines takes.
#[derive(Debug, Default)]
struct Room {
    lines: usize,
    bytes: usize,
}

impl Room {
    fn has(&self, bytes: usize, part: usize) -> bool {
        self.lines < LINES_MAX / part && self.bytes + bytes <= BYTES_MAX / part
    }

    fn take(&mut self, bytes: usize) {
        self.lines += 1;
        self.bytes += bytes;
    }
}

impl Queue {
    pub(super) fn new(refusals_per_second: u32) -> Queue {
        let waiting = Waiting {
            messages: Vec::new(),
            all: Room::default(),
            refusals: Room::default(),
            shares: HashMap::new(),
            lost: 0,
            sources: Sources::new(refusals_per_second),
            sums_at: None,
            is_flushed: false,
            is_closed: false,
        };
        Queue { waiting: Mutex::new(waiting), news: Condvar::new() }
    }

    /// True if a refusal of that source is to be written down; otherwise it was summed up.
    pub(super) fn admit(&self, wall_us: u64, source: &Source, reason: &str) -> bool {
        let now = clock::now();
        let mut waiting = self.waiting();
        let is_admitted = waiting.sources.admit(now, wall_us, source.clone(), reason);
        if !is_admitted {
            self.expect_sums(&mut waiting, now);
        }
        is_admitted
    }

    /// Adds a line, or counts it as left out. A source is given with refusals alone.
    pub(super) fn push(&self, wall_us: u64, source: Option<Source>, entry: Entry, reason: &str) {
        let bytes = entry.bytes();
        let mut waiting = self.waiting();
        let causer = entry.source();
        let share = waiting.shares.get(&causer);
        let has_room = waiting.all.has(bytes, 1)
            && share.is_none_or(|share| share.has(bytes, PART_OF_A_SOURCE))
            && (source.is_none() || waiting.refusals.has(bytes, PART_OF_REFUSALS));
        match (has_room, source) {
            (true, source) => {
                waiting.all.take(bytes);
                waiting.shares.entry(causer).or_default().take(bytes);
                if source.is_some() {
                    waiting.refusals.take(bytes);
                }
                waiting.messages.push(Message::Line(Box::new(entry)));
                self.news.notify_one();
            }
            (false, Some(source)) => {
                waiting.sources.leave_out(wall_us, source, reason);
                self.expect_sums(&mut waiting, clock::now());
            }
            (false, None) => waiting.lost += 1,
        }
    }

    /// Adds an order, which always has room: few are given.
    pub(super) fn order(&self, message: Message) {
        let mut waiting = self.waiting();
        waiting.is_flushed |= matches!(message, Message::Flush(_));
        waiting.messages.push(message);
        self.news.notify_one();
    }

    /// No line comes any more.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.news.notify_one();
    }

    /// Waits until there is something to do, for so long at most.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Work {
        let until = at_most.map(|at_most| clock::now() + at_most);
        let mut waiting = self.waiting();
        loop {
            let now = clock::now();
            let has_sums = waiting.sums_at.is_some_and(|at| at <= now);
            if waiting.is_closed
                || has_sums
                || !waiting.messages.is_empty()
                || until.is_some_and(|until| until <= now)
            {
                return waiting.take(now, has_sums);
            }
            let due = [until, waiting.sums_at].into_iter().flatten().min();
            waiting = match due {
                Some(due) => {
                    let waited = self.news.wait_timeout(waiting, due.since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.news.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The thread is to tell sums in an interval.
    fn expect_sums(&self, waiting: &mut Waiting, now: Boottime) {
        if waiting.sums_at.is_none() {
            waiting.sums_at = Some(now + SUM_EVERY);
            self.news.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take(&mut self, now: Boottime, has_sums: bool) -> Work {
        let tells_sums = has_sums || mem::take(&mut self.is_flushed) || self.is_closed;
        if tells_sums {
            self.sums_at = None;
        }
        (self.all, self.refusals) = (Room::default(), Room::default());
        self.shares.clear();
        Work {
            messages: mem::take(&mut self.messages),
            sums: if tells_sums { self.sources.take_sums(now) } else { Vec::new() },
            lost: mem::take(&mut self.lost),
            is_last: self.is_closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::By;
    use super::*;
    use crate::access::{Event, Fact};

    /// Of as many principals as share the room.
    fn entry(number: usize, event: Event) -> Entry {
        let principal = format!("p{}", number % PART_OF_A_SOURCE);
        let by = By { principal: Some(principal.into()), ..By::default() };
        Entry::new(1, by, &Fact::new(event, "o"))
    }

    fn push(queue: &Queue, number: usize, event: Event) {
        let source = (event == Event::Refusal).then_some(Source::Others);
        queue.push(1, source, entry(number, event), "r");
    }

    #[test]
    fn what_does_not_fit_is_counted_and_refusals_leave_room_for_the_rest() {
        let queue = Queue::new(1);
        // Nobody writes.
        for number in 0..LINES_MAX {
            push(&queue, number, Event::Refusal);
        }
        for number in 0..LINES_MAX {
            push(&queue, number, Event::Grant);
        }
        queue.close();
        let Work { messages, sums, lost, is_last } = queue.wait(None);
        assert_eq!((messages.len(), lost, is_last), (LINES_MAX, LINES_MAX as u64 / 2, true));
        assert_eq!((sums.len(), sums[0].count), (1, LINES_MAX as u64 / 2));
        // There is room again.
        push(&queue, 0, Event::Grant);
        assert_eq!(queue.wait(None).messages.len(), 1);
    }

    #[test]
    fn a_source_that_changes_much_leaves_room_for_others() {
        let queue = Queue::new(1);
        for _ in 0..LINES_MAX * 2 {
            push(&queue, 0, Event::Grant);
        }
        let of_one = LINES_MAX / PART_OF_A_SOURCE;
        for _ in 0..of_one {
            push(&queue, 1, Event::Grant);
        }
        let Work { messages, lost, .. } = queue.wait(None);
        assert_eq!((messages.len(), lost), (LINES_MAX, (LINES_MAX * 2 - of_one) as u64));
        push(&queue, 0, Event::Grant);
        assert_eq!(queue.wait(None).messages.len(), 1, "it has a share again");
    }

    #[test]
    fn the_bytes_that_wait_are_bounded() {
        let queue = Queue::new(1);
        let long = Entry::new(1, By::default(), &Fact::new(Event::Grant, &"x".repeat(500)));
        let fits = BYTES_MAX / PART_OF_A_SOURCE / long.bytes();
        assert!(fits < LINES_MAX / PART_OF_A_SOURCE);
        for _ in 0..LINES_MAX {
            let fact = Fact::new(Event::Grant, &"x".repeat(500));
            queue.push(1, None, Entry::new(1, By::default(), &fact), "");
        }
        let work = queue.wait(None);
        assert_eq!((work.messages.len(), work.lost), (fits, (LINES_MAX - fits) as u64));
    }
}
