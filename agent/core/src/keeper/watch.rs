//! Watchers of a resource's standing, and hints of the upstream.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::rand_core::Rng;
use tenure_wire::{Event, Holder, Kind, MessageEvent, Standing, Waiter};

use super::Keeper;
use super::calls::{Call, Renewed};
use super::claims::lost_reason;
use super::command::Command;
use super::event::{Numbered, SharedEvent};
use super::hold::Stage;
use super::hold::millis;
use super::request::StreamId;
use super::table::Table;
use super::timers::{Alarm, Timer, Timers, WatchId};
use crate::model::{
    self, Answer, Change, ClaimId, Failure, GoneReason, Resource, Revocation, SessionId,
    UpstreamStanding,
};
use crate::time::Boottime;

/// A resource's watchers are told of it, and a project of its messages, this often at most. The first
/// change after a rest is told at once.
const TOLD_EVERY: Duration = Duration::from_millis(250);
/// The upstream is asked later by up to as much as this: agents that hear of one change after another
/// together would ask together every time.
const APART: Duration = Duration::from_millis(125);
/// Messages to a project that may wait for the next telling. With one more the oldest is left out, which the
/// numbers of a reader's events show.
const MESSAGES_MAX: usize = 64;
/// Events to a project's sessions in a row. The rest follows soon: others' calls come between.
const TOLD_AT_ONCE: usize = 1024;
const TELLS_ON_AFTER: Duration = Duration::from_millis(1);

/// The watchers of a resource.
#[derive(Debug)]
pub(super) struct Watch {
    id: WatchId,
    /// Streams of `GET /v1/observe`.
    streams: BTreeSet<StreamId>,
    /// Streams that have not been told anything yet.
    fresh: BTreeSet<StreamId>,
    /// Sessions of the project, if the resource is its master.
    sessions: BTreeSet<SessionId>,
    asking: bool,
    again: bool,
    /// The standing that was told last.
    last: Option<SharedEvent>,
    mail: Mail,
    /// No question before this instant, but for somebody who knows nothing yet.
    asks_after: Boottime,
    /// The end of the rest.
    rest: Alarm,
}

/// Events that wait for the sessions of a project.
#[derive(Debug)]
struct Mail {
    /// Messages to the project.
    messages: VecDeque<SharedEvent>,
    /// How many were left out since the last telling.
    left_out: u64,
    /// A standing that they have not been told.
    standing: Option<SharedEvent>,
    /// Events that they are being told.
    telling: Option<Telling>,
    /// No message before this instant.
    tells_after: Boottime,
}

impl Mail {
    fn push(&mut self, message: SharedEvent) {
        if self.messages.len() == MESSAGES_MAX {
            self.messages.pop_front();
            self.left_out += 1;
        }
        self.messages.push_back(message);
    }

    /// When the next part may be told.
    fn due(&self) -> Option<Boottime> {
        let waits = !self.messages.is_empty() || self.standing.is_some();
        match &self.telling {
            Some(telling) => Some(telling.goes_on),
            None => waits.then_some(self.tells_after),
        }
    }

    /// Takes what is to be told to so many readers: a standing at once, messages after a rest.
    fn take(&mut self, now: Boottime, readers: usize) -> Option<Telling> {
        if self.telling.as_ref().is_some_and(|telling| now < telling.goes_on) {
            return None;
        }
        if let Some(telling) = self.telling.take() {
            return Some(telling);
        }
        let mut events = Vec::new();
        let mut left_out = 0;
        if !self.messages.is_empty() && self.tells_after <= now {
            self.tells_after = now + TOLD_EVERY;
            events.extend(self.messages.drain(..));
            left_out = std::mem::take(&mut self.left_out);
        }
        events.extend(self.standing.take());
        let telling = Telling { events, left_out, readers, told: None, goes_on: now };
        (!telling.events.is_empty()).then_some(telling)
    }
}

/// Events that a part of a project's sessions has been told.
#[derive(Debug)]
struct Telling {
    events: Vec<SharedEvent>,
    /// How many were left out before these.
    left_out: u64,
    /// How many sessions there were when it began.
    readers: usize,
    /// The last session that was told.
    told: Option<SessionId>,
    /// When the next ones are told.
    goes_on: Boottime,
}

