//! Pure. The changes that are watched for those of this agent who wait: see [`Topic`].
//!
//! A store hints a watched change once. Whoever waits still after it asks again, and so watches again.

use std::collections::{HashMap, VecDeque};

use tenure_core::model::{ClaimId, Resource};

use super::backend::Topic;

/// Topics in one call, so that it takes the store no longer than a fraction of a millisecond.
const WATCH_PER_CALL_MAX: usize = 256;
/// Resources that are known to be watched. Beyond, all of them are watched anew when somebody asks.
const WATCHED_MAX: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Among those of the next calls.
    Wanted,
    Asked,
    Answered,
}

/// What is watched, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Interests {
    /// The feed hints what is watched, and nothing else.
    is_on: bool,
    /// Wanted, and not hinted since.
    watched: HashMap<Resource, Progress>,
    /// Bounded by the answers that they come from.
    wanted: VecDeque<Topic>,
    asking: bool,
}

impl Interests {
    /// The feed has started anew, and nothing is watched.
    pub(super) fn restart(&mut self, is_on: bool) {
        *self = Interests { is_on, asking: self.asking, ..Interests::default() };
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The resource's next change will be hinted, for certain.
    pub(super) fn is_watched(&self, resource: &Resource) -> bool {
        self.watched.get(resource) == Some(&Progress::Answered)
    }

    /// The resource will be read before anything that is asked from now on.
    pub(super) fn is_to_be_read(&self, resource: &Resource) -> bool {
        self.watched.get(resource) == Some(&Progress::Wanted)
    }

    /// The resource's next change is to be hinted, which the caller asks for. `false` if it will be anyway.
    pub(super) fn add(&mut self, resource: &Resource) -> bool {
        let is_news = self.is_on && !self.watched.contains_key(resource);
        if is_news {
            self.set(resource, Progress::Asked);
        }
        is_news
    }

    fn set(&mut self, resource: &Resource, progress: Progress) {
        if self.watched.len() >= WATCHED_MAX {
            self.watched.clear();
        }
        self.watched.insert(resource.clone(), progress);
    }

    /// Somebody waits for a resource that is taken.
    pub(super) fn want(&mut self, resource: &Resource) {
        if self.is_on && !self.watched.contains_key(resource) {
            self.set(resource, Progress::Wanted);
            self.wanted.push_back(Topic::Resource(resource.clone()));
        }
    }

    /// It is to be seen whether a claim has its resource still.
    pub(super) fn want_held(&mut self, claim: ClaimId, resource: &Resource) {
        if self.is_on && !self.is_to_be_read(resource) {
            self.set(resource, Progress::Wanted);
            self.wanted.push_back(Topic::Held(claim, resource.clone()));
        }
    }

    /// A claim waits in the store.
    pub(super) fn want_grant(&mut self, claim: ClaimId, resource: &Resource) {
        if self.is_on {
            self.wanted.push_back(Topic::Grant(claim, resource.clone()));
        }
    }

    /// A change was hinted: it is watched no more, unless that is still to be asked.
    pub(super) fn changed(&mut self, resource: &Resource) {
        if !self.is_to_be_read(resource) {
            self.watched.remove(resource);
        }
    }

    /// The next call's topics. One call at a time.
    pub(super) fn take(&mut self) -> Vec<Topic> {
        if self.asking {
            return Vec::new();
        }
        let count = self.wanted.len().min(WATCH_PER_CALL_MAX);
        let taken: Vec<_> = self.wanted.drain(..count).collect();
        self.asking = !taken.is_empty();
        self.advance(&taken, Progress::Wanted, Progress::Asked);
        taken
    }

    fn advance(&mut self, topics: &[Topic], from: Progress, to: Progress) {
        for topic in topics {
            if let Topic::Resource(resource) | Topic::Held(_, resource) = topic
                && let Some(progress) = self.watched.get_mut(resource)
                && *progress == from
            {
                *progress = to;
            }
        }
    }

    /// That call was answered, or not.
    pub(super) fn taken_up(&mut self, topics: &[Topic], answered: bool) {
        self.asking = false;
        if answered {
            // What was hinted meanwhile, and is wanted again, is not meant.
            self.advance(topics, Progress::Asked, Progress::Answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    fn leader(name: &str) -> Resource {
        Resource { tenant: "default".into(), kind: Kind::Leader, name: name.into() }
    }

    #[test]
    fn a_resource_is_watched_once_until_it_changes() {
        let (role, other) = (leader("x"), leader("y"));
        let mut interests = Interests::default();
        interests.want(&role);
        assert!(interests.take().is_empty(), "the feed hints everything");
        interests.restart(true);
        interests.want(&role);
        interests.want(&role);
        assert_eq!(interests.take(), [Topic::Resource(role.clone())]);
        interests.want(&other);
        assert!(interests.take().is_empty(), "one call at a time");
        interests.taken_up(&[], true);
        interests.changed(&role);
        interests.want(&role);
        assert_eq!(interests.take(), [Topic::Resource(other), Topic::Resource(role.clone())]);
        interests.taken_up(&[], true);
        assert!(!interests.add(&role) && interests.take().is_empty());
        interests.restart(true);
        assert!(interests.add(&role));
    }

    #[test]
    fn calls_are_small_and_what_is_remembered_is_bounded() {
        let mut interests = Interests::default();
        interests.restart(true);
        for id in 0..=WATCH_PER_CALL_MAX {
            interests.want_grant(ClaimId(Uuid::from_u128(id as u128)), &leader("x"));
        }
        let mut calls = Vec::new();
        while !interests.wanted.is_empty() {
            calls.push(interests.take().len());
            interests.taken_up(&[], true);
        }
        assert_eq!(calls, [WATCH_PER_CALL_MAX, 1]);
        for number in 0..=WATCHED_MAX {
            assert!(interests.add(&leader(&number.to_string())));
        }
        assert_eq!(interests.watched.len(), 1);
    }
}
