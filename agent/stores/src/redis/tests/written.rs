//! Keys, values and messages as programs without Tenure read them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, GoneReason, Page, Request, Within};

use super::super::layout::{hyphenated, member};
use super::kinds::{
    AGENT_CHANNEL, CLAIM, Ears, GRACE, HEARTBEAT, KEEP, LONGEST, MAIN, MASTER, MASTER_ROLE, MAX,
    PEER_ROLE, SESSIONS, WAITING, announce, beat_session, check_waits, end, hash_of, ids, lease,
    lost, master, permit, released, score, sid, trying, with_address,
};
use super::store::{Store, TTL, announcement, claim, held, resource};

/// The longest expiry that the Python package gives its keys.
const FOREVER: Duration = Duration::from_secs(2_147_483_647);

#[test]
fn a_grant_is_written_as_programs_read_it() {
    let store = Store::new();
    let a = claim(1, 7, "leader/cleanup");
    let token = store.hold(&a);
    assert_eq!(store.run::<String>(&["TYPE", "leader:cleanup"]), "string");
    assert_eq!(store.run::<String>(&["GET", "leader:cleanup"]), hyphenated(a.id.0));
    store.check_expiry("leader:cleanup", TTL);
    assert_eq!(store.run::<u64>(&["GET", "tenure:fence"]), token);
    assert_eq!(store.run::<i64>(&["PTTL", "tenure:fence"]), -1);
    assert!(token as f64 > (store.now() - 60.0) * 1e6, "µs of the server's clock");
    let record = store.hash(&store.record(&a));
    let expected = [
        ("r", "leader:cleanup".to_owned()),
        ("session", hyphenated(a.owner.session.0)),
        ("host", "host-7".to_owned()),
        ("name", "name-7".to_owned()),
        ("ttl", TTL.as_millis().to_string()),
        ("token", token.to_string()),
        ("since", record["since"].clone()),
        ("granted", record["granted"].clone()),
        ("agent", AGENT_CHANNEL.to_owned()),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    assert_eq!(record, expected);
    store.check_expiry(&store.record(&a), TTL + KEEP);
}

#[test]
fn a_record_outlives_its_grant_by_the_same_time_exactly() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    store.hold(&a);
    let at = |key: &str| store.run::<u64>(&["PEXPIRETIME", key]);
    assert_eq!(at(&store.record(&a)) - at("leader:x"), 60_000);
    store.renew(&a);
    assert_eq!(at(&store.record(&a)) - at("leader:x"), 60_000);
}

