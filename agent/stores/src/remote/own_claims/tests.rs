use tenure_core::model::{Beat, GoneReason};
use uuid::Uuid;

use super::*;

const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);
const TTL: Duration = Duration::from_secs(30);

fn leader(name: &str) -> Resource {
    Resource { tenant: "default".into(), kind: Kind::Leader, name: name.into() }
}

fn renewal(id: ClaimId, resource: &Resource) -> Request {
    let subject = Subject::Claim { claim: id, resource: resource.clone() };
    Request::Renew(vec![Beat { subject, ttl: TTL }])
}

fn held() -> Result<Answer, Failure> {
    Ok(Answer::Renew(vec![BeatAnswer::Held { token: 7, limit: None }]))
}

fn semaphore(name: &str) -> Resource {
    Resource { kind: Kind::Semaphore, ..leader(name) }
}

fn holding(resource: &Resource) -> (OwnClaims, ClaimId) {
    let mut own = OwnClaims::default();
    let id = ClaimId(Uuid::from_u128(1));
    let request = renewal(id, resource);
    own.handle_request(NOW, &request);
    own.handle_answer(NOW, &request, &held());
    (own, id)
}

#[test]
fn a_change_of_a_held_key_is_looked_at_at_once_unless_it_was_most_likely_a_beat() {
    let resource = leader("cleanup");
    let (mut own, id) = holding(&resource);
    own.changed(NOW, &resource);
    assert!(own.take_suspects(NOW).is_empty());
    let later = NOW + Duration::from_secs(1);
    own.changed(later, &resource);
    assert_eq!(own.take_suspects(later), [(id, resource.clone())]);
    own.changed(later, &resource);
    assert!(own.take_suspects(later).is_empty(), "one call at a time");
    own.verified();
    let rested = own.poll_timeout().unwrap();
    assert_eq!(own.take_suspects(rested), [(id, resource)]);
}

#[test]
fn permits_are_looked_at_at_once_but_not_at_every_beat_of_others() {
    let gpu = semaphore("gpu");
    let (mut own, id) = holding(&gpu);
    let mut now = NOW + Duration::from_secs(5);
    own.changed(now, &gpu);
    assert_eq!(own.take_suspects(now), [(id, gpu.clone())]);
    own.verified();
    for _ in 0..10 {
        now = now + Duration::from_millis(100);
        own.changed(now, &gpu);
        assert!(own.take_suspects(now).is_empty());
    }
    let again = NOW + Duration::from_secs(5) + VERIFY_LATER;
    assert_eq!(own.poll_timeout(), Some(again));
    assert_eq!(own.take_suspects(again), [(id, gpu)]);
}

#[test]
fn many_permits_are_looked_at_in_small_calls_with_rests() {
    const HOLDS: usize = VERIFY_PER_CALL_MAX * 2 + 1;
    let gpu = semaphore("gpu");
    let (mut own, _) = holding(&gpu);
    for id in 2..=HOLDS {
        let request = renewal(ClaimId(Uuid::from_u128(id as u128)), &gpu);
        own.handle_request(NOW, &request);
        own.handle_answer(NOW, &request, &held());
    }
    let mut now = NOW + Duration::from_secs(5);
    own.changed(now, &gpu);
    let mut seen = Vec::new();
    for calls in 0..3 {
        let taken = own.take_suspects(now);
        assert_eq!(taken.len(), if calls < 2 { VERIFY_PER_CALL_MAX } else { 1 });
        seen.extend(taken);
        own.verified();
        let rested = own.rest_until;
        assert!(own.take_suspects(now).is_empty() && rested > now, "it rests");
        now = rested;
    }
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), own.suspected.len()), (HOLDS, 0));
}

#[test]
fn a_grant_is_hinted_once_until_it_was_asked_about() {
    let gpu = semaphore("gpu");
    let mut own = OwnClaims::default();
    let id = ClaimId(Uuid::from_u128(1));
    let request = renewal(id, &gpu);
    own.handle_request(NOW, &request);
    let waits = Ok(Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]));
    for _ in 0..2 {
        own.handle_answer(NOW, &request, &waits);
        assert_eq!(own.granted(id), Some(gpu.clone()));
        assert_eq!(own.granted(id), None);
    }
    own.handle_answer(NOW, &request, &held());
    assert_eq!(own.granted(id), None, "it is held");
}

#[test]
fn what_was_released_stays_forgotten_when_an_earlier_beat_is_answered() {
    let resource = leader("cleanup");
    let (mut own, id) = holding(&resource);
    let beat = renewal(id, &resource);
    own.handle_request(NOW, &beat);
    let release = Request::Release { claim: id, resource: resource.clone() };
    own.handle_request(NOW, &release);
    own.handle_answer(NOW, &beat, &held());
    assert_eq!((own.claims.len(), own.hold_of(&resource)), (0, None));
}

#[test]
fn claims_that_nobody_speaks_of_are_forgotten() {
    let (mut own, _) = holding(&leader("cleanup"));
    let first = own.poll_timeout().unwrap();
    own.sweep(first);
    assert_eq!(own.claims.len(), 1);
    let late = first + TTL * FORGET_AFTER_TTLS;
    own.sweep(late);
    assert_eq!((own.claims.len(), own.held.len(), own.poll_timeout()), (0, 0, None));
}

#[test]
fn a_lost_hold_is_forgotten() {
    let resource = leader("cleanup");
    let (mut own, id) = holding(&resource);
    let gone = Ok(Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Preempted)]));
    own.handle_answer(NOW, &renewal(id, &resource), &gone);
    assert_eq!((own.claims.len(), own.hold_of(&resource)), (0, None));
}

#[test]
fn each_step_of_a_claim_is_told_once() {
    let gpu = semaphore("gpu");
    let mut own = OwnClaims::default();
    let request = renewal(ClaimId(Uuid::from_u128(1)), &gpu);
    let waits = Ok(Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]));
    let gone = Ok(Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Expired)]));
    for answer in [&waits, &waits, &held(), &held(), &gone, &gone] {
        own.handle_request(NOW, &request);
        own.handle_answer(NOW, &request, answer);
    }
    let steps: Vec<_> = own.take_steps().into_iter().map(|(_, step)| step).collect();
    use ClaimStep::{Forgotten, Tracked, Waits, WaitsNoMore};
    assert_eq!(steps, [Tracked, Waits, WaitsNoMore, Forgotten, Tracked, Forgotten]);
    assert_eq!(own.take_steps(), []);
}
