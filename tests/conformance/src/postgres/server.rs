//! A Postgres that goes by the corpus's clock.

use std::time::Duration;

use tempfile::TempDir;
use tenure_harness::{POSTGRES_PORT, Postgres, until};
use tenure_stores::postgres::{PostgresAccess, PostgresServer, sql};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use super::planted::planted;
use crate::redis::{Clock, EPOCH_US};

/// The deadline of a client's connection and of its calls. Not a measure of speed.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Steps in which all is done that a run can have due at one instant.
const STEPS_MAX: usize = 1000;
/// Ends every connection of a store's client.
const OTHERS: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
                      where pid <> pg_backend_pid() and application_name like 'tenure %'";
/// Forgets everything but tokens, which only grow.
const WIPE: &str = "truncate tenure.resource, tenure.claim, tenure.mark, tenure.session, tenure.routes, \
                    tenure.history restart identity";

pub(super) struct Server {
    runtime: Runtime,
    client: Client,
    clock: Clock,
    server: Postgres,
    /// The clock's.
    _folder: TempDir,
}

impl Server {
    /// Starts one with nothing in it but the schema, with a fault if one is named.
    pub(super) fn start(fault: Option<&str>) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Clock::build(folder.path(), EPOCH_US);
        open_for_all(folder.path());
        let variables = clock.variables().map(|(name, path)| (name, path.as_os_str().to_owned()));
        let options = ["-c", "fsync=off", "-c", "autovacuum=off", "-c", "max_connections=50"];
        let server =
            Postgres::start_with(&options, &variables).unwrap_or_else(|error| panic!("{error}"));
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let mut config = tokio_postgres::Config::new();
            config.host_path(server.dir()).port(POSTGRES_PORT).user("postgres");
            let (client, connection) = config.connect(NoTls).await.expect("it lets us in");
            tokio::spawn(connection);
            client.batch_execute(&planted(sql(), fault)).await.expect("the schema can be made");
            client
        });
        Server { runtime, client, clock, server, _folder: folder }
    }

    pub(super) fn access(&self) -> PostgresAccess {
        PostgresAccess {
            server: PostgresServer::Unix {
                directory: self.server.dir().to_owned(),
                port: POSTGRES_PORT,
            },
            tls: None,
            user: "postgres".to_owned(),
            password: None,
            database: "postgres".to_owned(),
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
        }
    }

    pub(super) fn set_clock(&self, us: u64) {
        self.clock.set(us);
    }

    /// Does what is due.
    pub(super) fn look_after(&self) {
        for _ in 0..STEPS_MAX {
            let upkeep = self.client.query_one("select tenure.upkeep(0)", &[]);
            let next: Option<i64> = self.runtime.block_on(upkeep).expect("upkeep").get(0);
            if next != Some(0) {
                return;
            }
        }
        panic!("there is no end to what is due");
    }

    /// Waits until they have ended: one that is on its way out may carry out what it gives no answer to.
    pub(super) fn break_connections(&self) {
        let others = || self.runtime.block_on(self.client.query(OTHERS, &[]));
        until("the end of all connections", || others().expect("they can be ended").is_empty());
    }

    pub(super) fn wipe(&self) {
        self.break_connections();
        self.runtime.block_on(self.client.batch_execute(WIPE)).expect("tables can be emptied");
    }
}

/// The server runs as another user.
fn open_for_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open).expect("the folder is ours");
}
