//! A served API with a heart behind it that takes down what it hears and answers by rote, or not at all.
//!
//! It is for what a real heart cannot be made to do: hang, answer late, say that its upstream is down, or
//! fill a stream. What a heart answers to which request is no matter of these tests; those in `tests/`
//! ask real agents.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::keeper::{
    Refusal, Reply, Request, SessionFacts, Settings, StatusView, StreamId, StreamTarget, Ticket,
    UpstreamError,
};
use tenure_core::model::{
    AgentFacts, AgentSeen, ClaimId, Peer, Process, Quota, Resource, SessionId,
};
use tenure_host::peer::TieError;
use tenure_stores::Health;
use tenure_wire::{self as wire, AgentInfo, Holder, Kind, UpstreamState};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::{
    About, Context, Drained, Identity, Limits, Places, SelfProbe, self_probe, serve,
};
use super::Client;
use crate::heart::{BUFFERED_BYTES_MAX, Caller, Inbox, Message, Probe, StreamItem, channel};
use crate::policy::SharedPolicy;
use crate::telemetry::Metrics;

pub(super) const SESSION: &str = "00000000-0000-4000-8000-000000000001";
/// The user whose connections the kernel does not identify.
pub(super) const NOBODY: u32 = 65_534;

impl Identity for Peer {
    fn caller(&self) -> Caller {
        Caller { peer: *self, pidfd: None }
    }

    /// Told apart by its process.
    fn registrant(&self, _: &UnixStream) -> Caller {
        let process = Some(Process { pid: 77, start_ticks: 1 });
        Caller { peer: Peer { process, ..*self }, pidfd: None }
    }

    fn registrant_for(&self, _: u32) -> Result<Caller, TieError> {
        Err(TieError::Ended)
    }
}

/// Waits for something that must happen.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within 20 s"),
    }
}

/// Something that the heart heard.
pub(super) enum Noted {
    Request(Ticket, Box<Request>),
    Cancelled(Ticket),
    Undelivered(ClaimId),
    Opened(StreamId, StreamTarget, mpsc::Sender<StreamItem>),
    Closed(StreamId),
    /// An examination, which ends with what the test sends.
    Examination(oneshot::Sender<Vec<wire::Check>>),
}

pub(super) struct Rig {
    pub(super) path: PathBuf,
    pub(super) noted: mpsc::UnboundedReceiver<Noted>,
    pub(super) uid: Arc<AtomicU32>,
    pub(super) shutdown: CancellationToken,
    pub(super) served: JoinHandle<Drained>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) probe: SelfProbe,
    /// True while the heart takes turns.
    pub(super) beats: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with(Limits::default(), SharedPolicy::default())
    }

    pub(super) fn with_limits(limits: Limits) -> Rig {
        Rig::with(limits, SharedPolicy::default())
    }

    pub(super) fn with(limits: Limits, policy: SharedPolicy) -> Rig {
        Rig::with_room(limits, policy, BUFFERED_BYTES_MAX)
    }

    /// With room for so many bytes that clients send or do not read.
    pub(super) fn with_room(limits: Limits, policy: SharedPolicy, buffered_bytes: usize) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        std::fs::write(directory.path().join(SESSION), "a page").unwrap();
        let metrics = Arc::new(Metrics::new());
        let (heart, inbox) = channel(buffered_bytes, metrics.clone());
        let (notes, noted) = mpsc::unbounded_channel();
        let beats = Arc::new(AtomicBool::new(true));
        tokio::spawn(beat(inbox, notes, beats.clone()));
        let context = Arc::new(Context {
            heart,
            settings: Arc::new(Settings { agent_uid: 990, ..Settings::default() }),
            limits,
            long: crate::api::Turns::default(),
            places: Places::new(&limits, 990, metrics.clone()),
            about: About {
                agent: AgentInfo {
                    version: "1.2.3".into(),
                    host_id: "abc".into(),
                    upstream: "embedded".into(),
                    guarantee: "one host".into(),
                },
                finds_guarantee: false,
                host: "here".into(),
                address: Some("redis://there:6379/0".into()),
                boot_id: Uuid::from_u128(7),
                pages: directory.path().to_owned(),
                requires_fleet: false,
            },
            policy,
            metrics: metrics.clone(),
            log: crate::telemetry::log::Filter::new("info").unwrap().1,
            pasts: tokio::sync::Semaphore::new(1),
            examining: tokio::sync::Mutex::default(),
            started: tenure_host::clock::now(),
        });
        let uid = Arc::new(AtomicU32::new(1000));
        let current = uid.clone();
        let identify = move |_: &_| match current.load(Ordering::Relaxed) {
            NOBODY => Err(io::Error::other("no credentials")),
            uid => {
                Ok(Peer { uid, gid: uid, process: None, watchable: false, quota: Quota::default() })
            }
        };
        let listener = UnixListener::bind(&path).unwrap();
        let shutdown = CancellationToken::new();
        let (probe, door) = self_probe();
        let served = tokio::spawn(serve(listener, identify, door, context, shutdown.clone()));
        Rig { path, noted, uid, shutdown, served, metrics, probe, beats, _directory: directory }
    }

    /// The body of `/metrics`.
    pub(super) fn numbers(&self) -> String {
        self.metrics.encode()
    }

    pub(super) async fn connect(&self) -> Client {
        Client::connect(&self.path).await
    }

    /// The next thing that the heart heard.
    pub(super) async fn heard(&mut self) -> Noted {
        within("a message to the heart", self.noted.recv()).await.unwrap()
    }

    pub(super) async fn opened(&mut self) -> (StreamId, StreamTarget, mpsc::Sender<StreamItem>) {
        loop {
            if let Noted::Opened(stream, target, events) = self.heard().await {
                return (stream, target, events);
            }
        }
    }

    pub(super) async fn examination(&mut self) -> oneshot::Sender<Vec<wire::Check>> {
        loop {
            if let Noted::Examination(checks) = self.heard().await {
                return checks;
            }
        }
    }

    pub(super) async fn closed(&mut self, expected: StreamId) {
        loop {
            if let Noted::Closed(stream) = self.heard().await {
                assert_eq!(stream, expected);
                return;
            }
        }
    }

    /// The next request that waits for a grant, skipping others.
    pub(super) async fn waiting(&mut self) -> Ticket {
        loop {
            if let Noted::Request(ticket, request) = self.heard().await
                && matches!(&*request, Request::Acquire(ask) if ask.wait == wire::Wait::Block)
            {
                return ticket;
            }
        }
    }

    pub(super) async fn cancelled(&mut self, expected: Ticket) {
        loop {
            if let Noted::Cancelled(ticket) = self.heard().await {
                assert_eq!(ticket, expected);
                return;
            }
        }
    }
}

