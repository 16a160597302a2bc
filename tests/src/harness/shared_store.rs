//! A store that agents of several hosts share.

use tenure_core::model::AGENTS_TENANT;

use super::{Postgres, Proxy, RedisServer, nothing_is_left, until};

/// A server of either sort.
pub trait SharedStore: Sized {
    /// Starts one with nothing in it, which outlives a kill.
    fn begin() -> Self;

    /// Its URL as an agent takes it.
    fn url(&self) -> String;

    /// Stops all its processes.
    fn pause(&mut self);

    /// Lets them go on.
    fn resume(&self);

    /// SIGKILL, and waits until it is gone.
    fn kill(&mut self);

    /// Starts it again in the same place.
    fn start_again(&mut self);

    /// Everything that is in it.
    fn dump(&self) -> String;

    /// A network before it that a test can break.
    fn proxy(&self) -> Proxy;

    /// Waits until it has nothing of any client.
    fn has_nothing_left(&self);
}

impl SharedStore for RedisServer {
    #[track_caller]
    fn begin() -> Self {
        RedisServer::setup().durable().start()
    }

    fn url(&self) -> String {
        Self::url(self)
    }

    #[track_caller]
    fn pause(&mut self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }

    #[track_caller]
    fn kill(&mut self) {
        Self::kill(self);
    }

    #[track_caller]
    fn start_again(&mut self) {
        Self::start_again(self);
    }

    #[track_caller]
    fn dump(&self) -> String {
        format!("{:?}", Self::dump(self))
    }

    #[track_caller]
    fn proxy(&self) -> Proxy {
        Proxy::before(self)
    }

    #[track_caller]
    fn has_nothing_left(&self) {
        nothing_is_left(self);
    }
}

impl SharedStore for Postgres {
    #[track_caller]
    fn begin() -> Self {
        Postgres::setup().start()
    }

    fn url(&self) -> String {
        Self::url(self)
    }

    #[track_caller]
    fn pause(&mut self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }

    #[track_caller]
    fn kill(&mut self) {
        Self::kill(self);
    }

    #[track_caller]
    fn start_again(&mut self) {
        Self::start_again(self);
    }

    #[track_caller]
    fn dump(&self) -> String {
        let tables = self.sql("select relname from pg_class where relnamespace = 'tenure'::regnamespace and relkind = 'r'");
        let rows = |table: &str| self.sql(&format!("select * from tenure.{table}"));
        tables.lines().map(rows).collect()
    }

    #[track_caller]
    fn proxy(&self) -> Proxy {
        Proxy::before_postgres(self)
    }

    /// But for the agents' own sessions, versions of routing tables, histories, and marks, which last a minute.
    #[track_caller]
    fn has_nothing_left(&self) {
        let left = format!(
            "select 'claim ' || id from tenure.claim union all select 'resource ' || name from tenure.resource \
             union all select 'session ' || name from tenure.session where tenant <> '{AGENTS_TENANT}' and not ended"
        );
        let mut last = String::new();
        until("nothing to be left in Postgres", || {
            let now = self.sql(&left);
            if now != last && !now.is_empty() {
                eprintln!("left in Postgres: {now}");
            }
            last = now;
            last.is_empty()
        });
    }
}

/// Makes a test of each of these functions for every sort of server.
#[macro_export]
macro_rules! over_every_store {
    ($($test:ident),+ $(,)?) => {
        mod over_redis {
            $(#[test]
            fn $test() {
                super::$test::<$crate::harness::RedisServer>();
            })+
        }

        mod over_postgres {
            $(#[test]
            fn $test() {
                super::$test::<$crate::harness::Postgres>();
            })+
        }
    };
}
