//! Holds that are kept from others for a while whatever becomes of their programs.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_wire::Released;
use uuid::Uuid;

use super::bench::{ALICE, Bench};
use crate::keeper::{Refusal, Reply, Request};
use crate::model::{Resource, SessionId};

const MINUTE: Duration = Duration::from_secs(60);
const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

fn fields(kind: &str, more: Value) -> Value {
    let mut fields = json!({"kind": kind});
    if kind != "master" {
        fields["name"] = json!("x");
    }
    if kind == "lease" {
        fields["grace_ms"] = json!(0);
    }
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

struct Scene {
    bench: Bench,
    kind: &'static str,
    session: Uuid,
    hold: Uuid,
}

impl Scene {
    /// Holds for ten minutes at least.
    fn start(kind: &'static str) -> Scene {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process", "project": "p"}));
        let at_least = fields(kind, json!({"hold_at_least_ms": 600_000, "ttl_ms": 30_000}));
        let hold = bench.hold(session, at_least);
        Scene { bench, kind, session, hold }
    }

    /// Whether somebody else is granted it.
    fn is_free(&mut self) -> bool {
        let other = self.bench.register(json!({"tether": "process", "project": "p"}));
        let ticket = self.bench.acquire(other, fields(self.kind, json!({})));
        match self.bench.reply(ticket) {
            Some(Ok(Reply::Acquired(_))) => true,
            Some(Err(Refusal::Contended { .. })) => false,
            other => panic!("{}: {other:?}", self.kind),
        }
    }

    #[track_caller]
    fn is_kept_until_then(&mut self) {
        for _ in 0..9 {
            assert!(!self.is_free(), "{}", self.kind);
            self.bench.pass(MINUTE);
        }
        self.bench.pass(MINUTE - Duration::from_secs(2));
        assert!(!self.is_free(), "{}", self.kind);
        self.bench.pass(Duration::from_secs(3));
        assert!(self.is_free(), "{}: its time is over", self.kind);
    }
}

#[test]
fn a_release_is_answered_at_once_and_the_hold_is_kept() {
    for kind in KINDS {
        let mut scene = Scene::start(kind);
        let release = tenure_wire::Release {
            session: scene.session,
            hold: Some(scene.hold),
            exit_status: None,
            stopped: None,
        };
        let ticket = scene.bench.ask(ALICE, Request::Release(release));
        let Some(Ok(Reply::Released(Released { released: true, kept_ms: Some(kept_ms) }))) =
            scene.bench.reply(ticket)
        else {
            panic!("{kind}: not answered at once")
        };
        assert!((599_000..=600_000).contains(&kept_ms), "{kept_ms}");
        assert!(!scene.bench.is_valid(scene.hold), "{kind}: nobody may act on it");
        scene.is_kept_until_then();
    }
}

#[test]
fn it_is_kept_when_its_session_ends_when_its_process_dies_and_over_restarts() {
    for kind in KINDS {
        let mut ended = Scene::start(kind);
        ended.bench.release(ended.session, None).unwrap();
        ended.bench.restart();
        ended.is_kept_until_then();
        let mut died = Scene::start(kind);
        died.bench.restart();
        died.bench.keeper.handle_exit(died.bench.now, SessionId(died.session), Some(137));
        died.bench.settle();
        died.is_kept_until_then();
    }
}

#[test]
fn guarded_work_that_has_ended_keeps_nothing_for_longer() {
    for kind in KINDS {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process", "project": "p", "guarded": true}));
        let hold =
            bench.hold(session, fields(kind, json!({"hold_at_least_ms": 4000, "ttl_ms": 30_000})));
        bench.release(session, None).unwrap();
        let mut scene = Scene { bench, kind, session, hold };
        scene.bench.pass(Duration::from_secs(3));
        assert!(!scene.is_free(), "{kind}");
        scene.bench.pass(Duration::from_secs(2));
        assert!(scene.is_free(), "{kind}");
    }
}

#[test]
fn it_is_kept_after_the_longest_time_that_its_program_may_have_it() {
    for kind in KINDS {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process", "project": "p"}));
        let times = json!({"hold_at_least_ms": 600_000, "max_hold_ms": 60_000, "ttl_ms": 30_000});
        let hold = bench.hold(session, fields(kind, times));
        bench.pass(MINUTE);
        assert!(!bench.is_valid(hold), "{kind}: its program must stop");
        bench.pass(MINUTE * 8);
        let mut scene = Scene { bench, kind, session, hold };
        assert!(!scene.is_free(), "{kind}");
        scene.bench.pass(MINUTE + Duration::from_secs(2));
        assert!(scene.is_free(), "{kind}");
    }
}

#[test]
fn it_is_kept_by_the_upstream_alone_when_the_agent_is_gone() {
    for kind in KINDS {
        let mut scene = Scene::start(kind);
        scene.bench.keeper =
            crate::keeper::Keeper::new(Default::default(), [1; 32], scene.bench.now);
        scene.is_kept_until_then();
    }
}

#[test]
fn it_is_kept_when_it_was_granted_from_the_queue() {
    for kind in KINDS {
        let mut bench = Bench::new();
        let first = bench.register(json!({"tether": "process", "project": "p"}));
        bench.hold(first, fields(kind, json!({})));
        let session = bench.register(json!({"tether": "process", "project": "p"}));
        let wait = json!({"hold_at_least_ms": 600_000, "wait": "block", "ttl_ms": 30_000});
        let ticket = bench.acquire(session, fields(kind, wait));
        bench.release(first, None).unwrap();
        let Some(Ok(Reply::Acquired(acquired))) = bench.reply(ticket) else { panic!("{kind}") };
        bench.release(session, None).unwrap();
        let mut scene = Scene { bench, kind, session, hold: acquired.hold };
        scene.is_kept_until_then();
    }
}

#[test]
fn an_administrator_takes_it_all_the_same_and_a_grant_that_nobody_read_is_given_back() {
    for kind in KINDS {
        let mut scene = Scene::start(kind);
        scene.bench.release(scene.session, None).unwrap();
        assert!(!scene.is_free());
        let name = if kind == "master" { "p" } else { "x" };
        let resource =
            Resource { tenant: "default".into(), kind: kind.parse().unwrap(), name: name.into() };
        let ticket =
            scene.bench.ask(0, Request::Revoke { resource, token: None, revocation: None });
        assert!(
            matches!(scene.bench.reply(ticket), Some(Ok(Reply::Revoked(it))) if it.revoked == 1)
        );
        assert!(scene.is_free(), "{kind}");
        let mut unread = Scene::start(kind);
        unread.bench.undelivered(unread.hold);
        assert!(unread.is_free(), "{kind}");
    }
}
