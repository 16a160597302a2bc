use tenure_core::model::{Beat, GoneReason, GrantHint};
use uuid::Uuid;

use super::looks::{VERIFY_LATER, VERIFY_PER_CALL_MAX};
use super::*;
use crate::relay::Carried;
use crate::remote::Topic;

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
fn a_change_of_a_held_key_is_looked_at_by_reading_it() {
    let resource = leader("cleanup");
    let (mut own, id) = holding(&resource);
    own.interests.restart(true);
    own.changed(NOW, &resource);
    let watched = [Topic::Held(id, resource.clone())];
    assert_eq!(own.interests.take(), watched, "it is watched anew");
    assert_eq!(own.poll_timeout(), own.sweep_at, "nothing else is asked");
    let mut reports = VecDeque::new();
    own.seen_lost(NOW, ClaimId(Uuid::from_u128(2)), &resource, &mut reports);
    assert!(reports.is_empty(), "another one is held by now");
    own.seen_lost(NOW, id, &resource, &mut reports);
    let lost = [Change::Lost { claim: id, resource: resource.clone() }, Change::Resource(resource)];
    assert_eq!(reports, lost.map(Report::Change));
}

#[test]
fn a_held_key_is_verified_where_nothing_tells_of_its_changes() {
    let resource = leader("cleanup");
    let (mut own, id) = holding(&resource);
    own.changed(NOW, &resource);
    assert!(own.take_suspects(NOW).is_empty(), "that was most likely a beat");
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
    for _ in 1..10 {
        now = now + Duration::from_millis(100);
        own.changed(now, &gpu);
        assert!(own.take_suspects(now).is_empty());
    }
    let again = NOW + Duration::from_secs(5) + VERIFY_LATER;
    assert_eq!(own.poll_timeout(), Some(again));
    assert_eq!(own.take_suspects(again), [(id, gpu)]);
}

#[test]
fn own_beats_of_a_semaphore_have_its_holders_counted_and_looked_at_if_there_are_others() {
    let gpu = semaphore("gpu");
    let (mut own, id) = holding(&gpu);
    own.interests.restart(true);
    let counts = [Topic::Held(id, gpu.clone())];
    let mut now = NOW;
    let beat = |own: &mut OwnClaims, now| {
        own.handle_request(now, &renewal(id, &gpu));
        own.changed(now, &gpu);
        own.changed(now, &gpu);
        let topics = own.interests.take();
        own.interests.taken_up(&topics, true);
        assert_eq!(topics, counts, "once");
    };
    for holders in [2, 2, 1] {
        now = now + Duration::from_secs(10);
        beat(&mut own, now);
        let is_news = own.held[&gpu].holders != Some(holders);
        own.counted(now, &gpu, holders);
        let taken = own.take_suspects(now);
        assert_eq!(taken.len(), usize::from(is_news));
        own.verified();
    }
    let soon = now + Duration::from_millis(1);
    own.handle_request(soon, &renewal(id, &gpu));
    own.handle_answer(soon, &renewal(id, &gpu), &held());
    own.interests.changed(&gpu);
    own.changed(soon, &gpu);
    assert_eq!(own.interests.take(), [], "it was counted just now");
    let later = own.suspected.first().unwrap().0;
    assert!(own.take_suspects(later).is_empty());
    assert_eq!(own.interests.take(), counts);
    own.interests.taken_up(&counts, true);
    own.changed(later, &gpu);
    assert_eq!(
        own.take_suspects(later + VERIFY_LATER),
        [(id, gpu.clone())],
        "somebody else did it"
    );
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
        assert_eq!(own.granted(id, false), Some(gpu.clone()));
        assert_eq!(own.granted(id, false), None);
        assert_eq!(own.granted(id, true), Some(gpu.clone()), "until when it holds is news");
    }
    own.handle_answer(NOW, &request, &held());
    assert_eq!(own.granted(id, true), None, "it is held");
}

