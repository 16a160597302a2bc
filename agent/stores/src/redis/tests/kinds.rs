//! Claims of each kind, and a program that listens.

use std::time::Duration;

use redis::PubSub;
use serde_json::{Value, json};
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, Request, SessionRecord, Subject, Terms,
    UpstreamStanding,
};
use tenure_wire::{Attributes, Role, Routes};

use super::super::exchange::{CareOf, Cared, care, cared};
use super::super::layout::{hyphenated, member};
use super::store::{Store, TTL, claim, session};

pub(super) const MASTER: &str = "prism:master:default:p";
pub(super) const SESSIONS: &str = "prism:project:default:p:sessions";
pub(super) const CLAIM: &str = "tenure:master:p";
pub(super) const MAIN: &str = "adv-sem:semaphore_main:g";
pub(super) const LONGEST: &str = "adv-sem:semaphore_ttl:g";
pub(super) const MAX: &str = "adv-sem:semaphore_max:g";
pub(super) const WAITING: &str = "adv-sem:semaphore_waiting:g";
pub(super) const HEARTBEAT: &str = "adv-sem:semaphore_waiting_heartbeat:g";
pub(super) const GRACE: Duration = Duration::from_secs(1000);
/// How long records outlive what they are about.
pub(super) const KEEP: Duration = Duration::from_secs(60);
pub(super) const MASTER_ROLE: BeatAnswer = BeatAnswer::Session { role: Role::Master };
pub(super) const PEER_ROLE: BeatAnswer = BeatAnswer::Session { role: Role::Peer };

pub(super) fn lease(id: u128, by: u128) -> Claim {
    let mut lease = claim(id, by, "lease/l");
    lease.terms = Terms::Lease { grace: GRACE, attributes: Attributes::default(), take_over: None };
    lease
}

pub(super) fn with_address(mut lease: Claim, to: &str) -> Claim {
    if let Terms::Lease { attributes, .. } = &mut lease.terms {
        attributes.address = Some(to.to_owned());
        attributes.status = Some("warm".to_owned());
    }
    lease
}

pub(super) fn routes(store: &Store, name: Option<&str>) -> Routes {
    let (tenant, name) = ("default".into(), name.map(Into::into));
    let request = Request::Routes { tenant, name, page: tenure_core::model::Page::whole() };
    match store.ask(&request) {
        Answer::Routes(routes) => routes,
        other => panic!("{other:?}"),
    }
}

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

/// A session of project p.
pub(super) fn announced(by: u128) -> Subject {
    Subject::Session { session: session(by), master: master(1, by, 0).resource }
}

#[track_caller]
pub(super) fn beat_session(store: &Store, by: u128) -> BeatAnswer {
    let beat = Beat { subject: announced(by), ttl: TTL };
    store.renew_all(vec![beat]).remove(0)
}

/// The sessions of a project.
pub(super) fn names(standing: &UpstreamStanding) -> Vec<&str> {
    standing.sessions.iter().map(|name| &**name).collect()
}

/// The channel of the agent that asks.
pub(super) const AGENT_CHANNEL: &str = "tenure:agent:";

/// That a claim was lost, as its agent is told.
pub(super) fn lost(claim: &Claim) -> (String, Value) {
    (AGENT_CHANNEL.to_owned(), Value::String(format!("{} lost", hyphenated(claim.id.0))))
}

/// Messages of a project, of sessions, and to an agent.
pub(super) struct Ears<'a>(PubSub<'a>);

impl Ears<'_> {
    pub(super) fn new(connection: &mut redis::Connection) -> Ears<'_> {
        let mut subscription = connection.as_pubsub();
        subscription.psubscribe("prism:events:*").unwrap();
        subscription.subscribe(AGENT_CHANNEL).unwrap();
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

pub(super) fn released(by: u128) -> (String, Value) {
    let payload = json!({
        "type": "master_released", "project": "p", "session": sid(by),
        "name": format!("name-{by}"), "host": format!("host-{by}"),
    });
    ("prism:events:project:default:p".to_owned(), payload)
}

pub(super) fn permit(id: u128, limit: u32) -> Claim {
    permit_of("g", id, limit)
}

pub(super) fn permit_of(name: &str, id: u128, limit: u32) -> Claim {
    let mut claim = claim(id, id, &format!("semaphore/{name}"));
    claim.terms = Terms::Semaphore { limit, keeps: false, only_own: false };
    claim
}

pub(super) fn trying(mut claim: Claim) -> Claim {
    claim.enqueue = false;
    claim
}

pub(super) fn held_of(token: u64, limit: u32) -> BeatAnswer {
    BeatAnswer::Held { token, limit: Some(limit) }
}

pub(super) fn waiting(position: u64, limit: u32) -> BeatAnswer {
    BeatAnswer::Waiting { position, limit: Some(limit) }
}

#[track_caller]
pub(super) fn check_waits(store: &Store, claim: &Claim, position: u64, limit: u32) {
    let expected = ClaimAnswer::Waiting { position, limit: Some(limit), limit_was: None };
    assert_eq!(store.claim(claim), expected);
}

pub(super) fn score(store: &Store, key: &str, claim: &Claim) -> Option<f64> {
    store.run(&["ZSCORE", key, &member(claim.id)])
}

pub(super) fn look_after(store: &Store, shared: bool) -> Cared {
    let of = CareOf { tenant: "default".into(), name: "g".into(), shared };
    let call = care(&store.layout, &[of], store.floor.get());
    cared(store.call(&call)).unwrap()[0]
}

/// The numbers of holders and waiters.
pub(super) fn ids(standing: &UpstreamStanding) -> (Vec<u128>, Vec<u128>) {
    let number = |entry: &tenure_core::model::StandingEntry| entry.claim.0.as_u128() >> 64;
    (standing.holders.iter().map(number).collect(), standing.waiters.iter().map(number).collect())
}
