//! The functions of the schema where several connections use them at once. The rules that hold for every store are in
//! `tests/conformance`.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod beats;
mod locks;
mod size;
mod tokens;
mod upkeep;

use tenure_harness::{POSTGRES_PORT, Postgres};
use tenure_stores::postgres::sql;
use tokio_postgres::{Client, Config, NoTls};

const CLAIM: &str = "select tenure.claim('00000000-0000-0000-0000-000000000001', 't', 'leader', 'a', \
    '00000000-0000-0000-0000-0000000000a1', 'host', 'name', 5000000, true, 0, null, false, 0, null, null, 0, $1)::text";

async fn connect(server: &Postgres) -> Client {
    let mut config = Config::new();
    config.host_path(server.dir()).port(POSTGRES_PORT).user("postgres");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn start() -> (Postgres, Client) {
    let server = Postgres::start_with(&["-c", "fsync=off"], &[]).unwrap();
    let client = connect(&server).await;
    client.batch_execute(&sql()).await.unwrap();
    (server, client)
}

/// Adds so many claims of one resource: each is granted if it has a token, and ends in so many µs.
async fn add(client: &Client, tenant: &str, name: &str, count: i64, is_held: bool, ends_in: i64) {
    let resource = "insert into tenure.resource (tenant, kind, name, permits) values ($1, 'semaphore', $2, 1) \
                    on conflict (tenant, kind, name) do update set kind = excluded.kind returning id";
    let resource: i64 = client.query_one(resource, &[&tenant, &name]).await.unwrap().get(0);
    let claims = "insert into tenure.claim \
        (id, resource, session, host, name, ttl, priority, grace, token, since, until, due) \
        select gen_random_uuid(), $1, gen_random_uuid(), 'h', 'n', 30000000, 0, 0, \
        case when $2 then nextval('tenure.token') end, tenure.clock(), tenure.clock() + $3, tenure.clock() + $3 \
        from generate_series(1, $4::bigint)";
    client.execute(claims, &[&resource, &is_held, &ends_in, &count]).await.unwrap();
}

/// A number that a question is answered with.
async fn number(client: &Client, question: &str) -> i64 {
    client.query_one(question, &[]).await.unwrap().get(0)
}

/// Waits until somebody waits for a lock.
async fn until_one_waits(client: &Client) {
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    while client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_clock_is_read_after_the_lock_was_obtained() {
    let (server, looker) = start().await;
    let mut first = connect(&server).await;
    let second = connect(&server).await;
    let transaction = first.transaction().await.unwrap();
    transaction.execute("select tenure.occupy('t', 'leader', 'a')", &[]).await.unwrap();
    let claimed = tokio::spawn(async move { second.query_one(CLAIM, &[&0_i64]).await });
    until_one_waits(&looker).await;
    let freed: i64 = transaction.query_one("select tenure.clock()", &[]).await.unwrap().get(0);
    transaction.commit().await.unwrap();
    claimed.await.unwrap().unwrap();
    let since: i64 = looker.query_one("select since from tenure.claim", &[]).await.unwrap().get(0);
    assert!(since >= freed, "granted at {since}, before the lock was free at {freed}");
}

#[tokio::test]
async fn a_release_that_overtakes_its_claim_ends_it() {
    let (server, client) = start().await;
    let mut first = connect(&server).await;
    let second = connect(&server).await;
    // The claim has locked a resource that nobody else can see, and is not committed.
    let transaction = first.transaction().await.unwrap();
    transaction.query_one(CLAIM, &[&0_i64]).await.unwrap();
    let released = tokio::spawn(async move {
        let release =
            "select tenure.release('00000000-0000-0000-0000-000000000001', 't', 'leader', 'a', 0)";
        second.query_one(release, &[]).await
    });
    until_one_waits(&client).await;
    transaction.commit().await.unwrap();
    assert!(released.await.unwrap().unwrap().get::<_, bool>(0));
    let left = client.query_one("select count(*) from tenure.claim", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn tokens_grow_past_what_an_agent_has_seen() {
    let (_server, client) = start().await;
    // As after a failover that lost the last commits.
    let seen = 4_000_000_000_000_000_i64;
    let answer: String = client.query_one(CLAIM, &[&seen]).await.unwrap().get(0);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["Held"]["token"].as_i64().unwrap() > seen, "{answer}");
}
