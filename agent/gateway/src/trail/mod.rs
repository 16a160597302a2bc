//! The audit trail: one JSON line for each register, grant, preemption, release, loss, refusal and change
//! of a key.
//!
//! No request waits for it. Lines wait for their thread in a queue with bounds, part of which is kept for what succeeded.
//! Of refusals each source has so many lines a second; the others are summed up, in one line of a source and interval.
//! The file has a bound, too, and gives way to a new one. What could not be written is counted, and a line says how much.

mod file;
mod line;
mod queue;
mod sources;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tenure_host::clock;
use tokio::sync::oneshot;

pub use self::file::Place;
use self::line::{Entry, beginning};
use self::queue::{Message, Queue};
use self::sources::Source;
use self::writer::Writer;
use crate::access::{Caller, Event, Fact, KeyId, neighbourhood};

/// The bounds of a trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of each file.
    pub bytes_max: u64,
    /// With the one that is written.
    pub files_max: u32,
    /// Of each source.
    pub refusals_per_second: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes_max: 64 << 20, files_max: 4, refusals_per_second: 10 }
    }
}

/// The way to the trail. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trail(Option<Arc<Way>>);

/// The last one that is dropped ends the thread.
#[derive(Debug)]
struct Way(Arc<Queue>);

impl Drop for Way {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Somebody whom a line is about.
#[derive(Debug, Clone, Default)]
pub struct By {
    pub key: Option<KeyId>,
    pub principal: Option<Arc<str>>,
    pub peer: Option<SocketAddr>,
}

impl From<&Caller> for By {
    fn from(Caller { principal, key, peer, .. }: &Caller) -> By {
        By { key: *key, principal: Some(Arc::clone(&principal.name)), peer: *peer }
    }
}

impl By {
    fn source(&self) -> Source {
        match (&self.principal, self.peer) {
            (Some(principal), _) => Source::Principal(Arc::clone(principal)),
            (None, Some(peer)) => Source::Address(neighbourhood(peer.ip())),
            (None, None) => Source::Others,
        }
    }
}

impl Trail {
    /// Keeps a trail, on a thread of its own, which ends with the last clone of this.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or the thread not be started.
    pub fn keep(place: Place, limits: Limits) -> io::Result<Trail> {
        let queue = Arc::new(Queue::new(limits.refusals_per_second));
        let writer = Writer::open(place, limits)?;
        let own = Arc::clone(&queue);
        std::thread::Builder::new().name("trail".to_owned()).spawn(move || writer.run(&own))?;
        Ok(Trail(Some(Arc::new(Way(queue)))))
    }

    /// True if there is one.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a line, or counts it as left out.
    pub fn tell(&self, by: By, fact: Fact) {
        let Some(Way(queue)) = self.0.as_deref().filter(|_| fact.event != Event::Wait) else {
            return;
        };
        let wall_us = clock::wall_us();
        let reason = beginning(&fact.outcome);
        // A caller can cause as much as it likes of all that changes nothing.
        let source = (!fact.has_effect()).then(|| by.source());
        if let Some(source) = &source
            && !queue.admit(wall_us, source, reason)
        {
            return;
        }
        queue.push(wall_us, source, Entry::new(wall_us, by, &fact), reason);
    }

    /// Opens the file again, after what was told before.
    pub fn reopen(&self) {
        if let Some(Way(queue)) = self.0.as_deref() {
            queue.order(Message::Reopen);
        }
    }

    /// Waits until all that was told before is written, or was tried to be.
    pub async fn flush(&self) {
        let Some(Way(queue)) = self.0.as_deref() else { return };
        let (done, is_done) = oneshot::channel();
        queue.order(Message::Flush(done));
        // A thread that has ended writes no more.
        let _ = is_done.await;
    }
}
