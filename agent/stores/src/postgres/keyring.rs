//! Keys of gateways in Postgres.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::Failure;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::address::Address;
use super::connection::{Connection, Parameters, failure};
use super::settings::PostgresAccess;
use crate::keyring::{self, Asking, Joined, KEYS_MAX, KeyRecord, Keyring};
use crate::remote::{Dialer, Link, Purpose};

/// Keys that are read together, within the timeout.
const READ_AT_ONCE: usize = 2000;
/// The columns of a key, in the order in which they are read.
const COLUMNS: &str = "id, principal, sha256, bounds, expires_at, created_at, used_at, pg_catalog.split_part(joined, ':', 1)";

/// The keys in a Postgres, over a connection of their own.
pub struct PostgresKeyring {
    link: Link<Connection>,
    timeout: Duration,
}

impl fmt::Debug for PostgresKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresKeyring").finish_non_exhaustive()
    }
}

impl PostgresKeyring {
    /// Starts to connect. Must be called in a runtime.
    pub fn open(access: PostgresAccess) -> PostgresKeyring {
        let timeout = access.timeout;
        let dialer = Arc::new(Dialer::new(Address::new(access)));
        PostgresKeyring { link: Link::open(dialer, Purpose::Commands), timeout }
    }

    async fn rows(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Failure> {
        let connected = self.link.ready().await?;
        let asked = connected.connection.client.query(sql, parameters);
        match timeout(self.timeout, asked).await {
            Ok(answered) => answered.map_err(|error| failure(&error)),
            Err(_) => {
                self.link.suspect(connected.generation);
                let ms = self.timeout.as_millis();
                Err(Failure::Unknown(format!("Postgres gave no answer within {ms} ms")))
            }
        }
    }

    /// The first column of the only row.
    async fn value<T>(&self, sql: &str, parameters: Parameters<'_>) -> Result<T, Failure>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let rows = self.rows(sql, parameters).await?;
        let row = rows.first().ok_or_else(|| Failure::Unknown("an empty answer".to_owned()))?;
        row.try_get(0).map_err(|error| Failure::Unknown(error.to_string()))
    }

    /// Adds a key, for a join key if one is given.
    async fn add_one(&self, key: KeyRecord, join: Option<String>) -> Result<Joined, Failure> {
        let KeyRecord { id, principal, sha256, bounds, expires_at, created_at, .. } = key;
        let (expires_at, created_at) = (expires_at.map(seconds), created_at.map(seconds));
        let most = i64::try_from(KEYS_MAX).unwrap_or(i64::MAX);
        let put = "select tenure.put_key($1, $2, $3, $4, $5, $6, $7, $8)";
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&id, &principal, &sha256, &bounds, &expires_at, &created_at, &join, &most];
        Joined::read(&self.value::<String>(put, &parameters).await?)
    }

    async fn read_all(&self) -> Result<Vec<KeyRecord>, Failure> {
        let count: i64 = self.value("select pg_catalog.count(*) from tenure.key", &[]).await?;
        keyring::check_count(count.unsigned_abs())?;
        let part = format!(
            "select {COLUMNS} from tenure.key where id > $1 order by id limit {READ_AT_ONCE}"
        );
        let mut keys: Vec<KeyRecord> = Vec::new();
        loop {
            let after = keys.last().map_or("", |key| &key.id);
            let rows = self.rows(&part, &[&after]).await?;
            let is_last = rows.len() < READ_AT_ONCE;
            keys.extend(rows.iter().map(key));
            if is_last {
                return Ok(keys);
            }
        }
    }
}

fn seconds(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

fn key(row: &Row) -> KeyRecord {
    let at = |column| row.get::<_, Option<i64>>(column).map(i64::unsigned_abs);
    KeyRecord {
        id: row.get(0),
        principal: row.get(1),
        sha256: row.get(2),
        bounds: row.get(3),
        expires_at: at(4),
        created_at: at(5),
        used_at: at(6),
        joined: row.get(7),
    }
}

impl Keyring for PostgresKeyring {
    fn version(&self) -> Asking<'_, String> {
        Box::pin(self.value("select version from tenure.keys", &[]))
    }

    fn ids(&self) -> Asking<'_, Vec<String>> {
        Box::pin(async move {
            let rows = self.rows("select id from tenure.key", &[]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn all(&self) -> Asking<'_, Vec<KeyRecord>> {
        Box::pin(self.read_all())
    }

    fn one(&self, id: String) -> Asking<'_, Option<KeyRecord>> {
        Box::pin(async move {
            let one = format!("select {COLUMNS} from tenure.key where id = $1");
            Ok(self.rows(&one, &[&id]).await?.first().map(key))
        })
    }

    fn add(&self, key: KeyRecord, join: Option<String>) -> Asking<'_, Joined> {
        Box::pin(self.add_one(key, join))
    }

    fn remove(&self, ids: Vec<String>) -> Asking<'_, u64> {
        Box::pin(async move {
            if ids.is_empty() {
                return Ok(0);
            }
            let removed: i64 = self.value("select tenure.remove_keys($1)", &[&ids]).await?;
            Ok(removed.unsigned_abs())
        })
    }

    fn end_quarantine(&self) -> Asking<'_, bool> {
        Box::pin(self.value("select tenure.end_quarantine()", &[]))
    }

    fn used(&self, keys: Vec<(String, u64)>) -> Asking<'_, ()> {
        Box::pin(async move {
            if keys.is_empty() {
                return Ok(());
            }
            let (ids, ats): (Vec<_>, Vec<_>) =
                keys.into_iter().map(|(id, at)| (id, seconds(at))).unzip();
            self.rows("select tenure.use_keys($1, $2)", &[&ids, &ats]).await.map(drop)
        })
    }
}
