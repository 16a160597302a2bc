//! Memory of ended holds and sessions, for callers who have not heard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure::wire::{Code, LostReason, Problem};

use super::command::Note;
use super::map::Map;
use super::timers::{Alarm, Timer};
use super::{Keeper, Session, user_of};
use crate::host::clock::Boottime;
use crate::model::{ClaimId, SessionId};

/// Most ended holds and sessions that are remembered. Beyond it the oldest of whoever has the most are
/// forgotten.
const REMEMBERED_MAX: usize = 65_536;
/// Most of one user; beyond it its own oldest are forgotten.
const REMEMBERED_PER_UID_MAX: usize = REMEMBERED_MAX / 4;
/// How often what is over is looked for: each time costs a look at every user.
const FORGET_EVERY: Duration = Duration::from_secs(1);
/// Most that are forgotten at a time.
const FORGET_MAX: usize = 1024;

/// An ended hold.
#[derive(Debug)]
struct EndedHold {
    session: SessionId,
    request: Option<Arc<str>>,
    /// Why it was lost; `None` when it was released.
    lost: Option<LostReason>,
}

/// An ended session.
#[derive(Debug)]
struct EndedSession {
    uid: u32,
    why: &'static str,
}

#[derive(Debug)]
enum Ended {
    Hold(ClaimId),
    Session(SessionId),
}

/// Ended holds and sessions that still answer.
#[derive(Debug)]
pub(super) struct Memory {
    keep_for: Duration,
    /// By user, oldest first.
    order: BTreeMap<u32, VecDeque<(Boottime, Ended)>>,
    /// How many each user has.
    sizes: BTreeSet<(usize, u32)>,
    count: usize,
    holds: Map<ClaimId, EndedHold>,
    sessions: Map<SessionId, EndedSession>,
    alarm: Alarm,
}

