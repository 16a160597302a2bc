//! Rows that somebody else has locked, and operations that want the same rows.

use tokio_postgres::Client;

use super::{CLAIM, add, connect, number, start, until_one_waits};

/// A beat of the claim of [`CLAIM`], together with others and alone.
const TOGETHER: &str = "select answer::text from tenure.renew(\
    array['00000000-0000-0000-0000-000000000001']::uuid[], array['t'], array['leader'], array['a'], \
    array[5000000]::bigint[])";
const ALONE: &str = "select tenure.beat('00000000-0000-0000-0000-000000000001', 't', 'leader', 'a', 5000000, 0, 1)::text";
const OF_SESSION: &str = "select answer::text from tenure.renew_sessions(\
    array['00000000-0000-0000-0000-0000000000a1']::uuid[], array[5000000]::bigint[])";

async fn text(client: &Client, question: &str) -> Option<String> {
    client.query_one(question, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_beat_of_a_locked_row_fails_alone_and_at_once() {
    let (server, client) = start().await;
    client.query_one(CLAIM, &[&0_i64]).await.unwrap();
    let announce = "select tenure.announce('00000000-0000-0000-0000-0000000000a1', 't', 'p', 'n', 'h', '', 5000000)";
    client.execute(announce, &[]).await.unwrap();
    let mut foreign = connect(&server).await;
    for row in ["claim", "session"] {
        let transaction = foreign.transaction().await.unwrap();
        let lock = format!("select from tenure.{row} for update");
        transaction.execute(&lock, &[]).await.unwrap();
        if row == "claim" {
            assert_eq!(text(&client, TOGETHER).await, None, "it wants a beat of its own");
            let answer = text(&client, ALONE).await.unwrap();
            assert!(answer.contains("Failed") && answer.contains("locked"), "{answer}");
        } else {
            let answer = text(&client, OF_SESSION).await.unwrap();
            assert!(answer.contains("Failed"), "{answer}");
        }
        transaction.commit().await.unwrap();
    }
    for beat in [TOGETHER, ALONE] {
        let answer = text(&client, beat).await.unwrap();
        assert!(answer.contains("Held"), "{answer}");
    }
    assert!(text(&client, OF_SESSION).await.unwrap().contains("peer"));
    client.execute("update tenure.session set ended = true", &[]).await.unwrap();
    assert!(text(&client, OF_SESSION).await.unwrap().contains("Unknown"));
}

#[tokio::test]
async fn a_claim_of_a_semaphore_holds_up_no_beat_of_its_holders() {
    let permit = |claim: &str, limit| {
        let claimed = CLAIM.replace("-000000000001'", claim).replace("leader", "semaphore");
        claimed.replace("true, 0, null", &format!("false, 0, {limit}"))
    };
    let (server, client) = start().await;
    let together = TOGETHER.replace("leader", "semaphore");
    client.query_one(&permit("-000000000001'", 2), &[&0_i64]).await.unwrap();
    let mut other = connect(&server).await;
    // The second is granted, and the third refused.
    for claim in ["-000000000002'", "-000000000003'"] {
        let transaction = other.transaction().await.unwrap();
        transaction.query_one(&permit(claim, 2), &[&0_i64]).await.unwrap();
        let answer = text(&client, &together).await.expect("no lock is in its way");
        assert!(answer.contains("Held"), "{answer}");
        transaction.commit().await.unwrap();
    }
}

/// A claim of a lease by an agent that has seen a greater token than there is.
fn claim_of_lease(name: &str) -> String {
    format!(
        "select tenure.claim(gen_random_uuid(), 't', 'lease', '{name}', gen_random_uuid(), 'h', 'n', 30000000, \
         false, 0, null, false, 0, '{{}}', null, 0, 4000000000000000)::text"
    )
}

#[tokio::test]
async fn whoever_raises_tokens_waits_for_nobody_who_waits_for_it() {
    let (server, client) = start().await;
    // One that has run out: its end is a change of the routing table, and comes before the next token.
    client.query_one(&claim_of_lease("ended").replace("4000000000000000", "0"), &[]).await.unwrap();
    client.execute("update tenure.claim set until = 0, due = 0", &[]).await.unwrap();
    let (mut foreign, fresh, ended) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    let transaction = foreign.transaction().await.unwrap();
    transaction.execute("select from tenure.about for update", &[]).await.unwrap();
    let mut claims = Vec::new();
    for (waiters, (claimer, name)) in [(fresh, "fresh"), (ended, "ended")].into_iter().enumerate() {
        claims.push(tokio::spawn(async move {
            claimer.query_one(&claim_of_lease(name), &[]).await.map(|row| row.get::<_, String>(0))
        }));
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        while number(&client, waiting).await <= i64::try_from(waiters).unwrap() {
            tokio::task::yield_now().await;
        }
    }
    transaction.commit().await.unwrap();
    for claim in claims {
        let answer = claim.await.unwrap().expect("no deadlock");
        assert!(answer.contains("Held"), "{answer}");
    }
}

#[tokio::test]
async fn many_who_grant_release_revoke_and_tend_the_same_are_part_of_no_deadlock() {
    const TURN: &str = "do $$ declare v_id uuid; v_name text; begin \
        for i in 1..40 loop \
            v_id := gen_random_uuid(); \
            v_name := 'r' || (random() * 3)::integer; \
            perform tenure.claim(v_id, 't', 'lease', v_name, v_id, 'h', 'n', 1000, true, 0, null, false, 1000, '{}', \
                null, 0, (select last_value from tenure.token) + (random() * 3)::integer); \
            commit; \
            perform tenure.renew(array[v_id], array['t'], array['lease'], array[v_name], array[1000::bigint]); \
            commit; \
            perform tenure.beat(v_id, 't', 'lease', v_name, 1000, 0, 1000); \
            commit; \
            if i % 3 = 0 then perform tenure.revoke('t', 'lease', v_name, null, null, 0, null); commit; end if; \
            if i % 3 = 1 then perform tenure.release(v_id, 't', 'lease', v_name, 0); commit; end if; \
            perform tenure.upkeep(0); \
            commit; \
        end loop; end $$";
    let (server, client) = start().await;
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(connect(&server).await);
    }
    let turns = all.iter().map(|it| it.batch_execute(TURN));
    futures_util::future::try_join_all(turns).await.unwrap();
    let tokens =
        "select count(*) - count(distinct token) from tenure.claim where token is not null";
    assert_eq!(number(&client, tokens).await, 0);
}

#[tokio::test]
async fn a_locked_claim_keeps_upkeep_from_no_other() {
    let (server, client) = start().await;
    add(&client, "locked", "r", 1, true, -10).await;
    for tenant in ["a", "locked"] {
        add(&client, tenant, "r2", 10, false, -1).await;
    }
    let mut foreign = connect(&server).await;
    let transaction = foreign.transaction().await.unwrap();
    transaction
        .execute("select from tenure.claim where token is not null for update", &[])
        .await
        .unwrap();
    let upkeep = "select coalesce(tenure.upkeep(0), -1)";
    while number(&client, "select count(*) from tenure.claim").await > 1 {
        number(&client, upkeep).await;
    }
    assert!(number(&client, upkeep).await > 0, "it would look again at once");
    transaction.commit().await.unwrap();
    assert_eq!(number(&client, upkeep).await, -1);
    assert_eq!(number(&client, "select count(*) from tenure.claim").await, 0);
}

#[tokio::test]
async fn a_revocation_of_many_takes_several_calls_and_what_is_granted_meanwhile_stays() {
    let (_server, client) = start().await;
    add(&client, "t", "s", 1200, true, 60_000_000).await;
    add(&client, "t", "s", 50, false, 60_000_000).await;
    client.execute("update tenure.resource set permits = 1200", &[]).await.unwrap();
    let most = number(&client, "select tenure.steps_max()::bigint").await;
    let (mut revoked, mut newest, mut calls) = (0, None::<i64>, 0);
    loop {
        let revoke =
            "select revoked, newest from tenure.revoke('t', 'semaphore', 's', null, null, 0, $1)";
        let row = client.query_one(revoke, &[&newest]).await.unwrap();
        assert!(row.get::<_, i64>(0) <= most);
        revoked += row.get::<_, i64>(0);
        newest = row.get(1);
        calls += 1;
        if newest.is_none() {
            break;
        }
    }
    assert_eq!((revoked, calls), (1200, 1200 / most + 1));
    let held = "select count(*) from tenure.claim where token is not null";
    assert_eq!(number(&client, held).await, 50, "who waited has a permit");
}

#[tokio::test]
async fn a_session_is_there_when_it_is_announced_or_ended_while_it_is_swept() {
    let (server, client) = start().await;
    let looker = connect(&server).await;
    let id = "'00000000-0000-0000-0000-0000000000a1'";
    let announce = format!("select tenure.announce({id}, 't', 'p', 'n', 'h', '', 5000000)");
    let end = format!("select tenure.end_session({id}, 't', 'p')");
    for (call, ended) in [(announce, false), (end, true)] {
        client.batch_execute(&format!(
            "insert into tenure.session values ({id}, default, 't', 'p', 'n', 'h', '', 5000000, 0, 0, false)"
        )).await.unwrap();
        // Upkeep has locked what ran out, and ends it next.
        let mut upkeep = connect(&server).await;
        let transaction = upkeep.transaction().await.unwrap();
        transaction.execute("select from tenure.session for update", &[]).await.unwrap();
        let calling = client.execute(&call, &[]);
        let sweeping = async {
            until_one_waits(&looker).await;
            transaction.execute("delete from tenure.session", &[]).await.unwrap();
            transaction.commit().await.unwrap();
        };
        let (called, ()) = tokio::join!(calling, sweeping);
        called.unwrap();
        let left = client.query_one("delete from tenure.session returning ended", &[]).await;
        assert_eq!(left.unwrap().get::<_, bool>(0), ended, "{call}");
    }
}
