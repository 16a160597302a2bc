//! Events that a session's reader can be told again after it was away.

use std::collections::{BTreeMap, VecDeque};

use tenure_wire::Event;

use super::event::Numbered;

/// Bytes of the events that one session keeps.
pub const RING_BYTES_MAX: usize = 64 * 1024;
/// One user's sessions keep one part of so many of all bytes. Beyond it a reader that comes back starts
/// with a snapshot.
const PART_PER_UID: usize = 2;

/// The last events of a session, bounded by number and by bytes. A standing takes the place of the
/// one before it: only the last one is of interest.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Numbered>,
    standing: Option<Numbered>,
    bytes: usize,
    /// Events up to this number cannot be told again.
    gone: u64,
}

/// How many bytes the rings of all sessions and losses that no beat has told take, and those of each user.
#[derive(Debug)]
pub(super) struct RingBytes {
    max: usize,
    all: usize,
    by_uid: BTreeMap<u32, usize>,
}

impl Ring {
    /// A ring before the event of that number.
    pub(super) fn new(first: u64) -> Ring {
        Ring { events: VecDeque::new(), standing: None, bytes: 0, gone: first.saturating_sub(1) }
    }

    /// An event that is not kept, as nobody has listened yet.
    pub(super) fn pass(&mut self, id: u64) {
        self.gone = id;
    }

    /// Keeps an event, and lets go of the oldest that do not fit.
    pub(super) fn push(
        &mut self,
        event: Numbered,
        uid: u32,
        count_max: usize,
        all: &mut RingBytes,
    ) {
        let id = event.id;
        all.take(uid, event.bytes);
        self.bytes += event.bytes;
        if matches!(*event.event, Event::Standing(_)) {
            if let Some(former) = self.standing.replace(event) {
                self.let_go(&former, uid, all);
            }
        } else {
            self.events.push_back(event);
        }
        while self.events.len() > count_max || self.bytes > RING_BYTES_MAX || all.is_over(uid) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.gone = oldest.id;
            self.let_go(&oldest, uid, all);
        }
        // Not even the last standing has room: a reader who missed it asks for a snapshot.
        if all.is_over(uid)
            && let Some(standing) = self.standing.take()
        {
            self.gone = id;
            self.let_go(&standing, uid, all);
        }
    }

    fn let_go(&mut self, event: &Numbered, uid: u32, all: &mut RingBytes) {
        self.bytes -= event.bytes;
        all.give_back(uid, event.bytes);
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.events.len() + usize::from(self.standing.is_some())
    }

    /// The events after that number; `None` if some of them are gone.
    pub(super) fn after(&self, last: u64) -> Option<Vec<Numbered>> {
        if last < self.gone {
            return None;
        }
        let mut missed: Vec<_> =
            self.events.iter().chain(&self.standing).filter(|it| it.id > last).cloned().collect();
        missed.sort_unstable_by_key(|it| it.id);
        Some(missed)
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self, uid: u32, all: &mut RingBytes) {
        all.give_back(uid, self.bytes);
        self.bytes = 0;
        self.events = VecDeque::new();
        self.standing = None;
    }
}

impl RingBytes {
    /// At most so many.
    pub(super) fn new(max: usize) -> RingBytes {
        RingBytes { max, all: 0, by_uid: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, uid: u32, bytes: usize) {
        self.all += bytes;
        *self.by_uid.entry(uid).or_default() += bytes;
    }

    pub(super) fn give_back(&mut self, uid: u32, bytes: usize) {
        self.all -= bytes;
        if let Some(own) = self.by_uid.get_mut(&uid) {
            *own -= bytes;
            if *own == 0 {
                self.by_uid.remove(&uid);
            }
        }
    }

    pub(super) fn is_over(&self, uid: u32) -> bool {
        let own = self.by_uid.get(&uid).copied().unwrap_or(0);
        self.all > self.max || own > self.max / PART_PER_UID
    }

    /// How many bytes there are in all.
    pub(super) fn all(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tenure_wire::{Kind, MessageEvent, Standing};

    use super::*;

    const UID: u32 = 1000;
    const BYTES_MAX: usize = 32 * 1024 * 1024;

    fn message(id: u64, bytes: usize) -> Numbered {
        let payload = Value::String("x".repeat(bytes));
        let event = MessageEvent { project: "p".to_owned(), direct: true, payload };
        Numbered::new(id, Event::Message(event))
    }

    fn standing(id: u64) -> Numbered {
        let standing: Standing = serde_json::from_value(serde_json::json!({
            "tenant": "default", "kind": Kind::Master, "name": "p", "holders": [], "waiters": [],
        }))
        .unwrap();
        Numbered::new(id, Event::Standing(standing))
    }

    fn ids(ring: &Ring, last: u64) -> Option<Vec<u64>> {
        Some(ring.after(last)?.iter().map(|it| it.id).collect())
    }

    #[test]
    fn only_the_last_standing_is_kept_and_told_in_its_turn() {
        let mut all = RingBytes::new(BYTES_MAX);
        let mut ring = Ring::new(1);
        for event in [standing(1), message(2, 1), standing(3), message(4, 1)] {
            ring.push(event, UID, 9, &mut all);
        }
        assert_eq!(ids(&ring, 0), Some(vec![2, 3, 4]));
        assert_eq!(ids(&ring, 3), Some(vec![4]));
        assert_eq!(ids(&ring, 4), Some(vec![]));
        ring.clear(UID, &mut all);
        assert_eq!((all.all(), all.by_uid.len()), (0, 0));
    }

    #[test]
    fn what_has_no_room_is_gone() {
        let mut all = RingBytes::new(BYTES_MAX);
        let mut ring = Ring::new(1);
        for id in 1..=5 {
            ring.push(message(id, 1), UID, 3, &mut all);
        }
        assert_eq!(ids(&ring, 1), None, "2 is gone, too");
        assert_eq!(ids(&ring, 2), Some(vec![3, 4, 5]));
        ring.push(message(6, RING_BYTES_MAX), UID, 3, &mut all);
        assert_eq!((ids(&ring, 5), ids(&ring, 6)), (None, Some(vec![])));
        assert_eq!((ring.bytes, all.all()), (0, 0));
    }

    #[test]
    fn a_user_takes_its_share_and_no_more() {
        let mut all = RingBytes::new(BYTES_MAX);
        let mut rings: Vec<Ring> = (0..1000).map(|_| Ring::new(1)).collect();
        for ring in &mut rings {
            for id in 1..=200 {
                ring.push(message(id, 1), UID, 256, &mut all);
            }
        }
        assert!(all.all() <= BYTES_MAX / 2, "{}", all.all());
        let mut other = Ring::new(1);
        other.push(message(1, 1), 7, 256, &mut all);
        assert_eq!(ids(&other, 0), Some(vec![1]));
    }
}
