//! Pure. The routes of a tenant, as they were read from the store.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use tenure_core::time::Boottime;
use tenure_wire::Route;

use super::expiries::Expiries;
use super::{Change, State};

/// Removals that are remembered, about 100 bytes each. A reader that lacks an earlier one is given all routes.
const REMOVALS_MAX: usize = 4096;
/// Versions that are remembered. Who resumes from an earlier one is given all routes.
const VERSIONS_MAX: usize = 4096;

/// The routes of a tenant, and what changed since earlier readings of them.
///
/// A table is read in pages, while the store goes on. A reading during which nothing changed is exact: it has what
/// every gateway has that read the same version, so a reader may go on from it at any of them. Any other reading
/// has some of what is newer, and is told, but nobody can resume from it: another gateway may never see a route
/// that came and went.
#[derive(Debug, Default)]
pub struct Table {
    /// As it is told: it only grows.
    version: u64,
    store_version: u64,
    is_exact: bool,
    /// The number of the last change here.
    last: Place,
    /// A reader that stands before it may lack removals that are forgotten.
    oldest: Place,
    /// Routes, and removals that are remembered.
    states: BTreeMap<Arc<str>, (Place, State)>,
    /// The same in the order of their changes, and the removals among them.
    order: BTreeMap<Place, Arc<str>>,
    removals: BTreeSet<Place>,
    /// How far exact readings had come, by their versions.
    exact: BTreeMap<u64, Place>,
    expiries: Expiries,
}

/// How far a reader of this table has come. It means nothing to another gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// All routes, as they were read.
#[derive(Debug, Default)]
pub struct Reading {
    /// The versions of the table when the reading began, and when it had ended.
    pub version: u64,
    pub until: u64,
    pub routes: Vec<Route>,
    /// Those mailboxes that [`Table::missing`] told and that have no route.
    pub gone: Vec<Gone>,
}

/// A route that is no more, and a version as of which the store said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub mailbox: Arc<str>,
    pub version: u64,
}

/// The changes that a reader lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// All routes, in place of those that it has.
    Snapshot(Vec<Arc<Route>>),
    /// These changes, in order.
    Changes(Vec<Change>),
}

impl Table {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version by the store's count, which begins anew where it has lost what it had.
    pub fn store_version(&self) -> u64 {
        self.store_version
    }

    /// True if nothing changed while it was read.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The number by which a reader goes on that has been told everything: an odd one if it may resume from there.
    ///
    /// Numbers only grow, at whichever gateway: a later reading has a greater version, and one that changes cut ends
    /// at a greater version than it began.
    pub fn stamp(&self) -> u64 {
        self.version.saturating_mul(2).saturating_add(if self.is_exact { 1 } else { 2 })
    }

    /// The same for a reader that has been told a part of it; never odd.
    pub fn stamp_of_part(&self) -> u64 {
        self.stamp() & !1
    }

    /// The place of a reader that has been told everything.
    pub fn place(&self) -> Place {
        self.last
    }

