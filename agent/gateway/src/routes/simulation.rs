//! Many histories, each from a seed: a store whose readings are cut by changes, gateways that read it, a proxy that is
//! away and comes back, and a reader that goes from gateway to gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tenure_core::time::Boottime;
use tenure_wire::Route;

use super::table::tests::route;
use super::{Change, Gone, Lack, Outcome, Place, Queue, Reading, State, Table};

const SEEDS: u64 = 300;
const STEPS: usize = 400;
const MAILBOXES: u64 = 12;

/// A store: each change of it has a version of its own.
#[derive(Default)]
struct Store {
    version: u64,
    routes: BTreeMap<u64, Route>,
}

impl Store {
    fn change(&mut self, random: &mut ChaCha8Rng) {
        let mailbox = random.next_u64() % MAILBOXES;
        self.version += 1;
        match random.next_u64() % 3 {
            0 if self.routes.remove(&mailbox).is_some() => {}
            _ => drop(self.routes.insert(mailbox, route(&format!("m{mailbox}"), self.version))),
        }
    }

    /// A reading in two pages, with changes between them.
    fn read(&mut self, random: &mut ChaCha8Rng, table: &mut Table) -> Vec<Change> {
        let (version, middle) = (self.version, random.next_u64() % MAILBOXES);
        let mut read: Vec<_> = self.routes.range(..middle).map(|(_, it)| it.clone()).collect();
        for _ in 0..random.next_u64() % 3 {
            self.change(random);
        }
        read.extend(self.routes.range(middle..).map(|(_, it)| it.clone()));
        let mut gone = Vec::new();
        for mailbox in table.missing(&read) {
            if random.next_u64().is_multiple_of(2) {
                self.change(random);
            }
            match self.routes.values().find(|it| *it.name == *mailbox) {
                Some(route) => read.push(route.clone()),
                None => gone.push(Gone { mailbox, version: self.version }),
            }
        }
        table.take(Reading { version, until: self.version, routes: read, gone })
    }

    fn now(&self) -> BTreeMap<String, u64> {
        self.routes.values().map(|it| (it.name.clone(), it.version)).collect()
    }
}

/// The routes that a reader or a proxy has.
#[derive(Default)]
struct Copy {
    /// The stamp that it was told last.
    stamp: u64,
    /// The gateway that it reads from, and how far it has come there.
    stream: Option<(usize, Place)>,
    routes: BTreeMap<String, u64>,
}

impl Copy {
    fn catch_up(&mut self, gateway: usize, table: &Table) {
        assert!(table.stamp() >= self.stamp, "it never goes back");
        let lack = match self.stream {
            Some((at, place)) if at == gateway => table.after(place),
            _ => table.since(self.stamp),
        };
        match lack {
            Lack::Snapshot(routes) => {
                self.routes = routes.iter().map(|it| (it.name.clone(), it.version)).collect();
            }
            Lack::Changes(changes) => {
                for Change { mailbox, state } in changes {
                    self.take(&mailbox, &state);
                }
            }
        }
        self.stamp = table.stamp();
        self.stream = Some((gateway, table.place()));
    }

    fn take(&mut self, mailbox: &str, state: &State) {
        match state {
            State::Routed(route) => drop(self.routes.insert(mailbox.to_owned(), route.version)),
            State::Removed(_) => drop(self.routes.remove(mailbox)),
        }
    }
}

/// A proxy that is away now and then, and forgets what it knew each time.
#[derive(Default)]
struct Proxy {
    copy: Copy,
    is_away: bool,
    /// The latest version of each mailbox that it was told, while it did not forget.
    latest: BTreeMap<Arc<str>, u64>,
}

impl Proxy {
    fn take(&mut self, now: Boottime, queue: &mut Queue, random: &mut ChaCha8Rng) -> bool {
        let mut under_way: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        let any = !under_way.is_empty();
        // They arrive in any order.
        while !under_way.is_empty() {
            let at = usize::try_from(random.next_u64()).unwrap_or(0) % under_way.len();
            let push = under_way.swap_remove(at);
            // A failed one may have arrived all the same.
            let arrives = !self.is_away && !random.next_u64().is_multiple_of(20);
            if !self.is_away {
                let latest = self.latest.insert(Arc::clone(&push.mailbox), push.state.version());
                assert!(latest.is_none_or(|it| it <= push.state.version()), "out of order");
                self.copy.take(&push.mailbox, &push.state);
            }
            let outcome = match random.next_u64() % 20 {
                0 => Outcome::Late,
                // It may have taken it, and then refused.
                1 if !self.is_away => Outcome::Refused,
                _ if arrives => Outcome::Delivered,
                _ => Outcome::Failed,
            };
            queue.done(now, &push, outcome, u16::MAX / 2);
        }
        any
    }
}

#[test]
fn whatever_happens_readers_and_proxies_end_up_with_what_the_store_has() {
    for seed in 0..SEEDS {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut store = Store::default();
        store.change(random);
        let mut tables = [Table::default(), Table::default()];
        let (mut reader, mut proxy, mut queue) =
            (Copy::default(), Proxy::default(), Queue::default());
        let mut now = Boottime::from_nanos(1);
        for _ in 0..STEPS {
            now = now + Duration::from_millis(random.next_u64() % 100);
            let gateway = usize::from(random.next_u64().is_multiple_of(2));
            match random.next_u64() % 8 {
                0..3 => store.change(random),
                3 if gateway == 1 && random.next_u64().is_multiple_of(8) => {
                    // The second one is started again.
                    tables[1] = Table::default();
                    reader.stream = None;
                    store.read(random, &mut tables[1]);
                }
                3..5 => {
                    for change in store.read(random, &mut tables[gateway]) {
                        if gateway == 0 {
                            queue.change(now, change);
                        }
                    }
                }
                // One that is ahead of a gateway has that read first.
                5 if tables[gateway].stamp() >= reader.stamp => {
                    reader.catch_up(gateway, &tables[gateway]);
                }
                6 if random.next_u64().is_multiple_of(4) => {
                    proxy.is_away = !proxy.is_away;
                    if proxy.is_away {
                        queue.lost_connection(now);
                        (proxy.copy, proxy.latest) = Default::default();
                    }
                }
                _ => drop(proxy.take(now, &mut queue, random)),
            }
        }
        proxy.is_away = false;
        // Readings until nothing changes meanwhile.
        for (gateway, table) in tables.iter_mut().enumerate() {
            let routes = Vec::from_iter(store.routes.values().cloned());
            let version = store.version;
            let gone = table.missing(&routes).into_iter();
            let gone = gone.map(|mailbox| Gone { mailbox, version }).collect();
            for change in table.take(Reading { version, until: version, routes, gone }) {
                if gateway == 0 {
                    queue.change(now, change);
                }
            }
        }
        for (gateway, table) in tables.iter().enumerate() {
            reader.catch_up(gateway, table);
            assert_eq!(reader.routes, store.now(), "seed {seed}");
        }
        while queue.behind() > 0 {
            now = queue.poll_timeout().unwrap_or(now).max(now);
            proxy.take(now, &mut queue, random);
        }
        assert_eq!(proxy.copy.routes, store.now(), "seed {seed}");
    }
}
