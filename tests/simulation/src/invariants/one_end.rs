//! I6: a `granted` is followed by exactly one of `released` and `lost`.
//!
//! Checked twice: by what the agent notes, which is complete, and by what streams carry, which is
//! what programs see, with gaps where no stream was open.

use std::collections::{BTreeMap, BTreeSet};

use tenure::wire::{Event, LostReason};
use tenure_core::keeper::{Note, Numbered};
use tenure_core::model::{ClaimId, SessionId};

use super::Verdict;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Granted,
    Ended,
}

/// The life of every hold.
#[derive(Default)]
pub(crate) struct OneEnd {
    expired: BTreeSet<ClaimId>,
    taken_away: BTreeSet<ClaimId>,
    lives: BTreeMap<ClaimId, (usize, Life)>,
    streams: BTreeMap<SessionId, BTreeMap<u64, Event>>,
}

impl OneEnd {
    /// The agent noted something.
    pub(crate) fn noted(&mut self, host: usize, note: &Note) -> Verdict {
        if let Note::Lost { hold, reason: LostReason::Expired | LostReason::Slept, .. } = note {
            self.expired.insert(*hold);
        }
        if let Note::Lost { hold, reason: LostReason::Preempted | LostReason::Revoked, .. } = note {
            self.taken_away.insert(*hold);
        }
        match note {
            Note::Granted { hold, .. } => match self.lives.insert(*hold, (host, Life::Granted)) {
                None => Ok(()),
                Some((_, life)) => Err(format!("{hold} was granted when it was {life:?} already")),
            },
            // A wait that is lost was never granted.
            Note::Lost { token: 0, .. } => Ok(()),
            Note::Lost { hold, .. } | Note::Released { hold, token: Some(_), .. } => {
                match self.lives.insert(*hold, (host, Life::Ended)) {
                    Some((_, Life::Granted)) => Ok(()),
                    life => Err(format!("{hold} ended when it was {life:?}: {note:?}")),
                }
            }
            _ => Ok(()),
        }
    }

    /// True if a hold ran out: the upstream may keep it a little longer.
    pub(crate) fn has_expired(&self, hold: ClaimId) -> bool {
        self.expired.contains(&hold)
    }

    /// True if a hold was preempted or revoked.
    pub(crate) fn was_taken_away(&self, hold: ClaimId) -> bool {
        self.taken_away.contains(&hold)
    }

    /// True if a hold was granted and has not ended.
    pub(crate) fn is_open(&self, hold: ClaimId) -> bool {
        self.lives.get(&hold).is_some_and(|(_, life)| *life == Life::Granted)
    }

    /// The journal of a host is gone, and with it the ends of its holds.
    pub(crate) fn forgot(&mut self, host: usize) {
        self.lives.retain(|_, (of, life)| *of != host || *life == Life::Ended);
    }

    /// A stream carried an event.
    pub(crate) fn carried(&mut self, session: SessionId, numbered: &Numbered) -> Verdict {
        if matches!(*numbered.event, Event::Snapshot(_) | Event::Shutdown(_)) {
            // Made for one stream, not part of the session's sequence.
            return Ok(());
        }
        let seen = self.streams.entry(session).or_default();
        match seen.insert(numbered.id, Event::clone(&numbered.event)) {
            Some(earlier) if earlier != *numbered.event => Err(format!(
                "event {} of session {session} was {earlier:?} and is now {:?}",
                numbered.id, numbered.event
            )),
            _ => Ok(()),
        }
    }

    /// The run is over: everything must have ended, and every stream told it in order.
    pub(crate) fn finished(&self) -> Verdict {
        if let Some((hold, _)) = self.lives.iter().find(|(_, (_, life))| *life == Life::Granted) {
            return Err(format!("{hold} was granted and never ended"));
        }
        for (session, events) in &self.streams {
            let mut lives = BTreeMap::new();
            for (id, event) in events {
                let (hold, next) = match event {
                    Event::Granted(it) => (it.of.hold, Life::Granted),
                    Event::Lost(it) => (it.of.hold, Life::Ended),
                    Event::Released(it) => (it.of.hold, Life::Ended),
                    Event::Jeopardy(it) => (it.of.hold, Life::Granted),
                    Event::Safe(it) => (it.of.hold, Life::Granted),
                    _ => continue,
                };
                let before = lives.insert(hold, next);
                let again = matches!(event, Event::Granted(_)) && before.is_some();
                if before == Some(Life::Ended) || again {
                    return Err(format!(
                        "event {id} of session {session}: {event:?} when the hold was {before:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
