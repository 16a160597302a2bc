//! Pure. The projects and sessions whose messages this agent is to hear: those of its own sessions; and, in a
//! gateway, the principals whose agents have a stream here.
//!
//! After each start of the feed all of them are heard anew. What nobody is in any more is heard for a while
//! longer, as sessions of one project come and go.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Resource, SessionId};
use tenure_core::time::Boottime;

/// An audience that this agent has left is heard as much longer.
const LINGERS: Duration = Duration::from_secs(1);

/// The addressee of messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Audience {
    Project {
        tenant: Arc<str>,
        project: Arc<str>,
    },
    Session(SessionId),
    /// The agents of a principal, behind a gateway.
    Principal(Arc<str>),
}

/// An announced session.
#[derive(Debug)]
struct Member {
    master: Resource,
    /// When it has run out, unless it is beaten before.
    ends: Boottime,
    /// Its place in `ends`.
    looked_at: Boottime,
}

/// The audiences that this agent is in.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    /// The feed is up, and hears all of them but `unheard`.
    is_on: bool,
    /// Announced sessions.
    sessions: HashMap<SessionId, Member>,
    /// When each of them is to be looked at: it may have been beaten since.
    ends: BTreeSet<(Boottime, SessionId)>,
    /// How many of them each project has.
    projects: HashMap<Audience, usize>,
    principals: HashSet<Audience>,
    unheard: BTreeSet<Audience>,
    /// Perhaps heard still, and to be heard no more.
    left: BTreeSet<Audience>,
    leave_at: Option<Boottime>,
}

impl Audiences {
    /// The feed is down, and nothing is heard.
    pub(super) fn restart(&mut self) {
        let sessions = self.sessions.keys().copied().map(Audience::Session);
        let others = self.projects.keys().chain(&self.principals).cloned();
        self.unheard = others.chain(sessions).collect();
        self.left.clear();
        self.leave_at = None;
        self.is_on = false;
    }

    /// The feed is up.
    pub(super) fn started(&mut self) {
        self.is_on = true;
    }

    pub(super) fn master_of(&self, session: SessionId) -> Option<&Resource> {
        self.sessions.get(&session).map(|member| &member.master)
    }

    /// Principals are heard for. True if the caller must have that done now; else it is done when the feed is up.
    pub(super) fn attend(&mut self, principal: &Audience) -> bool {
        self.principals.insert(principal.clone());
        if !self.is_on {
            self.unheard.insert(principal.clone());
        }
        self.is_on
    }

    /// A principal is heard for no longer.
    pub(super) fn abandon(&mut self, now: Boottime, principal: &Audience) {
        if self.principals.remove(principal) {
            self.part(now, principal.clone());
        }
    }

    /// A session is in its project, for `ttl` unless it joins again. Behind a gateway many end without a word.
    pub(super) fn join(
        &mut self,
        now: Boottime,
        session: SessionId,
        master: &Resource,
        ttl: Duration,
    ) {
        // Its beat may be on its way as long as its end is not heard of.
        let ends = now + ttl + LINGERS;
        if let Some(member) = self.sessions.get_mut(&session).filter(|it| it.master == *master) {
            member.ends = member.ends.max(ends);
            return;
        }
        self.leave(now, session);
        self.sessions.insert(session, Member { master: master.clone(), ends, looked_at: ends });
        self.ends.insert((ends, session));
        *self.projects.entry(project_of(master)).or_default() += 1;
        self.doubt_of(master, session);
    }

    /// Perhaps a session is not heard for.
    pub(super) fn doubt_of(&mut self, master: &Resource, session: SessionId) {
        self.doubt(&both(master, session));
    }

    /// Perhaps these are not heard, or no longer.
    pub(super) fn doubt(&mut self, audiences: &[Audience]) {
        let joined: Vec<_> = audiences.iter().filter(|it| self.has(it)).cloned().collect();
        self.unheard.extend(joined);
    }

    /// What must be heard before a session is announced, whoever else has it heard at the same time. Nothing
    /// while the feed is down.
    pub(super) fn take_for(&mut self, master: &Resource, session: SessionId) -> Vec<Audience> {
        if !self.is_on {
            return Vec::new();
        }
        let both = both(master, session);
        for audience in &both {
            self.unheard.remove(audience);
        }
        both.into()
    }

    /// A session is in no project any more.
    pub(super) fn leave(&mut self, now: Boottime, session: SessionId) {
        let Some(Member { master, looked_at, .. }) = self.sessions.remove(&session) else { return };
        self.ends.remove(&(looked_at, session));
        if let Entry::Occupied(mut count) = self.projects.entry(project_of(&master)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        for audience in both(&master, session) {
            if !self.has(&audience) {
                self.part(now, audience);
            }
        }
    }

    fn part(&mut self, now: Boottime, audience: Audience) {
        self.unheard.remove(&audience);
        self.left.insert(audience);
        self.leave_at.get_or_insert(now + LINGERS);
    }

    fn has(&self, audience: &Audience) -> bool {
        match audience {
            Audience::Project { .. } => self.projects.contains_key(audience),
            Audience::Session(session) => self.sessions.contains_key(session),
            Audience::Principal(_) => self.principals.contains(audience),
        }
    }

    /// Those that are not heard.
    pub(super) fn take_unheard(&mut self) -> Vec<Audience> {
        std::mem::take(&mut self.unheard).into_iter().collect()
    }

    /// When [`Audiences::take_left`] has something, or is to be asked.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        let ends = self.ends.first().map(|(at, _)| *at);
        self.leave_at.into_iter().chain(ends).min().filter(|_| self.is_on)
    }

