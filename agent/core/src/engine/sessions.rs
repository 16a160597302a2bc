//! Sessions that are announced in a project.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_wire::{Kind, Role};

use super::journal::Entry;
use super::{Engine, Timer};
use crate::model::{BeatAnswer, Change, GoneReason, Resource, SessionId, SessionRecord};
use crate::time::Boottime;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    announced: HashMap<SessionId, Announced>,
    /// Sessions by tenant and project, in the order in which they were announced.
    projects: HashMap<(Arc<str>, Arc<str>), BTreeMap<u64, SessionId>>,
    next_place: u64,
}

#[derive(Debug)]
struct Announced {
    record: SessionRecord,
    place: u64,
    expires: Boottime,
    armed: Boottime,
}

impl Sessions {
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

    /// All of them, in the order in which they were announced.
    pub(super) fn keys(&self) -> Vec<SessionId> {
        let mut announced: Vec<_> = self.announced.values().collect();
        announced.sort_unstable_by_key(|announced| announced.place);
        announced.iter().map(|announced| announced.record.owner.session).collect()
    }

    pub(super) fn record(&self, id: SessionId) -> Option<&SessionRecord> {
        self.announced.get(&id).map(|announced| &announced.record)
    }

    fn insert(&mut self, now: Boottime, record: SessionRecord) -> (Boottime, Timer) {
        let id = record.owner.session;
        let place = self.next_place;
        self.next_place += 1;
        let project = (record.tenant.clone(), record.project.clone());
        self.projects.entry(project).or_default().insert(place, id);
        let expires = now + record.ttl;
        self.announced.insert(id, Announced { record, place, expires, armed: expires });
        (expires, Timer::Session(id))
    }

    fn remove(&mut self, id: SessionId) -> Option<Announced> {
        let announced = self.announced.remove(&id)?;
        let project = (announced.record.tenant.clone(), announced.record.project.clone());
        if let Some(members) = self.projects.get_mut(&project) {
            members.remove(&announced.place);
            if members.is_empty() {
                self.projects.remove(&project);
            }
        }
        Some(announced)
    }

    pub(super) fn len(&self) -> usize {
        self.announced.len()
    }
}

impl Engine {
    pub(super) fn announce(&mut self, now: Boottime, record: SessionRecord) {
        let id = record.owner.session;
        if let Some(announced) = self.sessions.announced.get_mut(&id)
            && announced.record == record
        {
            announced.expires = announced.expires.max(now + record.ttl);
            return;
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
        let (at, timer) = self.sessions.insert(now, record);
        self.timers.arm(at, timer);
    }

    pub(super) fn restore_session(&mut self, now: Boottime, record: SessionRecord) {
        let (at, timer) = self.sessions.insert(now, record);
        self.timers.arm(at, timer);
    }

    pub(super) fn end_session(&mut self, id: SessionId) -> bool {
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
            self.end_session(id);
        }
    }

    pub(super) fn session_due(&mut self, now: Boottime, id: SessionId) {
        let Some(announced) = self.sessions.announced.get_mut(&id) else { return };
        if announced.expires > now {
            announced.armed = announced.expires;
            self.timers.arm(announced.armed, Timer::Session(id));
        } else {
            self.end_session(id);
        }
    }
}

/// The resource whose standing lists the session.
fn master_of(record: &SessionRecord) -> Resource {
    Resource { tenant: record.tenant.clone(), kind: Kind::Master, name: record.project.clone() }
}
