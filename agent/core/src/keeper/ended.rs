//! Memory of ended holds and sessions, for callers who have not heard.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::LostReason;

use super::Keeper;
use super::command::Note;
use super::hold::Hold;
use super::journal::{Entry, Key, SavedEnd};
use super::map::Map;
use super::outbox::Outbox;
use super::refusal::Refusal;
use super::session::Session;
use super::sessions::Sessions;
use super::timers::{Alarm, Timer, Timers};
use crate::model::{ClaimId, SessionId, spare};
use crate::time::Boottime;

/// Most ended holds and sessions that are remembered. Beyond it the oldest of whoever has the most are
/// forgotten. One user's part is just below what a table of 32 768 places takes (seven eighths): one more
/// would double the table.
pub const REMEMBERED_MAX: usize = 56_000;
/// One user has one part of so many; beyond it its own oldest are forgotten.
const PART_PER_UID: usize = 2;
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
    until: Boottime,
    /// True if the journal knows. Who tried once and was refused may be answered anew after a restart.
    is_recorded: bool,
}

/// An ended session.
#[derive(Debug)]
struct EndedSession {
    uid: u32,
    why: Cow<'static, str>,
    until: Boottime,
}

#[derive(Debug)]
enum EndedKey {
    Hold(ClaimId),
    Session(SessionId),
}

/// Ended holds and sessions that still answer.
#[derive(Debug)]
pub(super) struct Ended {
    keep_for: Duration,
    max: usize,
    /// By user, oldest first.
    order: BTreeMap<u32, VecDeque<(Boottime, EndedKey)>>,
    /// How many each user has.
    sizes: BTreeSet<(usize, u32)>,
    count: usize,
    holds: Map<ClaimId, EndedHold>,
    sessions: Map<SessionId, EndedSession>,
    alarm: Alarm,
}

