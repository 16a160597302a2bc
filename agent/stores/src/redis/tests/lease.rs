//! Leases, their grace, and the routing table.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::model::{Answer, BeatAnswer, Claim, GoneReason, Request, Terms};
use tenure_wire::{Attributes, Routes};

use super::super::layout::hyphenated;
use super::store::{Store, TTL, beat, claim, held};

const GRACE: Duration = Duration::from_secs(1000);

fn lease(id: u128, by: u128) -> Claim {
    let mut lease = claim(id, by, "lease/l");
    lease.terms = Terms::Lease { grace: GRACE, attributes: Attributes::default() };
    lease
}

fn with_address(mut lease: Claim, to: &str) -> Claim {
    if let Terms::Lease { attributes, .. } = &mut lease.terms {
        attributes.address = Some(to.to_owned());
        attributes.status = Some("warm".to_owned());
    }
    lease
}

/// As if the ttl had passed, and so much of the grace were left.
fn into_grace(store: &Store, lease: &Claim, left: Duration) {
    let left = left.as_millis();
    store.run::<()>(&["PEXPIRE", "tenure:lease:l", &left.to_string()]);
    store.run::<()>(&["PEXPIRE", &store.record(lease), &(left + 60_000).to_string()]);
}

fn routes(store: &Store, name: Option<&str>) -> Routes {
    let (tenant, name) = ("default".into(), name.map(Into::into));
    let request = Request::Routes { tenant, name, page: tenure_core::model::Page::whole() };
    match store.ask(&request) {
        Answer::Routes(routes) => routes,
        other => panic!("{other:?}"),
    }
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
        ("version", "1".to_owned()),
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
    assert_eq!(store.run::<u64>(&["GET", "tenure:routes"]), 1);
    let version: u64 = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(version, 1);
}