impl Watch {
    fn new(id: WatchId) -> Watch {
        Watch {
            id,
            streams: BTreeSet::new(),
            fresh: BTreeSet::new(),
            sessions: BTreeSet::new(),
            asking: false,
            again: false,
            last: None,
            mail: Mail {
                messages: VecDeque::new(),
                left_out: 0,
                standing: None,
                telling: None,
                tells_after: Boottime::ZERO,
            },
            asks_after: Boottime::ZERO,
            rest: Alarm::default(),
        }
    }

    /// Sets the timer to what comes next.
    fn rest_ends(&mut self, timers: &mut Timers) {
        // An answer that is on its way asks again itself.
        let asks = (self.again && !self.asking).then_some(self.asks_after);
        let due = asks.into_iter().chain(self.mail.due()).min();
        timers.set(&mut self.rest, Timer::Watch(self.id), due);
    }
}

/// The watched resources.
pub(super) type Watches = Table<Watch>;

impl Keeper {
    fn watch(&mut self, resource: &Resource) -> &mut Watch {
        self.watches.get_or_insert(resource, |number| Watch::new(WatchId(number)))
    }

    pub(super) fn watch_stream(&mut self, now: Boottime, resource: &Resource, stream: StreamId) {
        let watch = self.watch(resource);
        watch.streams.insert(stream);
        watch.fresh.insert(stream);
        watch.asks_after = now;
        self.ask_standing(now, resource);
    }

    pub(super) fn unwatch_stream(&mut self, resource: &Resource, stream: StreamId) {
        if let Some(watch) = self.watches.get_mut(resource) {
            watch.streams.remove(&stream);
            watch.fresh.remove(&stream);
        }
        self.drop_idle_watch(resource);
    }

    pub(super) fn watch_session(&mut self, now: Boottime, master: &Resource, session: SessionId) {
        self.watch(master).sessions.insert(session);
        self.ask_standing(now, master);
    }

    pub(super) fn unwatch_session(&mut self, master: &Resource, session: SessionId) {
        if let Some(watch) = self.watches.get_mut(master) {
            watch.sessions.remove(&session);
        }
        self.drop_idle_watch(master);
    }

    fn drop_idle_watch(&mut self, resource: &Resource) {
        let Some(watch) = self.watches.get_mut(resource) else { return };
        if watch.streams.is_empty() && watch.sessions.is_empty() {
            self.timers.set(&mut watch.rest, Timer::Watch(watch.id), None);
            let WatchId(number) = watch.id;
            self.watches.remove(resource, number);
        }
    }

    /// Asks for the standing, unless that was just done: then when the rest is over.
    pub(super) fn ask_standing(&mut self, now: Boottime, resource: &Resource) {
        let Some(watch) = self.watches.get_mut(resource) else { return };
        if watch.asking || now < watch.asks_after {
            watch.again = true;
            watch.rest_ends(&mut self.timers);
            return;
        }
        let apart = APART.mul_f64(f64::from(self.agent.random.next_u32()) / f64::from(u32::MAX));
        watch.asking = true;
        watch.again = false;
        watch.asks_after = now + TOLD_EVERY + apart;
        self.ask(model::Request::Inspect(resource.clone()), Call::Watch(resource.clone()));
    }

    fn rest_ends(&mut self, resource: &Resource) {
        if let Some(watch) = self.watches.get_mut(resource) {
            watch.rest_ends(&mut self.timers);
        }
    }

    pub(super) fn watch_fired(&mut self, now: Boottime, id: WatchId) {
        let Some(resource) = self.watches.resource(id.0) else { return };
        let Some(watch) = self.watches.get_mut(&resource) else { return };
        if !self.timers.fired(&mut watch.rest, Timer::Watch(id), now) {
            return;
        }
        self.tell_sessions(now, &resource);
        if self.watches.get(&resource).is_some_and(|watch| watch.again) {
            self.ask_standing(now, &resource);
        }
        self.rest_ends(&resource);
    }

