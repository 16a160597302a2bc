//! A heart for tests of whoever talks to one: it hands out what it hears.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::keeper::{Refusal, Reply, Request, StreamId, StreamTarget, Ticket};
use tenure_core::model::ClaimId;
use tenure_stores::Examination;
use tokio::sync::{mpsc, oneshot};

use super::handle::{Inbox, Message, channel};
use super::{Caller, Handle, Probe, StreamItem};
use crate::telemetry::Metrics;

/// A message to the heart.
pub(crate) enum Heard {
    Request {
        ticket: Ticket,
        caller: Caller,
        request: Box<Request>,
        reply: oneshot::Sender<Result<Reply, Refusal>>,
    },
    Cancel(Ticket),
    Undelivered(ClaimId),
    OpenStream {
        stream: StreamId,
        target: StreamTarget,
        events: mpsc::Sender<StreamItem>,
        open: oneshot::Sender<Infallible>,
        reply: oneshot::Sender<Result<bool, Refusal>>,
    },
    CloseStream(StreamId),
    Probe(oneshot::Sender<Probe>),
    Examine(oneshot::Sender<Examination>),
    EndQuarantine(oneshot::Sender<Option<Duration>>),
}

/// A heart that does nothing by itself.
pub(crate) struct FakeHeart(Inbox);

impl FakeHeart {
    /// With room for so many bytes that clients send or do not read.
    pub(crate) fn new(buffered_bytes: usize, metrics: Arc<Metrics>) -> (Handle, FakeHeart) {
        let (handle, inbox) = channel(buffered_bytes, metrics);
        (handle, FakeHeart(inbox))
    }

    /// The next message; `None` when no handle is left.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        let message = tokio::select! {
            biased;
            Some(message) = self.0.urgent.recv() => message,
            message = self.0.messages.recv() => message?,
        };
        Some(match message {
            Message::Request { ticket, caller, request, reply } => {
                Heard::Request { ticket, caller, request, reply }
            }
            Message::Cancel(ticket) => Heard::Cancel(ticket),
            Message::Undelivered(hold) => Heard::Undelivered(hold),
            Message::OpenStream { stream, target, events, open, reply, .. } => {
                Heard::OpenStream { stream, target, events: events.events, open, reply }
            }
            Message::CloseStream(stream) => Heard::CloseStream(stream),
            Message::Probe(reply) => Heard::Probe(reply),
            Message::Examine(reply) => Heard::Examine(reply),
            Message::EndQuarantine(reply) => Heard::EndQuarantine(reply),
        })
    }
}