/// The next message to the heart; `None` when no handle is left.
async fn next(inbox: &mut Inbox) -> Option<Message> {
    tokio::select! {
        biased;
        Some(message) = inbox.urgent.recv() => Some(message),
        message = inbox.messages.recv() => message,
    }
}

async fn beat(mut inbox: Inbox, notes: mpsc::UnboundedSender<Noted>, beats: Arc<AtomicBool>) {
    // A wait ends when its request does; so it is kept, not answered.
    let mut waits = HashMap::new();
    let mut unanswered = Vec::new();
    let mut opened = Vec::new();
    while let Some(message) = next(&mut inbox).await {
        let note = match message {
            Message::Request { ticket, caller, request, reply } => {
                let is_registration = matches!(*request, Request::Register(..));
                assert_eq!(caller.peer.process.is_some(), is_registration, "{request:?}");
                let is_wait =
                    matches!(&*request, Request::Acquire(ask) if ask.wait == wire::Wait::Block);
                if is_wait {
                    waits.insert(ticket, reply);
                } else {
                    // Fails when the client is gone.
                    let _ = reply.send(answer(&request, &caller));
                }
                Noted::Request(ticket, request)
            }
            Message::Cancel(ticket) => {
                waits.remove(&ticket);
                Noted::Cancelled(ticket)
            }
            Message::Undelivered(hold) => Noted::Undelivered(hold),
            Message::OpenStream { stream, target, events, open, reply, .. } => {
                opened.push(open);
                let _ = reply.send(Ok(is_tether(&target)));
                Noted::Opened(stream, target, events.events)
            }
            Message::CloseStream(stream) => Noted::Closed(stream),
            Message::Examine(reply) => {
                let (checks, found) = oneshot::channel();
                // Fails when the client is gone.
                let _ = reply.send(Box::pin(async { found.await.unwrap_or_default() }));
                Noted::Examination(checks)
            }
            Message::EndQuarantine(reply) => {
                // Fails when the client is gone.
                let _ = reply.send(Some(Duration::from_millis(29_500)));
                continue;
            }
            Message::Probe(reply) => {
                let health = Health {
                    last_error: Some("refused".into()),
                    ..Health::of(UpstreamState::Down)
                };
                let lateness = Default::default();
                let probe =
                    Probe { health, lateness, latency: None, sessions: 0, holds: [[0; 3]; 4] };
                if beats.load(Ordering::Relaxed) {
                    let _ = reply.send(probe);
                } else {
                    unanswered.push(reply);
                }
                continue;
            }
        };
        // Fails when the test has ended.
        if notes.send(note).is_err() {
            return;
        }
    }
}