#[test]
fn a_lease_is_written_as_programs_read_it() {
    let store = Store::new();
    let mut pushed = store.connect();
    let mut subscription = pushed.as_pubsub();
    subscription.subscribe("tenure:routes").unwrap();
    let a = with_address(lease(1, 7), "10.0.0.7:8982");
    let token = store.hold(&a);
    let found = store.hash("tenure:lease:l");
    let now_ms = store.now() * 1000.0;
    let expected = [
        ("owner", hyphenated(a.id.0)),
        ("session", hyphenated(a.owner.session.0)),
        ("token", token.to_string()),
        ("address", "10.0.0.7:8982".to_owned()),
        ("proxy_id", String::new()),
        ("partition", "254".to_owned()),
        ("status", "warm".to_owned()),
        ("holder_status", "warm".to_owned()),
        ("granted_at", found["granted_at"].clone()),
        ("renewed_at", found["granted_at"].clone()),
        ("ttl_ms", TTL.as_millis().to_string()),
        ("grace_ms", GRACE.as_millis().to_string()),
        // The first one of a server is its clock.
        ("version", found["granted_at"].clone()),
        ("host", "host-7".to_owned()),
        ("name", "name-7".to_owned()),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    assert_eq!(found, expected);
    assert!((found["granted_at"].parse::<f64>().unwrap() - now_ms).abs() < 60_000.0);
    store.check_expiry("tenure:lease:l", TTL + GRACE);
    store.check_expiry(&store.record(&a), TTL + GRACE + Duration::from_secs(60));
    assert_eq!(store.run::<Vec<String>>(&["SMEMBERS", "tenure:leases"]), ["l"]);
    let first = store.run::<u64>(&["GET", "tenure:routes"]);
    assert_eq!(found["version"], first.to_string());
    let version: u64 = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(version, first);
}

#[test]
fn a_master_is_written_as_programs_read_it() {
    let store = Store::new();
    let mut record = announcement(7, "p");
    record.surface = "claude_desktop".into();
    announce(&store, &record);
    let found = store.hash(&hash_of(7));
    for (field, value) in [
        ("tenant_id", "default"),
        ("project_id", "p"),
        ("agent_identity", "name-7"),
        ("agent_surface", "claude_desktop"),
        ("machine_id", "host-7"),
        ("is_master", "0"),
        ("priority", "100"),
        ("name", "name-7"),
        ("host", "host-7"),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
    store.check_expiry(&hash_of(7), TTL);
    assert_eq!(store.run::<Vec<String>>(&["SMEMBERS", SESSIONS]), [sid(7)]);
    assert_eq!(store.run::<i64>(&["PTTL", SESSIONS]), -1);

    let a = master(1, 7, 5);
    store.hold(&a);
    assert_eq!(store.run::<String>(&["GET", MASTER]), sid(7));
    store.check_expiry(MASTER, TTL);
    assert_eq!(store.run::<String>(&["GET", CLAIM]), hyphenated(a.id.0));
    store.check_expiry(CLAIM, TTL + KEEP);
    let found = store.hash(&hash_of(7));
    assert_eq!((found["is_master"].as_str(), found["priority"].as_str()), ("1", "5"));
    assert_eq!(store.hash(&store.record(&a))["priority"], "5");
}

#[test]
fn a_permit_is_written_as_the_python_package_reads_it() {
    let store = Store::new();
    let a = permit(1, 3);
    let token = store.hold(&a);
    assert_eq!(
        store.keys(),
        [MAIN, MAX, LONGEST, &store.record(&a), "tenure:fence"].map(str::to_owned)
    );
    assert_eq!(store.run::<Vec<String>>(&["ZRANGE", MAIN, "0", "-1"]), [member(a.id)]);
    assert_eq!(member(a.id).len(), 32);
    let now = store.now();
    let until = score(&store, MAIN, &a).unwrap();
    assert!((until - now - TTL.as_secs_f64()).abs() < 60.0, "{until}");
    let ends = score(&store, LONGEST, &a).unwrap();
    assert!((ends - now - 2_147_483_637.0).abs() < 60.0, "{ends}");
    assert_eq!(store.run::<u32>(&["GET", MAX]), 3);
    for key in [MAIN, LONGEST, MAX] {
        store.check_expiry(key, FOREVER);
    }
    let record = store.hash(&store.record(&a));
    assert_eq!(record["r"], "semaphore:g");
    assert_eq!(record["token"], token.to_string());
    store.check_expiry(&store.record(&a), TTL + Duration::from_secs(60));
}

#[test]
fn a_waiter_is_written_as_the_python_package_reads_it() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    let b = permit(2, 1);
    check_waits(&store, &b, 1, 1);
    let now = store.now();
    assert!((score(&store, WAITING, &b).unwrap() - now).abs() < 60.0);
    let until = score(&store, HEARTBEAT, &b).unwrap();
    assert!((until - now - TTL.as_secs_f64()).abs() < 60.0, "{until}");
    for key in [WAITING, HEARTBEAT] {
        store.check_expiry(key, FOREVER);
    }
    assert!(!store.hash(&store.record(&b)).contains_key("token"));
}

#[test]
fn permits_given_in_one_step_stand_in_their_order() {
    let store = Store::new();
    store.hold(&permit(9, 1));
    for id in 1..=3 {
        check_waits(&store, &permit(id, 1), id as u64, 1);
    }
    // A higher limit lets all of them in at once.
    let answer = store.claim(&trying(permit(4, 4)));
    let ClaimAnswer::Contended { holder: Some(holder), limit: Some(4), .. } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(holder.claim, permit(9, 1).id);
    assert_eq!(ids(&store.inspect(&resource("semaphore/g"))).0, [9, 1, 2, 3]);
    let order: Vec<String> = store.run(&["ZRANGE", LONGEST, "0", "-1"]);
    assert_eq!(order, [9, 1, 2, 3].map(|id| member(permit(id, 1).id)));
}

#[test]
fn a_session_says_when_it_came_in_iso_8601() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    let at = store.hash(&hash_of(1))["registered_at"].clone();
    let (date, clock) = at.split_once('T').unwrap();
    let date: Vec<i64> = date.split('-').map(|part| part.parse().unwrap()).collect();
    let clock: Vec<f64> = clock
        .strip_suffix("+00:00")
        .unwrap()
        .split(':')
        .map(|part| part.parse().unwrap())
        .collect();
    // Fliegel and Van Flandern's count of days.
    let (year, month, day) = (date[0], date[1], date[2]);
    let shift = (month - 14) / 12;
    let days = (1461 * (year + 4800 + shift)) / 4 + (367 * (month - 2 - 12 * shift)) / 12
        - (3 * ((year + 4900 + shift) / 100)) / 4
        + day
        - 32075
        - 2_440_588;
    let seconds = (days * 86_400) as f64 + clock[0] * 3600.0 + clock[1] * 60.0 + clock[2];
    assert!((seconds - store.now()).abs() < 60.0, "{at}");
}

