//! Masters and the sessions of a project.

use std::time::Duration;

use redis::PubSub;
use serde_json::{Value, json};
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, GoneReason, Request, SessionRecord, Subject, Terms,
    UpstreamStanding,
};
use tenure_wire::Role;

use super::super::layout::hyphenated;
use super::store::{Store, TTL, announcement, beat, claim, held, session};

pub(super) const MASTER: &str = "prism:master:default:p";
pub(super) const SESSIONS: &str = "prism:project:default:p:sessions";
const CLAIM: &str = "tenure:master:p";
const KEEP: Duration = Duration::from_secs(60);

pub(super) fn master(id: u128, by: u128, priority: i32) -> Claim {
    let mut master = claim(id, by, "master/p");
    master.terms = Terms::Master { priority };
    master
}

pub(super) fn sid(number: u128) -> String {
    hyphenated(session(number).0)
}

pub(super) fn hash_of(number: u128) -> String {
    format!("prism:session:{}", sid(number))
}

#[track_caller]
pub(super) fn announce(store: &Store, record: &SessionRecord) {
    assert_eq!(store.ask(&Request::Announce(record.clone())), Answer::Announced);
}

#[track_caller]
pub(super) fn end(store: &Store, by: u128) -> bool {
    let (tenant, project) = ("default".into(), "p".into());
    match store.ask(&Request::EndSession { session: session(by), tenant, project }) {
        Answer::Ended(was_there) => was_there,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn beat_session(store: &Store, by: u128) -> BeatAnswer {
    let beat = Beat { subject: Subject::Session(session(by)), ttl: TTL };
    store.renew_all(vec![beat]).remove(0)
}

/// The sessions of a project.
pub(super) fn names(standing: &UpstreamStanding) -> Vec<&str> {
    standing.sessions.iter().map(|name| &**name).collect()
}

pub(super) const MASTER_ROLE: BeatAnswer = BeatAnswer::Session { role: Role::Master };
pub(super) const PEER_ROLE: BeatAnswer = BeatAnswer::Session { role: Role::Peer };

/// Messages of a project, of sessions, and of losses.
pub(super) struct Ears<'a>(PubSub<'a>);

impl Ears<'_> {
    pub(super) fn new(connection: &mut redis::Connection) -> Ears<'_> {
        let mut subscription = connection.as_pubsub();
        subscription.psubscribe("prism:events:*").unwrap();
        subscription.subscribe("tenure:lost").unwrap();
        Ears(subscription)
    }

    #[track_caller]
    pub(super) fn next(&mut self) -> (String, Value) {
        let message = self.0.get_message().unwrap();
        let text: String = message.get_payload().unwrap();
        let channel = message.get_channel_name().to_owned();
        (channel, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Nothing was said but what has been heard.
    #[track_caller]
    pub(super) fn check_silent(&mut self, store: &Store) {
        store.run::<()>(&["PUBLISH", "prism:events:end", "1"]);
        assert_eq!(self.next().0, "prism:events:end");
    }
}

fn released(by: u128) -> (String, Value) {
    let payload = json!({
        "type": "master_released", "project": "p", "session": sid(by),
        "name": format!("name-{by}"), "host": format!("host-{by}"),
    });
    ("prism:events:project:default:p".to_owned(), payload)
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
fn a_refused_claim_names_the_holder_and_writes_nothing() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    announce(&store, &announcement(2, "p"));
    let a = master(1, 1, 5);
    let token = store.hold(&a);
    for b in [master(2, 2, 5), master(3, 2, -1), master(4, 1, 9)] {
        let (holder, free_in) = store.without_writing(|| store.contended(&b));
        assert_eq!((holder.claim, holder.token, &holder.owner), (a.id, token, &a.owner));
        assert!(free_in <= TTL);
        assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Unknown));
    }
    let standing = store.without_writing(|| store.inspect(&a.resource));
    assert_eq!(standing.holders[0].claim, a.id);
    assert_eq!(names(&standing), ["name-1", "name-2"]);
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
    let ended = format!("tenure:claim:{}", sid(1));
    assert_eq!(store.keys(), [ended, store.record(&a), "tenure:fence".to_owned()]);
    assert_eq!(beat_session(&store, 1), BeatAnswer::Gone(GoneReason::Unknown));
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
    assert_eq!(ears.next(), ("tenure:lost".to_owned(), Value::String(hyphenated(a.id.0))));
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
fn a_preemption_makes_no_hash_of_a_session_that_has_none() {
    let store = Store::new();
    store.hold(&master(1, 1, 0));
    store.hold(&master(2, 2, 1));
    store.release(&master(2, 2, 1));
    let keys = store.keys();
    assert!(keys.iter().all(|key| key.starts_with("tenure:")), "{keys:?}");
}

