//! Entries whose outcome must stay as it is.

use std::fmt::Write as _;

use tenure_core::engine::EngineSettings;
use tenure_core::model::{
    Beat, Claim, ClaimId, Owner, Resource, SessionId, SessionRecord, Subject, TakeOver, Terms,
    Within,
};
use tenure_wire::{Attributes, Kind};

use super::*;

/// Claims of every kind that are granted, wait, beat, run out and are released, by a cluster of that version.
fn applied(version: u32) -> Machine {
    let mut machine = Machine::knowing(VERSION);
    let mut at = 0;
    let mut apply = |operation| {
        at += 1_700_000_000;
        let command = Command { at: ClusterTime::from_nanos(at), operation };
        machine.apply(command).unwrap();
    };
    let settings = EngineSettings::default();
    let (cluster, token_floor, restored) = (Uuid::from_u128(9), 1_000, None);
    let founding = Founding { cluster, token_floor, settings, version, restored };
    apply(Operation::Found(Box::new(founding)));
    let ttl = Duration::from_secs(30);
    let terms = [
        Terms::Leader,
        Terms::Master { priority: 3 },
        Terms::Semaphore { limit: 2, keeps: false, only_own: false },
        Terms::Lease { attributes: Attributes::default(), grace: ttl, take_over: None },
    ];
    let kinds = [Kind::Leader, Kind::Master, Kind::Semaphore, Kind::Lease];
    let resource =
        |kind: usize| Resource { tenant: "t".into(), kind: kinds[kind], name: "r".into() };
    let claim = |number: u128, kind: usize, terms: Terms| {
        let id = Uuid::from_u128(number);
        let session = SessionId(id);
        Request::Claim(Claim {
            id: ClaimId(id),
            resource: resource(kind),
            owner: Owner { session, host: "here".into(), name: "program".into() },
            ttl,
            terms,
            enqueue: true,
        })
    };
    let beat = |number: u128, kind: usize, ttl| {
        let claim = ClaimId(Uuid::from_u128(number));
        Beat { subject: Subject::Claim { claim, resource: resource(kind) }, ttl }
    };
    for (kind, terms) in terms.iter().enumerate() {
        for number in 0..3 {
            let number = (kind * 10 + number) as u128;
            apply(Operation::Request(claim(number, kind, terms.clone())));
        }
    }
    let beats = (0..4).map(|kind| beat(kind as u128 * 10, kind, ttl)).collect();
    apply(Operation::Request(Request::Renew(beats)));
    // For less time than is left, and then somebody would take over what has not been renewed for so long.
    let less = vec![beat(30, 3, Duration::from_secs(2))];
    apply(Operation::Request(Request::Renew(less)));
    let from = ClaimId(Uuid::from_u128(30));
    let take_over = Some(Box::new(TakeOver { from, unbeaten: Duration::from_millis(2500) }));
    let taking = Terms::Lease { attributes: Attributes::default(), grace: ttl, take_over };
    apply(Operation::Request(claim(39, 3, taking)));
    let released = ClaimId(Uuid::from_u128(10));
    apply(Operation::Request(Request::Release { claim: released, resource: resource(1) }));
    for _ in 0..30 {
        apply(Operation::Tick);
    }
    machine
}

#[test]
fn the_same_entries_give_what_earlier_programs_made_of_them() {
    // A change of these is a change of the rules: it takes another version, by which entries of the former ones are applied as
    // before.
    let mut told = String::new();
    for version in 1..=VERSION {
        let machine = applied(version);
        let image = serde_json::to_vec(&machine.freeze()).unwrap();
        let image: String =
            Sha256::digest(image).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let Digest(digest) = machine.digest();
        let _ = writeln!(told, "{version} {digest:016x} {image}");
    }
    assert_eq!(told, GOLDEN);
}

const GOLDEN: &str = "\
1 fb9e0c2c9154e6d5 5b50ac0ae3777f94
2 8a3eb92b037a1fc4 28b15da9dbf3e7c0
3 8a3eb92b037a1fc4 87e8cd8e7fd7c182
4 8a3eb92b037a1fc4 d90711d87179c370
";

#[test]
fn a_session_keeps_when_it_was_registered_once_all_nodes_do() {
    for (version, kept) in [(3, None), (4, Some("then"))] {
        let mut machine = applied(version);
        let record = SessionRecord {
            owner: Owner { session: SessionId(Uuid::nil()), host: "h".into(), name: "n".into() },
            tenant: "t".into(),
            project: "p".into(),
            surface: "s".into(),
            ttl: Duration::from_secs(30),
            registered_at: Some("then".into()),
        };
        let at = ClusterTime::from_nanos(1 << 40);
        let operation = Operation::Request(Request::Announce(record));
        machine.apply(Command { at, operation }).unwrap();
        let within = Within::Project { tenant: "t".into(), project: "p".into() };
        let request = Request::Members { within, listed: true, page: None };
        let Some(Answer::Members(Some(members))) = machine.read(at, request) else { panic!() };
        assert_eq!(members.sessions[0].registered_at.as_deref(), kept, "version {version}");
    }
}
