//! The stores that the corpus runs on.

use crate::subject::Subject;
use crate::{client, cluster, engine, gateway, machine, postgres, redis, trial};

/// A store, and how to open it.
pub struct Store {
    /// Its name on the command line.
    pub name: &'static str,
    /// Faults that can be built into it on purpose. The corpus must notice each.
    pub faults: &'static [&'static str],
    /// Opens it, empty, with a fault if one is named. Panics if the machine lacks something it needs.
    pub open: fn(fault: Option<&str>) -> Box<dyn Subject>,
}

/// All stores. A new store adds its line here.
pub static STORES: [Store; 10] = [
    engine::STORE,
    machine::STORE,
    redis::STORE,
    client::REDIS,
    trial::STORE,
    gateway::EMBEDDED,
    gateway::REDIS,
    cluster::STORE,
    postgres::IN_TIME,
    postgres::LATE,
];

impl Store {
    /// The store of a name.
    pub fn named(name: &str) -> Result<&'static Store, String> {
        STORES.iter().find(|store| store.name == name).ok_or_else(|| {
            let names: Vec<_> = STORES.iter().map(|store| store.name).collect();
            format!("{name:?} is not a store: use one of {}", names.join(", "))
        })
    }

    /// The fault of a name.
    pub fn fault(&self, name: &str) -> Result<&'static str, String> {
        self.faults.iter().copied().find(|fault| *fault == name).ok_or_else(|| {
            let (store, names) = (self.name, self.faults.join(", "));
            format!("{name:?} is not a planted fault of {store}: use one of {names}")
        })
    }
}
