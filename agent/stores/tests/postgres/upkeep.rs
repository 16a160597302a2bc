//! Upkeep works in bounded parts, by an index, and never waits for a lock.

use tokio_postgres::Client;

use super::{add, connect, number, start};

const CLAIMS: &str = "select count(*) from tenure.claim";

async fn upkeep(client: &Client) -> Option<i64> {
    client.query_one("select tenure.upkeep(0)", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_call_does_a_bounded_part_and_the_next_goes_on() {
    let (_server, client) = start().await;
    for resource in 0..40 {
        add(&client, "t", &format!("r{resource}"), 300, false, -1).await;
    }
    let most = number(&client, "select tenure.steps_max()::bigint").await;
    let mut left = number(&client, CLAIMS).await;
    assert_eq!(left, 12_000);
    while left > 0 {
        let next = upkeep(&client).await;
        let now_left = number(&client, CLAIMS).await;
        assert_eq!(next, Some(0).filter(|_| now_left > 0), "{now_left} are left");
        assert!((1..=most).contains(&(left - now_left)), "one call ended {}", left - now_left);
        left = now_left;
    }
    assert_eq!(number(&client, "select count(*) from tenure.resource").await, 0);
}

#[tokio::test]
async fn what_a_raised_limit_frees_is_granted_over_several_calls() {
    let (_server, client) = start().await;
    add(&client, "t", "s", 2000, false, 60_000_000).await;
    let raised = "update tenure.resource set permits = 1500";
    client.execute(raised, &[]).await.unwrap();
    // Any claim grants what is free.
    let claim = "select tenure.claim(gen_random_uuid(), 't', 'semaphore', 's', gen_random_uuid(), 'h', 'n', 30000000, \
                 true, 0, 1500, true, 0, null, null, 0, 0)::text";
    let answer: String = client.query_one(claim, &[]).await.unwrap().get(0);
    assert!(answer.contains("Waiting"), "{answer}");
    let held = "select count(*) from tenure.claim where token is not null";
    while upkeep(&client).await == Some(0) {}
    assert_eq!(number(&client, held).await, 1500);
    // In the order of the queue.
    let last_held = "select max(place) from tenure.claim where token is not null";
    let first_waiting = "select min(place) from tenure.claim where token is null";
    assert!(number(&client, last_held).await < number(&client, first_waiting).await);
}

#[tokio::test]
async fn what_is_due_is_found_by_an_index() {
    let (server, client) = start().await;
    for resource in 0..10 {
        add(&client, "t", &format!("r{resource}"), 1000, true, 60_000_000).await;
    }
    client.batch_execute("analyze tenure.claim; analyze tenure.resource").await.unwrap();
    let mut second = connect(&server).await;
    let questions = [
        "select tenure.upkeep(0)::text",
        "select tenure.tend('t', 'semaphore', 1024, 0)::text",
        "select tenure.end_overdue('t', 'semaphore', 'r1', 0)::text",
        "select tenure.standing('t', 'semaphore', 'r1', 10)::text",
    ];
    // A plan for all values takes over after some calls.
    for turn in 0..12_i64 {
        add(&client, "t", "due", turn % 2, false, -1).await;
        for question in questions {
            // Until they are flushed, the scans of transactions before are counted with those of this one.
            second.query_one("select pg_stat_force_next_flush()", &[]).await.unwrap();
            let transaction = second.transaction().await.unwrap();
            transaction.query_one(question, &[]).await.unwrap();
            let scans =
                "select seq_scan, idx_scan from pg_stat_xact_user_tables where relname = 'claim'";
            let row = transaction.query_one(scans, &[]).await.unwrap();
            let (whole, by_index): (i64, i64) = (row.get(0), row.get(1));
            assert!(whole == 0 && by_index > 0, "{question}: {whole} scans of the whole table");
            transaction.commit().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_locked_resource_keeps_upkeep_from_no_other() {
    let (server, client) = start().await;
    // More than one call ends, and due before all others.
    add(&client, "locked", "r", 1000, false, -10).await;
    for tenant in ["a", "b"] {
        for resource in ["r1", "r2"] {
            add(&client, tenant, resource, 10, false, -1).await;
        }
    }
    let mut foreign = connect(&server).await;
    let transaction = foreign.transaction().await.unwrap();
    let lock = "select from tenure.resource where tenant = 'locked' for update";
    transaction.execute(lock, &[]).await.unwrap();
    while number(&client, CLAIMS).await > 1000 {
        assert_eq!(upkeep(&client).await, Some(0));
    }
    let again = upkeep(&client).await.unwrap();
    assert!(again > 0, "it would look again at once, for as long as the lock is there");
    transaction.commit().await.unwrap();
    while number(&client, CLAIMS).await > 0 {
        upkeep(&client).await;
    }
}
