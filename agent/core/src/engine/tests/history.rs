//! The past of each resource.

use std::time::Duration;

use tenure_wire::{Happened, Kind};
use uuid::Uuid;

use super::super::{CHANGES_MAX, Engine, EngineSettings, TokenRange};
use crate::model::{
    Answer, ClaimId, Ending, HISTORY_KEPT, HISTORY_MAX, HistoryEntry, Holder, Owner, Request,
    Resource, SessionId,
};
use crate::time::Boottime;

const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);

fn resource(number: u64) -> Resource {
    Resource { tenant: "t".into(), kind: Kind::Leader, name: number.to_string().into() }
}

fn change(of: u64, token: u64, ago: Duration) -> HistoryEntry {
    let session = SessionId(Uuid::from_u128(1));
    HistoryEntry {
        resource: resource(of),
        claim: ClaimId(Uuid::from_u128(u128::from(token))),
        owner: Owner { session, host: "here".into(), name: "program".into() },
        token,
        what: Happened::Granted,
        holder: Holder::default(),
        end: Ending::default(),
        held: Duration::ZERO,
        ago,
    }
}

fn engine() -> Engine {
    Engine::new(EngineSettings::default(), TokenRange { first: 1, last: 2 })
}

fn record(engine: &mut Engine, now: Boottime, changes: Vec<HistoryEntry>) {
    assert_eq!(engine.handle(now, Request::Record(changes)), Answer::Recorded);
    while engine.poll_effect().is_some() {}
}

fn tokens(engine: &Engine, now: Boottime, of: u64) -> Vec<u64> {
    engine.history(now, &resource(of)).iter().map(|change| change.token).collect()
}

#[test]
fn the_newest_comes_first_whenever_it_was_told_and_once_however_often() {
    let mut engine = engine();
    let secs = Duration::from_secs;
    record(
        &mut engine,
        NOW,
        vec![change(1, 2, secs(1)), change(1, 1, secs(2)), change(2, 9, secs(0))],
    );
    record(&mut engine, NOW + secs(60), vec![change(1, 2, secs(61)), change(1, 3, secs(0))]);
    assert_eq!(tokens(&engine, NOW + secs(60), 1), [3, 2, 1]);
    let told = engine.history(NOW + secs(60), &resource(1));
    assert_eq!(told[1].ago, secs(61), "it happened when it was told first");
}

#[test]
fn a_resource_keeps_its_newest_and_all_of_them_are_bounded() {
    let mut engine = engine();
    let most = HISTORY_MAX as u64;
    for token in 0..most + 7 {
        record(&mut engine, NOW, vec![change(1, token, Duration::from_millis(1000 - token))]);
    }
    let newest: Vec<u64> = (7..most + 7).rev().collect();
    assert_eq!(tokens(&engine, NOW, 1), newest);
    // A change that is older than all that are kept has no place.
    record(&mut engine, NOW, vec![change(1, 1000, Duration::from_secs(2))]);
    assert_eq!(tokens(&engine, NOW, 1), newest);
    for token in 0..CHANGES_MAX as u64 {
        record(&mut engine, NOW, vec![change(2 + token, token, Duration::ZERO)]);
    }
    assert!(engine.history(NOW, &resource(1)).is_empty(), "the oldest made room");
    assert_eq!(engine.freeze().changes.len(), CHANGES_MAX);
}

#[test]
fn a_change_is_forgotten_in_time_and_outlives_a_restart() {
    let mut engine = engine();
    record(&mut engine, NOW, vec![change(1, 1, Duration::ZERO)]);
    let image = engine.freeze();
    let mut twin = Engine::thaw(image.clone());
    assert_eq!(twin.freeze(), image);
    assert_eq!(twin.history(NOW, &resource(1)), engine.history(NOW, &resource(1)));
    let last = NOW + (HISTORY_KEPT - Duration::from_nanos(1));
    assert_eq!(tokens(&twin, last, 1), [1]);
    let later = NOW + HISTORY_KEPT;
    assert!(twin.history(later, &resource(1)).is_empty());
    record(&mut twin, later, vec![change(2, 2, Duration::ZERO)]);
    assert_eq!(twin.freeze().changes.len(), 1, "its row is gone");
}