#[test]
fn a_refused_claim_names_the_holder_and_writes_nothing() {
    let store = Store::new();
    let a = lease(1, 1);
    let token = store.hold(&a);
    let (holder, free_in) = store.without_writing(|| store.contended(&lease(2, 2)));
    assert_eq!((holder.claim, holder.token, &holder.owner), (a.id, token, &a.owner));
    assert!(free_in > TTL && free_in <= TTL + GRACE);
    // For the same session there is no grace to wait for.
    let (_, free_in) = store.without_writing(|| store.contended(&lease(3, 1)));
    assert!(free_in <= TTL);
    assert_eq!(store.without_writing(|| store.inspect(&a.resource)).holders[0].claim, a.id);
    assert_eq!(store.renew(&lease(2, 2)), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn in_its_grace_a_lease_is_kept_for_its_session() {
    let store = Store::new();
    let a = lease(1, 1);
    let first = store.hold(&a);
    into_grace(&store, &a, GRACE / 2);
    let (holder, free_in) = store.without_writing(|| store.contended(&lease(2, 2)));
    assert_eq!(holder.claim, a.id);
    assert!(free_in <= GRACE / 2);
    let c = lease(3, 1);
    assert!(store.hold(&c) > first);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    let (holder, _) = store.contended(&a);
    assert_eq!(holder.claim, c.id);
}

#[test]
fn a_renewal_in_grace_keeps_the_token() {
    let store = Store::new();
    let a = with_address(lease(1, 1), "here");
    let token = store.hold(&a);
    into_grace(&store, &a, GRACE / 2);
    let table = routes(&store, None);
    assert_eq!((table.version, table.routes[0].status.as_str()), (2, "expiring"));
    store.without_writing(|| assert_eq!(routes(&store, None), table));
    assert_eq!(store.renew(&a), held(token));
    let table = routes(&store, None);
    assert_eq!((table.version, table.routes[0].status.as_str()), (3, "warm"));
    assert_eq!(table.routes[0].version, 3);
    store.check_expiry("tenure:lease:l", TTL + GRACE);
    store.check_expiry(&store.record(&a), TTL + GRACE + Duration::from_secs(60));
}

#[test]
fn after_its_grace_a_lease_is_anybodys() {
    let store = Store::new();
    let a = lease(1, 1);
    let first = store.hold(&a);
    store.expire(&a);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    let table = routes(&store, None);
    assert_eq!((table.version, table.routes.len()), (2, 0));
    store.without_writing(|| assert_eq!(routes(&store, None), table));
    let b = lease(2, 2);
    assert!(store.hold(&b) > first);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
}

#[test]
fn every_operation_may_be_repeated() {
    let store = Store::new();
    let a = lease(1, 1);
    let token = store.hold(&a);
    assert_eq!(store.hold(&a), token);
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(routes(&store, None).version, 1);
    assert!(store.release(&a));
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Released);
    assert_eq!(routes(&store, None).version, 2);
    let left = store.keys();
    assert_eq!(left, [&store.record(&a), "tenure:fence", "tenure:routes"].map(str::to_owned));
}

#[test]
fn a_release_ends_the_grace() {
    let store = Store::new();
    let a = lease(1, 1);
    store.hold(&a);
    into_grace(&store, &a, GRACE / 2);
    assert!(store.release(&a));
    store.hold(&lease(2, 2));
}

#[test]
fn what_is_taken_before_its_time_is_a_conflict() {
    let store = Store::new();
    let a = lease(1, 1);
    store.hold(&a);
    store.run::<()>(&["DEL", "tenure:lease:l"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Conflict));
    assert_eq!(store.gone(&a), GoneReason::Conflict);
    store.run::<()>(&["FLUSHALL"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn a_lease_outlives_the_loss_of_its_record() {
    let store = Store::new();
    let a = lease(1, 1);
    let token = store.hold(&a);
    store.run::<()>(&["DEL", &store.record(&a)]);
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(store.hold(&a), token);
}

#[test]
fn a_beat_never_shortens_a_lease() {
    let store = Store::new();
    let a = lease(1, 1);
    let token = store.hold(&a);
    let mut shorter = beat(&a);
    shorter.ttl = Duration::from_secs(2);
    assert_eq!(store.renew_all(vec![shorter]), [held(token)]);
    store.check_expiry("tenure:lease:l", TTL + GRACE);
    let mut longer = beat(&a);
    longer.ttl = TTL * 2;
    assert_eq!(store.renew_all(vec![longer]), [held(token)]);
    store.check_expiry("tenure:lease:l", TTL * 2 + GRACE);
}

#[test]
fn every_change_is_a_version_of_the_routing_table() {
    let store = Store::new();
    assert_eq!(routes(&store, None), Routes::default());
    let a = with_address(lease(1, 1), "10.0.0.7:8982");
    let token = store.hold(&a);
    let mut other = claim(2, 2, "lease/a:b/日本");
    if let Terms::Lease { attributes, .. } = &mut other.terms {
        attributes.partition = Some(7);
        attributes.proxy_id = Some("proxy".to_owned());
    }
    store.hold(&other);
    let table = routes(&store, None);
    assert_eq!(table.version, 2);
    let names: Vec<_> = table.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["a:b/日本", "l"]);
    assert_eq!((table.routes[0].partition, table.routes[0].proxy_id.as_str()), (7, "proxy"));
    assert_eq!(table.routes[0].status, "active");
    let line = &table.routes[1];
    assert_eq!((line.host.as_str(), line.holder.as_str()), ("host-1", "name-1"));
    assert_eq!((line.address.as_str(), line.partition), ("10.0.0.7:8982", 254));
    assert_eq!((line.token, line.version), (token, 1));
    // A claim with other attributes changes the line, and one with the same does not.
    assert_eq!(store.hold(&a), token);
    assert_eq!(routes(&store, Some("l")).version, 2);
    assert_eq!(store.hold(&with_address(a.clone(), "elsewhere")), token);
    let table = routes(&store, Some("l"));
    assert_eq!((table.version, table.routes.len()), (3, 1));
    assert_eq!((table.routes[0].address.as_str(), table.routes[0].version), ("elsewhere", 3));
    assert_eq!(routes(&store, Some("nothing")).routes, []);
    store.release(&a);
    store.release(&other);
    assert_eq!(routes(&store, None), Routes { version: 5, ..Routes::default() });
}

#[test]
fn other_tenants_are_not_listed() {
    let store = Store::new();
    store.hold(&claim(1, 1, "acme:lease/l"));
    assert_eq!(routes(&store, None), Routes::default());
    assert!(store.run::<bool>(&["EXISTS", "tenant:acme:tenure:lease:l"]));
    let request = Request::Routes {
        tenant: "acme".into(),
        name: None,
        page: tenure_core::model::Page::whole(),
    };
    let Answer::Routes(table) = store.ask(&request) else { panic!() };
    assert_eq!((table.version, table.routes.len()), (1, 1));
    assert_eq!(store.renew(&claim(1, 1, "lease/l")), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn a_long_table_is_read_to_its_end() {
    let store = Store::new();
    for id in 1..=1500 {
        store.hold(&claim(id, 1, &format!("lease/{id:04}")));
    }
    let table = store.without_writing(|| routes(&store, None));
    let names: Vec<_> = table.routes.into_iter().map(|route| route.name).collect();
    assert_eq!(names, (1..=1500).map(|id| format!("{id:04}")).collect::<Vec<_>>());
    assert_eq!(table.version, 1500);
}

#[test]
fn a_lease_of_another_program_is_a_holder_like_any_other() {
    let store = Store::new();
    store.run::<()>(&["HSET", "tenure:lease:l", "owner", "runner-01", "address", "there:1"]);
    store.run::<()>(&["PEXPIRE", "tenure:lease:l", "60000"]);
    let (holder, free_in) = store.without_writing(|| store.contended(&lease(1, 1)));
    assert_eq!((&*holder.owner.name, &*holder.owner.host), ("runner-01", "unknown"));
    assert!(free_in <= Duration::from_secs(60));
    assert_eq!(routes(&store, Some("l")).routes[0].address, "there:1");
    assert_eq!(store.revoke(&lease(1, 1).resource, None), 1);
    store.hold(&lease(1, 1));
}

#[test]
fn a_revoked_lease_is_told_why() {
    let store = Store::new();
    let mut pushed = store.connect();
    let mut subscription = pushed.as_pubsub();
    subscription.subscribe("tenure:lost").unwrap();
    let a = lease(1, 1);
    let token = store.hold(&a);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, Some(token - 1))), 0);
    into_grace(&store, &a, GRACE / 2);
    assert_eq!(store.revoke(&a.resource, Some(token)), 1);
    let lost: String = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(lost, hyphenated(a.id.0));
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Revoked));
    assert_eq!(routes(&store, None).routes, []);
}
