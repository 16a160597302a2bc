//! Pure. Ids of sessions and claims, as a gateway and everybody behind it see them.
//!
//! All ids of a principal end with its mark, by which a gateway knows whose they are without a table: who
//! repeats an id of somebody else is refused, and hints go to the right streams, whichever gateway took the
//! call. The mark takes the place of the last group of the id's text. The groups before it stay, so that
//! people find in the store what a program shows, and have 74 random bits.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use tenure_core::model::{
    Answer, ClaimAnswer, ClaimId, MARK_BYTES, Request, SessionId, StandingEntry, Subject, Terms,
    Within,
};
use tenure_core::time::Boottime;
use uuid::Uuid;

/// Bytes that are the id's own.
const OWN_BYTES: usize = 16 - MARK_BYTES;
/// An id is remembered for so many ttls after it was sent last: hints come later than a beat, and no
/// longer than a claim lives.
const REMEMBERED_TTLS: u32 = 3;
/// Ids are not looked through below this number.
const SWEEP_MIN: usize = 1024;

/// The end of all ids of a principal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark([u8; MARK_BYTES]);

/// A table by mark, or by what has a mark in it.
pub type MarkMap<V, K = Mark> = HashMap<K, V, BuildHasherDefault<MarkHasher>>;

/// Hashes a mark to its own bytes. A mark is the beginning of the SHA-256 of a principal's name, and the maker of the key chooses
/// that name, not the caller. Only marks of callers that were let in may be keys of such a table.
#[derive(Debug, Default)]
pub struct MarkHasher(u64);

impl Mark {
    /// The mark of a principal.
    pub fn of(principal: &str) -> Mark {
        let hash = Sha256::new().chain_update("tenure principal\0").chain_update(principal);
        let mut mark = [0; MARK_BYTES];
        mark.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        Mark(mark)
    }

    /// The mark of the principal that an id belongs to.
    pub const fn at_end_of(id: Uuid) -> Mark {
        let [.., a, b, c, d, e, f] = id.into_bytes();
        Mark([a, b, c, d, e, f])
    }

    /// True if the id ends with it.
    pub fn is_of(self, id: Uuid) -> bool {
        id.as_bytes().ends_with(&self.0)
    }

    /// The id that ends with it.
    pub fn scoped(self, id: Uuid) -> Uuid {
        let mut bytes = id.into_bytes();
        bytes.iter_mut().skip(OWN_BYTES).zip(self.0).for_each(|(to, from)| *to = from);
        Uuid::from_bytes(bytes)
    }

    /// The request, if every session and every claim that it is to change ends with it.
    pub fn admit(self, mut request: Request) -> Option<Request> {
        let mut is_own = true;
        each_id(&mut request, |id, _| is_own &= self.is_of(*id));
        is_own.then_some(request)
    }
}

impl Hash for Mark {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f] = self.0;
        // Tables look at both ends.
        state.write_u64(u64::from_be_bytes([a, b, c, d, e, f, a, b]));
    }
}

impl Hasher for MarkHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a mark is 12 hexadecimal digits")]
pub struct NoMark;

impl FromStr for Mark {
    type Err = NoMark;

    fn from_str(text: &str) -> Result<Mark, NoMark> {
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| digits && text.len() == 12);
        let [_, _, mark @ ..] = number.ok_or(NoMark)?.to_be_bytes();
        Ok(Mark(mark))
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Mark, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Calls `visit` with each id of a request that must be its caller's own, and how long what it names
/// lives, where the request says so.
fn each_id(request: &mut Request, mut visit: impl FnMut(&mut Uuid, Option<Duration>)) {
    match request {
        Request::Claim(claim) => {
            visit(&mut claim.id.0, Some(claim.ttl));
            visit(&mut claim.owner.session.0, Some(claim.ttl));
            if let Terms::Lease { take_over: Some(take_over), .. } = &mut claim.terms {
                visit(&mut take_over.from.0, None);
            }
        }
        Request::Renew(beats) => beats.iter_mut().for_each(|beat| match &mut beat.subject {
            Subject::Claim { claim, .. } => visit(&mut claim.0, Some(beat.ttl)),
            Subject::Session { session, .. } => visit(&mut session.0, Some(beat.ttl)),
        }),
        Request::Release { claim, .. } => visit(&mut claim.0, None),
        Request::Announce(record) => visit(&mut record.owner.session.0, Some(record.ttl)),
        Request::EndSession { session, .. } => visit(&mut session.0, None),
        Request::Record(entries) => {
            for entry in entries {
                visit(&mut entry.claim.0, None);
                visit(&mut entry.owner.session.0, None);
            }
        }
        Request::Members { within: Within::Session(session), .. } => visit(&mut session.0, None),
        Request::Inspect(_)
        | Request::Holders(_)
        | Request::Members { within: Within::Project { .. }, .. }
        | Request::Routes { .. }
        | Request::Resources { .. }
        | Request::History(_)
        | Request::Revoke { .. } => {}
    }
}

/// An agent's own ids, and how the gateway calls them.
#[derive(Debug, Default)]
pub(super) struct Scope(Mutex<Own>);

#[derive(Debug, Default)]
struct Own {
    /// By the bytes that a mark leaves. Bounded by what the agent keeps alive.
    ids: HashMap<[u8; OWN_BYTES], Known>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Known {
    id: Uuid,
    forget_at: Boottime,
}

impl Scope {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request with ids as the gateway knows them.
    pub(super) fn outward(&self, now: Boottime, mark: Mark, mut request: Request) -> Request {
        let mut own = self.own();
        each_id(&mut request, |id, ttl| {
            if let Some(ttl) = ttl {
                own.remember(now, *id, ttl);
            }
            *id = mark.scoped(*id);
        });
        request
    }