/// True for streams that guarded work hangs on: those of one session.
fn is_tether(target: &StreamTarget) -> bool {
    matches!(target, StreamTarget::Session { session, .. } if *session == guarded())
}

/// The session that guards work.
pub(super) fn guarded() -> Uuid {
    Uuid::from_u128(0x60a2d)
}

fn answer(request: &Request, caller: &Caller) -> Result<Reply, Refusal> {
    Ok(match request {
        Request::History(_) => Reply::History(Vec::new()),
        Request::Agents(_) => {
            let seen = |agent: &str, ago: u64| AgentSeen {
                agent: agent.into(),
                host: "here".into(),
                ago: Duration::from_secs(ago),
                facts: AgentFacts::default(),
            };
            let agents = vec![seen("own", 0), seen("late", 75), seen("gone", 76)];
            Reply::Agents { agents, next: Some("7".into()) }
        }
        Request::Resources(_) => Reply::Resources { resources: Vec::new(), next: None },
        Request::Register(ask, _) => Reply::Registered {
            session: SessionId(Uuid::parse_str(SESSION).unwrap()),
            secret: "5ec1e7".into(),
            ttl_ms: 90_000,
            beat_ms: 30_000,
            resumed: ask.resume.is_some(),
        },
        Request::Acquire(ask) => acquire(ask)?,
        Request::Release(ask) => {
            Reply::Released(wire::Released { released: ask.hold.is_some(), kept_ms: None })
        }
        Request::Checkpoint(_) => Reply::Checkpointed(wire::Checkpointed {
            ok: true,
            ttl_remaining_ms: 90_000,
            role: wire::Role::None,
            holds: vec![],
        }),
        Request::Beat(_) => Reply::Beaten,
        Request::BeatHold { .. } => Reply::HoldBeaten(wire::Beaten {
            valid_ms: 9000,
            valid_until_boottime_ns: 9_000_000_000,
            ..wire::Beaten::default()
        }),
        Request::Leftovers(_) => Reply::LeftoversNoted,
        Request::Revoke { .. } => {
            Reply::Revoked(wire::Revoked { revoked: 1, ..wire::Revoked::default() })
        }
        Request::Standing(resource) => Reply::Standing(wire::Standing {
            tenant: resource.tenant.to_string(),
            kind: resource.kind,
            name: resource.name.to_string(),
            limit: None,
            holders: vec![],
            holding: 0,
            waiters: vec![],
            waiting: 0,
            sessions: vec![],
            members: 0,
        }),
        Request::Routes { .. } => Reply::Routes(wire::Routes { version: 3, ..Default::default() }),
        Request::Status(_) => Reply::Status(StatusView {
            sessions: u64::from(caller.peer.uid),
            holds: [[1, 2, 3]; 4],
            visible: vec![],
            total: 0,
            next: None,
        }),
        Request::Lookup(_) => Reply::Facts(SessionFacts {
            tenant: "default".into(),
            project: "apollo".into(),
            surface: "claude_desktop".into(),
        }),
    })
}

fn acquire(ask: &wire::Acquire) -> Result<Reply, Refusal> {
    let name = ask.name.clone().unwrap_or_default();
    match &*name {
        "taken" => {
            let holder = Box::new(Holder { host: "there".into(), ..Holder::default() });
            let resource = Resource { tenant: "default".into(), kind: ask.kind, name: name.into() };
            Err(Refusal::Contended { resource, holder: Some(holder), limit_changed: None })
        }
        "quarantined" => {
            let free_in = Duration::from_millis(1500);
            Err(Refusal::Upstream(UpstreamError::Quarantined(free_in)))
        }
        "lost" => {
            let why = "it was released".into();
            Err(Refusal::SessionEnded { session: ask.session, why })
        }
        _ if ask.wait == wire::Wait::Queue => Ok(Reply::Waiting(wire::Waiting {
            hold: Uuid::from_u128(9),
            kind: ask.kind,
            name,
            state: wire::HoldState::Waiting,
            position: Some(2),
            limit_changed: None,
        })),
        _ => Ok(Reply::Acquired(wire::Acquired {
            hold: Uuid::from_u128(9),
            kind: ask.kind,
            name,
            state: wire::HoldState::Held,
            token: 42,
            ttl_ms: 30_000,
            valid_ms: 29_840,
            valid_until_boottime_ns: 1,
            slot: 0,
            limit: (ask.kind == Kind::Semaphore).then_some(1),
            limit_changed: None,
        })),
    }
}
