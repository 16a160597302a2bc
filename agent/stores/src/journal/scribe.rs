//! Writing the ledger's notes to the medium.

use std::fmt::Debug;
use std::io;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use super::disk::Disk;
use super::ledger::FILE;
use super::note::{Note, SLOT};

/// Notes that may wait: the ledger asks for one at a time.
const NOTES_MAX: usize = 1;

/// The length of the file.
const LENGTH: u64 = 2 * SLOT as u64;

/// Makes notes durable, one at a time, while its user goes on.
pub trait Scribe: Debug {
    /// Starts with a note; the one before was answered.
    fn start(&mut self, note: Note);

    /// Ready once that note is on the medium.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// The thread that waits for the disk. It takes notes and answers each; it ends when this is dropped, which
/// waits for the note under way.
#[derive(Debug)]
pub struct Thread {
    notes: Option<mpsc::SyncSender<Note>>,
    answers: tokio::sync::mpsc::Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system gives none.
    pub fn start(mut disk: Box<dyn Disk + Send>) -> io::Result<Thread> {
        let (notes, notes_out) = mpsc::sync_channel(NOTES_MAX);
        let (answers, answers_out) = tokio::sync::mpsc::channel(NOTES_MAX);
        let work = move || {
            for note in notes_out {
                // A receiver that is gone is an agent that is stopping.
                let _ = answers.blocking_send(write_note(&mut *disk, &note));
            }
        };
        let thread = thread::Builder::new().name("ledger".to_owned()).spawn(work)?;
        Ok(Thread { notes: Some(notes), answers: answers_out, thread: Some(thread) })
    }
}

/// Makes a note durable, and the file if there is none.
///
/// # Errors
///
/// When it may not be on the medium.
pub fn write_note(disk: &mut dyn Disk, note: &Note) -> io::Result<()> {
    let length = disk.length(FILE)?;
    if length.is_none() {
        disk.create(FILE)?;
    }
    if length.unwrap_or(0) < LENGTH {
        // Both slots have their space from now on: later notes do not fail for want of it.
        disk.write_at(FILE, LENGTH - 1, &[0])?;
        disk.reserve(FILE, 0, LENGTH)?;
    }
    let (at, bytes) = note.bytes();
    disk.write_at(FILE, at, &bytes)?;
    disk.sync(FILE)
}

impl Scribe for Thread {
    fn start(&mut self, note: Note) {
        if let Some(notes) = &self.notes {
            // Fails only if the thread has panicked; `poll` tells that.
            let _ = notes.try_send(note);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gone = || Err(io::Error::other("the thread that writes it has ended"));
        self.answers.poll_recv(context).map(|answer| answer.unwrap_or_else(gone))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.notes = None;
        if let Some(thread) = self.thread.take() {
            // The next ledger must find the last note. A panic was told by `poll`.
            let _ = thread.join();
        }
    }
}
