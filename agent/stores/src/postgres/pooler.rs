//! Poolers that give each transaction to any of their connections. What a connection listens for would be another's, and so would its
//! settings. Each connection marks its session: whoever finds another mark is behind one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;

use super::address::Address;
use crate::remote::{ConnectError, Peer, Purpose};

/// The longest time that a sign-in takes for it.
const MEETING_MAX: Duration = Duration::from_secs(1);
/// The mark of a connection's session; empty for one that has none.
pub(super) const MARK: &str = "coalesce(pg_catalog.current_setting('tenure.connection', true), '')";

impl Address {
    /// Has two connections meet, before anything is granted over one: while the other has a transaction, a pooler gives the first another of its
    /// own. Once a server was found without one, the mark has to do.
    pub(super) async fn look_for_pooler(
        &self,
        peer: &Peer,
        client: &Client,
        marker: &str,
    ) -> Result<(), ConnectError> {
        if self.is_unpooled.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A server that has no more room for one tells it the next time.
        let Ok((other, mut pump)) = self.open(peer, Purpose::Examination, None).await else {
            return Ok(());
        };
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
            // A pool that is full has no connection for the other: the next sign-in looks again.
            met = timeout(MEETING_MAX, meet) => match met {
                Ok(met) => met?,
                Err(_) => return Ok(()),
            },
            lost = &mut pump => return Err(lost),
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
