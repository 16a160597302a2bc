//! Sessions that are announced in a project.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_wire::{Kind, Role};

use super::journal::Entry;
use super::tombstones::Tombstones;
use super::{Engine, EngineSettings, Timer};
use crate::model::{
    BeatAnswer, Change, GoneReason, Member, Members, Page, Resource, SessionId, SessionRecord,
    Within, spare,
};
use crate::time::Boottime;

#[derive(Debug)]
pub(super) struct Sessions {
    announced: HashMap<SessionId, Announced>,
    /// Sessions by tenant and project, in the order in which they were announced.
    projects: IndexMap<(Arc<str>, Arc<str>), BTreeMap<u64, SessionId>>,
    pub(super) next_place: u64,
    /// Marks of those that were ended: an announcement that comes late must not bring one back.
    pub(super) ended: Tombstones<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Announced {
    pub(super) record: SessionRecord,
    /// Grows with every announcement.
    pub(super) place: u64,
    pub(super) expires: Boottime,
    /// When its timer goes off; see [`super::timers`].
    pub(super) armed: Boottime,
}

impl Sessions {
    pub(super) fn new(settings: &EngineSettings) -> Sessions {
        Sessions {
            announced: HashMap::new(),
            projects: IndexMap::new(),
            next_place: 0,
            ended: Tombstones::new(settings.tombstone, settings.ended_sessions_max()),
        }
    }

    /// The names of a project's first sessions, in the order in which they were announced.
    pub(super) fn names(&self, project: &(Arc<str>, Arc<str>), listed: usize) -> Vec<Arc<str>> {
        let Some(members) = self.projects.get(project) else { return Vec::new() };
        let announced = members.values().take(listed).filter_map(|id| self.announced.get(id));
        announced.map(|announced| announced.record.owner.name.clone()).collect()
    }

    /// How many sessions a project has.
    pub(super) fn count(&self, project: &(Arc<str>, Arc<str>)) -> u64 {
        self.projects.get(project).map_or(0, |members| members.len() as u64)
    }

    /// How many projects have sessions.
    pub(super) fn projects_count(&self) -> usize {
        self.projects.len()
    }

    /// The masters of the projects with these numbers.
    pub(super) fn masters(&self, numbers: Range<usize>) -> impl Iterator<Item = Resource> {
        let projects = self.projects.get_range(numbers).into_iter().flat_map(|some| some.keys());
        projects.map(|(tenant, project)| Resource {
            tenant: tenant.clone(),
            kind: Kind::Master,
            name: project.clone(),
        })
    }

    /// A page of a project's, in the order in which they were announced, and the cursor of the next one.
    fn page(
        &self,
        now: Boottime,
        project: &(Arc<str>, Arc<str>),
        page: Option<&Page>,
    ) -> (Vec<Member>, Option<Arc<str>>) {
        let Some(members) = self.projects.get(project) else { return Default::default() };
        let after = page.and_then(|page| page.after.as_ref()?.parse::<u64>().ok());
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let limit = page.map_or(usize::MAX, |page| page.limit.max(1));
        let mut rest = members.range((from, Bound::Unbounded));
        let listed: Vec<_> = rest.by_ref().take(limit).collect();
        let next = rest.next().and(listed.last()).map(|(place, _)| place.to_string().into());
        let announced = listed.into_iter().filter_map(|(_, id)| self.announced.get(id));
        (announced.map(|announced| announced.member(now)).collect(), next)
    }

    /// All of them, in the order in which they were announced.
    pub(super) fn in_order(&self) -> Vec<&Announced> {
        let mut announced: Vec<_> = self.announced.values().collect();
        announced.sort_unstable_by_key(|announced| announced.place);
        announced
    }

    pub(super) fn record(&self, id: SessionId) -> Option<&SessionRecord> {
        self.announced.get(&id).map(|announced| &announced.record)
    }

