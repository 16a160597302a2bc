//! The names of all resources, read again and again as long as somebody looks, and no longer.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{Answer, Page, RESOURCES_LISTED_MAX, Request, Resource};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::listing::{Listing, NAMES_MAX};
use super::now_ms;
use crate::face::Face;
use crate::store::Store;

/// Nobody looks any more when the last look was so long ago.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Least time between the beginnings of two readings.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How many times as long as a page took the store is left alone after it.
const REST: u32 = 9;
/// How long a first look waits for something to see.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// How often a first reading shows how far it has come.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// The names, and whether they are kept.
#[derive(Debug, Default)]
pub(in crate::face) struct Catalogue {
    listing: watch::Sender<Arc<Listing>>,
    looks: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    last: Boottime,
    /// A task reads.
    is_read: bool,
}

impl Catalogue {
    /// What was read last. The first look waits for a moment, until there is something.
    pub(super) async fn look(self: &Arc<Self>, face: &Face) -> Arc<Listing> {
        let is_first = {
            let mut looks = self.looks();
            looks.last = clock::now();
            !std::mem::replace(&mut looks.is_read, true)
        };
        if is_first {
            let (catalogue, store) = (Arc::clone(self), face.store.clone());
            let drain = face.drain.clone();
            tokio::spawn(async move {
                // At its end nobody looks.
                let _ = drain.run_until_cancelled(catalogue.keep(&store)).await;
            });
        }
        let mut listing = self.listing.subscribe();
        let there = listing.wait_for(|it| it.read_at > 0 || it.failure.is_some());
        // Until then there is nothing to see, which is said, too.
        let _ = timeout(FIRST_WITHIN, there).await.map(drop);
        self.current()
    }

    /// Reads until nobody looks any more.
    async fn keep(&self, store: &Store) {
        loop {
            let began = clock::now();
            let Some(read) = self.read(store, began).await else { return };
            self.listing.send_replace(Arc::new(read));
            rest((began + READ_EVERY).since(clock::now())).await;
        }
    }

    /// Reads all names; `None` if nobody looks any more.
    async fn read(&self, store: &Store, began: Boottime) -> Option<Listing> {
        let is_first = self.current().names.is_empty();
        let (mut names, mut after, mut shown_at) = (Names::default(), None, began);
        while self.goes_on() {
            let asked = clock::now();
            let page = Page { after, limit: RESOURCES_LISTED_MAX };
            let answer = store.look(Request::Resources { page }).await;
            let took = clock::now().since(asked);
            match answer {
                Ok(Answer::Resources { resources, next }) => {
                    names.add(resources);
                    after = next;
                }
                Ok(_) => return Some(self.failed("the store answered something else than names")),
                Err(failure) => return Some(self.failed(failure.cause())),
            }
            let now = clock::now();
            if after.is_none() {
                return Some(names.listing(now.since(began), true));
            }
            if is_first && now.since(shown_at) >= SHOW_EVERY {
                shown_at = now;
                let so_far = names.listing(now.since(began), false);
                self.listing.send_replace(Arc::new(so_far));
            }
            rest(took * REST).await;
        }
        None
    }

    /// What was read last, and why it is not newer.
    fn failed(&self, cause: &str) -> Listing {
        let failure = Some(cause.to_owned());
        Listing { failure, is_complete: false, ..(*self.current()).clone() }
    }

    fn current(&self) -> Arc<Listing> {
        Arc::clone(&self.listing.borrow())
    }

    /// False if nobody looks any more: then everything is forgotten.
    fn goes_on(&self) -> bool {
        let mut looks = self.looks();
        looks.is_read = clock::now().since(looks.last) < KEPT_FOR;
        if !looks.is_read {
            self.listing.send_replace(Arc::default());
        }
        looks.is_read
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names that a reading has found so far.
#[derive(Default)]
struct Names {
    /// No more than [`NAMES_MAX`], the first ones.
    first: BTreeSet<Resource>,
    is_cut: bool,
    /// Each tenant once.
    tenants: HashSet<Arc<str>>,
}

impl Names {
    fn add(&mut self, names: Vec<Resource>) {
        for mut name in names {
            match self.tenants.get(&name.tenant) {
                Some(tenant) => name.tenant = Arc::clone(tenant),
                None => drop(self.tenants.insert(Arc::clone(&name.tenant))),
            }
            self.first.insert(name);
            if self.first.len() > NAMES_MAX {
                self.first.pop_last();
                self.is_cut = true;
            }
        }
    }

    fn listing(&self, took: Duration, is_whole: bool) -> Listing {
        Listing {
            names: self.first.iter().cloned().collect(),
            is_complete: is_whole && !self.is_cut,
            read_at: now_ms(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            failure: None,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "while a machine sleeps nobody looks")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