impl Memory {
    pub(super) fn new(keep_for: Duration) -> Memory {
        Memory {
            keep_for,
            order: BTreeMap::new(),
            sizes: BTreeSet::new(),
            count: 0,
            holds: Map::default(),
            sessions: Map::default(),
            alarm: Alarm::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds one of a user; how many that user has now.
    fn push(&mut self, uid: u32, until: Boottime, ended: Ended) -> usize {
        let order = self.order.entry(uid).or_default();
        self.sizes.remove(&(order.len(), uid));
        order.push_back((until, ended));
        self.sizes.insert((order.len(), uid));
        self.count += 1;
        order.len()
    }

    /// Takes out the oldest of a user.
    fn pop(&mut self, uid: u32) -> Option<Ended> {
        let order = self.order.get_mut(&uid)?;
        let size = order.len();
        let (_, ended) = order.pop_front()?;
        self.count -= 1;
        self.sizes.remove(&(size, uid));
        if order.is_empty() {
            self.order.remove(&uid);
        } else {
            self.sizes.insert((size - 1, uid));
        }
        Some(ended)
    }

    fn most(&self) -> Option<u32> {
        self.sizes.last().map(|(_, uid)| *uid)
    }

    fn is_over(&self, uid: u32, now: Boottime) -> bool {
        let oldest = self.order.get(&uid).and_then(VecDeque::front);
        oldest.is_some_and(|(until, _)| *until <= now)
    }

    /// The user of an ended session, and why it ended.
    pub(super) fn session(&self, session: SessionId) -> Option<(u32, &'static str)> {
        self.sessions.get(&session).map(|ended| (ended.uid, ended.why))
    }

    /// The refusal of a call on an ended hold of that session.
    pub(super) fn hold(&self, session: SessionId, hold: ClaimId) -> Option<Problem> {
        let ended = self.holds.get(&hold).filter(|ended| ended.session == session)?;
        let how = ended.lost.map_or("released", LostReason::as_str);
        let detail = format!("hold {hold} is gone ({how}); acquire again with a new request id");
        Some(Problem::new(Code::HoldLost, detail).about(hold.0))
    }

    /// The same, but only if the hold was lost and not given back.
    pub(super) fn lost_hold(&self, session: SessionId, hold: ClaimId) -> Option<Problem> {
        self.holds.get(&hold)?.lost?;
        self.hold(session, hold)
    }
}

impl Keeper {
    /// Remembers a hold that has ended.
    pub(super) fn remember_hold(
        &mut self,
        now: Boottime,
        hold: ClaimId,
        session: SessionId,
        request: Option<Arc<str>>,
        lost: Option<LostReason>,
    ) {
        let uid = user_of(&self.sessions, session);
        self.memory.holds.insert(hold, EndedHold { session, request, lost });
        self.remember(now, uid, Ended::Hold(hold));
    }

    /// Remembers a session that has ended.
    pub(super) fn remember_session(&mut self, now: Boottime, session: &Session, why: &'static str) {
        let ended = EndedSession { uid: session.saved.uid, why };
        self.memory.sessions.insert(session.id(), ended);
        self.remember(now, session.saved.uid, Ended::Session(session.id()));
    }

    fn remember(&mut self, now: Boottime, uid: u32, ended: Ended) {
        let until = now + self.memory.keep_for;
        if self.memory.push(uid, until, ended) > REMEMBERED_PER_UID_MAX {
            self.note(Note::Refused { limit: "remembered_per_uid", uid });
            self.forget_oldest(uid);
        } else if self.memory.count > REMEMBERED_MAX
            && let Some(most) = self.memory.most()
        {
            self.note(Note::Refused { limit: "remembered", uid: most });
            self.forget_oldest(most);
        }
        if self.memory.alarm.due().is_none() {
            self.timers.set(&mut self.memory.alarm, Timer::Forget, Some(until));
        }
    }

    fn forget_oldest(&mut self, uid: u32) {
        match self.memory.pop(uid) {
            Some(Ended::Hold(hold)) => {
                let Some(ended) = self.memory.holds.remove(&hold) else { return };
                if let (Some(session), Some(request)) =
                    (self.sessions.get_mut(&ended.session), ended.request)
                    && session.requests.get(&request) == Some(&hold)
                {
                    session.requests.remove(&request);
                }
            }
            Some(Ended::Session(session)) => {
                self.memory.sessions.remove(&session);
            }
            None => {}
        }
    }

    pub(super) fn forget_fired(&mut self, now: Boottime) {
        if !self.timers.fired(&mut self.memory.alarm, Timer::Forget, now) {
            return;
        }
        let users: Vec<u32> = self.memory.order.keys().copied().collect();
        let mut room = FORGET_MAX;
        for uid in users {
            while room > 0 && self.memory.is_over(uid, now) {
                self.forget_oldest(uid);
                room -= 1;
            }
        }
        // The rest in the next turn, whose instant is a later one.
        let soon = now + if room == 0 { Duration::from_nanos(1) } else { FORGET_EVERY };
        let oldest = self.memory.order.values().filter_map(VecDeque::front);
        let next = oldest.map(|(until, _)| (*until).max(soon)).min();
        self.timers.set(&mut self.memory.alarm, Timer::Forget, next);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::keeper::Settings;

    fn ended(number: u128) -> Ended {
        Ended::Hold(ClaimId(Uuid::from_u128(number)))
    }

    #[test]
    fn one_user_does_not_make_the_agent_forget_for_another() {
        let mut keeper = Keeper::new(Settings::default(), [0; 32], Boottime::ZERO);
        let one = Uuid::from_u128(1);
        keeper.remember(Boottime::ZERO, 1, Ended::Session(SessionId(one)));
        keeper.memory.sessions.insert(SessionId(one), EndedSession { uid: 1, why: "released" });
        for number in 0..100_000 {
            keeper.remember(Boottime::ZERO, 2, ended(number));
        }
        assert_eq!(keeper.memory.len(), REMEMBERED_PER_UID_MAX + 1);
        assert!(keeper.memory.session(SessionId(one)).is_some());
        // Whoever has the most makes room for others.
        for number in 0..100_000 {
            let uid = 3 + u32::try_from(number % 10_000).unwrap();
            keeper.remember(Boottime::ZERO, uid, ended(100_000 + number));
        }
        assert_eq!(keeper.memory.len(), REMEMBERED_MAX);
        assert!(keeper.memory.session(SessionId(one)).is_some());
        let later = Boottime::ZERO + Settings::default().remember;
        for turn in 0..=REMEMBERED_MAX / FORGET_MAX {
            keeper.handle_timeout(later + Duration::from_nanos(turn as u64));
        }
        assert_eq!(keeper.memory.len(), 0);
        assert!(keeper.memory.holds.is_empty() && keeper.memory.sessions.is_empty());
        assert!(keeper.memory.order.is_empty() && keeper.memory.sizes.is_empty());
    }
}
