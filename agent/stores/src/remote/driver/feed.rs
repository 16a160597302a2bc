//! The change feed, and looks at what it hints.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::model::{Change, ClaimId, Report, Request, Resource};
use tenure_core::time::Boottime;
use tracing::warn;

use super::{Driver, JUST_AFTER, Reply, Task};
use crate::remote::audiences::Audience;
use crate::remote::backend::{
    Backend, Chores, ConnectionOf, Hears, LineOf, Listening, Seen, Topic, Verified,
};
use crate::remote::hints::{Hint, Hints};
use crate::remote::link::{Connector, Link};

/// Wait after the feed could not be started.
pub(super) const LISTEN_AGAIN: Duration = Duration::from_millis(500);
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedPhase {
    Down { retry_at: Boottime },
    Starting,
    Up,
}

/// Why hints do not come, although the connection is up: the first reason.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused(Rc<RefCell<Option<String>>>);

impl Refused {
    pub(super) fn get(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    fn renew(&self, reason: Option<String>) {
        if let Some(why) = reason.as_ref().filter(|_| reason != *self.0.borrow()) {
            warn!("not all that others change is heard at once: {why}");
        }
        self.0.replace(reason);
    }

    pub(super) fn add(&self, reason: Option<String>) {
        if self.0.borrow().is_none() {
            self.renew(reason);
        }
    }
}

/// What is asked of the feed before a request is sent.
pub(super) struct First<C> {
    feed: Link<C>,
    topic: Option<Topic>,
    audiences: Vec<Audience>,
    refused: Refused,
}

impl<C: Clone + Send + Sync + 'static> First<C> {
    pub(super) async fn ask<B>(self, backend: &B, line: &LineOf<B>)
    where
        B: Backend<Connector: Connector<Connection = C>>,
    {
        // A feed that fails is started again, and everything is asked of it then.
        let Ok(mut feed) = line.on(&self.feed).await else { return };
        if let Some(topic) = self.topic {
            let _ = backend.watch(&mut feed, &[topic]).await;
        }
        if !self.audiences.is_empty()
            && let Ok(refused) = backend.hear(&mut feed, &self.audiences).await
        {
            self.refused.add(refused);
        }
    }
}

/// The change feed.
pub(super) struct Feed {
    pub(super) phase: FeedPhase,
    pub(super) hints: Hints,
    /// The connection that listens.
    pub(super) generation: u64,
    pub(super) hears: Hears,
    pub(super) refused: Refused,
    /// When to verify what nothing tells of.
    pub(super) verify_at: Option<Boottime>,
}

impl Feed {
    pub(super) fn new(hints: Hints) -> Feed {
        Feed {
            phase: FeedPhase::Down { retry_at: Boottime::ZERO },
            hints,
            generation: 0,
            hears: Hears::Part,
            refused: Refused::default(),
            verify_at: None,
        }
    }
}

impl<B: Backend> Driver<B> {
    pub(super) fn listen(&mut self, now: Boottime) {
        self.feed.phase = FeedPhase::Starting;
        let backend = Rc::clone(&self.backend);
        let already = self.feed.generation;
        let audiences = self.own_claims.audiences.take_unheard();
        let call = async move |mut line: LineOf<B>| {
            let generation = line.generation();
            let mut listening = None;
            if generation != already {
                listening = Some(backend.listen(&mut line).await?);
            }
            let refused = match audiences.is_empty() {
                true => None,
                false => backend.hear(&mut line, &audiences).await?,
            };
            let listening = listening.map(|Listening { hears, refused: first }| {
                (generation, Listening { hears, refused: first.or(refused) })
            });
            Ok(Reply::Listening(listening))
        };
        self.calls.start(now, self.timeout, &self.links.feed, Task::Listen, call);
    }

    /// The feed could not be started, or not be told what to hear.
    pub(super) fn feed_failed(&mut self, now: Boottime) {
        self.feed.phase = FeedPhase::Down { retry_at: now + LISTEN_AGAIN };
        self.feed_stopped();
    }

    /// Nothing is heard.
    pub(super) fn feed_stopped(&mut self) {
        self.own_claims.interests.restart(false);
        self.own_claims.audiences.restart();
    }

    pub(super) fn handle_listening(&mut self, now: Boottime, listening: Option<(u64, Listening)>) {
        self.feed.phase = FeedPhase::Up;
        if let Some((generation, Listening { hears, refused })) = listening {
            self.feed.generation = generation;
            self.feed.hears = hears;
            self.feed.refused.renew(refused);
        }
        let hears = self.feed.hears;
        self.feed.verify_at = (hears == Hears::Part).then_some(now);
        self.chores.feed_started(now, hears);
        // Whatever happened before this instant was not hinted.
        self.own_claims.feed_started(now, hears == Hears::Watched);
        self.reports.push_back(Report::FeedLost);
    }

