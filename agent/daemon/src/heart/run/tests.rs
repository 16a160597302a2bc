//! A heart with a store of its own, a turn at a time.

use std::pin::pin;
use std::task::Waker;

use serde_json::{Value, json};
use tenure_core::keeper::{Peer, Quota, Reply, Request, StreamTarget};
use tenure_host::directory::Directory;
use tenure_stores::embedded;
use tenure_stores::journal::{Ahead, Files, Thread};
use uuid::Uuid;

use super::super::Caller;
use super::super::budget::BUFFERED_BYTES_MAX;
use super::super::handle::{Handle, channel};
use super::*;

const PEER: Peer = Peer {
    uid: 1000,
    gid: 1000,
    process: None,
    watchable: false,
    quota: Quota { sessions_max: None, holds_max: None },
};

struct Rig {
    run: Run,
    handle: Handle,
    _directories: [tempfile::TempDir; 2],
}

/// Polls once; a future that has sent its message waits for the answer then.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Rig {
    fn new() -> Rig {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [runtime, state] =
            directories.each_ref().map(|it| Directory::private(it.path(), 0o755).unwrap());
        let boot_id = Uuid::from_u128(7);
        let place = embedded::Place {
            boot_id,
            now: clock::now(),
            wall_clock_us: clock::wall_us(),
            ahead: Ahead::default(),
            engine: Default::default(),
        };
        let disks = [&runtime, &state].map(|it| Box::new(Files::of(it.clone())));
        let [runtime_disk, state_disk] = disks;
        let opened = embedded::open(
            runtime_disk,
            state_disk,
            place,
            |_| {},
            |disk| Ok(Box::new(Thread::start(disk)?)),
        )
        .unwrap();
        let metrics = Arc::new(Metrics::new());
        let (handle, inbox) = channel(BUFFERED_BYTES_MAX, Arc::clone(&metrics));
        let parts = Parts {
            settings: Settings::default(),
            seed: [7; 32],
            saved: opened.saved,
            journal: opened.journal,
            pages: Pages::in_directory(&runtime, boot_id).unwrap(),
            upstream: Box::new(opened.store),
            metrics,
            notifier: Notifier::silent(),
            kept: HashMap::new(),
        };
        let (_, control) = mpsc::channel(1);
        Rig { run: Run::new(parts, inbox, control).unwrap(), handle, _directories: directories }
    }

    async fn call(&mut self, request: Request) -> Reply {
        let handle = self.handle.clone();
        let mut call = pin!(handle.call(caller(), request));
        loop {
            if let Poll::Ready(reply) = poll(call.as_mut()) {
                return reply.unwrap();
            }
            self.run.take_turn();
            tokio::task::yield_now().await;
        }
    }

    async fn register(&mut self, body: Value) -> Uuid {
        let register = Request::Register(serde_json::from_value(body).unwrap(), Default::default());
        match self.call(register).await {
            Reply::Registered { session, .. } => session.0,
            other => panic!("{other:?}"),
        }
    }

    fn size(&self, table: &str) -> usize {
        let sizes = self.run.keeper.sizes();
        sizes.iter().find(|(name, _)| *name == table).unwrap().1
    }
}

fn caller() -> Caller {
    Caller { peer: PEER, pidfd: None }
}

fn acquire(session: Uuid, wait: &str) -> Request {
    let body = json!({"session": session, "kind": "leader", "name": "x", "wait": wait});
    Request::Acquire(serde_json::from_value(body).unwrap())
}

#[tokio::test]
async fn a_wait_whose_caller_goes_before_the_heart_has_read_of_it_leaves_nothing() {
    let mut rig = Rig::new();
    let holder = rig.register(json!({})).await;
    assert!(matches!(rig.call(acquire(holder, "none")).await, Reply::Acquired(_)));
    let other = rig.register(json!({})).await;
    let handle = rig.handle.clone();
    {
        let mut call = pin!(handle.call(caller(), acquire(other, "block")));
        assert!(poll(call.as_mut()).is_pending());
    }
    for _ in 0..4 {
        rig.run.take_turn();
    }
    assert_eq!((rig.size("holds"), rig.size("queues")), (1, 0));
}

#[tokio::test]
async fn a_stream_whose_reader_goes_before_the_heart_has_read_of_it_ties_nothing() {
    let mut rig = Rig::new();
    let body = json!({"tether": "connection", "guarded": true});
    let session = rig.register(body).await;
    let handle = rig.handle.clone();
    {
        let target = StreamTarget::Session { session, last_event_id: None };
        let mut opening = pin!(handle.open_stream(PEER, target));
        assert!(poll(opening.as_mut()).is_pending());
    }
    for _ in 0..4 {
        rig.run.take_turn();
    }
    assert_eq!((rig.size("streams"), rig.run.shell.effects.streams.len()), (0, 0));
}
