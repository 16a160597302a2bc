//! Event streams: who hears what, and replay.

use tenure_wire::{Event, SnapshotEvent, Tether};

use super::command::{Command, Note, StreamEnd};
use super::event::{Numbered, SharedEvent};
use super::request::{StreamId, StreamTarget};
use super::settings::STREAMS_PER_SESSION_MAX;
use super::{Keeper, Limit, Phase, Refusal, Stream};
use crate::model::Peer;
use crate::model::SessionId;
use crate::time::Boottime;

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
        if self.phase != Phase::Running {
            return Err(Refusal::Stopping);
        }
        match target {
            StreamTarget::Session { session, last_event_id } => {
                let id = self.session_of(peer, session)?;
                self.open_session_stream(now, stream, peer, id, last_event_id)?;
            }
            StreamTarget::Resource(resource) => {
                self.streams.insert(stream, Stream::Resource(resource.clone()));
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
        if session.streams.len() >= STREAMS_PER_SESSION_MAX {
            self.note(Note::Refused { limit: "streams_per_session", uid: peer.uid });
            return Err(Refusal::Limit(Limit::Streams(id)));
        }
        session.streams.push(stream);
        session.heard = true;
        self.streams.insert(stream, Stream::Session(id));
        let missed = last_event_id
            .filter(|last| *last < session.next_event)
            .and_then(|last| session.ring.after(last));
        match missed {
            Some(missed) => {
                let sends = missed.into_iter().map(|event| Command::Send { stream, event });
                self.commands.extend(sends);
            }
            None => {
                // Numbered as the last event that happened, so that a reconnect asks for the next.
                let id_of_last = session.next_event.saturating_sub(1);
                let event = Event::Snapshot(self.snapshot(now, id));
                let event = Numbered::new(id_of_last, event);
                self.commands.push_back(Command::Send { stream, event });
            }
        }
        self.come_back(id);
        self.tether_moved(now, id);
        self.flush_beats();
        Ok(())
    }

    fn snapshot(&self, now: Boottime, id: SessionId) -> SnapshotEvent {
        let session = &self.sessions[&id];
        let holds = session.holds.iter().filter_map(|hold| self.holds.get(hold));
        SnapshotEvent {
            session: id.0,
            role: session.role,
            holds: holds.map(|hold| hold.view(now)).collect(),
        }
    }

    /// True if work that may go on without its reader hangs on the stream: then only the end of its
    /// descriptor is the end of it, whatever fits in.
    pub fn is_tether_of_work(&self, stream: StreamId) -> bool {
        let Some(Stream::Session(id)) = self.streams.get(&stream) else { return false };
        self.sessions.get(id).is_some_and(|session| {
            session.saved.guarded && session.saved.tether == Tether::Connection
        })
    }

    /// A stream was closed by its reader, or was cut off by the shell.
    pub fn handle_stream_closed(&mut self, now: Boottime, stream: StreamId) {
        match self.streams.remove(&stream) {
            Some(Stream::Session(id)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.streams.retain(|open| *open != stream);
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
        let number = session.next_event;
        session.next_event += 1;
        if session.heard {
            self.send(id, Numbered::new(number, event()));
        } else {
            session.ring.pass(number);
        }
    }

    /// Tells a session what so many are told.
    pub(super) fn tell_shared(&mut self, id: SessionId, event: &SharedEvent, readers: usize) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let number = session.next_event;
        session.next_event += 1;
        if session.heard {
            self.send(id, Numbered::shared(number, event, readers));
        } else {
            session.ring.pass(number);
        }
    }

    fn send(&mut self, id: SessionId, event: Numbered) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for stream in &session.streams {
            self.commands.push_back(Command::Send { stream: *stream, event: event.clone() });
        }
        let uid = session.saved.uid;
        session.ring.push(event, uid, self.settings.ring_max, &mut self.ring_bytes);
    }

    /// Ends the streams of a session.
    pub(super) fn end_streams(&mut self, id: SessionId, end: StreamEnd) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for stream in std::mem::take(&mut session.streams) {
            self.streams.remove(&stream);
            self.commands.push_back(Command::CloseStream { stream, end });
        }
    }
}
