//! Schemas of several versions, on a real Postgres.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use sha2::{Digest, Sha256};
use tenure_harness::{POSTGRES_PORT, Postgres};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::*;

/// The version of the SQL, and the hash of all of it.
const FINGERPRINT: (usize, &str) =
    (9, "b091701007f2e381fcc8efef55ed171859e5508427d35a2b2a18cef9f72dfb46");

/// The version before, with what the first row takes.
const BEFORE: Schema = Schema { tables: &[OWN.tables[0]], functions: &[OWN.functions[0]] };
/// Version 4, whose functions every role may call. The functions here check the epoch as well, which came later.
const FOURTH: Schema = Schema {
    tables: &[OWN.tables[0], OWN.tables[1], OWN.tables[7], OWN.tables[3]],
    functions: &[
        OWN.functions[0],
        OWN.functions[1],
        OWN.functions[2],
        OWN.functions[3],
        OWN.functions[4],
        OWN.functions[5],
        OWN.functions[6],
        OWN.functions[7],
        OWN.functions[8],
        OWN.functions[9],
    ],
};
/// The next version, of which every table can be made once only.
const NEXT: Schema = Schema {
    tables: &[
        OWN.tables[0],
        OWN.tables[1],
        OWN.tables[2],
        OWN.tables[3],
        OWN.tables[4],
        OWN.tables[5],
        OWN.tables[6],
        OWN.tables[7],
        OWN.tables[8],
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
        // Holds last over the change.
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
        let (next, own) = (NEXT.version(), OWN.version());
        let words = format!("in version {next}, of a later Tenure than this, which knows {own}");
        assert!(said.contains(&words), "{said}");
    }
}

/// A claim of a leader that lasts for an hour.
const CLAIM: &str = "select tenure.claim('11111111-1111-4111-8111-111111111111', 't', 'leader', 'kept', \
    '22222222-2222-4222-8222-222222222222', 'h', 'o', 3600000000, false, 0, null, false, 0, null, null, 0, 0)";
/// A beat of it, by a role that may only use the schema.
const BEAT: &str = "set role least; select tenure.beat('11111111-1111-4111-8111-111111111111', 't', 'leader', 'kept', \
    3600000000, 0, 100)::text as answer; reset role";

