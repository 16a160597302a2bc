use tenure_core::model::defaults;

use super::*;

const S: Duration = Duration::from_secs(1);
const HERE: GatewayRun = GatewayRun { gateway: [1, 2, 3], run: [4, 5] };
const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);

fn asked() -> AcquireLeaseRequest {
    AcquireLeaseRequest {
        mailbox_id: "$admin@proxy-01".to_owned(),
        runner_id: "runner-01".to_owned(),
        ..AcquireLeaseRequest::default()
    }
}

#[test]
fn the_partition_is_of_the_whole_id_unless_it_is_given() {
    for (id, partition) in
        [("$admin@proxy-01", 109), ("audit-logs@proxy-02", 78), ("user-events@proxy-01", 64)]
    {
        let asked = AcquireLeaseRequest { mailbox_id: id.to_owned(), ..asked() };
        let wanted = check_acquire(&asked, &Policy::default()).unwrap();
        assert_eq!(defaults::partition(&wanted.attributes, id), partition, "{id}");
    }
    let given = AcquireLeaseRequest { partition: 255, ..asked() };
    let wanted = check_acquire(&given, &Policy::default()).unwrap();
    assert_eq!(defaults::partition(&wanted.attributes, "$admin@proxy-01"), 255);
    assert_eq!(wanted.attributes.proxy_id.as_deref(), Some("proxy-01"));
}

#[test]
fn what_breaks_a_rule_is_named() {
    let refused = |change: fn(&mut AcquireLeaseRequest)| {
        let mut asked = asked();
        change(&mut asked);
        check_acquire(&asked, &Policy::default()).unwrap_err()
    };
    assert_eq!(refused(|it| it.mailbox_id = String::new()).field(), "mailbox_id");
    assert_eq!(refused(|it| it.mailbox_id = "m".repeat(201)).field(), "mailbox_id");
    assert_eq!(refused(|it| it.runner_id = "a\nb".to_owned()).field(), "runner_id");
    assert_eq!(refused(|it| it.proxy_id = "proxy-02".to_owned()).field(), "proxy_id");
    assert_eq!(refused(|it| it.address = "a".repeat(201)).field(), "address");
    let partition = refused(|it| it.partition = 256);
    assert!(
        partition.to_string().starts_with("partition is 256; the rule: 0 to 255"),
        "{partition}"
    );
    assert_eq!(refused(|it| it.partition = -1).field(), "partition");
    let ttl = refused(|it| it.ttl_seconds = i64::MAX);
    assert!(
        ttl.to_string().starts_with("ttl_seconds is 9223372036854775807; the rule: 1 to 86400;"),
        "{ttl}"
    );
    assert_eq!(status("expiring").unwrap_err().field(), "status");
    assert_eq!(status("degraded"), Ok(Some("degraded")));
    assert_eq!(status("healthy"), Ok(None));
}

#[test]
fn a_namespace_has_its_policy_and_a_runner_its_ttl() {
    let exception = Exception {
        namespaces: Globs::new(["$admin", "audit-*"]).unwrap(),
        ttl: Some(60 * S),
        heartbeat_interval: None,
        grace_period: None,
        legacy: None,
    };
    let policies = Policies { default: Policy::default(), exceptions: vec![exception] };
    for (id, ttl) in [("$admin@p", 60), ("audit-logs@p", 60), ("user-events@p", 300), ("x", 300)] {
        let policy = policies.of(id);
        let mut asked = AcquireLeaseRequest { mailbox_id: id.to_owned(), ..asked() };
        assert_eq!(check_acquire(&asked, &policy).unwrap().ttl, ttl * S);
        asked.ttl_seconds = -5;
        assert_eq!(check_acquire(&asked, &policy).unwrap().ttl, ttl * S);
        asked.ttl_seconds = 7;
        assert_eq!(check_acquire(&asked, &policy).unwrap().ttl, 7 * S);
    }
}

