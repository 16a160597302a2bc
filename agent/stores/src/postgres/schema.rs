//! The schema `tenure`: made and brought up to date by whoever connects and may.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::connection::words;
use super::way_out::way_out;
use crate::remote::{ConnectError, Peer};

/// A version of the schema.
#[derive(Clone, Copy)]
struct Schema {
    /// The tables of each version, from those of the one before. There are as many as the version says.
    tables: &'static [&'static str],
    /// The functions, which each version makes anew.
    functions: &'static [&'static str],
}

/// The one that this program uses.
const OWN: Schema = Schema {
    tables: &[
        include_str!("sql/schema.sql"),
        include_str!("sql/keys_tables.sql"),
        "",
        include_str!("sql/renewals.sql"),
        "",
        "",
        include_str!("sql/one_row.sql"),
        include_str!("sql/epoch_table.sql"),
        include_str!("sql/registered.sql"),
    ],
    functions: &[
        include_str!("sql/prelude.sql"),
        include_str!("sql/claim.sql"),
        include_str!("sql/renew.sql"),
        include_str!("sql/end.sql"),
        include_str!("sql/sessions.sql"),
        include_str!("sql/read.sql"),
        include_str!("sql/history.sql"),
        include_str!("sql/upkeep.sql"),
        include_str!("sql/keys.sql"),
        include_str!("sql/epoch.sql"),
        include_str!("sql/entries.sql"),
    ],
};
/// Where the tables are. It is another where a standby takes over, where they were restored from a dump or a copy, and
/// after each start of the server, since a copy of its files or a crash without synchronous commits may lack the last
/// grants.
const ORIGIN: &str = "concat_ws('/', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), \
    (select system_identifier from pg_control_system()), \
    (select oid from pg_database where datname = current_database()), 'tenure.about'::regclass::oid, \
    extract(epoch from pg_postmaster_start_time()))";
/// Moves sequences past all rows: the sequences of a restored dump may be behind rows that were added after it.
const PAST_ALL_ROWS: &str = "select \
    setval(r, greatest(nextval(r), (select max(id) from tenure.resource))), \
    setval(h, greatest(nextval(h), (select max(place) from tenure.history))) \
    from (select pg_get_serial_sequence('tenure.resource', 'id')::regclass r, \
    pg_get_serial_sequence('tenure.history', 'place')::regclass h) s";
/// The key of the lock under which the schema is changed: "tenure" in ASCII.
const LOCK: i64 = 0x7465_6e75_7265;

/// The functions, operators and types that names stand for: Postgres's own, whatever other roles of the database make.
/// Tables and functions of the schema are named in full. The schema of temporary objects comes last, as it would be first
/// if it were left out.
pub(super) const SEARCH_PATH: &str = "set search_path = pg_catalog, pg_temp";

/// All that an administrator may apply by hand, to an empty database.
pub fn sql() -> String {
    let mut text = format!("{SEARCH_PATH};\n");
    text.push_str(&[OWN.tables, OWN.functions].concat().join("\n"));
    text.push_str(&OWN.first_row());
    text
}

impl Schema {
    fn version(&self) -> usize {
        self.tables.len()
    }

    /// Tokens begin at the clock, above all tokens of a store that was lost. A dump that is restored over these tables
    /// does not set tokens back.
    fn first_row(&self) -> String {
        let version = self.version();
        format!(
            "\nselect setval('tenure.token', tenure.clock());\n\
             do $$ begin execute format('alter sequence tenure.token minvalue %1$s start %1$s', \
             (select last_value from tenure.token)); end $$;\n\
             insert into tenure.about (version, timeline) values ({version}, {ORIGIN});\n"
        )
    }
}

/// Sees to it that the schema is there and that tokens grow.
pub(super) async fn prepare(
    peer: &Peer,
    client: &mut Client,
    user: &str,
) -> Result<(), ConnectError> {
    prepare_as(&OWN, peer, client, user).await
}

async fn prepare_as(
    schema: &Schema,
    peer: &Peer,
    client: &mut Client,
    user: &str,
) -> Result<(), ConnectError> {
    let own = schema.version();
    match try_to_prepare(schema, client).await {
        Ok(version) if version > own => {
            let what = format!(
                "has the schema tenure in version {version}, of a later Tenure than this, which knows \
                 {own}; bring this host up to date"
            );
            Err(ConnectError::Unfit { peer: peer.clone(), what })
        }
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let cause = words(&error);
            let what = format!(
                "does not let the role {user} make or use the schema tenure ({cause}); grant it the rights of \
                 docs/postgres.md, or have an administrator apply the schema that stands there"
            );
            Err(ConnectError::Unfit { peer: peer.clone(), what })
        }
        Err(error) => {
            let way_out = error.as_db_error().map_or("", way_out);
            let what = format!("cannot be given the schema tenure: {}{way_out}", words(&error));
            Err(ConnectError::Unfit { peer: peer.clone(), what })
        }
    }
}

/// The version that the schema has afterwards.
async fn try_to_prepare(schema: &Schema, client: &mut Client) -> Result<usize, Error> {
    let own = schema.version();
    let found = about(client).await?;
    if let Some((version, false)) = found
        && version >= own
    {
        return Ok(version);
    }
    let transaction = client.transaction().await?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    // Another agent may have been here meanwhile.
    let (version, is_elsewhere) = about(transaction.client()).await?.unwrap_or_default();
    for tables in schema.tables.iter().skip(version) {
        transaction.batch_execute(tables).await?;
    }
    if version < own {
        for functions in schema.functions {
            transaction.batch_execute(functions).await?;
        }
    }
    match version {
        0 => transaction.batch_execute(&schema.first_row()).await?,
        _ if version < own => {
            let set = format!("update tenure.about set version = {own}");
            transaction.batch_execute(&set).await?;
        }
        _ => {}
    }
    if is_elsewhere {
        // The last commits may be missing. Sequences are logged 32 values ahead, which an idle one never reaches again
        // by itself. The locks come in the order of every operation.
        let past = format!(
            "update tenure.about set timeline = {ORIGIN}; \
             select tenure.skip_tokens(nextval('tenure.token')); {PAST_ALL_ROWS}; \
             update tenure.routes set version = greatest(version, tenure.clock() / 1000)"
        );
        transaction.batch_execute(&past).await?;
    }
    transaction.commit().await?;
    Ok(version.max(own))
}

/// The version of the schema, and whether its tables are elsewhere than when they were looked at last; `None` without
/// a schema.
async fn about(client: &Client) -> Result<Option<(usize, bool)>, Error> {
    // By a scan: what a name stands for is remembered within a transaction, also that it stands for nothing.
    let is_there = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                    where n.nspname = 'tenure' and c.relname = 'about')";
    if !client.query_one(is_there, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    // A dump that was restored over tables of a version before 7 has added a row.
    let about = format!(
        "select max(version), bool_or(timeline <> {ORIGIN}) or count(*) > 1 from tenure.about"
    );
    let row = client.query_one(&about, &[]).await?;
    let version = row.get::<_, Option<i32>>(0).map(|it| usize::try_from(it).unwrap_or(0));
    Ok(version.map(|version| (version, row.get(1))))
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