    /// Gives an answer the ids that this agent knows. Those of others stay as they are.
    pub(super) fn inward(&self, mark: Mark, answer: &mut Answer) {
        let own = self.own();
        let entry = |entry: &mut StandingEntry| {
            own.name(mark, &mut entry.claim.0);
            own.name(mark, &mut entry.owner.session.0);
        };
        match answer {
            Answer::Claim(ClaimAnswer::Contended { holder, .. }) => {
                holder.iter_mut().for_each(entry);
            }
            Answer::Standing(standing) => {
                standing.holders.iter_mut().chain(&mut standing.waiters).for_each(entry);
            }
            Answer::Members(Some(members)) => {
                for member in &mut members.sessions {
                    let Ok(mut id) = member.session.parse() else { continue };
                    own.name(mark, &mut id);
                    member.session = id.to_string().into();
                }
            }
            Answer::History(changes) => {
                for change in changes {
                    own.name(mark, &mut change.claim.0);
                    own.name(mark, &mut change.owner.session.0);
                }
            }
            _ => {}
        }
    }

    /// A claim of this agent.
    pub(super) fn claim(&self, mark: Mark, mut claim: ClaimId) -> ClaimId {
        self.own().name(mark, &mut claim.0);
        claim
    }

    /// A session of this agent.
    pub(super) fn session(&self, mark: Mark, mut session: SessionId) -> SessionId {
        self.own().name(mark, &mut session.0);
        session
    }
}

impl Own {
    fn remember(&mut self, now: Boottime, id: Uuid, ttl: Duration) {
        let Some(own) = id.as_bytes().first_chunk() else { return };
        let forget_at = now + ttl * REMEMBERED_TTLS;
        let known = self.ids.entry(*own).or_insert(Known { id, forget_at });
        // A session outlives a claim of it that has a shorter ttl.
        *known = Known { id, forget_at: known.forget_at.max(forget_at) };
        if self.ids.len() > self.sweep_at.max(SWEEP_MIN) {
            self.ids.retain(|_, known| known.forget_at > now);
            self.sweep_at = self.ids.len() * 2;
        }
    }

    fn name(&self, mark: Mark, id: &mut Uuid) {
        let own = id.as_bytes().first_chunk().and_then(|own: &[u8; OWN_BYTES]| self.ids.get(own));
        if let Some(known) = own.filter(|_| mark.is_of(*id)) {
            *id = known.id;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use tenure_core::model::{Beat, Resource};
    use tenure_wire::Kind;

    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000);
    const TTL: Duration = Duration::from_secs(10);

    fn beat(id: Uuid) -> Request {
        let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
        let subject = Subject::Claim { claim: ClaimId(id), resource };
        Request::Renew(vec![Beat { subject, ttl: TTL }])
    }

    #[test]
    fn marks_are_spread_over_a_table_as_they_are() {
        let hashes = (0..4096).map(|it| {
            BuildHasherDefault::<MarkHasher>::default().hash_one(Mark::of(&it.to_string()))
        });
        let places: HashSet<_> = hashes.clone().map(|hash| hash & 0xfff).collect();
        let tags: HashSet<_> = hashes.map(|hash| hash >> 57).collect();
        // Random ones fill 0.63 of the places.
        assert!(places.len() > 2450, "{}", places.len());
        assert_eq!(tags.len(), 128);
    }

    #[test]
    fn an_id_keeps_its_first_groups_and_ends_with_the_mark() {
        let mark: Mark = "0123456789ab".parse().unwrap();
        let id = Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
        let scoped = mark.scoped(id);
        assert_eq!(scoped.to_string(), "67e55044-10b1-426f-9247-0123456789ab");
        assert_eq!(Mark::at_end_of(scoped), mark);
        assert!(mark.is_of(scoped) && !mark.is_of(id) && scoped.get_version_num() == 4);
        assert_eq!(serde_json::to_string(&mark).unwrap(), "\"0123456789ab\"");
        for wrong in ["", "0123456789a", "0123456789abc", "+123456789ab", "0123456789ag"] {
            wrong.parse::<Mark>().unwrap_err();
        }
        assert_ne!(Mark::of("alpha"), Mark::of("beta"));
    }

    #[test]
    fn requests_of_others_are_known_and_answers_have_own_ids() {
        let (mark, other) = (Mark::of("alpha"), Mark::of("beta"));
        let scope = Scope::default();
        let id = Uuid::from_u128(7);
        let sent = scope.outward(NOW, mark, beat(id));
        assert_eq!(mark.admit(sent.clone()).as_ref(), Some(&sent));
        assert_eq!(other.admit(sent.clone()), None);
        let scoped = ClaimId(mark.scoped(id));
        assert_eq!(sent, beat(scoped.0));
        assert_eq!(scope.claim(mark, scoped), ClaimId(id));
        let of_other = ClaimId(other.scoped(id));
        assert_eq!(scope.claim(mark, of_other), of_other);
    }

    #[test]
    fn what_nobody_beats_is_forgotten() {
        let (mark, scope) = (Mark::of("alpha"), Scope::default());
        let later = NOW + TTL * REMEMBERED_TTLS;
        for number in 0..SWEEP_MIN as u128 {
            scope.outward(
                if number == 0 { later } else { NOW },
                mark,
                beat(Uuid::from_u128(number << 64)),
            );
        }
        scope.outward(later, mark, beat(Uuid::from_u128(1 << 127)));
        assert_eq!(scope.own().ids.len(), 2);
    }
}