    /// The feed watches a resource before that is inspected, as whoever asks may look on, and hears for a
    /// session before that is announced.
    pub(super) fn feed_first(&mut self, request: &Request) -> Option<First<ConnectionOf<B>>> {
        let (mut topic, mut audiences) = (None, Vec::new());
        match request {
            Request::Inspect(resource) if self.own_claims.interests.add(resource) => {
                topic = Some(Topic::Resource(resource.clone()));
            }
            Request::Announce(record) if !record.is_agent() => {
                let session = record.owner.session;
                audiences = self.own_claims.audiences.take_for(&record.master(), session);
            }
            _ => {}
        }
        let (feed, refused) = (self.links.feed.clone(), self.feed.refused.clone());
        let is_needed = topic.is_some() || !audiences.is_empty();
        is_needed.then_some(First { feed, topic, audiences, refused })
    }

    /// Hears for those who have come otherwise than by an announcement, and no longer for who has left.
    pub(super) fn keep_hearing(&mut self, now: Boottime) {
        if self.feed.phase != FeedPhase::Up {
            return;
        }
        let audiences = self.own_claims.audiences.take_unheard();
        if !audiences.is_empty() {
            let backend = Rc::clone(&self.backend);
            // They came while the feed started.
            let is_late = audiences.iter().any(|it| matches!(it, Audience::Principal(_)));
            let call = async move |mut line: LineOf<B>| {
                backend.hear(&mut line, &audiences).await.map(Reply::Hears)
            };
            self.calls.start(now, self.timeout, &self.links.feed, Task::Hear { is_late }, call);
        }
        let left = self.own_claims.audiences.take_left(now);
        if !left.is_empty() {
            let backend = Rc::clone(&self.backend);
            let task = Task::StopHearing(left.clone());
            let call = async move |mut line: LineOf<B>| {
                backend.stop_hearing(&mut line, &left).await.map(|()| Reply::Hears(None))
            };
            self.calls.start(now, self.timeout, &self.links.feed, task, call);
        }
    }

    pub(super) fn watch(&mut self, now: Boottime) {
        let topics = self.own_claims.interests.take();
        if topics.is_empty() {
            return;
        }
        let topics = Rc::new(topics);
        let task = Task::Watch(Rc::clone(&topics));
        let backend = Rc::clone(&self.backend);
        let call = async move |mut line: LineOf<B>| {
            backend.watch(&mut line, &topics).await.map(Reply::Watched)
        };
        self.calls.start(now, self.timeout, &self.links.feed, task, call);
    }

    /// What has come about already is told as if it were hinted, what time brings about when it does.
    pub(super) fn handle_watched(&mut self, now: Boottime, topics: &[Topic], seen: &[Seen]) {
        self.own_claims.interests.taken_up(topics, !seen.is_empty());
        for (topic, seen) in topics.iter().zip(seen) {
            match (topic, seen) {
                (_, Seen::NotYet) | (Topic::Grant(..) | Topic::Held(..), Seen::ComesIn(_)) => {}
                (Topic::Held(_, resource) | Topic::Resource(resource), Seen::Holders(count)) => {
                    self.own_claims.counted(now, resource, *count);
                }
                (Topic::Grant(..), Seen::Holders(_)) => {}
                // Its own time runs out for whoever does not renew it.
                (Topic::Resource(resource), Seen::ComesIn(_))
                    if self.own_claims.hold_of(resource).is_some() => {}
                (Topic::Resource(resource), Seen::ComesIn(left)) => {
                    self.expiries.set(resource, now + *left + JUST_AFTER);
                }
                (Topic::Held(claim, resource), Seen::CameAbout) => {
                    self.own_claims.seen_lost(now, *claim, resource, &mut self.reports);
                }
                (Topic::Resource(resource), Seen::CameAbout) => {
                    self.own_claims.came_about(now, resource.clone(), &mut self.reports);
                }
                (Topic::Grant(claim, _), Seen::CameAbout) => {
                    let hint = Hint::Granted(*claim, None);
                    self.own_claims.handle_hint(now, hint, &mut self.reports);
                }
            }
        }
    }

    pub(super) fn verify(&mut self, now: Boottime, suspects: Vec<(ClaimId, Resource)>) {
        let suspects = Rc::new(suspects);
        let task = Task::Verify(Rc::clone(&suspects));
        let interests = &self.own_claims.interests;
        let resources: BTreeSet<_> = suspects.iter().map(|(_, it)| it).collect();
        let unwatched = resources.into_iter().filter(|it| !interests.is_watched(it));
        let topics: Vec<_> = unwatched.cloned().map(Topic::Resource).collect();
        let feed = (!topics.is_empty() && interests.is_on()).then(|| self.links.feed.clone());
        self.start_in_background(now, task, async move |backend, line| {
            if let Some(feed) = feed
                && let Ok(mut feed) = line.on(&feed).await
            {
                // A feed that fails is started again, and then everything is verified.
                let _ = backend.watch(&mut feed, &topics).await;
            }
            backend.verify(line, &suspects).await.map(Reply::Verified)
        });
    }

    pub(super) fn handle_verified(
        &mut self,
        now: Boottime,
        asked: &[(ClaimId, Resource)],
        found: &[Verified],
    ) {
        for ((claim, resource), found) in asked.iter().zip(found) {
            match found {
                Verified::Held => {}
                Verified::ExpiresSoon => self.chores.handle_expires_soon(now, resource),
                Verified::Gone => {
                    let change = Change::Lost { claim: *claim, resource: resource.clone() };
                    self.reports.push_back(Report::Change(change));
                }
            }
        }
    }
}
