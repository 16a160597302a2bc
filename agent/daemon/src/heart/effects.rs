//! Effects of the keeper's commands: pages, replies, events, notes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use tenure_core::keeper::{Command, Note, Refusal, Reply, StreamId, Ticket};
use tenure_core::model::ClaimId;
use tenure_core::time::Boottime;
use tenure_host::marks::{Stage, mark};
use tenure_host::page::{PageError, Pages};
use tenure_host::peer::Caller;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::handle::{Backlog, StreamItem};
use super::latency::Timing;
use super::watches::Watches;
use crate::telemetry::{Metrics, Recorder, Repeats};

/// The way back to a caller.
pub(super) type ReplySender = oneshot::Sender<Result<Reply, Refusal>>;

/// The way to a stream's reader.
pub(super) struct Outlet {
    /// `None` once the reader of a tether of guarded work was too slow.
    pub(super) events: Option<Backlog>,
    /// Guarded work hangs on the stream.
    pub(super) is_tether: bool,
    /// Dropped with the rest: tells that the heart is done with the stream.
    pub(super) _open: oneshot::Sender<Infallible>,
}

/// Everything that commands touch outside of keeper, upstream and journal.
pub(super) struct Effects {
    pub(super) pages: Pages,
    pub(super) replies: HashMap<Ticket, ReplySender>,
    pub(super) streams: HashMap<StreamId, Outlet>,
    /// Streams whose readers were too slow, to be told to the keeper.
    pub(super) cut_off: Vec<StreamId>,
    /// Grants whose callers were gone before they could be answered, to be told to the keeper.
    pub(super) undelivered: Vec<ClaimId>,
    pub(super) watches: Watches,
    /// The callers of registrations in this turn, whose processes may be watched.
    pub(super) registrants: HashMap<Ticket, Caller>,
    pub(super) timing: Timing,
    pub(super) recorder: Recorder,
    pub(super) metrics: Arc<Metrics>,
    pub(super) page_errors: Repeats,
    /// When the turn began whose commands are done.
    pub(super) turn_began: Boottime,
}

impl Effects {
    /// True if the keeper has to be told of something that was noticed on the way.
    pub(super) fn has_news(&self) -> bool {
        !self.cut_off.is_empty()
            || !self.undelivered.is_empty()
            || !self.watches.unwatched.is_empty()
            || self.pages.has_missing()
    }

    /// Notes that somebody removed pages, or their directory.
    pub(super) fn miss_pages(&mut self) {
        let renewed = self.pages.renew();
        self.tell_of_pages(renewed);
    }

    /// True while pages are to be made again, some in each turn.
    pub(super) fn has_missing_pages(&self) -> bool {
        self.pages.has_missing()
    }

    /// Makes some pages again.
    pub(super) fn renew_pages(&mut self) {
        if self.pages.has_missing() {
            let renewed = self.pages.renew_some();
            self.tell_of_pages(renewed);
        }
    }

    fn tell_of_pages(&mut self, result: Result<(), PageError>) {
        // A full disk refuses every one of them.
        if let Err(error) = result
            && let Some(withheld) = self.page_errors.admit()
        {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, withheld, "whoever reads a page does not find it");
        }
    }

    /// Does one command that is not for the upstream or the journal.
    pub(super) fn perform(&mut self, command: Command) {
        match command {
            Command::Reply { ticket, reply } => {
                let unsent = match self.replies.remove(&ticket) {
                    Some(sender) => sender.send(reply).err(),
                    // It was cancelled in this very turn.
                    None => Some(reply),
                };
                mark(Stage::Decided);
                // Its cancellation says nothing of a hold.
                if let Some(Ok(Reply::Acquired(acquired))) = unsent {
                    self.undelivered.push(ClaimId(acquired.hold));
                }
            }
            Command::Send { stream, event } => {
                let made = self.turn_began;
                self.send(stream, StreamItem::Event { event, made, charge: None });
            }
            Command::CloseStream { stream, end } => {
                self.send(stream, StreamItem::End(end));
                self.streams.remove(&stream);
            }
            Command::Watch { session, ticket: Some(ticket), .. } => {
                let pidfd = self.registrants.get(&ticket).and_then(|caller| caller.pidfd.clone());
                if let Some(pidfd) = pidfd {
                    self.watches.watch(session, pidfd);
                }
            }
            Command::Watch { session, ticket: None, process } => {
                self.watches.watch_again(session, process);
            }
            Command::Unwatch { session } => self.watches.unwatch(session),
            Command::OpenPage { session, uid, slots, keep } => {
                match self.pages.open(session, uid, slots) {
                    Ok(()) => self.pages.void_all_but(session, &keep),
                    // A full disk refuses every one of them.
                    Err(error) => {
                        if let Some(withheld) = self.page_errors.admit() {
                            tracing::error!(%session, %error, withheld, "the session has no page");
                        }
                    }
                }
            }
            Command::WritePage { session, slot, hold, token, valid_until, state } => {
                self.pages.write_slot(session, slot, hold, token, valid_until, state);
            }
            Command::ClosePage { session } => self.pages.close(session),
            Command::Note(note) => self.note(&note),
            // Done by the turn itself, before anything of it is told.
            Command::Call { .. } | Command::Persist(_) => {}
        }
    }

    /// Logs and counts.
    pub(super) fn note(&mut self, note: &Note) {
        if let Note::Beat { late } = note {
            self.timing.lateness.note(*late);
        }
        self.recorder.note(note);
    }

    fn send(&mut self, stream: StreamId, item: StreamItem) {
        let Some(outlet) = self.streams.get_mut(&stream) else { return };
        let Some(sender) = &outlet.events else { return };
        match sender.try_send(item) {
            Ok(()) => mark(Stage::Decided),
            Err(TrySendError::Full(_)) => {
                self.metrics.streams_cut_off.inc();
                outlet.events = None;
                // Work that outlives its reader is tied by the descriptor alone.
                if !outlet.is_tether {
                    self.streams.remove(&stream);
                    self.cut_off.push(stream);
                }
            }
            Err(TrySendError::Closed(_)) if outlet.is_tether => outlet.events = None,
            // The reader has gone; its closing is on its way.
            Err(TrySendError::Closed(_)) => {
                self.streams.remove(&stream);
            }
        }
    }
}
