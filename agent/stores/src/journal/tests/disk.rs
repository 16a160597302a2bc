//! A disk that fails as told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use crate::journal::Disk;

/// Clones share their files; [`Faulty::crash`] gives what the next agent finds.
#[derive(Debug, Clone, Default)]
pub(super) struct Faulty(Rc<RefCell<State>>);

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) files: BTreeMap<&'static str, Vec<u8>>,
    /// Up to where a file has space of its own.
    reserved: BTreeMap<&'static str, u64>,
    /// Bytes that are left for growing; `None` without bound.
    pub(super) free: Option<u64>,
    /// Every write fails so.
    pub(super) broken: Option<ErrorKind>,
    /// Not even removing works.
    pub(super) read_only: bool,
    /// The next write puts down only so much, and fails.
    pub(super) torn: Option<usize>,
    /// Nothing comes after that.
    pub(super) dies: bool,
    pub(super) writes: usize,
    pub(super) syncs: usize,
}

impl Faulty {
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.borrow_mut());
    }

    pub(super) fn bytes(&self, file: &'static str) -> Vec<u8> {
        self.0.borrow().files.get(file).cloned().unwrap_or_default()
    }

    pub(super) fn bytes_len(&self, file: &'static str) -> usize {
        self.0.borrow().files.get(file).map_or(0, Vec::len)
    }

    pub(super) fn has(&self, file: &'static str) -> bool {
        self.0.borrow().files.contains_key(file)
    }

    pub(super) fn writes(&self) -> usize {
        self.0.borrow().writes
    }

    /// The same files, with nothing wrong any more.
    pub(super) fn crash(&self) -> Faulty {
        let files = self.0.borrow().files.clone();
        Faulty(Rc::new(RefCell::new(State { files, ..State::default() })))
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        self.broken.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn grow(&mut self, file: &'static str, upto: u64) -> io::Result<()> {
        let has = self.files.get(file).map_or(0, Vec::len) as u64;
        let has = has.max(self.reserved.get(file).copied().unwrap_or(0));
        let more = upto.saturating_sub(has);
        if let Some(free) = &mut self.free {
            *free = free.checked_sub(more).ok_or(ErrorKind::StorageFull)?;
        }
        self.reserved.insert(file, upto.max(has));
        Ok(())
    }

    fn forget(&mut self, file: &'static str) {
        self.files.remove(file);
        if let (Some(space), Some(free)) = (self.reserved.remove(file), &mut self.free) {
            *free += space;
        }
    }
}

impl Disk for Faulty {
    fn length(&mut self, file: &'static str) -> io::Result<Option<u64>> {
        Ok(self.0.borrow().files.get(file).map(|bytes| bytes.len() as u64))
    }

    fn read_at(&mut self, file: &'static str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.0.borrow();
        let bytes = state.files.get(file).ok_or(ErrorKind::NotFound)?;
        let rest = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn create(&mut self, file: &'static str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.check()?;
        state.forget(file);
        state.files.insert(file, Vec::new());
        Ok(())
    }

    fn write_at(&mut self, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.check()?;
        state.writes += 1;
        let torn = state.torn.take();
        let written = &bytes[..torn.unwrap_or(bytes.len()).min(bytes.len())];
        let (at, end) =
            (usize::try_from(at).unwrap(), usize::try_from(at).unwrap() + written.len());
        state.grow(file, end as u64)?;
        let content = state.files.get_mut(file).ok_or(ErrorKind::NotFound)?;
        content.resize(content.len().max(end), 0);
        content[at..end].copy_from_slice(written);
        match torn {
            Some(_) => {
                state.read_only = state.dies;
                Err(ErrorKind::Interrupted.into())
            }
            None => Ok(()),
        }
    }

    fn reserve(&mut self, file: &'static str, _from: u64, upto: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.check()?;
        state.grow(file, upto)
    }

    fn sync(&mut self, _file: &'static str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.syncs += 1;
        state.check()
    }

    fn rename(&mut self, from: &'static str, to: &'static str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.check()?;
        state.forget(to);
        let bytes = state.files.remove(from).ok_or(ErrorKind::NotFound)?;
        state.files.insert(to, bytes);
        if let Some(space) = state.reserved.remove(from) {
            state.reserved.insert(to, space);
        }
        Ok(())
    }

    fn remove(&mut self, file: &'static str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.read_only && state.files.contains_key(file) {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        state.forget(file);
        Ok(())
    }
}
