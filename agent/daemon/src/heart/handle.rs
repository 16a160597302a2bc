//! The API's way to the heart.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::keeper::{
    Numbered, Peer, Refusal, Reply, Request, StreamEnd, StreamId, StreamTarget, Ticket,
};
use tenure_core::model::ClaimId;
use tenure_core::time::Boottime;
use tenure_host::peer::Caller;
use tenure_stores::{Examination, Health};
use tenure_wire::{Event, LatencyStatus, LatenessStatus};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::budget::{Budget, Charge};
use super::looking::Looking;
use crate::telemetry::Metrics;

/// Messages that may wait for the heart; a caller beyond waits with its own connection.
const MESSAGES_MAX: usize = 1024;
/// Events that may wait for a reader; a slower one is cut off.
const STREAM_BACKLOG_MAX: usize = 256;

/// An item of an event stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    Event {
        event: Numbered,
        /// When the turn began that made it.
        made: Boottime,
        /// Its bytes while it waits.
        charge: Option<Arc<Charge>>,
    },
    /// There is a new standing, which the stream keeps.
    Standing,
    /// The last item.
    End(StreamEnd),
}

/// The state of the heart and of its upstream.
#[derive(Debug, Clone)]
pub struct Probe {
    pub health: Health,
    /// How late beats were sent.
    pub lateness: LatenessStatus,
    /// The upstream's latency of the last minutes; nothing where nothing was asked.
    pub latency: Option<LatencyStatus>,
    /// How many sessions there are.
    pub sessions: u64,
    /// How many holds there are, by kind, each held, in jeopardy and waiting.
    pub holds: [[u64; 3]; 4],
}

/// The heart has ended: the agent is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the agent is stopping")]
pub struct HeartGone;

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    Refused(Refusal),
    /// The heart has ended: the agent is stopping.
    Gone,
}

/// A message of the API.
pub(crate) enum Message {
    Request {
        ticket: Ticket,
        caller: Caller,
        request: Box<Request>,
        reply: oneshot::Sender<Result<Reply, Refusal>>,
    },
    Cancel(Ticket),
    /// A caller that was answered with this grant has not read the answer.
    Undelivered(ClaimId),
    OpenStream {
        stream: StreamId,
        peer: Peer,
        target: StreamTarget,
        events: Backlog,
        /// Dropped when the heart is done with the stream.
        open: oneshot::Sender<Infallible>,
        /// True if guarded work hangs on it.
        reply: oneshot::Sender<Result<bool, Refusal>>,
    },
    CloseStream(StreamId),
    Probe(oneshot::Sender<Probe>),
    Examine(oneshot::Sender<Examination>),
    EndQuarantine(oneshot::Sender<Option<Duration>>),
}

/// A way to the heart. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    messages: mpsc::Sender<Message>,
    /// Cancellations, returned grants and closings, which must get through when `messages` is full. Each takes the
    /// place of an accepted request or stream, so their number is bounded by those. They overtake what they are
    /// about, so the receiver of an answer is closed before they are sent.
    urgent: mpsc::UnboundedSender<Message>,
    next: Arc<AtomicU64>,
    looking: Arc<Looking>,
    budget: Arc<Budget>,
}

/// The heart's end of a [`Handle`].
pub(crate) struct Inbox {
    pub(crate) messages: mpsc::Receiver<Message>,
    pub(crate) urgent: mpsc::UnboundedReceiver<Message>,
    pub(super) looking: Arc<Looking>,
}

pub(crate) fn channel(buffered_bytes: usize, metrics: Arc<Metrics>) -> (Handle, Inbox) {
    let (messages, messages_out) = mpsc::channel(MESSAGES_MAX);
    #[expect(
        clippy::disallowed_methods,
        reason = "one per accepted request or stream at most, and those are bounded"
    )]
    let (urgent, urgent_out) = mpsc::unbounded_channel();
    let next = Arc::new(AtomicU64::new(1));
    let budget = Budget::new(nix::unistd::geteuid().as_raw(), buffered_bytes, metrics);
    let looking = Arc::new(Looking::default());
    let handle = Handle { messages, urgent, next, looking: Arc::clone(&looking), budget };
    (handle, Inbox { messages: messages_out, urgent: urgent_out, looking })
}