    fn insert(&mut self, announced: Announced) {
        let record = &announced.record;
        let id = record.owner.session;
        let project = (record.tenant.clone(), record.project.clone());
        self.projects.entry(project).or_default().insert(announced.place, id);
        self.next_place = self.next_place.max(announced.place + 1);
        self.announced.insert(id, announced);
    }

    fn remove(&mut self, id: SessionId) -> Option<Announced> {
        let announced = self.announced.remove(&id)?;
        let project = (announced.record.tenant.clone(), announced.record.project.clone());
        if let Some(members) = self.projects.get_mut(&project) {
            members.remove(&announced.place);
            if members.is_empty() {
                self.projects.swap_remove(&project);
                spare::shrink_index_map(&mut self.projects);
            }
        }
        Some(announced)
    }

    pub(super) fn len(&self) -> usize {
        self.announced.len()
    }
}

impl Engine {
    pub(super) fn announce(&mut self, now: Boottime, mut record: SessionRecord) {
        let id = record.owner.session;
        if self.sessions.ended.get(now, id).is_some() {
            return;
        }
        if let Some(announced) = self.sessions.announced.get_mut(&id) {
            record.registered_at = announced.record.registered_at.clone();
            if announced.record == record {
                announced.expires = announced.expires.max(now + record.ttl);
                return;
            }
        }
        if let Some(former) = self.sessions.remove(id) {
            self.timers.disarm(former.armed, Timer::Session(id));
            let former = master_of(&former.record);
            if former != master_of(&record) {
                self.tell_changed(&former);
            }
        }
        self.persist(Entry::Session(Box::new(record.clone())));
        self.tell_changed(&master_of(&record));
        let expires = now + record.ttl;
        let place = self.sessions.next_place;
        self.track_session(Announced { record, place, expires, armed: expires });
    }

    /// Starts to track a session.
    pub(super) fn track_session(&mut self, announced: Announced) {
        let id = announced.record.owner.session;
        self.timers.arm(announced.armed, Timer::Session(id));
        self.sessions.insert(announced);
    }

    pub(super) fn end_session(&mut self, now: Boottime, id: SessionId) -> bool {
        self.sessions.ended.insert(now, id, GoneReason::Released);
        self.remove_session(id)
    }

    fn remove_session(&mut self, id: SessionId) -> bool {
        let Some(announced) = self.sessions.remove(id) else { return false };
        self.timers.disarm(announced.armed, Timer::Session(id));
        self.persist(Entry::SessionEnded(id));
        let record = announced.record;
        self.tell_changed(&master_of(&record));
        self.tell(Change::Message {
            tenant: record.tenant,
            project: record.project,
            session: None,
            payload: json!({
                "type": "session_ended",
                "session": id,
                "name": record.owner.name,
                "host": record.owner.host,
            }),
        });
        true
    }

    /// A project's master and its sessions; `None` if the session that is asked about is not there.
    pub(super) fn members(
        &self,
        now: Boottime,
        within: &Within,
        listed: bool,
        page: Option<&Page>,
    ) -> Option<Members> {
        let (tenant, project) = match within {
            Within::Project { tenant, project } => (tenant.clone(), project.clone()),
            Within::Session(id) => {
                let record = self.sessions.record(*id)?;
                (record.tenant.clone(), record.project.clone())
            }
        };
        let key = (tenant, project);
        let listed = listed.then(|| self.sessions.page(now, &key, page));
        let (tenant, project) = key;
        let (sessions, next) = listed.unwrap_or_default();
        let mut members =
            Members { tenant, project, master: None, master_claim: None, sessions, next };
        if let Some(holder) = self.holder(&members.resource()) {
            members.master = Some(holder.claim.owner.session.to_string().into());
            members.master_claim = Some(holder.claim.id);
        }
        Some(members)
    }