#[test]
fn a_master_that_ran_out_is_told_of_once() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    let a = master(1, 1, 0);
    store.hold(&a);
    store.expire(&a);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    assert_eq!(store.inspect(&a.resource).holders, []);
    assert_eq!(ears.next(), released(1));
    store.without_writing(|| store.inspect(&a.resource));
    // Whoever overwrites it first tells, too.
    let b = master(2, 2, 0);
    store.hold(&b);
    store.expire(&b);
    store.hold(&master(3, 3, 0));
    assert_eq!(ears.next(), released(2));
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Expired));
    store.expire(&master(3, 3, 0));
    assert!(!store.release(&master(3, 3, 0)));
    assert_eq!(ears.next(), released(3));
    assert_eq!(store.inspect(&a.resource).holders, []);
    ears.check_silent(&store);
}

#[test]
fn a_session_that_is_master_again_does_not_revive_its_former_claim() {
    let store = Store::new();
    let (a, b) = (master(1, 1, 0), master(2, 1, 0));
    store.hold(&a);
    store.expire(&a);
    let token = store.hold(&b);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    let (holder, _) = store.contended(&a);
    assert_eq!(holder.claim, b.id);
    assert!(!store.release(&a));
    assert_eq!(store.renew(&b), held(token));
    assert_eq!(store.run::<String>(&["GET", MASTER]), sid(1));
}

#[test]
fn a_master_of_a_program_of_today_counts_as_its_surface_says() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    store.run::<()>(&[
        "HSET",
        "prism:session:lola",
        "tenant_id",
        "default",
        "project_id",
        "p",
        "agent_identity",
        "Lola",
        "agent_surface",
        "claude_desktop",
        "machine_id",
        "mac-1",
        "is_master",
        "1",
        "registered_at",
        "2026-04-23T16:19:00",
    ]);
    store.run::<()>(&["EXPIRE", "prism:session:lola", "90"]);
    store.run::<()>(&["SET", MASTER, "lola", "NX", "EX", "90"]);
    store.run::<()>(&["SADD", SESSIONS, "lola"]);
    let (holder, free_in) = store.without_writing(|| store.contended(&master(1, 1, 100)));
    assert_eq!((&*holder.owner.name, &*holder.owner.host), ("Lola", "mac-1"));
    assert_eq!((holder.token, holder.since), (0, Duration::ZERO));
    assert!(free_in <= Duration::from_secs(90));
    let standing = store.without_writing(|| store.inspect(&master(1, 1, 0).resource));
    assert_eq!(names(&standing), ["Lola"]);
    assert_eq!(standing.holders, [holder]);

    let b = master(2, 2, 101);
    store.hold(&b);
    let (channel, payload) = ears.next();
    assert_eq!(channel, "prism:events:session:lola");
    assert_eq!(payload["type"], "MasterPreempted");
    assert_eq!(store.hash("prism:session:lola")["is_master"], "0");
    // It takes it back by the compare-and-set of the text; then it is preempted, not expired.
    store.run::<()>(&["SET", MASTER, "lola", "EX", "90"]);
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Preempted));
    assert_eq!(store.gone(&b), GoneReason::Preempted);
    assert!(!store.release(&b));
    assert_eq!(store.run::<String>(&["GET", MASTER]), "lola");
    ears.check_silent(&store);
    // Any other surface counts for nothing.
    store.run::<()>(&["HSET", "prism:session:lola", "agent_surface", "cli"]);
    store.hold(&master(3, 3, 1));
}