    pub(super) fn watch_answered(
        &mut self,
        now: Boottime,
        resource: &Resource,
        result: Result<Answer, Failure>,
    ) {
        let standing = match result {
            // One standing for everybody who watches, whoever they are.
            Ok(Answer::Standing(standing)) => {
                self.places_listed(now, resource, &standing.waiters);
                Some(self.standing(resource, &standing, |_| false))
            }
            Ok(_) | Err(_) => None,
        };
        let asks_after = now + self.settings.retry_max;
        let Some(watch) = self.watches.get_mut(resource) else { return };
        watch.asking = false;
        if standing.is_none() {
            // The hint that it was about is used up, and those who watch know nothing of it.
            watch.again = true;
            watch.asks_after = asks_after;
        }
        let again = watch.again;
        if let Some(standing) = standing {
            let last = watch.last.as_deref();
            let changed = !matches!(last, Some(Event::Standing(last)) if is_same(last, &standing));
            let event = SharedEvent::new(Event::Standing(standing));
            let fresh = std::mem::take(&mut watch.fresh);
            let streams = if changed { watch.streams.clone() } else { fresh };
            if changed {
                watch.last = Some(event.clone());
                watch.mail.standing = (!watch.sessions.is_empty()).then(|| event.clone());
            }
            let readers = streams.len() + watch.sessions.len();
            for stream in streams {
                let event = Numbered::shared(0, &event, readers);
                self.out.push(Command::Send { stream, event });
            }
            self.tell_sessions(now, resource);
            self.rest_ends(resource);
        }
        if again {
            self.ask_standing(now, resource);
        }
    }

    /// A standing as people see it: processes of this host by number. Holds are named of users that the
    /// reader sees.
    pub(super) fn standing(
        &self,
        resource: &Resource,
        upstream: &UpstreamStanding,
        sees: impl Fn(u32) -> bool,
    ) -> Standing {
        let waiters = upstream.waiters.iter().zip(1..).map(|(entry, position)| Waiter {
            host: entry.owner.host.to_string(),
            name: entry.owner.name.to_string(),
            position,
            pid: self.sessions.get(&entry.owner.session).and_then(|session| session.pid()),
            since_ms: millis(entry.since),
        });
        Standing {
            tenant: resource.tenant.to_string(),
            kind: resource.kind,
            name: resource.name.to_string(),
            limit: upstream.limit,
            holders: upstream.holders.iter().map(|entry| self.holder(entry, &sees)).collect(),
            holding: upstream.holding,
            waiters: waiters.collect(),
            waiting: upstream.waiting,
            members: upstream.members,
            sessions: upstream.sessions.iter().map(|name| name.to_string()).collect(),
        }
    }

    /// A hint from the upstream's change feed: whoever it concerns asks.
    pub fn handle_change(&mut self, now: Boottime, change: Change) {
        match change {
            Change::Resource(resource) => {
                // Where the standing is asked for, it names the places, too.
                if self.watches.get(&resource).is_none() {
                    self.queues.tell_places_later(now, &resource, Duration::ZERO, &mut self.timers);
                }
                self.try_first(now, &resource);
                self.ask_standing(now, &resource);
            }
            Change::Granted { claim, grant, .. } => self.granted_by_hint(now, claim, grant),
            // What is not renewed any more cannot be asked for.
            Change::Lost { claim, .. } if self.runs_out(claim) => {
                self.lose(now, claim, lost_reason(GoneReason::Unknown));
            }
            Change::Lost { claim, .. } => self.due_now(Renewed::Hold(claim)),
            Change::Message { tenant, project, session, payload } => {
                self.deliver(now, &tenant, &project, session, &payload);
            }
        }
        self.flush_beats();
    }

    fn runs_out(&self, claim: ClaimId) -> bool {
        self.holds.get(&claim).is_some_and(|hold| {
            let session = self.sessions.get(&hold.session());
            hold.is_held() && session.is_some_and(|session| session.life.running_out)
        })
    }

