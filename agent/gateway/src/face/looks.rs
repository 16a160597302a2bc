//! Looks at resources of a shared store, which only hints that something has changed. One look serves all hints that came
//! before it, and ends that were seen at about the same time are asked about together, so that a principal whose holds run
//! out by the thousand costs the store no more than others.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::model::{Answer, BEATS_MAX, ClaimId, Request, Resource, Subject};
use tenure_wire::Kind;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Face;
use super::ends::has_ended;
use crate::access::Principal;

/// Looks at the same time.
const LOOKS_MAX: usize = 8;
/// Between two looks at one resource.
const REST: Duration = Duration::from_millis(100);
/// Resources that wait for a look. Beyond them, and beyond so many ends of one, the beats of their holders tell.
const RESOURCES_MAX: usize = 4096;
const ENDS_MAX: usize = 1024;
/// Between the first end that is seen and the question about it and those after it.
const GATHER: Duration = Duration::from_millis(50);

/// The hints of one resource since the last look at it.
#[derive(Default)]
struct Hints {
    /// Claims that may have ended, with their owners.
    ends: Vec<(Arc<Principal>, ClaimId)>,
    /// People see this resource, and it may have changed.
    has_changed: bool,
}

impl Hints {
    fn is_empty(&self) -> bool {
        self.ends.is_empty() && !self.has_changed
    }
}

/// Looks that are to come, and resources that have been looked at just now.
pub(super) struct Looks {
    face: Weak<Face>,
    runtime: Handle,
    hints: Mutex<HashMap<Resource, Hints>>,
    turns: Semaphore,
    /// To be asked about soon.
    ended: Mutex<Ended>,
}

/// Claims that have ended, and their owners, by the owner's address: one that was forgotten and came back has another account.
type Ended = BTreeMap<usize, (Arc<Principal>, Vec<Subject>)>;

impl Looks {
    pub(super) fn new(face: Weak<Face>, runtime: Handle) -> Arc<Looks> {
        let (hints, turns) = (Mutex::default(), Semaphore::new(LOOKS_MAX));
        Arc::new(Looks { face, runtime, hints, turns, ended: Mutex::default() })
    }

    /// Has the end of a claim written down, if it has ended.
    pub(super) fn at_end(
        self: &Arc<Looks>,
        resource: &Resource,
        owner: Arc<Principal>,
        claim: ClaimId,
    ) {
        self.take(resource, |hints| {
            if hints.ends.len() < ENDS_MAX {
                hints.ends.push((owner, claim));
            }
        });
    }

    /// Has people told of a change of a resource that they see, if there is one: to the store, a renewal is one, too.
    pub(super) fn at_change(self: &Arc<Looks>, resource: &Resource) {
        self.take(resource, |hints| hints.has_changed = true);
    }

    fn take(self: &Arc<Looks>, resource: &Resource, add: impl FnOnce(&mut Hints)) {
        let mut hints = self.hints();
        let count = hints.len();
        match hints.entry(resource.clone()) {
            Entry::Occupied(mut of) => add(of.get_mut()),
            Entry::Vacant(place) if count < RESOURCES_MAX => {
                add(place.insert(Hints::default()));
                let (looks, resource) = (Arc::clone(self), resource.clone());
                self.runtime.spawn(async move { looks.run(&resource).await });
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Looks at a resource until it has no more hints.
    async fn run(self: &Arc<Looks>, resource: &Resource) {
        while let Some(hints) = self.next(resource) {
            if let (Ok(_turn), Some(face)) = (self.turns.acquire().await, self.face.upgrade()) {
                let mut ends = face.follow(resource, hints).await;
                if resource.kind == Kind::Master {
                    let mut own = Vec::new();
                    for (owner, claim) in ends {
                        if face.tells_end(&owner, claim).await {
                            own.push((owner, claim));
                        }
                    }
                    ends = own;
                }
                self.gather(resource, ends);
            }
            #[expect(clippy::disallowed_methods, reason = "nothing is decided by it")]
            tokio::time::sleep(REST).await;
        }
    }

    /// Has the ends of claims of a resource written down soon, with others.
    fn gather(self: &Arc<Looks>, resource: &Resource, ends: Vec<(Arc<Principal>, ClaimId)>) {
        let mut all = self.ended();
        let is_awaited = !all.is_empty();
        for (owner, claim) in ends {
            let address = Arc::as_ptr(&owner).addr();
            let (_, subjects) = all.entry(address).or_insert_with(|| (owner, Vec::new()));
            subjects.push(Subject::Claim { claim, resource: resource.clone() });
        }
        if !is_awaited && !all.is_empty() {
            let looks = Arc::clone(self);
            self.runtime.spawn(async move { looks.settle().await });
        }
    }

    async fn settle(&self) {
        #[expect(clippy::disallowed_methods, reason = "nothing is decided by it")]
        tokio::time::sleep(GATHER).await;
        let all = mem::take(&mut *self.ended());
        let Some(face) = self.face.upgrade() else { return };
        for (owner, subjects) in all.into_values() {
            for subjects in subjects.chunks(BEATS_MAX) {
                face.write_ends_down(&owner, subjects.to_vec()).await;
            }
        }
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hints of a resource; without any it is forgotten.
    fn next(&self, resource: &Resource) -> Option<Hints> {
        let mut all = self.hints();
        let hints = all.get_mut(resource).map(mem::take).filter(|hints| !hints.is_empty());
        if hints.is_none() {
            all.remove(resource);
        }
        hints
    }

    fn hints(&self) -> MutexGuard<'_, HashMap<Resource, Hints>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Face {
    /// Those of the claims that may have ended that have.
    async fn follow(&self, resource: &Resource, hints: Hints) -> Vec<(Arc<Principal>, ClaimId)> {
        let answer = self.store.look(Request::Inspect(resource.clone())).await;
        let Ok(Answer::Standing(standing)) = answer else { return Vec::new() };
        if hints.has_changed && self.people.seen.differs(resource, &standing) {
            self.people.changes.tell_changed(resource);
        }
        let mut ends = hints.ends;
        ends.retain(|(_, claim)| has_ended(&standing, *claim));
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Lease, name: name.into() }
    }

    #[tokio::test]
    async fn hints_of_a_resource_are_gathered_until_it_is_looked_at() {
        let looks = Looks::new(Weak::new(), Handle::current());
        let all = looks.turns.acquire_many(LOOKS_MAX as u32).await.unwrap();
        for _ in 0..10_000 {
            looks.at_change(&resource("r"));
        }
        assert_eq!(looks.hints().len(), 1);
        assert!(looks.next(&resource("r")).is_some_and(|hints| hints.has_changed));
        assert!(looks.next(&resource("r")).is_none() && looks.hints().is_empty());
        for number in 0..2 * RESOURCES_MAX {
            looks.at_change(&resource(&number.to_string()));
        }
        assert_eq!(looks.hints().len(), RESOURCES_MAX);
        drop(all);
        while !looks.hints().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn ends_of_many_resources_are_asked_about_together() {
        let looks = Looks::new(Weak::new(), Handle::current());
        let owners = ["a", "b"].map(|name| Arc::new(Principal::new(name)));
        for number in 0..1000 {
            let owner = Arc::clone(&owners[number % 2]);
            looks.gather(&resource(&number.to_string()), vec![(owner, ClaimId(uuid::Uuid::nil()))]);
        }
        let counts = Vec::from_iter(looks.ended().values().map(|(_, subjects)| subjects.len()));
        assert_eq!(counts, [500, 500]);
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
        while !looks.ended().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