#[tokio::test]
async fn an_upgrade_keeps_holds_and_the_roles_that_were_given_the_schema() {
    let server = Postgres::setup().start();
    let looker = connect(&server).await;
    for prepared in prepare_all(&server, &FOURTH).await {
        prepared.unwrap();
    }
    // As docs/postgres.md says, before the functions of the next version were there.
    let rights = "create role least login; create role nobody_of_it login; grant usage on schema tenure to least; \
                  grant select, insert, update, delete on all tables in schema tenure to least; \
                  grant usage, select, update on all sequences in schema tenure to least; \
                  grant execute on all functions in schema tenure to least";
    looker.batch_execute(&format!("{rights}; {CLAIM}")).await.unwrap();
    for prepared in prepare_all(&server, &OWN).await {
        prepared.unwrap();
    }
    let answers = looker.simple_query(BEAT).await.unwrap();
    let answer = answers.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert!(answer.is_some_and(|it| it.contains("Held")), "{answer:?}");
    looker.batch_execute("set role least; select tenure.read_clock(); reset role").await.unwrap();
    let refused = looker.batch_execute("set role nobody_of_it; select tenure.read_clock()").await;
    assert_eq!(refused.unwrap_err().code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
}

/// An agent makes the schema anew while a dump is restored: the functions and tables of the dump exist already.
const RESTORED: &str =
    "insert into tenure.about values (6, 'elsewhere'); insert into tenure.keys values ('a')";

#[tokio::test]
async fn a_dump_that_is_restored_over_the_schema_adds_no_row_and_sets_no_token_back() {
    let server = Postgres::setup().start();
    let looker = connect(&server).await;
    for prepared in prepare_all(&server, &OWN).await {
        prepared.unwrap();
    }
    let one = async |sql: &str| looker.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let before = one("select last_value from tenure.token").await;
    for restored in RESTORED.split(';').chain(["select setval('tenure.token', 1700000000000000)"]) {
        looker.batch_execute(restored).await.unwrap_err();
    }
    prepare_all(&server, &OWN).await.into_iter().for_each(Result::unwrap);
    for table in ["about", "keys"] {
        assert_eq!(one(&format!("select count(*) from tenure.{table}")).await, 1, "{table}");
    }
    assert!(one("select nextval('tenure.token')").await > before);
}

#[tokio::test]
async fn a_schema_that_was_restored_twice_before_is_mended_by_the_next_agent() {
    let server = Postgres::setup().start();
    let looker = connect(&server).await;
    // The functions check the epoch, which came later.
    let mut tables = OWN.tables[..6].to_vec();
    tables[5] = OWN.tables[7];
    let sixth = Schema { tables: tables.leak(), functions: OWN.functions };
    prepare_all(&server, &sixth).await.into_iter().for_each(Result::unwrap);
    let one = async |sql: &str| looker.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let history = "insert into tenure.history overriding system value \
                   values (9, 't', 'leader', 'a', gen_random_uuid(), '', 0, '')";
    looker.batch_execute(&format!("{RESTORED}; {history}")).await.unwrap();
    let granted = one("select nextval('tenure.token')").await;
    for _ in 0..2 {
        prepare_all(&server, &OWN).await.into_iter().for_each(Result::unwrap);
        for table in ["about", "keys"] {
            assert_eq!(one(&format!("select count(*) from tenure.{table}")).await, 1, "{table}");
        }
    }
    let version = one("select version::bigint from tenure.about").await;
    assert_eq!(usize::try_from(version), Ok(OWN.version()));
    assert!(one("select nextval('tenure.token')").await > granted + 1);
    let place = "select nextval(pg_get_serial_sequence('tenure.history', 'place')::regclass)";
    assert!(one(place).await > 9, "history goes on");
}

/// The functions that statements call.
fn entries() -> BTreeSet<String> {
    let sources = [
        include_str!("statements.rs"),
        include_str!("keyring.rs"),
        include_str!("examine.rs"),
        include_str!("connection.rs"),
    ];
    let mut entries = BTreeSet::new();
    for source in sources {
        for call in source.split("tenure.").skip(1) {
            let end = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            if let Some((name, rest)) = end.map(|end| call.split_at(end))
                && rest.starts_with('(')
            {
                entries.insert(name.to_owned());
            }
        }
    }
    entries
}

#[tokio::test]
async fn what_a_client_calls_has_a_search_path_and_nobody_else_may_call_anything() {
    let server = Postgres::setup().start();
    let looker = connect(&server).await;
    for prepared in prepare_all(&server, &OWN).await {
        prepared.unwrap();
    }
    let functions = looker
        .query(
            "select p.proname::text, coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false), \
             exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0) \
             from pg_proc p where p.pronamespace = 'tenure'::regnamespace",
            &[],
        )
        .await
        .unwrap();
    let settled = |row: &tokio_postgres::Row| row.get::<_, bool>(1).then(|| row.get(0));
    let found: BTreeSet<String> = functions.iter().filter_map(settled).collect();
    assert!(entries().len() > 20 && found.is_superset(&entries()), "{found:?} {:?}", entries());
    // `tend` is one of the entries, too, which upkeep calls.
    assert_eq!(found, entries(), "a function that others call would be slower for nothing");
    for row in functions {
        assert!(!row.get::<_, bool>(2), "anybody may call tenure.{}", row.get::<_, &str>(0));
    }
    let count = |what: &'static str| {
        let looker = &looker;
        async move { looker.query_one(what, &[]).await.unwrap().get::<_, i64>(0) }
    };
    // Names that the server would look up by itself.
    let defaults = "select count(*) from pg_attrdef d join pg_class c on c.oid = d.adrelid \
                    where c.relnamespace = 'tenure'::regnamespace";
    let triggers = "select count(*) from pg_trigger t join pg_class c on c.oid = t.tgrelid \
                    where c.relnamespace = 'tenure'::regnamespace";
    let operators = "select (select count(*) from pg_operator where oprnamespace = 'tenure'::regnamespace) \
                     + (select count(*) from pg_cast where castfunc <> 0 and castfunc in \
                        (select oid from pg_proc where pronamespace = 'tenure'::regnamespace))";
    for what in [defaults, triggers, operators] {
        assert_eq!(count(what).await, 0, "{what}");
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
