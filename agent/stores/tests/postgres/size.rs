//! The size of the tables in a long run.

use tenure_harness::Postgres;

use super::{connect, number};

/// Operations of one run, unless `TENURE_POSTGRES_OPERATIONS` says otherwise.
const OPERATIONS: i64 = 1_000_000;
/// Looks at the sizes in one run.
const LOOKS: i64 = 20;
const CONNECTIONS: usize = 4;
/// Claims that each connection has at a time.
const HELD: usize = 50;

/// Each claim is made, beaten twice in a batch with others, and released; upkeep runs beside it.
const TURN: &str = "do $$ \
    declare \
        v_ids uuid[] := array(select gen_random_uuid() from generate_series(1, 50)); \
        v_name text := gen_random_uuid()::text; \
    begin \
        for i in 1..50 loop \
            perform tenure.claim(v_ids[i], 't', 'lease', v_name || i, v_ids[1], 'h', 'n', 30000000, true, 0, null, \
                false, 1000000, '{}', null, 0, 0); \
            commit; \
        end loop; \
        for turn in 1..2 loop \
            perform tenure.renew(v_ids, array_fill('t'::text, array[50]), array_fill('lease'::text, array[50]), \
                array(select v_name || i from generate_series(1, 50) i), array_fill(30000000::bigint, array[50])); \
            commit; \
        end loop; \
        for i in 1..50 loop \
            perform tenure.release(v_ids[i], 't', 'lease', v_name || i, 0); \
            commit; \
        end loop; \
        perform tenure.upkeep(0); \
    end $$";
/// A claim, two beats and a release for each.
const TURN_OPERATIONS: i64 = 4 * HELD as i64;

const SIZE: &str = "select sum(pg_total_relation_size(oid))::bigint from pg_class \
    where relnamespace = 'tenure'::regnamespace and relkind = 'r'";
const TABLES: &str = "select coalesce(string_agg(relname || ' ' || pg_total_relation_size(oid) / 1024 || ' KiB', ', ' \
    order by relname), '') from pg_class where relnamespace = 'tenure'::regnamespace and relkind = 'r'";

#[tokio::test]
#[ignore = "takes minutes: tests/long postgres runs it"]
async fn autovacuum_keeps_the_tables_flat() {
    let operations = std::env::var("TENURE_POSTGRES_OPERATIONS");
    let operations = operations.map_or(OPERATIONS, |it| it.parse().unwrap());
    // As often as a run is shorter than a day.
    let options = ["-c", "fsync=off", "-c", "autovacuum_naptime=1s"];
    let server = Postgres::start_with(&options, &[]).unwrap();
    let client = connect(&server).await;
    client.batch_execute(&tenure_stores::postgres::sql()).await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        workers.push(connect(&server).await);
    }
    let turns = (operations / LOOKS / CONNECTIONS as i64 / TURN_OPERATIONS).max(1);
    let mut sizes = Vec::new();
    for look in 1..=LOOKS {
        futures_util::future::join_all(workers.iter().map(|worker| async move {
            for _ in 0..turns {
                worker.batch_execute(TURN).await.unwrap();
            }
        }))
        .await;
        sizes.push(number(&client, SIZE).await);
        let tables: String = client.query_one(TABLES, &[]).await.unwrap().get(0);
        let done = look * turns * CONNECTIONS as i64 * TURN_OPERATIONS;
        println!("{done:>9} operations: {} KiB ({tables})", sizes[sizes.len() - 1] / 1024);
    }
    // Marks stay for a minute, so that the first half may grow.
    let (half, end) = (sizes[sizes.len() / 2], sizes[sizes.len() - 1]);
    assert!(end <= 2 * half, "{half} bytes at half time, {end} in the end");
}