    /// Sessions whose time is up leave.
    fn expire(&mut self, now: Boottime) {
        while let Some((_, session)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            self.ends.pop_first();
            match self.sessions.get_mut(&session) {
                Some(member) if member.ends > now => {
                    member.looked_at = member.ends;
                    self.ends.insert((member.ends, session));
                }
                _ => self.leave(now, session),
            }
        }
    }

    /// Those that are to be heard no more.
    pub(super) fn take_left(&mut self, now: Boottime) -> Vec<Audience> {
        self.expire(now);
        if self.leave_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.leave_at = None;
        let left = std::mem::take(&mut self.left);
        left.into_iter().filter(|audience| !self.has(audience)).collect()
    }
}

fn both(master: &Resource, session: SessionId) -> [Audience; 2] {
    [project_of(master), Audience::Session(session)]
}

fn project_of(master: &Resource) -> Audience {
    let Resource { tenant, name, .. } = master;
    Audience::Project { tenant: Arc::clone(tenant), project: Arc::clone(name) }
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    fn master(name: &str) -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Master, name: name.into() }
    }

    const TTL: Duration = Duration::from_secs(30);

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    /// Is in a project with so many sessions, and hears them.
    fn hearing(sessions: u128) -> Audiences {
        let mut audiences = Audiences::default();
        for number in 0..sessions {
            audiences.join(Boottime::ZERO, session(number), &master("p"), TTL);
        }
        audiences.take_unheard();
        audiences.started();
        audiences
    }

    #[test]
    fn a_project_of_many_sessions_is_heard_once_after_each_start() {
        let mut audiences = hearing(10_000);
        assert_eq!(audiences.take_unheard(), []);
        for _ in 0..2 {
            audiences.restart();
            let heard = audiences.take_unheard();
            assert_eq!(heard.len(), 10_001);
            assert_eq!(heard.iter().filter(|it| **it == project_of(&master("p"))).count(), 1);
        }
    }

    #[test]
    fn a_project_is_heard_until_its_last_session_has_left_for_a_while() {
        let (mut audiences, now) = (hearing(2), Boottime::ZERO);
        let both = audiences.take_for(&master("p"), session(0));
        assert_eq!(both, [project_of(&master("p")), Audience::Session(session(0))]);
        audiences.leave(now, session(0));
        assert_eq!(audiences.take_left(now), []);
        assert_eq!(audiences.take_left(now + LINGERS), [Audience::Session(session(0))]);
        audiences.leave(now, session(1));
        audiences.join(now, session(2), &master("p"), TTL);
        assert_eq!(audiences.take_left(now + LINGERS), [Audience::Session(session(1))]);
        assert_eq!(audiences.poll_timeout(), Some(now + TTL + LINGERS));
        // It left for another project.
        audiences.join(now, session(2), &master("q"), TTL);
        assert_eq!(audiences.take_left(now + LINGERS), [project_of(&master("p"))]);
    }

    #[test]
    fn whoever_joins_while_it_is_left_is_heard_again() {
        let (mut audiences, now) = (hearing(1), Boottime::ZERO);
        audiences.leave(now, session(0));
        let left = audiences.take_left(now + LINGERS);
        audiences.join(now, session(1), &master("p"), TTL);
        assert_eq!(audiences.take_for(&master("p"), session(1)).len(), 2);
        audiences.doubt(&left);
        assert_eq!(audiences.take_unheard(), [project_of(&master("p"))]);
    }

    #[test]
    fn ten_thousand_sessions_that_end_without_a_word_leave_nothing_behind() {
        let mut audiences = hearing(10_000);
        let later = Boottime::ZERO + TTL;
        audiences.join(later, session(7), &master("p"), TTL);
        let over = later + LINGERS;
        assert_eq!(audiences.take_left(over), []);
        assert_eq!(audiences.take_left(over + LINGERS).len(), 9_999);
        assert_eq!((audiences.sessions.len(), audiences.ends.len()), (1, 1));
        let over = over + TTL;
        audiences.take_left(over);
        assert_eq!(audiences.take_left(over + LINGERS).len(), 2, "the project, too");
        assert_eq!((audiences.poll_timeout(), audiences.ends.len()), (None, 0));
    }

    #[test]
    fn a_principal_is_heard_for_as_long_as_it_is_attended() {
        let (mut audiences, now) = (hearing(1), Boottime::ZERO);
        let principal = Audience::Principal("0123456789ab".into());
        assert!(audiences.attend(&principal));
        audiences.restart();
        assert!(audiences.take_unheard().contains(&principal));
        assert!(!audiences.attend(&principal), "the feed is down");
        assert_eq!(audiences.take_unheard(), std::slice::from_ref(&principal));
        audiences.started();
        audiences.abandon(now, &principal);
        audiences.attend(&principal);
        assert_eq!(audiences.take_left(now + LINGERS), []);
        audiences.abandon(now, &principal);
        assert_eq!(audiences.take_left(now + LINGERS), [principal]);
    }

    #[test]
    fn what_was_not_announced_is_heard_later() {
        let mut audiences = hearing(1);
        let both = audiences.take_for(&master("p"), session(0));
        audiences.doubt(&both);
        assert_eq!(audiences.take_unheard(), both);
        audiences.restart();
        assert_eq!(audiences.take_for(&master("p"), session(0)), []);
        assert_eq!(audiences.take_unheard(), both);
    }
}