impl Handle {
    /// Asks the keeper. Dropping the future cancels: a caller that goes away while it waits for a
    /// grant leaves no waiter behind.
    ///
    /// # Errors
    ///
    /// The keeper's refusal, or the end of the heart.
    pub(super) async fn call(&self, caller: Caller, request: Request) -> Result<Reply, CallError> {
        let ticket = Ticket(self.next.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let message = Message::Request { ticket, caller, request: Box::new(request), reply };
        let look = self.looking.begin();
        self.messages.send(message).await.map_err(|_| CallError::Gone)?;
        let mut asked = Asked { urgent: &self.urgent, ticket: Some(ticket), answer };
        let found = match look {
            Some(look) => look.find(|| asked.answer.try_recv().ok()).await,
            None => None,
        };
        let result = match found {
            Some(result) => Ok(result),
            None => (&mut asked.answer).await,
        };
        asked.ticket = None;
        result.map_err(|_| CallError::Gone)?.map_err(CallError::Refused)
    }

    /// Bytes that wait for clients or come from them.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// For the caller of a grant that is about to be answered with it.
    pub fn delivery(&self, hold: Uuid) -> Delivery {
        Delivery { urgent: self.urgent.clone(), hold: Some(ClaimId(hold)) }
    }

    /// Opens an event stream.
    ///
    /// # Errors
    ///
    /// The keeper's refusal, or the end of the heart.
    pub async fn open_stream(
        &self,
        peer: Peer,
        target: StreamTarget,
    ) -> Result<EventStream, CallError> {
        let stream = StreamId(self.next.fetch_add(1, Ordering::Relaxed));
        let (events, items) = mpsc::channel(STREAM_BACKLOG_MAX);
        let standing = Arc::new(Mutex::new(None));
        let events = Backlog {
            events,
            standing: Arc::clone(&standing),
            budget: Arc::clone(&self.budget),
            uid: peer.uid,
        };
        let (open, done) = oneshot::channel();
        let (reply, answer) = oneshot::channel();
        // Dropped after the receiver of the answer: the heart opens nothing that was closed before.
        let close = CloseOnDrop { urgent: self.urgent.clone(), stream };
        let message = Message::OpenStream { stream, peer, target, events, open, reply };
        self.messages.send(message).await.map_err(|_| CallError::Gone)?;
        let is_tether = answer.await.map_err(|_| CallError::Gone)?.map_err(CallError::Refused)?;
        let tether = StreamTether { _close: close, done };
        Ok(EventStream { items, standing, tether: Some(tether), is_tether })
    }

    /// Asks the heart how it does; answered only when a turn of its loop completed.
    ///
    /// # Errors
    ///
    /// When the heart has ended.
    pub async fn probe(&self) -> Result<Probe, HeartGone> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Probe(reply)).await.map_err(|_| HeartGone)?;
        answer.await.map_err(|_| HeartGone)
    }

    /// Ends a quarantine; how long it would have been, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the heart has ended.
    pub async fn end_quarantine(&self) -> Result<Option<Duration>, HeartGone> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::EndQuarantine(reply)).await.map_err(|_| HeartGone)?;
        answer.await.map_err(|_| HeartGone)
    }

    /// An examination of the upstream. The caller runs it: the heart has beats to send meanwhile.
    ///
    /// # Errors
    ///
    /// When the heart has ended.
    pub async fn examine(&self) -> Result<Examination, HeartGone> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Examine(reply)).await.map_err(|_| HeartGone)?;
        answer.await.map_err(|_| HeartGone)
    }
}

