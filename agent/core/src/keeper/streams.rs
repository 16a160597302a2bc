//! Event streams: who hears what, and replay.

use tenure_wire::{Event, SnapshotEvent, Tether};

use super::command::{Command, Note, StreamEnd};
use super::event::{Numbered, SharedEvent};
use super::map::Map;
use super::request::{StreamId, StreamTarget};
use super::ring::RingBytes;
use super::session::Session;
use super::settings::STREAMS_PER_SESSION_MAX;
use super::{Keeper, Limit, Phase, Refusal};
use crate::model::Peer;
use crate::model::{Resource, SessionId};
use crate::time::Boottime;

/// The subject of an open stream.
#[derive(Debug)]
pub(super) enum Stream {
    Session(SessionId),
    Resource(Resource),
}

/// Open streams, and the bytes of what may be told again on them.
#[derive(Debug)]
pub(super) struct Streams {
    open: Map<StreamId, Stream>,
    pub(super) ring_bytes: RingBytes,
}

impl Streams {
    pub(super) fn new(rings_bytes_max: usize) -> Streams {
        Streams { open: Map::default(), ring_bytes: RingBytes::new(rings_bytes_max) }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ring_bytes.all() == 0
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Stream> {
        self.open.get(&stream)
    }

    /// The streams with such a subject, in order.
    pub(super) fn ids(&self, is_meant: impl Fn(&Stream) -> bool) -> Vec<StreamId> {
        let meant = self.open.iter().filter(|(_, of)| is_meant(of));
        let mut ids: Vec<_> = meant.map(|(stream, _)| *stream).collect();
        ids.sort_unstable();
        ids
    }
}

impl Keeper {
    /// A client opens an event stream. What it has missed, or a snapshot, is sent at once.
    ///
    /// # Errors
    ///
    /// `session_unknown`, `session_lost`, `quota_exceeded`, `stopping`.
    pub fn open_stream(
        &mut self,
        now: Boottime,
        stream: StreamId,
        peer: Peer,
        target: StreamTarget,
    ) -> Result<(), Refusal> {
        if self.agent.phase != Phase::Running {
            return Err(Refusal::Stopping);
        }
        match target {
            StreamTarget::Session { session, last_event_id } => {
                let id = self.session_of(peer, session)?;
                self.open_session_stream(now, stream, peer, id, last_event_id)?;
            }
            StreamTarget::Resource(resource) => {
                self.streams.open.insert(stream, Stream::Resource(resource.clone()));
                self.watch_stream(now, &resource, stream);
            }
        }
        Ok(())
    }

    fn open_session_stream(
        &mut self,
        now: Boottime,
        stream: StreamId,
        peer: Peer,
        id: SessionId,
        last_event_id: Option<u64>,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if session.events.streams.len() >= STREAMS_PER_SESSION_MAX {
            self.out.note(Note::Refused { limit: "streams_per_session", uid: peer.uid });
            return Err(Refusal::Limit(Limit::Streams(id)));
        }
        session.events.streams.push(stream);
        session.events.heard = true;
        self.streams.open.insert(stream, Stream::Session(id));
        let missed = last_event_id
            .filter(|last| *last < session.events.next)
            .and_then(|last| session.events.ring.after(last));
        match missed {
            Some(missed) => {
                for event in missed {
                    self.out.push(Command::Send { stream, event });
                }
            }
            None => {
                // Numbered as the last event that happened, so that a reconnect asks for the next.
                let id_of_last = session.events.next.saturating_sub(1);
                let Some(session) = self.sessions.get(&id) else { return Ok(()) };
                let event = Event::Snapshot(self.snapshot(now, session));
                let event = Numbered::new(id_of_last, event);
                self.out.push(Command::Send { stream, event });
            }
        }
        self.come_back(id);
        self.tether_moved(now, id);
        self.flush_beats();
        Ok(())
    }

    fn snapshot(&self, now: Boottime, session: &Session) -> SnapshotEvent {
        let holds = self.views(now, session);
        SnapshotEvent { session: session.id().0, role: session.upstream.role, holds }
    }

    /// True if work that may go on without its reader hangs on the stream: then only the end of its
    /// descriptor is the end of it, whatever fits in.
    pub fn is_tether_of_work(&self, stream: StreamId) -> bool {
        let Some(Stream::Session(id)) = self.streams.get(stream) else { return false };
        self.sessions.get(id).is_some_and(|session| {
            session.saved.guarded && session.saved.tether == Tether::Connection
        })
    }

    /// A stream was closed by its reader, or was cut off by the shell.
    pub fn handle_stream_closed(&mut self, now: Boottime, stream: StreamId) {
        match self.streams.open.remove(&stream) {
            Some(Stream::Session(id)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.events.streams.retain(|open| *open != stream);
                    self.stream_gone(now, id);
                }
            }
            Some(Stream::Resource(resource)) => self.unwatch_stream(&resource, stream),
            None => {}
        }
        self.flush_beats();
    }

    /// Tells a session. Nothing is built for a session that nobody ever listened to.
    pub(super) fn tell(&mut self, id: SessionId, event: impl FnOnce() -> Event) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(number) = session.events.number() {
            self.send(id, Numbered::new(number, event()));
        }
    }

    /// Tells a session what so many are told.
    pub(super) fn tell_shared(&mut self, id: SessionId, event: &SharedEvent, readers: usize) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(number) = session.events.number() {
            self.send(id, Numbered::shared(number, event, readers));
        }
    }

    fn send(&mut self, id: SessionId, event: Numbered) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for stream in &session.events.streams {
            self.out.push(Command::Send { stream: *stream, event: event.clone() });
        }
        let uid = session.saved.uid;
        session.events.ring.push(event, uid, self.settings.ring_max, &mut self.streams.ring_bytes);
    }

    /// Ends the streams of a session.
    pub(super) fn end_streams(&mut self, id: SessionId, end: StreamEnd) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for stream in std::mem::take(&mut session.events.streams) {
            self.streams.open.remove(&stream);
            self.out.push(Command::CloseStream { stream, end });
        }
    }
}
