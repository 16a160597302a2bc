//! Schemas of several versions, on a real Postgres.

use futures_util::future::join_all;
use sha2::{Digest, Sha256};
use tenure_harness::{POSTGRES_PORT, Postgres};
use tokio_postgres::{Client, Config, NoTls};

use super::*;

/// The version of the SQL, and the hash of all of it.
const FINGERPRINT: (usize, &str) =
    (4, "57a8e09f9180023b270ae50e7fedba0ee0430689e4e78d41e87311dc44ade7cd");

/// The version before, with what the first row takes.
const BEFORE: Schema = Schema { tables: &[OWN.tables[0]], functions: &[OWN.functions[0]] };
/// The next version, of which every table can be made once only.
const NEXT: Schema = Schema {
    tables: &[
        OWN.tables[0],
        OWN.tables[1],
        OWN.tables[2],
        OWN.tables[3],
        "alter table tenure.about add column added integer default 7",
    ],
    functions: &["create or replace function tenure.added() returns integer language sql as \
                  'select added from tenure.about'"],
};

async fn connect(server: &Postgres) -> Client {
    let mut config = Config::new();
    config.host_path(server.dir()).port(POSTGRES_PORT).user("postgres");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Eight connections at once.
async fn prepare_all(server: &Postgres, schema: &Schema) -> Vec<Result<(), ConnectError>> {
    let peer = Peer { what: "Postgres", place: "here".to_owned() };
    let each = (0..8).map(|_| async {
        let mut client = connect(server).await;
        prepare_as(schema, &peer, &mut client, "postgres").await
    });
    join_all(each).await
}

#[tokio::test]
async fn each_version_is_made_once_by_whoever_comes_first_and_an_older_program_is_refused() {
    let server = Postgres::setup().start();
    let looker = connect(&server).await;
    let one = async |sql: &str| looker.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    for schema in [BEFORE, OWN, NEXT] {
        for prepared in prepare_all(&server, &schema).await {
            prepared.unwrap();
        }
        let version = one("select version::bigint from tenure.about").await;
        assert_eq!(usize::try_from(version), Ok(schema.version()));
        assert_eq!(one("select count(*) from tenure.about").await, 1);
        // Whoever holds something holds it over the change.
        looker
            .batch_execute(
                "insert into tenure.resource (tenant, kind, name) values ('t', 'leader', 'a') \
                 on conflict do nothing",
            )
            .await
            .unwrap();
    }
    assert_eq!(one("select tenure.added()::bigint").await, 7);
    assert_eq!(one("select count(*) from tenure.resource").await, 1);
    for refused in prepare_all(&server, &OWN).await {
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("in version 5, of a later Tenure than this, which knows 4"),
            "{said}"
        );
    }
}

#[test]
fn another_sql_is_another_version() {
    let sql = [OWN.tables, OWN.functions].concat().concat();
    let hash: String = Sha256::digest(sql).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(
        FINGERPRINT == (OWN.version(), &*hash),
        "the SQL is another than that of version {}: functions are made anew with a new version only. Add its tables \
         to `OWN`, or \"\" if they stay, and make this the FINGERPRINT: ({}, {hash:?})",
        FINGERPRINT.0,
        OWN.version()
    );
}
