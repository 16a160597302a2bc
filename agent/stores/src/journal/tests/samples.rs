//! Entries to write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::journal::{SavedGrant, SavedWaiter};
use tenure_core::keeper::journal::{Entry, SavedHold, SavedSession};
use tenure_core::model::{
    Claim, ClaimId, Owner, Process, Program, Resource, SessionId, SessionRecord, Terms,
};
use tenure_core::time::Boottime;
use tenure_wire::{Attributes, Kind, Tether, Wait};
use uuid::Uuid;

use crate::journal::{self, Journal, Key};

pub(super) const BOOT: Uuid = Uuid::from_u128(7);

pub(super) fn files(directory: &std::path::Path) -> journal::Files {
    journal::Files::of(tenure_host::directory::Directory::shared(directory).unwrap())
}

pub(super) fn owner(session: u128) -> Owner {
    Owner {
        session: SessionId(Uuid::from_u128(session)),
        host: Arc::from("build-17"),
        name: Arc::from("nightly \"quoted\" ünïcode"),
    }
}

pub(super) fn resource(kind: Kind, name: &str) -> Resource {
    Resource { tenant: Arc::from("default"), kind, name: Arc::from(name) }
}

pub(super) fn claim(row: u64, kind: Kind) -> Claim {
    let terms = match kind {
        Kind::Leader => Terms::Leader,
        Kind::Master => Terms::Master { priority: -3 },
        Kind::Semaphore => Terms::Semaphore { limit: 9, keeps: false, only_own: false },
        Kind::Lease => Terms::Lease {
            grace: Duration::from_secs(60),
            attributes: Attributes {
                address: Some("10.0.0.7:8982".to_owned()),
                ..Attributes::default()
            },
            take_over: None,
        },
    };
    Claim {
        id: ClaimId(Uuid::from_u128(0x0123_4567_89ab_4def << 64 | u128::from(row))),
        resource: resource(kind, "a-name"),
        owner: owner(u128::from(row) / 50 + 1),
        ttl: Duration::from_millis(30_500),
        terms,
        enqueue: true,
    }
}

pub(super) fn grant(row: u64, kind: Kind) -> SavedGrant {
    SavedGrant {
        row,
        claim: claim(row, kind),
        token: 1_763_000_000_000_000 + row,
        granted_at: Boottime::from_nanos(123_456_789_012 + row),
        in_grace: kind == Kind::Lease,
        route_version: row,
    }
}

pub(super) fn waiter(row: u64) -> SavedWaiter {
    SavedWaiter {
        row,
        claim: claim(row, Kind::Semaphore),
        since: Boottime::from_nanos(5_000_000_000),
    }
}

pub(super) fn record(session: u128) -> SessionRecord {
    SessionRecord {
        owner: owner(session),
        tenant: Arc::from("default"),
        project: Arc::from("web"),
        surface: Arc::from("cli"),
        ttl: Duration::from_secs(90),
        registered_at: None,
    }
}

pub(super) fn session(id: u128) -> SavedSession {
    SavedSession {
        id: SessionId(Uuid::from_u128(id)),
        secret: "0badc0de".to_owned(),
        uid: 1000,
        gid: 1000,
        process: Some(Process { pid: 4711, start_ticks: 99 }),
        watched: true,
        name: Arc::from("nightly"),
        surface: Arc::from("cli"),
        tenant: Arc::from("default"),
        project: Arc::from("default"),
        announced: false,
        tether: Tether::Keepalive,
        keepalive: Duration::from_secs(30),
        linger: Duration::from_secs(3),
        progress: None,
        ttl: Duration::from_secs(90),
        guarded: false,
        barred: Vec::new(),
        holds: 63,
        program: Program::default(),
    }
}

pub(super) fn hold(row: u64) -> SavedHold {
    SavedHold {
        row,
        claim: claim(row, Kind::Leader),
        wait: Wait::Block,
        wait_until: None,
        request: Some("job-1".to_owned()),
        max_hold: Some(Duration::from_secs(99)),
        at_least: None,
        slot: 3,
        token: Some(1_763_000_000_000_000 + row),
        granted_at: Some(Boottime::from_nanos(1_000)),
        valid_until: Boottime::from_nanos(2_000),
        departing: false,
    }
}

/// The memory of an agent: holds, each of a session of its own.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<u64, SavedHold>);

impl Memory {
    pub(super) fn hold(&mut self, journal: &mut Journal, row: u64) {
        let mut hold = hold(row);
        hold.claim.owner.session = SessionId(Uuid::from_u128(u128::from(row)));
        journal.write(Entry::Hold(Box::new(hold.clone())));
        self.0.insert(row, hold);
    }

    pub(super) fn valid(&mut self, journal: &mut Journal, row: u64, valid_until: Boottime) {
        journal.write(Entry::Valid { row, valid_until });
        self.0.get_mut(&row).unwrap().valid_until = valid_until;
    }

    pub(super) fn end(&mut self, journal: &mut Journal, row: u64) {
        let hold = self.0.remove(&row).unwrap();
        journal.write(Entry::HoldEnded { row, hold: hold.claim.id });
    }

    pub(super) fn saved(&self) -> Vec<SavedHold> {
        self.0.values().cloned().collect()
    }
}

impl journal::Rows for Memory {
    fn keys(&self) -> Vec<Key> {
        let key =
            |hold: &SavedHold| Key::Keeper(tenure_core::keeper::journal::Key::Hold(hold.claim.id));
        self.0.values().map(key).collect()
    }

    fn write(&self, key: &Key, into: &mut dyn FnMut(journal::Entry)) {
        let Key::Keeper(tenure_core::keeper::journal::Key::Hold(id)) = key else {
            panic!("{key:?}")
        };
        // As `claim` makes them.
        let row = u64::try_from(id.0.as_u128() & u128::from(u64::MAX)).unwrap();
        if let Some(hold) = self.0.get(&row) {
            into(journal::Entry::Keeper(Entry::Hold(Box::new(hold.clone()))));
        }
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}
