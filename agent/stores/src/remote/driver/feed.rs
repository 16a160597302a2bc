//! The change feed, and looks at what it hints.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::model::{Change, ClaimId, Report, Request, Resource};
use tenure_core::time::Boottime;

use super::{Driver, JUST_AFTER, Reply, Task};
use crate::remote::backend::{
    Backend, Chores, ConnectionOf, Hears, LineOf, Listening, Seen, Topic, Verified,
};
use crate::remote::hints::{Hint, Hints};
use crate::remote::link::Link;

/// Wait after the feed could not be started.
pub(super) const LISTEN_AGAIN: Duration = Duration::from_millis(500);
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedPhase {
    Down { retry_at: Boottime },
    Starting,
    Up,
}

/// The change feed.
pub(super) struct Feed {
    pub(super) phase: FeedPhase,
    pub(super) hints: Hints,
    /// The connection that listens.
    pub(super) generation: u64,
    pub(super) hears: Hears,
    /// Why hints do not come, although the connection is up.
    pub(super) refused: Option<String>,
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
            refused: None,
            verify_at: None,
        }
    }
}

impl<B: Backend> Driver<B> {
    pub(super) fn listen(&mut self, now: Boottime) {
        self.feed.phase = FeedPhase::Starting;
        let backend = Rc::clone(&self.backend);
        let already = self.feed.generation;
        let call = async move |mut line: LineOf<B>| {
            let generation = line.generation();
            if generation == already {
                return Ok(Reply::Listening(None));
            }
            let listening = backend.listen(&mut line).await?;
            Ok(Reply::Listening(Some((generation, listening))))
        };
        self.calls.start(now, self.timeout, &self.links.feed, Task::Listen, call);
    }

    pub(super) fn handle_listening(&mut self, now: Boottime, listening: Option<(u64, Listening)>) {
        self.feed.phase = FeedPhase::Up;
        if let Some((generation, Listening { hears, refused })) = listening {
            self.feed.generation = generation;
            self.feed.hears = hears;
            self.feed.refused = refused;
        }
        let hears = self.feed.hears;
        self.feed.verify_at = (hears == Hears::Part).then_some(now);
        self.chores.feed_started(now, hears);
        // Whatever happened before this instant was not hinted.
        self.own_claims.feed_started(now, hears == Hears::Watched);
        self.reports.push_back(Report::FeedLost);
    }

    /// The feed, if it must watch a resource before that is inspected: whoever asks may look on.
    pub(super) fn feed_first(&mut self, request: &Request) -> Option<Link<ConnectionOf<B>>> {
        let Request::Inspect(resource) = request else { return None };
        self.own_claims.interests.add(resource).then(|| self.links.feed.clone())
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
        self.own_claims.interests.taken_up();
        for (topic, seen) in topics.iter().zip(seen) {
            match (topic, seen) {
                (_, Seen::NotYet) | (Topic::Grant(..), Seen::ComesIn(_)) => {}
                (Topic::Resource(resource), Seen::ComesIn(left)) => {
                    self.expiries.set(resource, now + *left + JUST_AFTER);
                }
                (Topic::Resource(resource), Seen::CameAbout) => {
                    let hint = Hint::Resource(resource.clone());
                    self.own_claims.handle_hint(now, hint, &mut self.reports);
                }
                (Topic::Grant(claim, _), Seen::CameAbout) => {
                    self.own_claims.handle_hint(now, Hint::Granted(*claim), &mut self.reports);
                }
            }
        }
    }

    pub(super) fn verify(&mut self, now: Boottime, suspects: Vec<(ClaimId, Resource)>) {
        let suspects = Rc::new(suspects);
        let task = Task::Verify(Rc::clone(&suspects));
        let feed = self.own_claims.interests.is_on().then(|| self.links.feed.clone());
        self.start_in_background(now, task, async move |backend, line| {
            if let Some(feed) = feed
                && let Ok(mut feed) = line.on(&feed).await
            {
                let resources: BTreeSet<_> = suspects.iter().map(|(_, it)| it).collect();
                let topics: Vec<_> = resources.into_iter().cloned().map(Topic::Resource).collect();
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
