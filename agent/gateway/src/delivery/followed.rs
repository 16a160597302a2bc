//! The routes of one tenant, read again when they change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tenure_core::model::{Answer, Failure, Page, Request, Resource};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Kind, Route, Routes};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::routes::{Change, Gone, Reading, State, Table};
use crate::store::Store;

/// How often a store that others share is asked for the version of its table; one that is the gateway's own tells of
/// changes, and is asked as seldom as whoever waits for hints asks.
const LOOK_EVERY_SHARED: Duration = Duration::from_millis(200);
const LOOK_EVERY_OWN: Duration = Duration::from_secs(1);
/// How many times as long as a reading took the store is left alone after it, and for how long at most, unless the
/// reading took longer: a route is removed within 100 ms, and a large table takes half of the store's time at most.
const REST: u32 = 9;
const REST_MAX: Duration = Duration::from_millis(50);
/// After a question that failed.
const FAILED_REST: Duration = Duration::from_millis(500);
/// Routes of a page. A store reads so many at once.
const PAGE: usize = 256;
/// Most routes of a tenant; more are not told of.
const ROUTES_MAX: usize = 65_536;
/// So often a table is read in one go, while it changes, and very many routes are missing.
const READINGS_MAX: usize = 3;
/// Questions for single routes that the store has at a time, and between two looks at the table.
const ASKED_AT_ONCE: usize = 32;
const ASKED_PER_TURN: usize = 256;
/// The name in a question for the version alone. Stores refuse an empty one; a lease of this name costs one route.
const NO_LEASE: &str = "tenure.version";
/// A store rounds times down.
const JUST_AFTER: Duration = Duration::from_millis(2);

/// The routes of a tenant, for whoever follows them.
#[derive(Debug)]
pub struct Followed {
    pub tenant: Arc<str>,
    /// The mailboxes that the run before may have told proxies of.
    pub(super) before: Vec<Arc<str>>,
    table: Mutex<Table>,
    /// Counts readings that changed something.
    news: watch::Sender<u64>,
    /// The table may have changed.
    pub(super) changed: Notify,
    /// How often it was read, or could not be.
    readings: watch::Sender<u64>,
}

impl Followed {
    pub(super) fn new(tenant: Arc<str>, before: Vec<Arc<str>>) -> Followed {
        Followed {
            tenant,
            before,
            table: Mutex::default(),
            news: watch::Sender::new(0),
            changed: Notify::new(),
            readings: watch::Sender::new(0),
        }
    }

    /// The routes, as they were read last.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes up whenever the routes change from now on.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// True if the routes were read.
    pub(super) fn was_read(&self) -> bool {
        *self.news.borrow() > 0
    }

    /// Waits until the routes were read once; true if they were.
    pub async fn is_read(&self, within: Duration) -> bool {
        let mut news = self.news();
        timeout(within, news.wait_for(|readings| *readings > 0)).await.is_ok()
    }

    /// Takes a reading, and tells of its news; whether it is exact, and what changed.
    pub(super) fn take(&self, reading: Reading) -> (bool, Vec<Change>) {
        let version = reading.version;
        let (changes, is_exact, was_reset) = {
            let mut table = self.table();
            let was_reset = version < table.store_version();
            let changes = table.take(reading);
            if !self.was_read() {
                table.remove_all_but_routes(&self.before);
            }
            (changes, table.is_exact(), was_reset)
        };
        if was_reset {
            warn!(tenant = %self.tenant, version, "the store has lost its routes' versions");
        }
        // The first reading is told even if there is nothing.
        self.news.send_if_modified(|readings| {
            let is_news = *readings == 0 || !changes.is_empty() || was_reset;
            *readings += u64::from(is_news);
            is_news
        });
        (is_exact, changes)
    }

    /// Has the routes read again, and waits for that.
    pub async fn read_again(&self, within: Duration) {
        let mut readings = self.readings.subscribe();
        self.changed.notify_one();
        // One may have begun before.
        for _ in 0..2 {
            let _ = timeout(within, readings.changed()).await;
        }
    }
}