    pub(super) fn renew_session(
        &mut self,
        now: Boottime,
        id: SessionId,
        ttl: Duration,
    ) -> BeatAnswer {
        let Some(announced) = self.sessions.announced.get_mut(&id) else {
            return BeatAnswer::Gone(GoneReason::Unknown);
        };
        announced.expires = announced.expires.max(now + ttl);
        let master = master_of(&announced.record);
        let is_master = self.holder(&master).is_some_and(|holder| holder.claim.owner.session == id);
        BeatAnswer::Session { role: if is_master { Role::Master } else { Role::Peer } }
    }

    pub(super) fn end_overdue_session(&mut self, now: Boottime, id: SessionId) {
        if let Some(announced) = self.sessions.announced.get(&id)
            && announced.expires <= now
        {
            self.remove_session(id);
        }
    }

    pub(super) fn session_due(&mut self, now: Boottime, id: SessionId) {
        let Some(announced) = self.sessions.announced.get_mut(&id) else { return };
        if announced.expires > now {
            announced.armed = announced.expires;
            self.timers.arm(announced.armed, Timer::Session(id));
        } else {
            self.remove_session(id);
        }
    }
}

impl Announced {
    fn member(&self, now: Boottime) -> Member {
        let SessionRecord { owner, surface, registered_at, .. } = &self.record;
        Member {
            session: owner.session.to_string().into(),
            name: owner.name.clone(),
            surface: surface.clone(),
            host: owner.host.clone(),
            registered_at: registered_at.clone(),
            runs_out: Some(self.expires.since(now)),
        }
    }
}

/// The resource whose standing lists the session.
fn master_of(record: &SessionRecord) -> Resource {
    Resource { tenant: record.tenant.clone(), kind: Kind::Master, name: record.project.clone() }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::engine::{Effect, TokenRange};
    use crate::model::{Answer, Owner, Request};

    const NOW: Boottime = Boottime::from_nanos(1);
    const TENANT: &str = "t";

    fn record(project: &str, at: Option<&str>) -> SessionRecord {
        let session = SessionId(Uuid::from_u128(1));
        SessionRecord {
            owner: Owner { session, host: "here".into(), name: "program".into() },
            tenant: TENANT.into(),
            project: project.into(),
            surface: "test".into(),
            ttl: Duration::from_secs(90),
            registered_at: at.map(Into::into),
        }
    }

    fn registered_at(engine: &mut Engine, project: &str) -> Option<Arc<str>> {
        let within = Within::Project { tenant: TENANT.into(), project: project.into() };
        let request = Request::Members { within, listed: true, page: None };
        let Answer::Members(Some(members)) = engine.handle(NOW, request) else { panic!() };
        members.sessions[0].registered_at.clone()
    }

    #[test]
    fn the_first_announcement_says_when_a_session_was_registered() {
        let tokens = TokenRange { first: 1, last: 1_000_000 };
        let mut engine = Engine::new(EngineSettings::default(), tokens);
        engine.handle(NOW, Request::Announce(record("p", Some("first"))));
        while engine.poll_effect().is_some() {}
        engine.handle(NOW, Request::Announce(record("p", Some("second"))));
        assert_eq!(engine.poll_effect(), None, "nothing has changed");
        assert_eq!(registered_at(&mut engine, "p").as_deref(), Some("first"));
        engine.handle(NOW, Request::Announce(record("q", Some("third"))));
        assert_eq!(registered_at(&mut engine, "q").as_deref(), Some("first"));
        let saved = std::iter::from_fn(|| engine.poll_effect()).find_map(|effect| match effect {
            Effect::Persist(Entry::Session(record)) => record.registered_at,
            _ => None,
        });
        assert_eq!(saved.as_deref(), Some("first"), "a restart keeps it");
        engine.end_session(NOW, SessionId(Uuid::from_u128(1)));
        let later = NOW + Duration::from_secs(3600);
        engine.handle(later, Request::Announce(record("p", None)));
        assert_eq!(registered_at(&mut engine, "p"), None, "it is another one");
    }
}
