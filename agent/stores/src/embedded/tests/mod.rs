//! The embedded store in the directories of an agent.

#![allow(clippy::unwrap_used, reason = "a store that cannot be used is a failed test")]

mod disk;
mod reports;
mod restarts;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::engine::EngineSettings;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, CallId, Change, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request,
    Resource, SessionId, Subject, Terms,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Kind, UpstreamState, Verdict};
use uuid::Uuid;

use super::{Embedded, Opened, Place, open};
use crate::journal::tests::Held;
use crate::journal::{Ahead, FILE, Files, Journal, Scribe, Start, Thread};
use crate::{Report, Upstream};

fn files(directory: &Path) -> Files {
    Files::of(tenure_host::directory::Directory::shared(directory).unwrap())
}

const BOOT: Uuid = Uuid::from_u128(7);
const CLOCK_US: u64 = 1_763_000_000_000_000;
const TTL: Duration = Duration::from_secs(30);

/// An agent's directories, and its store while it runs.
struct Host {
    runtime_dir: TempDir,
    state_dir: TempDir,
    now: Boottime,
    /// In place of the thread that waits for the disk.
    scribe: Option<Held>,
    running: Option<(Rc<RefCell<Journal>>, Embedded)>,
}

impl Host {
    fn new() -> Host {
        let mut host = Host {
            runtime_dir: tempfile::tempdir().unwrap(),
            state_dir: tempfile::tempdir().unwrap(),
            now: Boottime::from_nanos(1_000_000_000),
            scribe: None,
            running: None,
        };
        host.start(BOOT, CLOCK_US);
        host
    }

    fn start(&mut self, boot_id: Uuid, wall_clock_us: u64) {
        let runtime_dir = Box::new(files(self.runtime_dir.path()));
        let state_dir = Box::new(files(self.state_dir.path()));
        let (ahead, engine) = (Ahead::default(), EngineSettings::default());
        let place = Place { boot_id, now: self.now, wall_clock_us, ahead, engine };
        let opened = open(
            runtime_dir,
            state_dir,
            place,
            |_| {},
            |disk| {
                let scribe: Box<dyn Scribe> = match &self.scribe {
                    Some(scribe) => Box::new(scribe.clone()),
                    None => Box::new(Thread::start(disk)?),
                };
                Ok(scribe)
            },
        );
        let Opened { store, journal, .. } = opened.unwrap();
        self.running = Some((journal, store));
    }

    /// As SIGKILL does it.
    fn crash(&mut self) {
        self.running = None;
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn store(&mut self) -> &mut Embedded {
        &mut self.running.as_mut().unwrap().1
    }

    /// The answer, and the changes before and after it.
    fn call(&mut self, request: Request) -> (Result<Answer, Failure>, Vec<Change>, Vec<Change>) {
        let now = self.now;
        self.store().submit(now, CallId(1), request);
        let (mut answer, mut before, mut after) = (None, Vec::new(), Vec::new());
        while let Poll::Ready(report) = self.poll() {
            match report {
                Report::Lost { .. } => {}
                Report::Answer { call, sent_at, result } => {
                    assert_eq!((call, sent_at), (CallId(1), now));
                    assert!(answer.replace(result).is_none());
                }
                Report::Change(change) if answer.is_none() => before.push(change),
                Report::Change(change) => after.push(change),
                other => panic!("{other:?}"),
            }
        }
        self.running.as_mut().unwrap().0.borrow_mut().secure(now);
        (answer.unwrap(), before, after)
    }

    fn poll(&mut self) -> Poll<Report> {
        self.store().poll_report(&mut Context::from_waker(Waker::noop()))
    }

    fn claim(&mut self, id: u128, name: &str) -> ClaimAnswer {
        match self.call(Request::Claim(claim(id, name, TTL))).0.unwrap() {
            Answer::Claim(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn token(&mut self, id: u128, name: &str) -> u64 {
        match self.claim(id, name) {
            ClaimAnswer::Held { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, id: u128, name: &str) -> BeatAnswer {
        let subject = Subject::Claim { claim: claim_id(id), resource: resource(name) };
        match self.call(Request::Renew(vec![Beat { subject, ttl: TTL }])).0.unwrap() {
            Answer::Renew(mut answers) => answers.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, id: u128, name: &str) {
        let release = Request::Release { claim: claim_id(id), resource: resource(name) };
        assert_eq!(self.call(release).0, Ok(Answer::Released(true)));
    }
}

fn remove_contents(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

fn claim_id(id: u128) -> ClaimId {
    ClaimId(Uuid::from_u128(id))
}

fn resource(name: &str) -> Resource {
    Resource { tenant: Arc::from("default"), kind: Kind::Leader, name: Arc::from(name) }
}

fn claim(id: u128, name: &str, ttl: Duration) -> Claim {
    Claim {
        id: claim_id(id),
        resource: resource(name),
        owner: Owner {
            session: SessionId(Uuid::from_u128(id)),
            host: Arc::from("host"),
            name: Arc::from("name"),
        },
        ttl,
        terms: Terms::Leader,
        enqueue: false,
    }
}

fn state(host: &mut Host) -> UpstreamState {
    host.store().health().state
}