#[test]
fn a_master_that_never_expires_is_free_once_its_session_is_gone() {
    let store = Store::new();
    store.run::<()>(&["HSET", "prism:session:x", "tenant_id", "default"]);
    store.run::<()>(&["SETNX", MASTER, "x"]);
    let answer = store.claim(&master(1, 1, 0));
    let expected = tenure_core::model::ClaimAnswer::Contended {
        holder: Some(store.inspect(&master(1, 1, 0).resource).holders.remove(0)),
        free_in: None,
        limit: None,
        limit_was: None,
    };
    assert_eq!(answer, expected);
    store.run::<()>(&["DEL", "prism:session:x"]);
    store.hold(&master(1, 1, 0));
    store.check_expiry(MASTER, TTL);
}

#[test]
fn who_finds_its_own_session_there_adopts_it() {
    let store = Store::new();
    store.run::<()>(&["SET", MASTER, &sid(1), "EX", "90"]);
    let token = store.hold(&master(1, 1, 0));
    assert_eq!(store.renew(&master(1, 1, 0)), held(token));
    store.check_expiry(MASTER, TTL);
    store.run::<()>(&["DEL", CLAIM]);
    assert!(store.hold(&master(2, 1, 0)) > token);
}

#[test]
fn a_revoked_master_is_told_why_and_so_is_its_project() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    announce(&store, &announcement(1, "p"));
    let a = master(1, 1, 0);
    let token = store.hold(&a);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, Some(token + 1))), 0);
    assert_eq!(store.revoke(&a.resource, Some(token)), 1);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, None)), 0);
    assert_eq!(ears.next(), ("tenure:lost".to_owned(), Value::String(hyphenated(a.id.0))));
    assert_eq!(ears.next(), released(1));
    assert_eq!(store.hash(&hash_of(1))["is_master"], "0");
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Revoked));
    store.run::<()>(&["SET", MASTER, "lola", "EX", "90"]);
    assert_eq!(store.revoke(&a.resource, None), 1);
    let (_, payload) = ears.next();
    assert_eq!((&payload["session"], &payload["name"]), (&json!("lola"), &Value::Null));
    ears.check_silent(&store);
}

#[test]
fn masters_of_other_tenants_and_projects_do_not_meet() {
    let store = Store::new();
    for (id, of) in (1..).zip(["master/p", "master/q", "acme:master/p", "acme:master/日本"]) {
        let it = claim(id, id, of);
        let token = store.hold(&it);
        assert_eq!(store.renew(&it), held(token));
        assert_eq!(store.inspect(&it.resource).holders[0].claim, it.id);
    }
    assert_eq!(store.run::<String>(&["GET", "prism:master:acme:p"]), sid(3));
    assert!(store.run::<bool>(&["EXISTS", "tenant:acme:tenure:master:p"]));
    for (id, of) in (1..).zip(["master/p", "master/q", "acme:master/p", "acme:master/日本"]) {
        assert!(store.release(&claim(id, id, of)));
    }
}

#[test]
fn a_beat_never_shortens_a_master() {
    let store = Store::new();
    let a = master(1, 1, 0);
    let token = store.hold(&a);
    let mut other = beat(&a);
    other.ttl = Duration::from_secs(2);
    assert_eq!(store.renew_all(vec![other.clone()]), [held(token)]);
    store.check_expiry(MASTER, TTL);
    other.ttl = TTL * 2;
    assert_eq!(store.renew_all(vec![other]), [held(token)]);
    store.check_expiry(MASTER, TTL * 2);
    store.check_expiry(CLAIM, TTL * 2 + KEEP);
    store.check_expiry(&store.record(&a), TTL * 2 + KEEP);
}