/// A request whose answer is waited for. Dropped before that, it cancels.
struct Asked<'a> {
    urgent: &'a mpsc::UnboundedSender<Message>,
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Result<Reply, Refusal>>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        // From here on the heart sees that an answer comes too late; one that is there already
        // it takes for delivered.
        self.answer.close();
        let message = match self.answer.try_recv() {
            Ok(Ok(Reply::Acquired(acquired))) => Message::Undelivered(ClaimId(acquired.hold)),
            _ => Message::Cancel(ticket),
        };
        // Fails only when the heart has ended, and with it every waiter.
        let _ = self.urgent.send(message);
    }
}

/// A grant on its way to its caller. Dropped without [`Delivery::delivered`], it tells the heart that
/// nobody has read it.
#[derive(Debug)]
pub struct Delivery {
    urgent: mpsc::UnboundedSender<Message>,
    hold: Option<ClaimId>,
}

impl Delivery {
    /// The caller has read it, or may have.
    pub fn delivered(mut self) {
        self.hold = None;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            // Fails only when the heart has ended.
            let _ = self.urgent.send(Message::Undelivered(hold));
        }
    }
}

/// Items that wait for the reader of an event stream. They are bounded by number and by the
/// reader's share of bytes; of standings only the newest waits.
pub(crate) struct Backlog {
    pub(crate) events: mpsc::Sender<StreamItem>,
    standing: Arc<Mutex<Option<StreamItem>>>,
    budget: Arc<Budget>,
    uid: u32,
}

impl Backlog {
    /// Hands an item over, without waiting.
    pub(super) fn try_send(&self, item: StreamItem) -> Result<(), TrySendError<StreamItem>> {
        let StreamItem::Event { event, made, .. } = item else { return self.events.try_send(item) };
        let charge = self.budget.take(self.uid, event.bytes).ok().map(Arc::new);
        let is_over = charge.is_none();
        let is_standing = matches!(*event.event, Event::Standing(_));
        let item = StreamItem::Event { event, made, charge };
        if is_over {
            return Err(TrySendError::Full(item));
        }
        if !is_standing {
            return self.events.try_send(item);
        }
        match lock(&self.standing).replace(item) {
            // The reader has not come to the one before.
            Some(_) if !self.events.is_closed() => Ok(()),
            _ => self.events.try_send(StreamItem::Standing),
        }
    }
}

/// No code panics while it holds the lock.
fn lock(standing: &Mutex<Option<StreamItem>>) -> MutexGuard<'_, Option<StreamItem>> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open event stream.
///
/// Ends (`None`) after [`StreamItem::End`], or without one when the reader was too slow: the agent
/// never waits for it. Dropping it closes it, unless its tether was taken.
pub struct EventStream {
    items: mpsc::Receiver<StreamItem>,
    standing: Arc<Mutex<Option<StreamItem>>>,
    tether: Option<StreamTether>,
    is_tether: bool,
}

/// The part of a stream that keeps it open for the heart. Dropping it closes the stream.
pub struct StreamTether {
    _close: CloseOnDrop,
    done: oneshot::Receiver<Infallible>,
}

impl StreamTether {
    /// Ends when the heart is done with the stream.
    pub async fn done(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.done).await;
    }
}

struct CloseOnDrop {
    urgent: mpsc::UnboundedSender<Message>,
    stream: StreamId,
}

impl EventStream {
    /// Takes what keeps the stream open, if guarded work hangs on it: that goes on however slow its
    /// reader is, and without one.
    pub fn take_tether(&mut self) -> Option<StreamTether> {
        if self.is_tether { self.tether.take() } else { None }
    }

    /// The next item.
    pub async fn next(&mut self) -> Option<StreamItem> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The next item, for hand-written bodies.
    pub fn poll_next(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<StreamItem>> {
        self.items.poll_recv(context).map(|item| match item {
            Some(StreamItem::Standing) => lock(&self.standing).take(),
            item => item,
        })
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        // Fails only when the heart has ended.
        let _ = self.urgent.send(Message::CloseStream(self.stream));
    }
}
