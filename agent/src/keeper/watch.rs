//! Who wants to know of a resource's standing, and hints of the upstream.

use std::collections::BTreeSet;

use tenure::wire::{Event, Kind, MessageEvent, Standing, Waiter};

use super::command::{Command, Numbered};
use super::hold::Stage;
use super::request::StreamId;
use super::{Call, Keeper, Renewed};
use crate::host::clock::Boottime;
use crate::model::{
    self, Answer, Change, Failure, Resource, STANDING_LISTED_MAX, SessionId, UpstreamStanding,
};

/// Who wants to know of a resource.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Streams of `GET /v1/observe`.
    streams: BTreeSet<StreamId>,
    /// Streams that have not been told anything yet.
    fresh: BTreeSet<StreamId>,
    /// Sessions of the project, if the resource is its master.
    sessions: BTreeSet<SessionId>,
    asking: bool,
    again: bool,
    /// What was told last, without what grows by itself.
    last: Option<Standing>,
}

impl Keeper {
    pub(super) fn watch_stream(&mut self, resource: &Resource, stream: StreamId) {
        let watch = self.watches.entry(resource.clone()).or_default();
        watch.streams.insert(stream);
        watch.fresh.insert(stream);
        self.ask_standing(resource);
    }

    pub(super) fn unwatch_stream(&mut self, resource: &Resource, stream: StreamId) {
        if let Some(watch) = self.watches.get_mut(resource) {
            watch.streams.remove(&stream);
            watch.fresh.remove(&stream);
        }
        self.drop_idle_watch(resource);
    }

    pub(super) fn watch_session(&mut self, master: &Resource, session: SessionId) {
        self.watches.entry(master.clone()).or_default().sessions.insert(session);
        self.ask_standing(master);
    }

    pub(super) fn unwatch_session(&mut self, master: &Resource, session: SessionId) {
        if let Some(watch) = self.watches.get_mut(master) {
            watch.sessions.remove(&session);
        }
        self.drop_idle_watch(master);
    }

    fn drop_idle_watch(&mut self, resource: &Resource) {
        let idle = |watch: &Watch| watch.streams.is_empty() && watch.sessions.is_empty();
        if self.watches.get(resource).is_some_and(idle) {
            self.watches.remove(resource);
        }
    }

    fn ask_standing(&mut self, resource: &Resource) {
        let Some(watch) = self.watches.get_mut(resource) else { return };
        if watch.asking {
            watch.again = true;
            return;
        }
        watch.asking = true;
        watch.again = false;
        self.ask(model::Request::Inspect(resource.clone()), Call::Watch(resource.clone()));
    }

    pub(super) fn watch_answered(
        &mut self,
        _now: Boottime,
        resource: &Resource,
        result: Result<Answer, Failure>,
    ) {
        let standing = match result {
            // One standing for everybody who watches, whoever they are.
            Ok(Answer::Standing(standing)) => Some(self.standing(resource, &standing, |_| false)),
            // The next hint, or the feed's return, asks again.
            Ok(_) | Err(_) => None,
        };
        let Some(watch) = self.watches.get_mut(resource) else { return };
        watch.asking = false;
        let again = watch.again;
        if let Some(standing) = standing {
            let stripped = without_ages(&standing);
            let changed = watch.last.as_ref() != Some(&stripped);
            watch.last = Some(stripped);
            let fresh = std::mem::take(&mut watch.fresh);
            let streams = if changed { watch.streams.clone() } else { fresh };
            let sessions: Vec<_> =
                if changed { watch.sessions.iter().copied().collect() } else { Vec::new() };
            let event =
                std::sync::Arc::new(Numbered { id: 0, event: Event::Standing(standing.clone()) });
            for stream in streams {
                let event = std::sync::Arc::clone(&event);
                self.commands.push_back(Command::Send { stream, event });
            }
            for session in sessions {
                self.tell(session, || Event::Standing(standing.clone()));
            }
        }
        if again {
            self.ask_standing(resource);
        }
    }

