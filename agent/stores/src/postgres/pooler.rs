//! Poolers that give each transaction to any of their connections: a notification or a setting of one client reaches another client.
//! Each connection marks its session on the server. A connection that finds another mark than its own is behind a pooler.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;

use super::address::Address;
use crate::remote::{ConnectError, Peer, Purpose};

/// The longest time that the other connection takes to open, and that the meeting takes.
const MEETING_MAX: Duration = Duration::from_secs(1);
/// The mark of a connection's session; empty for one that has none.
pub(super) const MARK: &str = "coalesce(pg_catalog.current_setting('tenure.connection', true), '')";

impl Address {
    /// Has two connections meet, before anything is granted over one: while the other one has a transaction, a pooler gives the first
    /// another connection to the server. After one meeting without a pooler the marks have to do, and without a meeting, too: the
    /// next sign-in tries again.
    pub(super) async fn look_for_pooler(
        &self,
        peer: &Peer,
        client: &Client,
        marker: &str,
    ) -> Result<(), ConnectError> {
        if self.is_unpooled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let opening = timeout(MEETING_MAX, self.open(peer, Purpose::Examination, None));
        // A server or a pool may have no room for one more.
        let Ok(Ok((other, mut pump))) = opening.await else { return Ok(()) };
        let meet = async {
            let refused = |error| self.refused(peer, &error);
            other.batch_execute("begin").await.map_err(refused)?;
            if self.marker(peer, &other).await? == marker {
                return Err(self.pooled(peer));
            }
            self.check_marker(peer, client, marker).await?;
            other.batch_execute("rollback").await.map_err(refused)
        };
        tokio::select! {
            met = timeout(MEETING_MAX, meet) => match met {
                Ok(met) => met?,
                Err(_) => return Ok(()),
            },
            _lost = &mut pump => return Ok(()),
        }
        self.is_unpooled.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn check_marker(
        &self,
        peer: &Peer,
        client: &Client,
        marker: &str,
    ) -> Result<(), ConnectError> {
        match self.marker(peer, client).await? == marker {
            true => Ok(()),
            false => Err(self.pooled(peer)),
        }
    }

    async fn marker(&self, peer: &Peer, client: &Client) -> Result<String, ConnectError> {
        let row = client.query_one(&format!("select {MARK}"), &[]).await;
        Ok(row.map_err(|error| self.refused(peer, &error))?.get(0))
    }

    pub(super) fn pooled(&self, peer: &Peer) -> ConnectError {
        let what = "is behind a pooler in transaction mode, such as PgBouncer's: what a connection listens for \
                    would be another's; connect to the server itself, or to a pool with pool_mode = session";
        self.unfit(peer, what.to_owned())
    }
}
