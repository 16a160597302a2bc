//! Scripts, each call of which is a process of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_wire::{Code, Kind, LostEvent};
use uuid::Uuid;

use super::bench::{ALICE, Bench, MALLORY};
use crate::keeper::{Refusal, Reply, Request};
use crate::model::{Resource, Revocation, SessionId};

fn beat(bench: &mut Bench, uid: u32, session: Uuid, hold: Uuid) -> Result<u64, Refusal> {
    let ticket = bench.ask(uid, Request::BeatHold { session, hold });
    match bench.reply(ticket) {
        Some(Ok(Reply::HoldBeaten(beaten))) => Ok(beaten.valid_ms),
        Some(Err(refusal)) => Err(refusal),
        other => panic!("no answer to a beat: {other:?}"),
    }
}

#[test]
fn a_first_stream_may_be_opened_by_another_process_than_has_registered() {
    for linger in [1_000, 60_000] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "connection", "linger_ms": linger}));
        bench.keeper.handle_exit(bench.now, SessionId(session), Some(0));
        bench.pass(Duration::from_millis(linger.max(3_000) - 100));
        assert_eq!(bench.keeper.count_sessions(), 1);
        if linger == 60_000 {
            let stream = bench.listen(session, None);
            bench.pass(Duration::from_secs(300));
            assert_eq!(bench.keeper.count_sessions(), 1);
            bench.close(stream);
        } else {
            bench.pass(Duration::from_millis(200));
        }
        assert_eq!(bench.keeper.count_sessions(), 0, "linger_ms is {linger}");
    }
}

#[test]
fn a_beat_says_for_how_long_its_hold_is_valid() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 30_000}));
    let other = bench.register(json!({"tether": "process"}));
    let fields = json!({"kind": "leader", "name": "x", "ttl_ms": 8_000});
    let hold = bench.hold(session, fields);
    let first = beat(&mut bench, ALICE, session, hold).unwrap();
    assert!(first > 4_000 && first < 8_000, "{first}");
    for (uid, session, hold) in [
        (ALICE, other, hold),
        (MALLORY, session, hold),
        (ALICE, session, Uuid::nil()),
        (ALICE, Uuid::nil(), hold),
    ] {
        assert!(beat(&mut bench, uid, session, hold).is_err());
    }
    // A beat with a hold is a sign of life like any other.
    for _ in 0..4 {
        bench.pass(Duration::from_secs(20));
        assert!(beat(&mut bench, ALICE, session, hold).unwrap() > 0);
    }
    let waiting = bench.acquire(other, json!({"kind": "leader", "name": "x", "wait": "queue"}));
    let Some(Ok(Reply::Waiting(waiting))) = bench.reply(waiting) else { panic!("not queued") };
    assert_eq!(beat(&mut bench, ALICE, other, waiting.hold), Ok(0));
}

#[test]
fn a_beat_is_refused_once_its_hold_is_lost() {
    let mut bench = Bench::new();
    let session = bench.register(json!({}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let (tenant, name) = ("default".into(), "x".into());
    let resource = Resource { tenant, kind: Kind::Leader, name };
    let ticket = bench.ask(0, Request::Revoke { resource, token: None, revocation: None });
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Revoked(_)))));
    assert_eq!(beat(&mut bench, ALICE, session, hold).unwrap_err().code(), Code::HoldLost);
    // The session goes on, and is told.
    let lost = lost(&mut bench, Request::Beat(session));
    assert_eq!(lost.iter().map(|event| event.of.hold).collect::<Vec<_>>(), [hold]);
    let ticket = bench.ask(ALICE, Request::Beat(session));
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Beaten))));
}

fn lost(bench: &mut Bench, beat: Request) -> Vec<LostEvent> {
    let ticket = bench.ask(ALICE, beat);
    match bench.reply(ticket) {
        Some(Ok(Reply::HoldBeaten(beaten))) => beaten.lost,
        Some(Ok(Reply::Beaten)) => Vec::new(),
        other => panic!("no answer to a beat: {other:?}"),
    }
}

fn revoke(bench: &mut Bench, name: &str) {
    let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: name.into() };
    let revocation = Revocation { by: "root".into(), reason: Some("upgrade".into()), for_ms: 0 };
    let revocation = Some(Arc::new(revocation));
    let ticket = bench.ask(0, Request::Revoke { resource, token: None, revocation });
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Revoked(_)))));
}

#[test]
fn beats_tell_each_loss_of_their_own_session_once_with_its_reason() {
    let mut bench = Bench::new();
    let [session, other] = [(); 2].map(|()| bench.register(json!({"keepalive_ms": 600_000})));
    let of = |name: &str| json!({"kind": "leader", "name": name});
    let first = bench.hold(session, of("first"));
    let second = bench.hold(session, of("second"));
    let kept = bench.hold(session, of("kept"));
    let of_other = bench.hold(other, of("other"));
    for name in ["first", "second", "other"] {
        revoke(&mut bench, name);
    }
    // A refused beat tells nothing, and takes nothing away.
    assert!(beat(&mut bench, ALICE, session, first).is_err());
    let told = lost(&mut bench, Request::BeatHold { session, hold: kept });
    let told: Vec<_> = told
        .iter()
        .map(|LostEvent { of, token, reason, by, detail }| {
            assert!(*token > 0);
            let words = (reason.as_str(), by.as_deref(), detail.as_deref());
            assert_eq!(words, ("revoked", Some("root"), Some("upgrade")));
            (of.hold, of.name.as_str())
        })
        .collect();
    assert_eq!(told, [(first, "first"), (second, "second")]);
    assert!(lost(&mut bench, Request::BeatHold { session, hold: kept }).is_empty());
    assert!(lost(&mut bench, Request::Beat(session)).is_empty());
    let told = lost(&mut bench, Request::Beat(other));
    assert_eq!(told.iter().map(|event| event.of.hold).collect::<Vec<_>>(), [of_other]);
}

#[test]
fn untold_losses_are_bounded_and_go_with_their_session() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 600_000}));
    let mut last = Uuid::nil();
    for _ in 0..70 {
        last = bench.hold(session, json!({"kind": "leader", "name": "x"}));
        revoke(&mut bench, "x");
    }
    let bytes = |bench: &Bench| {
        let sizes = bench.keeper.sizes();
        sizes.into_iter().find(|(name, _)| *name == "bytes of events").map(|(_, bytes)| bytes)
    };
    assert!(bytes(&bench) > Some(0));
    let ticket = bench.ask(ALICE, Request::Beat(session));
    let Some(Ok(Reply::HoldBeaten(beaten))) = bench.reply(ticket) else { panic!("no losses") };
    assert_eq!((beaten.lost.len(), beaten.lost_more), (64, 6));
    assert_eq!(beaten.lost.last().map(|event| event.of.hold), Some(last));
    assert_eq!(bytes(&bench), Some(0));
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    revoke(&mut bench, "x");
    bench.pass(Duration::from_secs(601));
    assert_eq!((bench.keeper.count_sessions(), bytes(&bench)), (0, Some(0)));
}