impl Ended {
    /// Remembers so many for so long.
    pub(super) fn new(keep_for: Duration, max: usize) -> Ended {
        Ended {
            keep_for,
            max,
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
    fn push(&mut self, uid: u32, until: Boottime, ended: EndedKey) -> usize {
        let order = self.order.entry(uid).or_default();
        self.sizes.remove(&(order.len(), uid));
        order.push_back((until, ended));
        self.sizes.insert((order.len(), uid));
        self.count += 1;
        order.len()
    }

    /// Takes out the oldest of a user.
    fn pop(&mut self, uid: u32) -> Option<EndedKey> {
        let order = self.order.get_mut(&uid)?;
        let size = order.len();
        let (_, ended) = order.pop_front()?;
        self.count -= 1;
        self.sizes.remove(&(size, uid));
        spare::shrink_queue(order);
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
    pub(super) fn session(&self, session: SessionId) -> Option<(u32, &Cow<'static, str>)> {
        self.sessions.get(&session).map(|ended| (ended.uid, &ended.why))
    }

    /// The keys of what the journal has.
    pub(super) fn rows(&self) -> impl Iterator<Item = Key> {
        let holds = self.holds.iter().filter(|(_, ended)| ended.is_recorded);
        let holds = holds.map(|(hold, _)| Key::EndedHold(*hold));
        holds.chain(self.sessions.keys().copied().map(Key::EndedSession))
    }

    pub(super) fn hold_row(&self, hold: ClaimId) -> Option<Entry> {
        let EndedHold { session, request, lost, until, is_recorded } = self.holds.get(&hold)?;
        let (session, lost, until, request) = (*session, *lost, *until, request.clone());
        let saved = SavedEnd::Hold { hold, session, request, lost, until };
        is_recorded.then_some(Entry::Remembered(saved))
    }

    pub(super) fn session_row(&self, session: SessionId) -> Option<Entry> {
        let EndedSession { uid, why, until } = self.sessions.get(&session)?;
        let saved = SavedEnd::Session { session, uid: *uid, why: why.clone(), until: *until };
        Some(Entry::Remembered(saved))
    }

    /// The refusal of a call on an ended hold of that session.
    pub(super) fn hold(&self, session: SessionId, hold: ClaimId) -> Option<Refusal> {
        let ended = self.holds.get(&hold).filter(|ended| ended.session == session)?;
        Some(Refusal::HoldEnded { hold, lost: ended.lost })
    }

    /// The same, but only if the hold was lost and not given back.
    pub(super) fn lost_hold(&self, session: SessionId, hold: ClaimId) -> Option<Refusal> {
        self.holds.get(&hold)?.lost?;
        self.hold(session, hold)
    }

    /// Remembers one end more. Others are forgotten for it where that is too many.
    fn remember(&mut self, until: Boottime, uid: u32, ended: EndedKey, lent: Lent<'_>) {
        let Lent { sessions, timers, out } = lent;
        if self.push(uid, until, ended) > self.max / PART_PER_UID {
            out.note(Note::Refused { limit: "remembered_per_uid", uid });
            self.forget_oldest(uid, sessions);
        } else if self.count > self.max
            && let Some(most) = self.most()
        {
            out.note(Note::Refused { limit: "remembered", uid: most });
            self.forget_oldest(most, sessions);
        }
        if self.alarm.due().is_none() {
            timers.set(&mut self.alarm, Timer::Forget, Some(until));
        }
    }

    fn forget_oldest(&mut self, uid: u32, sessions: &mut Sessions) {
        match self.pop(uid) {
            Some(EndedKey::Hold(hold)) => {
                let Some(ended) = self.holds.remove(&hold) else { return };
                spare::shrink_map(&mut self.holds);
                if let (Some(session), Some(request)) =
                    (sessions.get_mut(&ended.session), ended.request)
                    && session.requests.get(&request) == Some(&hold)
                {
                    session.requests.remove(&request);
                }
            }
            Some(EndedKey::Session(session)) => {
                self.sessions.remove(&session);
                spare::shrink_map(&mut self.sessions);
            }
            None => {}
        }
    }

    /// Forgets what is over, a bounded part at a time.
    fn forget(&mut self, now: Boottime, sessions: &mut Sessions, timers: &mut Timers) {
        let users: Vec<u32> = self.order.keys().copied().collect();
        let mut room = FORGET_MAX;
        for uid in users {
            while room > 0 && self.is_over(uid, now) {
                self.forget_oldest(uid, sessions);
                room -= 1;
            }
        }
        // The rest in the next turn, whose instant is a later one.
        let soon = now + if room == 0 { Duration::from_nanos(1) } else { FORGET_EVERY };
        let oldest = self.order.values().filter_map(VecDeque::front);
        let next = oldest.map(|(until, _)| (*until).max(soon)).min();
        timers.set(&mut self.alarm, Timer::Forget, next);
    }
}

/// The parts of the keeper that remembering needs.
struct Lent<'a> {
    sessions: &'a mut Sessions,
    timers: &'a mut Timers,
    out: &'a mut Outbox,
}

impl Keeper {
    /// Remembers a hold that has ended before its session.
    pub(super) fn remember_hold(&mut self, now: Boottime, hold: &Hold, lost: Option<LostReason>) {
        let (id, session) = (hold.id(), hold.session());
        let until = now + self.ended.keep_for;
        let is_recorded = hold.known_to_journal();
        let request = hold.caller.request.clone();
        let ended = EndedHold { session, request, lost, until, is_recorded };
        self.ended.holds.insert(id, ended);
        if let Some(row) = self.ended.hold_row(id) {
            self.out.persist(row);
        }
        self.remember(until, self.sessions.user_of(session), EndedKey::Hold(id));
    }

    /// Remembers a session that has ended.
    pub(super) fn remember_session(&mut self, now: Boottime, session: &Session, why: &'static str) {
        let (id, uid) = (session.id(), session.saved.uid);
        let until = now + self.ended.keep_for;
        self.ended.sessions.insert(id, EndedSession { uid, why: Cow::Borrowed(why), until });
        if let Some(row) = self.ended.session_row(id) {
            self.out.persist(row);
        }
        self.remember(until, uid, EndedKey::Session(id));
    }

    /// Remembers what an earlier agent did. Sessions are there already, holds are not.
    pub(super) fn remember_again(&mut self, now: Boottime, saved: Vec<SavedEnd>) {
        for end in saved.into_iter().filter(|end| end.until() > now) {
            match end {
                SavedEnd::Hold { hold, session, request, lost, until } => {
                    let Some(of) = self.sessions.get_mut(&session) else { continue };
                    if let Some(request) = &request {
                        of.requests.insert(Arc::clone(request), hold);
                    }
                    let uid = of.saved.uid;
                    let ended = EndedHold { session, request, lost, until, is_recorded: true };
                    self.ended.holds.insert(hold, ended);
                    self.remember(until, uid, EndedKey::Hold(hold));
                }
                SavedEnd::Session { session, uid, why, until } => {
                    self.ended.sessions.insert(session, EndedSession { uid, why, until });
                    self.remember(until, uid, EndedKey::Session(session));
                }
            }
        }
    }

    fn remember(&mut self, until: Boottime, uid: u32, ended: EndedKey) {
        let Keeper { sessions, timers, out, .. } = self;
        self.ended.remember(until, uid, ended, Lent { sessions, timers, out });
    }

    pub(super) fn forget_fired(&mut self, now: Boottime) {
        if self.timers.fired(&mut self.ended.alarm, Timer::Forget, now) {
            self.ended.forget(now, &mut self.sessions, &mut self.timers);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::keeper::Settings;

    fn ended(number: u128) -> EndedKey {
        EndedKey::Hold(ClaimId(Uuid::from_u128(number)))
    }

    #[test]
    fn one_user_does_not_make_the_agent_forget_for_another() {
        let mut keeper = Keeper::new(Settings::default(), [0; 32], Boottime::ZERO);
        let one = Uuid::from_u128(1);
        let until = Boottime::ZERO + Settings::default().remember;
        keeper.remember(until, 1, EndedKey::Session(SessionId(one)));
        let of_one = EndedSession { uid: 1, why: "released".into(), until };
        keeper.ended.sessions.insert(SessionId(one), of_one);
        for number in 0..100_000 {
            keeper.remember(until, 2, ended(number));
        }
        assert_eq!(keeper.ended.len(), REMEMBERED_MAX / PART_PER_UID + 1);
        assert!(keeper.ended.session(SessionId(one)).is_some());
        // Whoever has the most makes room for others.
        for number in 0..100_000 {
            let uid = 3 + u32::try_from(number % 10_000).unwrap();
            keeper.remember(until, uid, ended(100_000 + number));
        }
        assert_eq!(keeper.ended.len(), REMEMBERED_MAX);
        assert!(keeper.ended.session(SessionId(one)).is_some());
        for turn in 0..=REMEMBERED_MAX / FORGET_MAX {
            keeper.handle_timeout(until + Duration::from_nanos(turn as u64));
        }
        assert_eq!(keeper.ended.len(), 0);
        assert!(keeper.ended.holds.is_empty() && keeper.ended.sessions.is_empty());
        assert!(keeper.ended.order.is_empty() && keeper.ended.sizes.is_empty());
    }

    #[test]
    fn what_an_earlier_agent_remembered_is_bounded_as_well() {
        let until = Boottime::ZERO + Settings::default().remember;
        let of = |uid, number| SavedEnd::Session {
            session: SessionId(Uuid::from_u128(number)),
            uid,
            why: "it was released".into(),
            until,
        };
        let mut keeper = Keeper::new(Settings::default(), [0; 32], Boottime::ZERO);
        let saved = (0..60_000).map(|number| of(2, number)).chain([of(1, 1 << 64)]).collect();
        keeper.remember_again(Boottime::ZERO, saved);
        assert_eq!(keeper.ended.len(), REMEMBERED_MAX / PART_PER_UID + 1);
        assert!(keeper.ended.session(SessionId(Uuid::from_u128(1 << 64))).is_some());
        let few = Settings { remembered_max: 40, ..Settings::default() };
        let mut keeper = Keeper::new(few, [0; 32], Boottime::ZERO);
        keeper.remember_again(Boottime::ZERO, (0..100).map(|number| of(2, number)).collect());
        assert_eq!(keeper.ended.len(), 20, "as little memory wants it");
        let mut keeper = Keeper::new(Settings::default(), [0; 32], until);
        keeper.remember_again(until, vec![of(1, 1)]);
        assert_eq!(keeper.ended.len(), 0, "its time is over");
    }
}