    /// A standing as people see it: processes of this host by number, and for kinds without a queue
    /// upstream the waiters of this host. Holds are named of users that the reader sees.
    pub(super) fn standing(
        &self,
        resource: &Resource,
        upstream: &UpstreamStanding,
        sees: impl Fn(u32) -> bool,
    ) -> Standing {
        let mut waiters: Vec<Waiter> = Vec::new();
        let mut waiting = upstream.waiting;
        if resource.kind == Kind::Semaphore {
            waiters.extend(upstream.waiters.iter().zip(1..).map(|(entry, position)| Waiter {
                host: entry.owner.host.to_string(),
                name: entry.owner.name.to_string(),
                position,
                pid: self.sessions.get(&entry.owner.session).and_then(super::Session::pid),
            }));
        } else if let Some(contest) = self.contests.get(resource) {
            waiting = contest.queue.len() as u64;
            let first = contest.queue.iter().take(STANDING_LISTED_MAX);
            let holds = first.filter_map(|(_, id)| self.holds.get(&id));
            waiters.extend(holds.zip(1..).map(|(hold, position)| Waiter {
                host: hold.claim.owner.host.to_string(),
                name: hold.claim.owner.name.to_string(),
                position,
                pid: self.sessions.get(&hold.session()).and_then(super::Session::pid),
            }));
        }
        Standing {
            tenant: resource.tenant.to_string(),
            kind: resource.kind,
            name: resource.name.to_string(),
            limit: upstream.limit,
            holders: upstream.holders.iter().map(|entry| self.holder(entry, &sees)).collect(),
            holding: upstream.holding,
            waiters,
            waiting,
            members: upstream.members,
            sessions: upstream.sessions.iter().map(|name| name.to_string()).collect(),
        }
    }

    /// A hint from the upstream's change feed: whoever it concerns asks.
    pub fn handle_change(&mut self, now: Boottime, change: Change) {
        match change {
            Change::Resource(resource) => {
                if resource.kind == Kind::Semaphore {
                    self.tell_places_later(now, &resource, std::time::Duration::ZERO);
                } else {
                    self.try_head(now, &resource);
                }
                self.ask_standing(&resource);
            }
            Change::Granted { claim, .. } | Change::Lost { claim, .. } => {
                self.due_now(Renewed::Hold(claim));
            }
            Change::Message { tenant, project, session, payload } => {
                self.deliver(&tenant, &project, session, &payload);
            }
        }
        self.flush_beats();
    }

    fn deliver(
        &mut self,
        tenant: &std::sync::Arc<str>,
        project: &std::sync::Arc<str>,
        only: Option<SessionId>,
        payload: &serde_json::Value,
    ) {
        let master = Resource {
            tenant: std::sync::Arc::clone(tenant),
            kind: Kind::Master,
            name: std::sync::Arc::clone(project),
        };
        let Some(watch) = self.watches.get(&master) else { return };
        let listeners: Vec<_> = watch
            .sessions
            .iter()
            .copied()
            .filter(|id| only.is_none_or(|only| only == *id))
            .collect();
        for session in listeners {
            self.tell(session, || {
                Event::Message(MessageEvent {
                    project: project.to_string(),
                    direct: only.is_some(),
                    payload: payload.clone(),
                })
            });
        }
    }

    /// Hints may have been lost: everything that one could have been about is asked for.
    pub fn handle_feed_lost(&mut self, now: Boottime) {
        let resources: Vec<_> = self.contests.keys().cloned().collect();
        for resource in resources {
            if resource.kind != Kind::Semaphore {
                self.try_head(now, &resource);
            }
        }
        self.beat_everything();
        self.beat_sessions();
        let watched: Vec<_> = self.watches.keys().cloned().collect();
        for resource in watched {
            self.ask_standing(&resource);
        }
        self.flush_beats();
    }

    /// Renews every announced session: one that the upstream forgot is announced again at once.
    fn beat_sessions(&mut self) {
        let announced = self.sessions.iter().filter(|(_, session)| session.saved.announced);
        let mut ids: Vec<_> = announced.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in ids {
            self.due_now(Renewed::Session(id));
        }
    }

    /// Renews every hold and waiter that the upstream knows of.
    pub(super) fn beat_everything(&mut self) {
        let mut rows: Vec<_> = self
            .holds
            .values()
            .filter(|hold| matches!(hold.stage, Stage::Waiting | Stage::Held | Stage::Jeopardy))
            .map(|hold| (hold.row, hold.id()))
            .collect();
        rows.sort_unstable();
        for (_, id) in rows {
            self.due_now(Renewed::Hold(id));
        }
    }
}

fn without_ages(standing: &Standing) -> Standing {
    let mut stripped = standing.clone();
    for holder in &mut stripped.holders {
        holder.since_ms = 0;
    }
    stripped
}