#[test]
fn a_run_is_a_session_of_its_principal() {
    let (mark, said) = (Mark::of("alice"), Incarnation::Said("1".to_owned()));
    let first = session(mark, "alice", "runner-01", &said);
    assert_eq!(first, session(mark, "alice", "runner-01", &said));
    assert!(mark.is_of(first.0) && !is_of_connection(first));
    let by_connection = Incarnation::Connection(Uuid::from_u128(1), HERE);
    let others = [
        session(mark, "alice", "runner-01", &Incarnation::Said("2".to_owned())),
        session(mark, "alice", "runner-02", &said),
        session(mark, "alice", "runner-01", &by_connection),
    ];
    assert!(others.iter().all(|other| *other != first));
    assert!(is_of_connection(others[2]));
    assert_ne!(claim(mark, first, "a"), claim(mark, first, "b"));
}

#[test]
fn a_new_run_waits_for_a_quarter_of_the_ttl_after_the_connection_was_lost() {
    let policy = Policy::default();
    let after = |unbeaten: Duration, connection| {
        let times = LeaseTimes { ttl: 300 * S, grace: 60 * S, unbeaten };
        take_over_after(NOW, &times, &policy, connection)
    };
    let lost = |ago: Duration| {
        Connection::LostAt(Boottime::from_nanos(1_000_000_000_000 - ago.as_nanos() as u64))
    };
    assert_eq!(after(299 * S, Connection::Open), Err(None));
    assert_eq!(after(80 * S, lost(70 * S)), Err(Some(5 * S)));
    assert_eq!(after(70 * S, lost(80 * S)), Err(Some(5 * S)));
    assert_eq!(after(80 * S, lost(75 * S)), Ok(75 * S));
    assert_eq!(after(130 * S, Connection::Unknown), Err(Some(5 * S)));
    assert_eq!(after(135 * S, Connection::Unknown), Ok(135 * S));
    assert_eq!(valid_for(100 * S), Duration::from_millis(99_490));
}

#[test]
fn a_gateway_knows_the_connections_of_its_earlier_runs() {
    let by = |place| {
        let run = Incarnation::Connection(Uuid::from_u128(1), place);
        session(Mark::of("alice"), "alice", "runner-01", &run)
    };
    assert!(!HERE.is_before(by(HERE)));
    assert!(HERE.is_before(by(GatewayRun { run: [4, 6], ..HERE })));
    assert!(!HERE.is_before(by(GatewayRun { gateway: [1, 2, 4], run: [4, 6] })));
    let said = Incarnation::Said("1".to_owned());
    assert!(!HERE.is_before(session(Mark::of("alice"), "alice", "runner-01", &said)));
}

#[test]
fn a_heartbeat_over_another_connection_takes_over_or_is_denied() {
    let policy = Policy::default();
    let at =
        |ago: Duration| Boottime::from_nanos(NOW.since(Boottime::ZERO + ago).as_nanos() as u64);
    let follow = |unbeaten: Duration, connection, told| {
        let times = LeaseTimes { ttl: 300 * S, grace: 60 * S, unbeaten };
        super::follow(NOW, &times, &policy, connection, told)
    };
    let at_once = Following::TakesOver { unbeaten: Duration::ZERO };
    assert_eq!(follow(S, Connection::LostAt(NOW), None), at_once);
    assert_eq!(follow(S, Connection::Over, None), at_once);
    assert_eq!(follow(299 * S, Connection::Open, None), Following::Another);
    for connection in [Connection::LostAt(NOW), Connection::Over, Connection::Unknown] {
        let denied = follow(299 * S, connection, Some(Told::Denied));
        assert_eq!(denied, Following::Another, "{connection:?}");
    }
    // Elsewhere: after a heartbeat interval and a quarter of the ttl, unless it beats.
    let unknown = |unbeaten, told| follow(unbeaten, Connection::Unknown, told);
    assert_eq!(unknown(60 * S, None), Following::Unsure { wait: 75 * S });
    let told = Some(Told::Unsure { at: at(50 * S), unbeaten: 60 * S });
    assert_eq!(unknown(110 * S, told), Following::Unsure { wait: 25 * S });
    assert_eq!(unknown(109 * S, told), Following::Another);
    assert_eq!(unknown(S, told), Following::Another);
    assert_eq!(unknown(135 * S, told), Following::TakesOver { unbeaten: 135 * S });
}
