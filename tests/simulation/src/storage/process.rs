//! The directories of a host as one process has them, and the thread of its ledger.

use std::io::{self, ErrorKind};
use std::sync::MutexGuard;
use std::task::{Context, Poll};

use tenure_stores::journal::{Disk, Note, Scribe, write_note};

use super::super::planted::Planted;
use super::{File, MARK_MAX, Place, SYNC_US, State, Storage};

/// A directory as a process has it. After its end nothing more is done.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(super) storage: Storage,
    pub(super) place: Place,
    pub(super) process: u64,
}

impl Handle {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.storage.state();
        if !state.processes.is_alive(self.process) {
            return Err(gone());
        }
        Ok(state)
    }

    /// For what a process may be killed at.
    fn state_to_change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state()?;
        if state.processes.dies_now(self.process) { Err(gone()) } else { Ok(state) }
    }
}

fn gone() -> io::Error {
    io::Error::other("the process was killed")
}

impl Disk for Handle {
    fn length(&mut self, file: &'static str) -> io::Result<Option<u64>> {
        let mut state = self.state()?;
        Ok(state.directory(self.place).files.get(file).map(|file| file.bytes.len() as u64))
    }

    fn read_at(&mut self, file: &'static str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state()?;
        let file = state.directory(self.place).files.get(file).ok_or(ErrorKind::NotFound)?;
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let rest = file.bytes.get(at..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn create(&mut self, file: &'static str) -> io::Result<()> {
        let mut state = self.state_to_change()?;
        state.fails(self.place)?;
        state.directory(self.place).files.insert(file, File::default());
        Ok(())
    }

    fn write_at(&mut self, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        if state.processes.dies_now(self.process) {
            let cut = state.cut(at, bytes.len());
            state.put(self.place, file, at, &bytes[..cut]);
            return Err(gone());
        }
        let held_back = state.planted == Some(Planted::MarkFirst) && self.place == Place::Runtime;
        if held_back && at > 0 && bytes.len() > MARK_MAX {
            state.held_back = Some((file, at, bytes.to_vec()));
            return Ok(());
        }
        state.write(self.place, file, at, bytes)?;
        if held_back && state.processes.dies_now(self.process) {
            return Err(gone());
        }
        match state.held_back.take() {
            Some((file, at, bytes)) => state.write(self.place, file, at, &bytes),
            None => Ok(()),
        }
    }

    fn reserve(&mut self, file: &'static str, _from: u64, upto: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.fails(self.place)?;
        let directory = state.directory(self.place);
        let (is_full, reserves_nothing) = (directory.full, directory.reserves_nothing);
        let file = directory.files.get_mut(file).ok_or(ErrorKind::NotFound)?;
        if reserves_nothing {
            return Ok(());
        }
        if is_full && upto > file.space() {
            state.harm(self.place);
            return Err(ErrorKind::StorageFull.into());
        }
        file.reserved = file.reserved.max(upto);
        Ok(())
    }

    fn sync(&mut self, file: &'static str) -> io::Result<()> {
        self.state_to_change()?.sync(self.place, file)
    }

    fn rename(&mut self, from: &'static str, to: &'static str) -> io::Result<()> {
        let mut state = self.state_to_change()?;
        state.fails(self.place)?;
        let files = &mut state.directory(self.place).files;
        let file = files.remove(from).ok_or(ErrorKind::NotFound)?;
        files.insert(to, file);
        Ok(())
    }

    fn remove(&mut self, file: &'static str) -> io::Result<()> {
        self.state()?.directory(self.place).files.remove(file);
        Ok(())
    }
}

/// In place of the thread that waits for the medium.
#[derive(Debug)]
pub(crate) struct Clerk {
    pub(super) storage: Storage,
    pub(super) process: u64,
    pub(super) disk: Box<dyn Disk + Send>,
}

impl Scribe for Clerk {
    fn start(&mut self, note: Note) {
        let mut state = self.storage.state();
        let takes = state.random.us(SYNC_US.0, SYNC_US.1) + state.state.slow;
        state.writing = Some((self.process, note, state.now + takes));
    }

    fn poll(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let due = {
            let mut state = self.storage.state();
            let now = state.now;
            state.writing.take_if(|(of, _, due)| *of == self.process && *due <= now)
        };
        match due {
            Some((_, note, _)) => Poll::Ready(write_note(&mut *self.disk, &note)),
            None => Poll::Pending,
        }
    }
}