    /// The routes, by mailbox.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.states.values().filter_map(|(_, state)| match state {
            State::Routed(route) => Some(route),
            State::Removed(_) => None,
        })
    }

    /// The route of a mailbox.
    pub fn route(&self, mailbox: &str) -> Option<&Arc<Route>> {
        match self.states.get(mailbox)? {
            (_, State::Routed(route)) => Some(route),
            (_, State::Removed(_)) => None,
        }
    }

    /// The mailboxes whose routes a reading does not have: whether each is gone, and since when, is to be asked.
    pub fn missing(&self, read: &[Route]) -> Vec<Arc<str>> {
        let read: HashSet<&str> = read.iter().map(|route| route.name.as_str()).collect();
        let missing = self.routes().filter(|route| !read.contains(route.name.as_str()));
        missing.map(|route| route.name.as_str().into()).collect()
    }

    /// Takes a reading. What changed.
    ///
    /// A version that is less than that of the reading before is of a store that has lost what it had: the
    /// history begins anew, and what it tells has greater versions than before all the same.
    pub fn take(&mut self, reading: Reading) -> Vec<Change> {
        let Reading { version: by_store, until, routes, gone } = reading;
        let is_reset = by_store < self.store_version;
        let version = match by_store < self.version {
            true => self.version + u64::from(by_store != self.store_version),
            false => by_store,
        };
        let is_exact = by_store == until;
        self.store_version = by_store;
        let gone = gone.into_iter().map(|Gone { mailbox, version: gone_at }| {
            let version = if is_reset { version } else { gone_at };
            Change { mailbox, state: State::Removed(version) }
        });
        let routed = routes.into_iter().map(|route| Change {
            mailbox: route.name.as_str().into(),
            state: State::Routed(Arc::new(route)),
        });
        let mut changes: Vec<_> = gone.chain(routed).filter(|it| self.is_news(it)).collect();
        changes.sort_by_key(|change| change.state.version());
        for change in &changes {
            self.set(change);
        }
        if is_reset {
            self.exact.clear();
            self.oldest = self.last;
        }
        (self.version, self.is_exact) = (version, is_exact);
        if self.is_exact {
            self.exact.insert(version, self.last);
        }
        self.forget();
        changes
    }

    /// The mailboxes that have a route, or had one, as far as that is remembered.
    pub fn mailboxes(&self) -> Vec<Arc<str>> {
        self.states.keys().cloned().collect()
    }

    /// Of these mailboxes readers may know routes: those that are not there are removed.
    pub fn remove_all_but_routes(&mut self, mailboxes: &[Arc<str>]) {
        for mailbox in mailboxes {
            if !self.states.contains_key(mailbox) {
                let mailbox = Arc::clone(mailbox);
                self.set(&Change { mailbox, state: State::Removed(self.version) });
            }
        }
        self.forget();
    }

    /// The changes that a reader lacks that resumes from this stamp, which any gateway may have told it.
    pub fn since(&self, stamp: u64) -> Lack {
        match self.exact.get(&(stamp / 2)) {
            Some(place) if stamp % 2 == 1 => self.after(*place),
            _ => self.snapshot(),
        }
    }

    /// The changes that a reader of this table lacks.
    pub fn after(&self, place: Place) -> Lack {
        if place < self.oldest {
            return self.snapshot();
        }
        let change = |(_, mailbox): (&Place, &Arc<str>)| {
            let (_, state) = self.states.get(mailbox)?;
            Some(Change { mailbox: Arc::clone(mailbox), state: state.clone() })
        };
        let later = (Bound::Excluded(place), Bound::Unbounded);
        Lack::Changes(self.order.range(later).filter_map(change).collect())
    }

    fn snapshot(&self) -> Lack {
        Lack::Snapshot(self.routes().cloned().collect())
    }

    /// The time of a route is up at this instant, unless it is renewed. `None` if its store tells of that by itself.
    pub fn set_expiry(&mut self, mailbox: &str, at: Option<Boottime>) {
        if let Some((mailbox, _)) = self.states.get_key_value(mailbox) {
            self.expiries.set(mailbox, at);
        }
    }

    /// When the time of a route is up.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        self.expiries.due.first().map(|(at, _)| *at)
    }

    /// The mailboxes whose time is up: what became of them is to be asked.
    pub fn take_due(&mut self, now: Boottime) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while let Some((at, mailbox)) = self.expiries.due.first()
            && *at <= now
        {
            let mailbox = Arc::clone(mailbox);
            self.expiries.set(&mailbox, None);
            due.push(mailbox);
        }
        due
    }

    fn is_news(&self, Change { mailbox, state }: &Change) -> bool {
        let known = self.states.get(mailbox).map(|(_, state)| state);
        match (known, state) {
            (Some(State::Routed(known)), State::Routed(route)) => known != route,
            (None | Some(State::Removed(_)), State::Removed(_)) => false,
            _ => true,
        }
    }

    fn set(&mut self, Change { mailbox, state }: &Change) {
        self.last = Place(self.last.0 + 1);
        let now = (self.last, state.clone());
        if let Some((before, _)) = self.states.insert(Arc::clone(mailbox), now) {
            self.order.remove(&before);
            self.removals.remove(&before);
        }
        self.order.insert(self.last, Arc::clone(mailbox));
        if let State::Removed(_) = state {
            self.removals.insert(self.last);
            self.expiries.set(mailbox, None);
        }
    }

    /// Forgets the earliest of too many removals, and versions that lack them, or are too many.
    fn forget(&mut self) {
        while self.removals.len() > REMOVALS_MAX
            && let Some(place) = self.removals.pop_first()
        {
            self.oldest = self.oldest.max(place);
            if let Some(mailbox) = self.order.remove(&place) {
                self.states.remove(&mailbox);
            }
        }
        while let Some((_, place)) = self.exact.first_key_value()
            && (self.exact.len() > VERSIONS_MAX || *place < self.oldest)
        {
            self.exact.pop_first();
        }
    }
}

