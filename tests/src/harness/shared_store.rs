//! A store that agents of several hosts share.

use tenure_core::model::AGENTS_TENANT;

use super::{Postgres, Proxy, RedisServer, nothing_is_left, until};

/// A server of either sort.
pub trait SharedStore {
    /// A network before it that a test can break.
    fn proxy(&self) -> Proxy;

    /// Waits until it has nothing of any client.
    fn has_nothing_left(&self);
}

impl SharedStore for RedisServer {
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
