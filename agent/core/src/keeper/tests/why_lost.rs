//! The cause of a hold's loss, in words.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Event, Happened, Kind};

use super::bench::{ALICE, Bench, Link};
use crate::keeper::{Reply, Request, StreamId};
use crate::model::Resource;

struct Scene {
    bench: Bench,
    stream: StreamId,
}

impl Scene {
    /// A hold of 30 s.
    fn start() -> Scene {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        let stream = bench.listen(session, None);
        bench.hold(session, json!({"kind": "leader", "name": "x", "ttl_ms": 30_000}));
        Scene { bench, stream }
    }

    /// The words of the event of the loss.
    fn why_lost(&mut self) -> Option<String> {
        let events = self.bench.events.remove(&self.stream).unwrap_or_default();
        let lost = events.into_iter().rev().find_map(|event| match event {
            Event::Lost(lost) => Some(lost),
            _ => None,
        });
        lost.expect("it is lost").detail
    }

    /// Event and history have the same words, which begin with these.
    #[track_caller]
    fn says(&mut self, beginning: &str) {
        let why = self.why_lost();
        assert!(why.as_ref().is_some_and(|why| why.starts_with(beginning)), "{why:?}");
        self.bench.set_link(Link::Up);
        self.bench.pass(Duration::from_secs(60));
        let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: "x".into() };
        let ticket = self.bench.ask(ALICE, Request::History(resource));
        let Some(Ok(Reply::History(changes))) = self.bench.reply(ticket) else { panic!("none") };
        let end = changes.iter().find(|it| it.what == Happened::Lost).expect("its end is told");
        assert_eq!(end.end.detail.as_deref(), why.as_deref());
    }
}

#[test]
fn a_store_that_is_away_is_named_with_the_time_since() {
    let mut scene = Scene::start();
    scene.bench.link = Link::Down;
    scene.bench.pass(Duration::from_secs(31));
    let why = scene.why_lost().expect("it is said");
    let since = why.strip_prefix("the store has confirmed no renewal for ").expect("so it begins");
    let (since, cause) = since.split_once(": ").expect("with its cause");
    assert!(since.ends_with('s') && !cause.is_empty(), "{why}");
}

#[test]
fn a_store_that_does_not_answer_is_named_with_the_time_since_the_last_renewal() {
    let mut scene = Scene::start();
    scene.bench.link = Link::Hung;
    scene.bench.pass(Duration::from_secs(31));
    scene.says("the store has not answered for 29s");
}

#[test]
fn a_machine_that_slept_says_for_how_long() {
    let mut scene = Scene::start();
    scene.bench.now = scene.bench.now + Duration::from_secs(3600);
    scene.bench.keeper.handle_wake(scene.bench.now, Duration::from_secs(3590));
    scene.bench.pass(Duration::ZERO);
    scene.says("the machine slept for 59m50s");
}

#[test]
fn an_agent_that_stood_still_says_how_late_it_saw_the_end() {
    let mut scene = Scene::start();
    scene.bench.now = scene.bench.now + Duration::from_secs(90);
    scene.bench.pass(Duration::ZERO);
    let why = scene.why_lost().expect("it is said");
    assert!(why.starts_with("its agent did not run, and saw the end 1m"), "{why}");
}
