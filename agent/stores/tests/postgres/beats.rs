//! Beats of those who wait.

use serde_json::Value;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::{add, connect, start};

/// Waiters of one queue.
const WAITERS: i64 = 2000;
const BEATS: usize = 512;
/// An agent's, see `Address::settle`.
const SETTINGS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off";

/// A queue with that many priorities, taken in turn.
async fn queue(client: &Client, priorities: i64) {
    let claims = "with r as ( \
            insert into tenure.resource (tenant, kind, name) values ('t', 'master', 'q') returning id \
        ) insert into tenure.claim (id, resource, session, host, name, ttl, priority, grace, since, until, due) \
        select gen_random_uuid(), r.id, gen_random_uuid(), 'h', 'n', 30000000, \
            (i * 7 % $2)::integer - 1, 0, 0, tenure.clock() + 30000000, tenure.clock() + 30000000 \
        from r, generate_series(1, $1::bigint) i";
    client.execute(claims, &[&WAITERS, &priorities]).await.unwrap();
    client.batch_execute("vacuum analyze tenure.claim").await.unwrap();
}

async fn waiters(client: &Client, order: &str) -> Vec<Uuid> {
    let rows = client.query(&format!("select id from tenure.claim order by {order}"), &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Their answers.
async fn beat(client: &impl GenericClient, ids: &[Uuid]) -> Vec<Option<Value>> {
    beat_of("master", client, ids).await
}

async fn beat_of(kind: &str, client: &impl GenericClient, ids: &[Uuid]) -> Vec<Option<Value>> {
    let beats = "select answer::text from tenure.renew($1, array_fill('t'::text, array[$2::integer]), \
        array_fill($3::text, array[$2]), array_fill('q'::text, array[$2]), \
        array_fill(30000000::bigint, array[$2])) order by number";
    let count = i32::try_from(ids.len()).unwrap();
    let rows = client.query(beats, &[&ids, &count, &kind]).await.unwrap();
    let answer = |text: String| serde_json::from_str(&text).unwrap();
    rows.iter().map(|row| row.get::<_, Option<String>>(0).map(answer)).collect()
}

#[tokio::test]
async fn each_who_beats_is_told_its_place() {
    let (_server, client) = start().await;
    queue(&client, 4).await;
    let in_order = waiters(&client, "priority desc, place").await;
    let mut some = waiters(&client, "id").await;
    some.truncate(BEATS);
    for (id, answer) in some.iter().zip(beat(&client, &some).await) {
        let place = in_order.iter().position(|waiter| waiter == id).unwrap() + 1;
        assert_eq!(answer.unwrap()["Waiting"]["position"], place);
    }
}

#[tokio::test]
async fn a_queue_is_counted_once_for_all_who_beat() {
    let (server, client) = start().await;
    queue(&client, 1).await;
    let mut some = waiters(&client, "place desc").await;
    some.truncate(BEATS);
    let mut second = connect(&server).await;
    let transaction = second.transaction().await.unwrap();
    assert!(beat(&transaction, &some).await.iter().all(Option::is_some));
    let read = "select pg_stat_get_xact_tuples_returned('tenure.claim_waiting'::regclass)";
    let read: i64 = transaction.query_one(read, &[]).await.unwrap().get(0);
    assert!(read <= 2 * WAITERS, "{read} entries were read for {WAITERS} waiters");
}

#[tokio::test]
async fn who_was_beaten_since_it_was_due_holds_up_no_beats() {
    let (_server, client) = start().await;
    queue(&client, 1).await;
    let all = waiters(&client, "place").await;
    client.execute("update tenure.claim set due = 0 where place % 2 = 0", &[]).await.unwrap();
    assert!(beat(&client, &all[..BEATS]).await.iter().all(Option::is_some));
    // One that ran out is ended before its successors are told their places.
    client.execute("update tenure.claim set until = 0 where id = $1", &[&all[1]]).await.unwrap();
    assert!(beat(&client, &all[..BEATS]).await.iter().all(Option::is_none));
}

#[tokio::test]
async fn a_plan_of_an_empty_table_serves_the_beats_of_a_large_semaphore() {
    const PERMITS: i64 = 5000;
    let (_server, mut client) = start().await;
    client.batch_execute(SETTINGS).await.unwrap();
    assert_eq!(beat_of("semaphore", &client, &[Uuid::nil()]).await, [None]);
    add(&client, "t", "q", PERMITS, true, 30_000_000).await;
    let mut some = waiters(&client, "place desc").await;
    some.truncate(BEATS);
    // Its answers belong to its beats, however many name one claim.
    some[1] = some[0];
    some[2] = Uuid::nil();
    let transaction = client.transaction().await.unwrap();
    let answers = beat_of("semaphore", &transaction, &some).await;
    assert!(answers.iter().enumerate().all(|(at, it)| it.is_some() == (at != 2)), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
    let read = "select sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint from pg_index \
        where indrelid = 'tenure.claim'::regclass";
    let read: i64 = transaction.query_one(read, &[]).await.unwrap().get(0);
    assert!(read < PERMITS, "{read} entries were read for {BEATS} beats");
}