    /// The upstream within this process has ended a claim: its holder is told before anybody hears of
    /// what follows.
    pub fn handle_lost(
        &mut self,
        now: Boottime,
        claim: ClaimId,
        reason: GoneReason,
        revocation: Option<&Arc<Revocation>>,
    ) {
        match self.holds.get(&claim) {
            Some(hold) if hold.is_held() && reason == GoneReason::Revoked => {
                self.revoked(now, claim, revocation, false);
            }
            Some(hold) if hold.is_held() => self.lose(now, claim, lost_reason(reason)),
            Some(_) => self.due_now(Renewed::Hold(claim)),
            None => {}
        }
        self.flush_beats();
    }

    fn deliver(
        &mut self,
        now: Boottime,
        tenant: &Arc<str>,
        project: &Arc<str>,
        only: Option<SessionId>,
        payload: &serde_json::Value,
    ) {
        let master =
            Resource { tenant: Arc::clone(tenant), kind: Kind::Master, name: Arc::clone(project) };
        let Some(watch) = self.watches.get_mut(&master) else { return };
        let event = SharedEvent::new(Event::Message(MessageEvent {
            project: project.to_string(),
            direct: only.is_some(),
            payload: payload.clone(),
        }));
        if let Some(session) = only {
            if watch.sessions.contains(&session) {
                self.tell_shared(session, &event, 1);
            }
            return;
        }
        watch.mail.push(event);
        self.tell_sessions(now, &master);
        self.rest_ends(&master);
    }

    /// Tells some of a project's sessions what waits for them.
    fn tell_sessions(&mut self, now: Boottime, master: &Resource) {
        let Some(watch) = self.watches.get_mut(master) else { return };
        let readers = watch.streams.len() + watch.sessions.len();
        let Some(mut telling) = watch.mail.take(now, readers) else { return };
        let count = (TOLD_AT_ONCE / telling.events.len()).max(1);
        let after = telling.told.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = watch.sessions.range((after, Bound::Unbounded));
        let sessions: Vec<_> = rest.copied().take(count).collect();
        for id in &sessions {
            if let Some(session) = self.sessions.get_mut(id) {
                session.events.next += telling.left_out;
            }
            for event in &telling.events {
                self.tell_shared(*id, event, telling.readers);
            }
        }
        if let Some(last) = sessions.get(count - 1) {
            telling.told = Some(*last);
            telling.goes_on = now + TELLS_ON_AFTER;
            self.watch(master).mail.telling = Some(telling);
        }
    }

    /// Every announced session: one that the upstream forgot is announced again when it is renewed.
    pub(super) fn all_announced(&self) -> Vec<Renewed> {
        let announced = self.sessions.values().filter(|session| session.saved.announced);
        let mut ids: Vec<_> = announced.map(|session| session.id()).collect();
        ids.sort_unstable();
        ids.into_iter().map(Renewed::Session).collect()
    }

    /// Every hold and waiter that the upstream knows of, in the order in which they came.
    pub(super) fn all_beaten(&self) -> Vec<Renewed> {
        let mut rows: Vec<_> = self
            .holds
            .values()
            .filter(|hold| matches!(hold.stage, Stage::Waiting | Stage::Held | Stage::Jeopardy))
            .map(|hold| (hold.row, hold.id()))
            .collect();
        rows.sort_unstable();
        rows.into_iter().map(|(_, id)| Renewed::Hold(id)).collect()
    }
}

/// True if two standings differ in nothing but what grows by itself.
fn is_same(one: &Standing, other: &Standing) -> bool {
    let holder = |it: &Holder| (it.token, it.pid, it.uid, it.hold);
    let is_same_holder = |(one, other): (&Holder, &Holder)| {
        holder(one) == holder(other) && one.host == other.host && one.name == other.name
    };
    one.holders.len() == other.holders.len()
        && one.holders.iter().zip(&other.holders).all(is_same_holder)
        && one.limit == other.limit
        && (one.holding, one.waiting, one.members) == (other.holding, other.waiting, other.members)
        && one.waiters == other.waiters
        && one.sessions == other.sessions
}