/// The task that reads the routes of a tenant. Takes word that they may have changed; ends when it is dropped.
pub(super) struct Reader {
    pub(super) followed: Arc<Followed>,
    pub(super) store: Store,
    /// Others change the store, too, and it does not tell when the time of a route is up.
    pub(super) is_shared: bool,
    /// Routes whose end is to be asked.
    to_ask: VecDeque<Arc<str>>,
}

impl Reader {
    pub(super) fn new(followed: Arc<Followed>, store: Store, is_shared: bool) -> Reader {
        Reader { followed, store, is_shared, to_ask: VecDeque::new() }
    }

    pub(super) async fn run(mut self) {
        let mut must_read = true;
        loop {
            if must_read {
                must_read = self.read().await;
                continue;
            }
            must_read = match self.look().await {
                Ok(must_read) => must_read,
                Err(failure) => {
                    debug!(cause = failure.cause(), "the store does not tell of routes");
                    rest(FAILED_REST).await;
                    // A change meanwhile has a version of its own.
                    false
                }
            };
        }
    }

    /// Reads all routes; true if that is to be done again.
    async fn read(&mut self) -> bool {
        let began = clock::now();
        let outcome = self.take_reading().await;
        self.followed.readings.send_modify(|readings| *readings += 1);
        let again = match outcome {
            Ok((is_exact, changes)) => {
                if self.is_shared {
                    let routed = changes.into_iter().filter_map(|Change { mailbox, state }| {
                        matches!(state, State::Routed(_)).then_some(mailbox)
                    });
                    self.to_ask.extend(routed);
                }
                !is_exact
            }
            Err(failure) => {
                debug!(cause = failure.cause(), "the routes could not be read");
                rest(FAILED_REST).await;
                true
            }
        };
        let took = clock::now().since(began);
        rest((took * REST).min(REST_MAX.max(took))).await;
        again
    }

    async fn take_reading(&self) -> Result<(bool, Vec<Change>), Failure> {
        let mut reading = self.read_pages().await?;
        let mut missing = self.missing(&reading);
        for _ in 1..READINGS_MAX {
            // The reading itself may have been the first to note that they ended.
            if reading.version == reading.until || missing.len() <= ASKED_PER_TURN {
                break;
            }
            reading = self.read_pages().await?;
            missing = self.missing(&reading);
        }
        if reading.version == reading.until && reading.routes.len() < ROUTES_MAX {
            // Nothing changed meanwhile: there are no others.
            let version = reading.version;
            let gone = missing.into_iter().map(|mailbox| Gone { mailbox, version });
            reading.gone.extend(gone);
        } else if !missing.is_empty() {
            self.ask_missing(missing, &mut reading).await?;
            reading.until = self.version().await?;
        }
        Ok(self.followed.take(reading))
    }

    fn missing(&self, reading: &Reading) -> Vec<Arc<str>> {
        self.followed.table().missing(&reading.routes)
    }

    /// Reads all routes, and the version before and after.
    async fn read_pages(&self) -> Result<Reading, Failure> {
        let mut read = BTreeMap::new();
        let (mut version, mut after) = (None, None);
        loop {
            let page = Page { after, limit: PAGE };
            let Routes { version: of_page, routes, cursor, .. } = self.ask(None, page).await?;
            version.get_or_insert(of_page);
            // A page may repeat what an earlier one had.
            read.extend(routes.into_iter().map(|route| (route.name.clone(), route)));
            after = cursor.map(Arc::from);
            if after.is_none() {
                break;
            }
            if read.len() >= ROUTES_MAX {
                warn!(tenant = %self.followed.tenant, ROUTES_MAX, "more routes than are told of");
                break;
            }
        }
        let until = self.version().await?;
        let routes: Vec<Route> = read.into_values().collect();
        Ok(Reading { version: version.unwrap_or_default(), until, routes, gone: Vec::new() })
    }

