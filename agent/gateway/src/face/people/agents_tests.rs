//! The table of agents.

use tenure_core::model::{BeatAnswer, GoneReason, Resource, SHOWN_TEXT_MAX};
use tenure_wire::Kind;

use super::*;

const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);
const TTL: Duration = Duration::from_secs(30);

fn beat(number: u128) -> Beat {
    let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
    let claim = ClaimId(Uuid::from_u128(number));
    Beat { subject: Subject::Claim { claim, resource }, ttl: TTL }
}

#[test]
fn beats_tell_what_an_agent_has_and_how_late_it_is() {
    let mut agent = Agent::new(NOW, "p".into());
    let beats: Vec<_> = (0..3).map(beat).collect();
    agent.beats(NOW, &beats, 2);
    let line = agent.line(NOW);
    assert_eq!((line.claims, line.beat_late_p99_ms), (2, None), "there was room for two");
    let mut now = NOW;
    for _ in 0..100 {
        now = now + TTL / BEATS_PER_TTL;
        agent.beats(now, &beats[..1], 0);
    }
    assert_eq!(agent.line(now).beat_late_p99_ms, Some(0));
    for _ in 0..10 {
        now = now + TTL / BEATS_PER_TTL + Duration::from_millis(900);
        agent.beats(now, &beats[..1], 0);
    }
    let line = agent.line(now + Duration::from_millis(5));
    assert_eq!((line.claims, line.beat_late_p99_ms), (1, Some(1023)));
    assert_eq!((line.last_beat_ms, line.host), (Some(5), None));
    agent.forget(now);
    assert_eq!(agent.claims.len(), 1);
}

#[test]
fn who_has_gone_is_forgotten_and_there_is_an_end_to_who_is_known() {
    let agents = Agents::default();
    let sender = |number: usize| Sender {
        key: (Mark::of("p"), number.to_string()),
        principal: "p".into(),
        address: None,
    };
    let hello = || Hello {
        protocol: 1,
        version: "v\n".repeat(SHOWN_TEXT_MAX),
        host: None,
        only_looks: false,
    };
    for number in 0..AGENTS_MAX + 5 {
        agents.hello(sender(number), hello());
    }
    let mut known = agents.known();
    let known_of_p = &known.agents[&Mark::of("p")];
    assert_eq!(known_of_p.len(), AGENTS_MAX);
    assert!(known_of_p.values().all(|agent| agent.version == "v".repeat(SHOWN_TEXT_MAX)));
    known.forget_at = Boottime::ZERO;
    known.forget(clock::now() + FORGET_AFTER);
    assert_eq!(known.agents.len(), 0);
}

#[test]
fn the_principal_with_most_agents_makes_room_for_those_of_others() {
    let agents = Agents::default();
    let hello = |principal: &str, number: usize| {
        let key = (Mark::of(principal), number.to_string());
        let sender = Sender { key, principal: principal.into(), address: None };
        let version = "1".to_owned();
        agents.hello(sender, Hello { protocol: 1, version, host: None, only_looks: false });
    };
    let of =
        |principal: &str| agents.known().agents.get(&Mark::of(principal)).map_or(0, HashMap::len);
    for number in 0..AGENTS_MAX {
        hello("alpha", number);
    }
    hello("beta", 0);
    assert_eq!((of("alpha"), of("beta")), (AGENTS_MAX - 1, 1));
    hello("alpha", AGENTS_MAX);
    assert_eq!((of("alpha"), of("beta")), (AGENTS_MAX - 1, 1), "it has most");
    for number in 0..AGENTS_MAX {
        hello("beta", number);
        hello("alpha", number);
    }
    assert_eq!((of("alpha"), of("beta")), (AGENTS_MAX / 2, AGENTS_MAX / 2));
    hello("gamma", 0);
    assert_eq!((of("alpha") + of("beta"), of("gamma")), (AGENTS_MAX - 1, 1));
}

#[test]
fn claims_that_the_store_does_not_have_are_not_counted() {
    let agents = Agents::default();
    let key = (Mark::of("p"), "agent".to_owned());
    let sender = Sender { key, principal: "p".into(), address: None };
    let version = "1".to_owned();
    let hello = Hello { protocol: 1, version, host: None, only_looks: false };
    agents.hello(sender.clone(), hello);
    let claims = || agents.known().claims;
    let beats: Vec<_> = (0..10_000).map(beat).collect();
    let gone = BeatAnswer::Gone(GoneReason::Unknown);
    let answer = Answer::Renew(vec![gone; beats.len()]);
    agents.beats(&sender, NOW, beats.clone(), Some(&answer));
    agents.beats(&sender, NOW, beats.clone(), None);
    assert_eq!(claims(), 0);
    let mut answers = vec![BeatAnswer::Held { token: 1, limit: None }; beats.len()];
    answers[7] = BeatAnswer::Gone(GoneReason::Released);
    agents.beats(&sender, NOW, beats, Some(&Answer::Renew(answers)));
    assert_eq!(claims(), 9_999);
    assert!(
        !agents
            .known()
            .agent(&sender.key)
            .unwrap()
            .claims
            .contains_key(&ClaimId(Uuid::from_u128(7)))
    );
}