#[test]
fn a_hint_while_a_claim_is_asked_about_has_it_asked_about_once_more() {
    let resource = leader("cleanup");
    let id = ClaimId(Uuid::from_u128(1));
    let told =
        [Report::Change(Change::Granted { claim: id, resource: resource.clone(), grant: None })];
    let waits = Ok(Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]));
    let mut own = OwnClaims::default();
    let request = renewal(id, &resource);
    let answered = |own: &mut OwnClaims, answer| {
        let mut reports = VecDeque::new();
        own.handle_answer(NOW, &request, answer);
        own.tell_again(NOW, &mut reports);
        reports
    };
    let hinted = |own: &mut OwnClaims, grant| {
        let mut reports = VecDeque::new();
        own.handle_hint(NOW, Hint::Granted(id, grant), &mut reports);
        reports
    };
    own.handle_request(NOW, &request);
    assert_eq!(answered(&mut own, &waits), []);
    // The first says too much; the grant comes after the store has answered, and before the answer is here.
    assert_eq!(hinted(&mut own, None), told);
    for _ in 0..3 {
        assert_eq!(hinted(&mut own, None), []);
    }
    assert_eq!(answered(&mut own, &waits), told, "the answer may be older than the grant");
    assert_eq!(answered(&mut own, &waits), [], "once");
    // An answer that fails says nothing, and one that it is held all.
    assert_eq!(hinted(&mut own, None), told);
    assert_eq!(hinted(&mut own, None), []);
    own.handle_answer(NOW, &request, &Err(Failure::Unknown("lost".to_owned())));
    assert_eq!(answered(&mut own, &waits), told);
    assert_eq!(hinted(&mut own, None), []);
    assert_eq!(answered(&mut own, &held()), []);
}

#[test]
fn a_grant_and_the_change_of_its_key_are_told_together() {
    let resource = leader("cleanup");
    let mut own = OwnClaims::default();
    let id = ClaimId(Uuid::from_u128(1));
    let request = renewal(id, &resource);
    own.handle_request(NOW, &request);
    let waits = Ok(Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]));
    own.handle_answer(NOW, &request, &waits);
    let grant = GrantHint { token: 7, limit: None, confirm_by: NOW + TTL };
    let mut reports = VecDeque::new();
    own.handle_hint(NOW, Hint::Resource(resource.clone()), &mut reports);
    own.handle_hint(NOW, Hint::Granted(id, Some(grant.clone())), &mut reports);
    own.handle_hint(NOW, Hint::Granted(id, None), &mut reports);
    let granted = Change::Granted { claim: id, resource: resource.clone(), grant: Some(grant) };
    let told = [granted, Change::Resource(resource)].map(Report::Change);
    assert_eq!(reports, told);
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
    let [waits, is_next] = [2, 1]
        .map(|position| Ok(Answer::Renew(vec![BeatAnswer::Waiting { position, limit: None }])));
    let gone = Ok(Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Expired)]));
    for answer in [&waits, &is_next, &is_next, &held(), &held(), &gone, &gone] {
        own.handle_request(NOW, &request);
        own.handle_answer(NOW, &request, answer);
    }
    let steps: Vec<_> = own.take_steps().into_iter().map(|(_, step)| step).collect();
    use ClaimStep::{Forgotten, IsNext, IsNextNoMore, Tracked};
    assert_eq!(steps, [Tracked, IsNext, IsNextNoMore, Forgotten, Tracked, Forgotten]);
    assert_eq!(own.take_steps(), []);
}

#[test]
fn a_carried_grant_is_kept_from_when_its_claim_waited() {
    let resource = leader("cleanup");
    let (id, kept) = (ClaimId(Uuid::from_u128(1)), Duration::from_secs(5));
    let carried = Carried { token: 7, limit: None, kept };
    let confirm_by = |own: &OwnClaims| own.kept_until(id, carried.clone()).map(|it| it.confirm_by);
    let waits = Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]);
    let (mut own, beat) = (OwnClaims::default(), renewal(id, &resource));
    own.handle_request(NOW, &beat);
    assert_eq!(confirm_by(&own), None, "it is not known to wait");
    let Ok(held) = held() else { unreachable!("it is an answer") };
    own.found_waiting(NOW, &beat, &held);
    assert_eq!(confirm_by(&own), None, "it was granted before");
    let earlier = NOW.before(Duration::from_secs(2));
    for sent_at in [earlier, NOW, earlier] {
        own.found_waiting(sent_at, &beat, &waits);
    }
    let until = confirm_by(&own).unwrap();
    assert!(until > NOW + kept.mul_f64(0.99), "the latest beat counts");
    assert!(until < NOW + kept, "the store's clock may be faster");
}