    /// Asks for each route that a reading does not have, which changes may have hidden from it.
    async fn ask_missing(
        &self,
        missing: Vec<Arc<str>>,
        reading: &mut Reading,
    ) -> Result<(), Failure> {
        let asked = stream::iter(missing).map(|mailbox| async {
            let found = self.one(&mailbox).await;
            (mailbox, found)
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(ASKED_AT_ONCE));
        while let Some((mailbox, found)) = asked.next().await {
            let Routes { version, routes: mut found, .. } = found?;
            match found.pop() {
                Some(route) => reading.routes.push(route),
                None => reading.gone.push(Gone { mailbox, version }),
            }
        }
        Ok(())
    }

    /// Waits for a while, or until the routes may have changed; true if they have.
    async fn look(&mut self) -> Result<bool, Failure> {
        let now = clock::now();
        self.to_ask.extend(self.followed.table().take_due(now));
        if !self.to_ask.is_empty() {
            let some: Vec<_> = self.to_ask.iter().take(ASKED_PER_TURN).cloned().collect();
            let count = some.len();
            let has_changed = self.ask_ends(some).await?;
            self.to_ask.drain(..count);
            return Ok(has_changed || self.has_new_version().await?);
        }
        let look_every = if self.is_shared { LOOK_EVERY_SHARED } else { LOOK_EVERY_OWN };
        let due = self.followed.table().poll_timeout();
        let wait = due.map_or(look_every, |due| due.since(now).min(look_every));
        let is_told = timeout(wait, self.followed.changed.notified()).await.is_ok();
        Ok(is_told || self.has_new_version().await?)
    }

    /// Asks when the time of some routes is up; true if one of these routes is another one by now: then all are read anyway.
    async fn ask_ends(&self, mailboxes: Vec<Arc<str>>) -> Result<bool, Failure> {
        let asked = stream::iter(mailboxes).map(|name| async {
            let at = self.end_of(&name).await?;
            // The route is asked for after its end: if the route is still the one in the table, so it was when its end was asked for.
            // In the other order its ttl may run out between the two questions, and the end of its grace is taken for that of its ttl.
            let route = self.one(&name).await?.routes.pop();
            Ok((name, at, route))
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(ASKED_AT_ONCE));
        let mut has_changed = false;
        while let Some(answer) = asked.next().await {
            let (name, at, route) = answer?;
            let mut table = self.followed.table();
            table.set_expiry(&name, at);
            has_changed |= table.route(&name).map(|it| &**it) != route.as_ref();
        }
        Ok(has_changed)
    }

    /// When the time of a route is up; `None` if the store tells of that by itself, or the lease has no holder.
    async fn end_of(&self, name: &Arc<str>) -> Result<Option<Boottime>, Failure> {
        let tenant = Arc::clone(&self.followed.tenant);
        let resource = Resource { tenant, kind: Kind::Lease, name: Arc::clone(name) };
        let asked_at = clock::now();
        match self.store.look(Request::Inspect(resource)).await? {
            Answer::Standing(standing) => {
                Ok(standing.runs_out.map(|it| asked_at + it + JUST_AFTER))
            }
            _ => Ok(None),
        }
    }

    async fn has_new_version(&self) -> Result<bool, Failure> {
        Ok(self.version().await? != self.followed.table().store_version())
    }

    async fn ask(&self, name: Option<Arc<str>>, page: Page) -> Result<Routes, Failure> {
        let tenant = Arc::clone(&self.followed.tenant);
        match self.store.look(Request::Routes { tenant, name, page }).await? {
            Answer::Routes(routes) => Ok(routes),
            _ => Err(Failure::Unknown("the store answered something else than routes".to_owned())),
        }
    }

    async fn one(&self, mailbox: &Arc<str>) -> Result<Routes, Failure> {
        self.ask(Some(Arc::clone(mailbox)), Page::whole()).await
    }

    /// The version of the table, with one route at most.
    async fn version(&self) -> Result<u64, Failure> {
        Ok(self.ask(Some(NO_LEASE.into()), Page::whole()).await?.version)
    }
}

#[expect(clippy::disallowed_methods, reason = "while a machine sleeps nobody is told anything")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