#[test]
fn a_higher_priority_preempts_and_the_preempted_is_told() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    announce(&store, &announcement(1, "p"));
    announce(&store, &announcement(2, "p"));
    let (a, b) = (master(1, 1, 5), master(2, 2, 6));
    let first = store.hold(&a);
    let second = store.hold(&b);
    assert!(second > first);
    assert_eq!(ears.next(), lost(&a));
    let payload = json!({
        "type": "MasterPreempted", "project": "p", "token": second,
        "by": {"session": sid(2), "name": "name-2", "host": "host-2"},
    });
    assert_eq!(ears.next(), (format!("prism:events:session:{}", sid(1)), payload));
    assert_eq!(store.hash(&hash_of(1))["is_master"], "0");
    assert_eq!(store.hash(&hash_of(2))["is_master"], "1");
    // Again, after a lost reply.
    assert_eq!(store.hold(&b), second);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Preempted));
    assert_eq!(store.gone(&a), GoneReason::Preempted);
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Preempted);
    let answers = [1, 2].map(|by| beat_session(&store, by));
    assert_eq!(answers, [PEER_ROLE, MASTER_ROLE]);
    ears.check_silent(&store);
}

#[test]
fn every_operation_may_be_repeated() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    announce(&store, &announcement(1, "p"));
    let before = store.hash(&hash_of(1));
    announce(&store, &announcement(1, "p"));
    assert_eq!(store.hash(&hash_of(1)), before);
    let a = master(1, 1, 0);
    let token = store.hold(&a);
    assert_eq!(store.hold(&a), token);
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(beat_session(&store, 1), MASTER_ROLE);
    assert!(store.release(&a));
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Released);
    assert_eq!(ears.next(), released(1));
    assert_eq!(beat_session(&store, 1), PEER_ROLE);
    assert!(end(&store, 1));
    assert!(!end(&store, 1));
    let (channel, payload) = ears.next();
    assert_eq!(channel, "prism:events:project:default:p");
    assert_eq!(
        payload,
        json!({"type": "session_ended", "session": sid(1), "name": "name-1", "host": "host-1"})
    );
    ears.check_silent(&store);
    let ended = format!("tenure:claim:session:{}", sid(1));
    let [fence, sets] = ["tenure:fence", "tenure:sets"].map(str::to_owned);
    assert_eq!(store.keys(), [store.record(&a), ended, fence, sets]);
    assert_eq!(beat_session(&store, 1), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn a_foreign_key_among_the_sessions_hides_no_other() {
    let store = Store::new();
    store.ask(&Request::Announce(announcement(1, "p")));
    store.run::<()>(&["SADD", SESSIONS, "foreign"]);
    store.run::<()>(&["LPUSH", &store.layout.session("foreign"), "x"]);
    let within = Within::Project { tenant: "default".into(), project: "p".into() };
    let answer = store.ask(&Request::Members { within, listed: true, page: Some(Page::whole()) });
    let Answer::Members(Some(members)) = answer else { panic!("{answer:?}") };
    assert_eq!(members.sessions.len(), 1);
    assert_eq!(store.run::<u64>(&["SCARD", SESSIONS]), 2, "the key of another stays");
}