impl State {
    /// The version of the table with it.
    pub fn version(&self) -> u64 {
        match self {
            State::Routed(route) => route.version,
            State::Removed(version) => *version,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn route(name: &str, version: u64) -> Route {
        Route {
            name: name.to_owned(),
            host: "h".to_owned(),
            holder: "runner-01".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            proxy_id: "proxy-01".to_owned(),
            partition: 1,
            status: "active".to_owned(),
            token: version,
            version,
        }
    }

    /// That of an exact reading.
    fn stamp(version: u64) -> u64 {
        2 * version + 1
    }

    fn names(lack: &Lack) -> Vec<(&str, bool)> {
        match lack {
            Lack::Snapshot(routes) => routes.iter().map(|it| (it.name.as_str(), true)).collect(),
            Lack::Changes(changes) => {
                let is_routed = |it: &Change| matches!(it.state, State::Routed(_));
                changes.iter().map(|it| (&*it.mailbox, is_routed(it))).collect()
            }
        }
    }

    fn take(
        table: &mut Table,
        version: u64,
        routes: Vec<Route>,
        gone: Vec<(&str, u64)>,
    ) -> Vec<Change> {
        let gone = gone.into_iter().map(|(name, version)| Gone { mailbox: name.into(), version });
        table.take(Reading { version, until: version, routes, gone: gone.collect() })
    }

    #[test]
    fn a_reader_is_told_what_it_lacks_and_nothing_else() {
        let mut table = Table::default();
        assert_eq!(table.since(0), Lack::Snapshot(Vec::new()));
        take(&mut table, 5, vec![route("a", 3), route("b", 5)], vec![]);
        assert_eq!(names(&table.since(0)), [("a", true), ("b", true)]);
        assert!(matches!(table.since(stamp(4)), Lack::Snapshot(_)), "what was before is not known");
        assert_eq!(names(&table.since(stamp(5))), []);
        assert_eq!(table.missing(&[route("b", 5)]), [Arc::<str>::from("a")]);
        let changes = take(&mut table, 7, vec![route("b", 5), route("c", 7)], vec![("a", 6)]);
        assert_eq!(changes.len(), 2);
        assert_eq!(names(&table.since(stamp(5))), [("a", false), ("c", true)]);
        assert!(matches!(table.since(stamp(6)), Lack::Snapshot(_)), "another gateway's");
        assert!(matches!(table.since(stamp(8)), Lack::Snapshot(_)), "of a later version");
        let place = table.place();
        // One that comes back is removed no more.
        take(&mut table, 8, vec![route("a", 8), route("b", 5), route("c", 7)], vec![]);
        assert_eq!(names(&table.since(stamp(5))), [("c", true), ("a", true)]);
        assert_eq!(names(&table.after(place)), [("a", true)]);
        assert_eq!((table.routes().count(), table.removals.len()), (3, 0));
    }

    #[test]
    fn nobody_resumes_from_a_reading_that_changes_cut() {
        let mut table = Table::default();
        take(&mut table, 1, vec![route("a", 1)], vec![]);
        let place = table.place();
        let routes = vec![route("a", 1), route("b", 3)];
        table.take(Reading { version: 2, until: 3, routes, gone: vec![] });
        assert_eq!((table.version(), table.is_exact()), (2, false));
        assert!(table.stamp() > stamp(2) && table.stamp() < stamp(3));
        for stamp in [table.stamp(), stamp(2)] {
            assert!(matches!(table.since(stamp), Lack::Snapshot(_)));
        }
        for lack in [table.since(stamp(1)), table.after(place)] {
            assert_eq!(names(&lack), [("b", true)]);
        }
    }

    #[test]
    fn a_change_of_what_a_route_says_is_told() {
        let mut table = Table::default();
        take(&mut table, 1, vec![route("a", 1)], vec![]);
        for (version, status) in [(2, "degraded"), (3, "expiring"), (4, "active")] {
            let now = Route { status: status.to_owned(), ..route("a", version) };
            take(&mut table, version, vec![now.clone()], vec![]);
            assert_eq!(**table.route("a").unwrap(), now);
            let state = State::Routed(Arc::new(now));
            let change = Change { mailbox: "a".into(), state };
            assert_eq!(table.since(stamp(version - 1)), Lack::Changes(vec![change]));
        }
    }

    #[test]
    fn removals_are_bounded_and_who_lacks_a_forgotten_one_is_given_all() {
        let mut table = Table::default();
        let count = REMOVALS_MAX as u64 + 10;
        let all = (1..=count).map(|number| route(&format!("m{number}"), number));
        take(&mut table, count, all.collect(), vec![]);
        for number in 1..=count {
            let name = format!("m{number}");
            take(&mut table, count + number, vec![], vec![(&name, count + number)]);
        }
        assert_eq!((table.removals.len(), table.states.len()), (REMOVALS_MAX, REMOVALS_MAX));
        assert!(table.order.len() == REMOVALS_MAX && table.exact.len() <= VERSIONS_MAX);
        assert_eq!(table.since(stamp(count + 9)), Lack::Snapshot(Vec::new()));
        assert_eq!(table.after(Place(1)), Lack::Snapshot(Vec::new()));
        assert_eq!(names(&table.since(stamp(count + 11))).len(), REMOVALS_MAX - 1);
    }

    #[test]
    fn a_store_that_lost_its_versions_begins_a_new_history_with_greater_ones() {
        let mut table = Table::default();
        take(&mut table, 50, vec![route("a", 40), route("b", 50)], vec![]);
        let place = table.place();
        // It has nothing, and then a counter that begins with the clock.
        let removed = take(&mut table, 0, vec![], vec![("a", 0), ("b", 0)]);
        assert!(removed.iter().all(|change| change.state.version() == 51), "{removed:?}");
        assert_eq!((table.version(), table.store_version()), (51, 0));
        assert!(take(&mut table, 0, vec![], vec![]).is_empty());
        assert_eq!(table.version(), 51);
        assert_eq!(take(&mut table, 1000, vec![route("a", 1000)], vec![]).len(), 1);
        assert!(matches!(table.since(stamp(50)), Lack::Snapshot(_)));
        assert!(matches!(table.after(place), Lack::Snapshot(_)));
        assert_eq!((table.version(), table.routes().count()), (1000, 1));
    }

    #[test]
    fn what_a_run_before_told_is_removed_unless_it_is_there() {
        let mut table = Table::default();
        take(&mut table, 5, vec![route("a", 3)], vec![]);
        table.remove_all_but_routes(&["a", "b"].map(Arc::from));
        assert_eq!(names(&table.after(Place::default())), [("a", true), ("b", false)]);
        assert_eq!(table.mailboxes(), ["a", "b"].map(Arc::from));
    }

    #[test]
    fn the_time_of_a_route_is_looked_at_once() {
        let at = |s| Boottime::from_nanos(0) + Duration::from_secs(s);
        let mut table = Table::default();
        take(&mut table, 2, vec![route("a", 1), route("b", 2)], vec![]);
        table.set_expiry("a", Some(at(5)));
        table.set_expiry("a", Some(at(9)));
        table.set_expiry("b", Some(at(7)));
        table.set_expiry("never heard of", Some(at(1)));
        assert_eq!((table.poll_timeout(), table.take_due(at(6))), (Some(at(7)), vec![]));
        assert_eq!(table.take_due(at(9)), ["b", "a"].map(Arc::<str>::from));
        table.set_expiry("b", Some(at(10)));
        take(&mut table, 3, vec![route("a", 1)], vec![("b", 3)]);
        assert_eq!(table.poll_timeout(), None);
    }
}
