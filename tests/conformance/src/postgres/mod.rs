//! A Postgres through its whole client, by the corpus's clock.

mod planted;
mod server;

use std::cell::RefCell;

use tenure_stores::Upstream;
use tenure_stores::postgres::Postgres;

use self::server::Server;
use crate::allowances::Allowance;
use crate::client::{Client, Installation};
use crate::redis::EPOCH_US;
use crate::stores::Store;

/// Upkeep runs when something is due. Hints are not looked at.
pub(crate) const IN_TIME: Store = Store {
    name: "postgres",
    faults: &planted::NAMES,
    open: |fault| Box::new(Client::new(PostgresInstallation::start(true, fault))),
};

/// Upkeep is done on the way of the next request.
pub(crate) const LATE: Store = Store {
    name: "postgres-late",
    faults: &[],
    open: |_| Box::new(Client::new(PostgresInstallation::start(false, None))),
};

const ALLOWANCES: [Allowance; 5] = [
    Allowance::ForgetsSooner,
    Allowance::NoHints,
    Allowance::OtherVersions,
    Allowance::TellsInTime,
    Allowance::TokensByTenant,
];

struct PostgresInstallation {
    /// To look after it.
    server: RefCell<Server>,
    keeps_time: bool,
}

impl PostgresInstallation {
    fn start(keeps_time: bool, fault: Option<&str>) -> PostgresInstallation {
        PostgresInstallation { server: RefCell::new(Server::start(fault)), keeps_time }
    }
}

impl Installation for PostgresInstallation {
    fn allowances(&self) -> &'static [Allowance] {
        &ALLOWANCES
    }

    fn wipe(&mut self) {
        self.server.get_mut().wipe();
    }

    fn set_clock(&mut self, us: u64) {
        let server = self.server.get_mut();
        server.set_clock(EPOCH_US + us);
        if self.keeps_time {
            server.look_after();
        }
    }

    fn break_connections(&mut self) {
        self.server.get_mut().break_connections();
    }

    fn connect(&self) -> Box<dyn Upstream> {
        Box::new(Postgres::open(self.server.borrow().access()))
    }

    fn keeps_time(&self) -> bool {
        self.keeps_time
    }
}
