//! The losses of a session that no beat has told yet.

use std::collections::VecDeque;

use tenure_wire::{Beaten, LostEvent};

use super::Keeper;
use super::ring::RingBytes;
use crate::model::SessionId;

/// Most losses that one session keeps for its next beat. Beyond it the oldest are only counted.
pub(super) const LOSSES_MAX: usize = 64;

/// Bytes of the losses that one session keeps.
pub const LOSSES_BYTES_MAX: usize = 32 * 1024;

/// The last losses of a session, bounded by number and, together with all rings of events, by bytes.
#[derive(Debug, Default)]
pub(super) struct Losses {
    events: VecDeque<LostEvent>,
    bytes: usize,
    /// How many there were besides.
    more: u64,
}

impl Losses {
    /// Keeps a loss, and lets go of the oldest that do not fit.
    pub(super) fn push(&mut self, event: LostEvent, uid: u32, all: &mut RingBytes) {
        let bytes = bytes_of(&event);
        all.take(uid, bytes);
        self.bytes += bytes;
        self.events.push_back(event);
        while self.events.len() > LOSSES_MAX || self.bytes > LOSSES_BYTES_MAX || all.is_over(uid) {
            let Some(oldest) = self.events.pop_front() else { break };
            let bytes = bytes_of(&oldest);
            self.bytes -= bytes;
            all.give_back(uid, bytes);
            self.more += 1;
        }
    }

    /// Gives the bytes back that its losses count for.
    pub(super) fn give_back(&self, uid: u32, all: &mut RingBytes) {
        all.give_back(uid, self.bytes);
    }
}

fn bytes_of(event: &LostEvent) -> usize {
    let LostEvent { of, by, detail, .. } = event;
    let words = [by, detail].into_iter().flatten().map(String::len).sum::<usize>();
    size_of::<LostEvent>() + of.name.len() + words
}

impl Keeper {
    /// Keeps a loss for the next beat of its session.
    pub(super) fn keep_loss(&mut self, id: SessionId, event: &LostEvent) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let losses = session.losses.get_or_insert_default();
        losses.push(event.clone(), session.saved.uid, &mut self.streams.ring_bytes);
    }

    /// Puts what the session has lost since its last beat into the answer to a beat. Each loss is told once.
    pub(super) fn tell_losses(&mut self, id: SessionId, beaten: Beaten) -> Beaten {
        let losses = self.sessions.get_mut(&id).and_then(|session| {
            let losses = session.losses.take()?;
            losses.give_back(session.saved.uid, &mut self.streams.ring_bytes);
            Some(*losses)
        });
        let Losses { events, more, .. } = losses.unwrap_or_default();
        Beaten { lost: events.into(), lost_more: more, ..beaten }
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::{HoldEvent, Kind, LostReason};
    use uuid::Uuid;

    use super::*;

    const UID: u32 = 1000;

    fn loss(token: u64, detail: usize) -> LostEvent {
        let of = HoldEvent { hold: Uuid::nil(), kind: Kind::Leader, name: "x".to_owned() };
        let detail = Some("x".repeat(detail));
        LostEvent { of, token, reason: LostReason::Expired, by: None, detail }
    }

    #[test]
    fn the_newest_are_kept_and_all_are_counted() {
        let mut all = RingBytes::new(1 << 20);
        let mut losses = Losses::default();
        for token in 0..100 {
            losses.push(loss(token, 10), UID, &mut all);
        }
        assert_eq!((losses.events.len(), losses.more), (LOSSES_MAX, 36));
        assert_eq!(losses.events.back().map(|event| event.token), Some(99));
        losses.give_back(UID, &mut all);
        assert_eq!(all.all(), 0);
    }

    #[test]
    fn a_user_without_room_keeps_none_and_all_are_counted() {
        let mut all = RingBytes::new(1000);
        let mut losses = Losses::default();
        losses.push(loss(1, 10), UID, &mut all);
        losses.push(loss(2, 1000), UID, &mut all);
        assert_eq!((losses.events.len(), losses.more, all.all()), (0, 2, 0));
    }
}
