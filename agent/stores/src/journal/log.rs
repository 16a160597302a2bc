//! The journal of this boot.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use tenure_core::time::Boottime;
use tenure_core::{engine, keeper};
use uuid::Uuid;

use super::ahead::Ahead;
use super::disk::{Disk, is_full};
use super::format::{self, MARK_AT, Mark, RECORDS_AT, Turn};
use super::found::{Found, Fresh, Notice, OpenError};
use super::read::{self, Unusable};
use super::rewrite::{Live, Retry, Rewrite, Rewriting};
use super::{Entry, Rows};

/// The log in the runtime directory.
pub const FILE: &str = "journal.log";
/// A log that is being written anew.
const NEW: &str = "journal.new";
/// The name under which a log that cannot be read is left for people to look at.
pub(super) const DAMAGED: &str = "journal.damaged";
/// `journal.log` in the runtime directory: one record for the changes of each turn of the heart.
///
/// Changes are noted one by one; [`secure`](Journal::secure) makes those of a turn survive the agent,
/// before anything of that turn is told. There is no fsync: the log is worth nothing after a reboot.
///
/// From time to time, and after a failure, it is written anew from memory into another file, some rows in
/// each turn with all changes meanwhile, and that file takes the place of the old one.
///
/// After a failed write nothing more may be granted until it is written anew
/// ([`refusal`](Journal::refusal)), and the file is removed: a restart meanwhile starts from nothing, which
/// it can know, and not from a state that was overtaken, which it could not. A little space is kept ahead,
/// so that a full disk does not come to that at once: as soon as there is less, nothing more is granted.
#[derive(Debug)]
pub struct Journal {
    disk: Box<dyn Disk>,
    ahead: Ahead,
    boot_id: Uuid,
    generation: u64,
    /// How far the log goes; `None` after a failed write.
    mark: Option<Mark>,
    /// Up to where there is space.
    reserved: u64,
    turn: Turn,
    rewriting: Rewriting,
    /// When space ahead is asked for again.
    retry: Retry,
    failure: Option<Arc<str>>,
    /// Renewals were left out of it.
    lacks_renewals: bool,
    fresh: Option<Fresh>,
}

impl Journal {
    /// Opens the journal of this boot and reads it, or makes a new one. `expected` is the generation that
    /// the ledger knows of: a log of another one was overtaken. On a full disk it comes up with what can be
    /// read, and grants nothing until it can be written.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or cannot be made or written for another reason than want of space.
    pub fn open(
        mut disk: Box<dyn Disk>,
        boot_id: Uuid,
        expected: Option<u64>,
        ahead: Ahead,
    ) -> Result<(Journal, Found), OpenError> {
        // It is of an agent that was killed while it wrote it.
        disk.remove(NEW)?;
        let taken_up = match read::read(&mut *disk, FILE, Some(boot_id)) {
            Ok((fold, mark)) => {
                // The next generation is in the log before it is in the ledger.
                let is_current =
                    |known: u64| mark.generation == known || mark.generation == known + 1;
                match fold.finish() {
                    _ if !expected.is_none_or(is_current) => Err(Fresh::Overtaken),
                    Ok((keeper, engine)) => Ok((mark, Found { keeper, engine })),
                    Err(cause) => Err(Fresh::Damaged { cause }),
                }
            }
            Err(Unusable::Disk(error)) => return Err(error.into()),
            Err(Unusable::Missing) => Err(Fresh::Missing),
            Err(Unusable::OtherBoot) => Err(Fresh::OtherBoot),
            Err(Unusable::Version(found)) => Err(Fresh::OtherVersion { found }),
            Err(Unusable::Damaged(cause)) => Err(Fresh::Damaged { cause }),
        };
        let (mark, found, fresh, written) = match taken_up {
            Ok((mark, found)) => {
                // The same at every start until one of them is in the ledger.
                let generation = expected.unwrap_or(mark.generation) + 1;
                let mark = Mark { generation, ..mark };
                let written = disk.write_at(FILE, MARK_AT as u64, &mark.bytes());
                (mark, found, None, written)
            }
            Err(fresh) => {
                if matches!(fresh, Fresh::Damaged { .. } | Fresh::OtherVersion { .. }) {
                    disk.rename(FILE, DAMAGED)?;
                }
                // Not to be taken up before the ledger knows of it: a start that gets no further must not
                // hide from the next that what an earlier agent granted is lost.
                let mark = Mark::empty(expected.unwrap_or(0) + 2);
                let written = begin(&mut *disk, boot_id, mark);
                let written = written.and_then(|()| disk.rename(NEW, FILE));
                (mark, Found::default(), Some(fresh), written)
            }
        };
        let mut journal = Journal {
            disk,
            ahead,
            boot_id,
            generation: mark.generation,
            mark: Some(mark),
            reserved: mark.length,
            turn: Turn::default(),
            rewriting: Rewriting::default(),
            retry: Retry::default(),
            failure: None,
            lacks_renewals: false,
            fresh,
        };
        match written {
            Ok(()) => drop(journal.reserve(Boottime::ZERO)),
            Err(error) if is_full(&error) => drop(journal.give_up(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok((journal, found))
    }

    /// The boot it is of.
    pub fn boot_id(&self) -> Uuid {
        self.boot_id
    }

    /// That of a log which may be taken up; see [`Journal::open`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Why it is new; `None` if it was there.
    pub fn fresh(&self) -> Option<&Fresh> {
        self.fresh.as_ref()
    }

    /// Why nothing may be granted now: what is granted might not survive a restart.
    pub fn refusal(&self) -> Option<&Arc<str>> {
        self.failure.as_ref()
    }

    /// Whether holds may be valid longer than it says. A start asks their pages
    /// ([`keeper::journal::Saved::catch_up`]).
    pub fn lacks_renewals(&self) -> bool {
        self.lacks_renewals
    }

    /// Has it written anew, in the directory that stands where its own was removed. What lay in that one, should it come back, is
    /// overtaken, which the ledger tells; a store without one refuses what is overtaken itself.
    pub fn move_on(&mut self) {
        if !self.rewriting.is_gone {
            // Once for all moves before it is written: a start takes up the ledger's generation, or the next.
            self.generation += 1;
        }
        self.rewriting.under_way = None;
        self.rewriting.retry = Retry::default();
        self.rewriting.is_gone = true;
    }

    /// Notes a change of the keeper's. Renewals are left out while there is no space ahead: those of thousands of
    /// holds would use up in seconds what is kept for their ends.
    pub fn write(&mut self, entry: keeper::journal::Entry) {
        let is_short = self.failure.is_some() && self.mark.is_some();
        if is_short && matches!(entry, keeper::journal::Entry::Valid { .. }) {
            self.lacks_renewals = true;
            if let Some(rewrite) = &mut self.rewriting.under_way {
                rewrite.lacks_renewals = true;
            }
            return;
        }
        self.turn.add(&Entry::Keeper(entry));
    }

    /// Notes a change of the engine's.
    pub fn write_engine(&mut self, entry: engine::journal::Entry) {
        self.turn.add(&Entry::Engine(entry));
    }

    /// Makes everything noted survive the agent. Costs nothing if nothing was noted, and two short writes
    /// to memory if something was. What failed is told.
    pub fn secure(&mut self, now: Boottime) -> Option<Notice> {
        if self.turn.is_empty() {
            return None;
        }
        if let Some(rewrite) = &mut self.rewriting.under_way {
            let (bytes, next) = self.turn.behind(rewrite.mark);
            match self.disk.write_at(NEW, rewrite.mark.length, bytes) {
                Ok(()) => rewrite.mark = next,
                Err(_) => drop(self.abandon_rewrite(now, None)),
            }
        }
        let mut notice = None;
        if let Some(mark) = self.mark {
            let (bytes, next) = self.turn.behind(mark);
            let written = self.disk.write_at(FILE, mark.length, bytes);
            let written =
                written.and_then(|()| self.disk.write_at(FILE, MARK_AT as u64, &next.bytes()));
            match written {
                Ok(()) => self.mark = Some(next),
                Err(error) => notice = Some(self.give_up(&error)),
            }
        }
        self.turn.clear();
        notice
    }

    /// Does a part of what is due besides: keeps space ahead, writes the log anew. What changed is told.
    pub fn tend(&mut self, now: Boottime, rows: &dyn Rows) -> Option<Notice> {
        if self.rewriting.under_way.is_some() {
            return self.go_on(now, rows);
        }
        let notice = self.reserve(now);
        let is_wanted = self.is_behind() || self.mark.is_none_or(|mark| self.is_long(mark, rows));
        if notice.is_some() || !is_wanted || !self.rewriting.retry.is_due(now) {
            return notice;
        }
        match self.begin_rewrite(rows) {
            Ok(()) => self.go_on(now, rows),
            Err(error) => self.abandon_rewrite(now, Some(&error)),
        }
    }

    /// When [`Journal::tend`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        if self.rewriting.under_way.is_some() {
            return Some(Boottime::ZERO);
        }
        match self.mark {
            None => Some(self.rewriting.retry.at.unwrap_or(Boottime::ZERO)),
            Some(_) => {
                let rewrite =
                    self.is_behind().then(|| self.rewriting.retry.at.unwrap_or(Boottime::ZERO));
                let reserve = self.failure.as_ref().and(self.retry.at);
                rewrite.into_iter().chain(reserve).min()
            }
        }
    }

    /// Tries once more, at the end of this agent, to leave a whole log to the next one.
    pub fn finish(&mut self, now: Boottime, rows: &dyn Rows) -> Option<Notice> {
        let mut notice = None;
        if self.mark.is_none() || self.rewriting.is_gone {
            self.rewriting.retry = Retry::default();
            notice = self.tend(now, rows);
            if self.rewriting.under_way.is_none() && (self.mark.is_none() || self.rewriting.is_gone)
            {
                // The first look has reserved space, and comes to the rewriting now.
                notice = self.tend(now, rows).or(notice);
            }
            while self.rewriting.under_way.is_some() {
                notice = self.tend(now, rows);
            }
        }
        notice
    }

    /// As if a write had failed.
    #[cfg(test)]
    pub(crate) fn fail(&mut self, error: &io::Error) {
        self.give_up(error);
    }

    /// True if a start would find less than it has.
    fn is_behind(&self) -> bool {
        self.rewriting.is_gone || (self.lacks_renewals && self.failure.is_none())
    }

    fn is_long(&self, mark: Mark, rows: &dyn Rows) -> bool {
        // A shorter log makes space ahead when there is none.
        let slack = if self.failure.is_some() { self.ahead.space / 4 } else { self.ahead.slack };
        if mark.length < slack {
            return false;
        }
        let live = self.rewriting.live.length_of(rows.count() as u64);
        let added = mark.length.saturating_sub(self.rewriting.live.bytes);
        // Writing it anew costs as much as what was added at least.
        mark.length > 2 * live + slack && (added > live || live < self.rewriting.live.bytes / 2)
    }

    fn begin_rewrite(&mut self, rows: &dyn Rows) -> io::Result<()> {
        let mark = Mark::empty(self.generation);
        begin(&mut *self.disk, self.boot_id, mark)?;
        let keys = rows.keys();
        let rows = keys.len() as u64;
        self.rewriting.under_way =
            Some(Rewrite { mark, rows, lacks_renewals: false, keys: keys.into_iter() });
        Ok(())
    }

    /// Writes some rows, and after the last puts the new log in place of the old.
    fn go_on(&mut self, now: Boottime, rows: &dyn Rows) -> Option<Notice> {
        let Some(rewrite) = &mut self.rewriting.under_way else { return None };
        let mut slice = Turn::default();
        for key in rewrite.keys.by_ref().take(self.ahead.rows) {
            rows.write(&key, &mut |entry| slice.add(&entry));
        }
        let (bytes, next) = slice.behind(rewrite.mark);
        let mut written = self.disk.write_at(NEW, rewrite.mark.length, bytes);
        rewrite.mark = next;
        let done = rewrite.keys.len() == 0;
        let (rows, lacks_renewals) = (rewrite.rows, rewrite.lacks_renewals);
        let upto = next.length + 2 * self.ahead.space;
        let mut reserved = next.length;
        if done && written.is_ok() {
            written = self.disk.reserve(NEW, next.length, upto);
            match written {
                Ok(()) => reserved = upto,
                // The old one has no space ahead either, and leaves its own.
                Err(_) if self.failure.is_some() => written = Ok(()),
                Err(_) => {}
            }
            written = written
                .and_then(|()| self.disk.write_at(NEW, MARK_AT as u64, &next.bytes()))
                .and_then(|()| self.disk.rename(NEW, FILE));
        }
        match written {
            Err(error) => self.abandon_rewrite(now, Some(&error)),
            Ok(()) if done => {
                self.rewriting.under_way = None;
                self.mark = Some(next);
                self.reserved = reserved;
                self.rewriting.live = Live { bytes: next.length, rows };
                self.lacks_renewals = lacks_renewals;
                self.rewriting.is_gone = false;
                self.retry = Retry::default();
                self.rewriting.retry = Retry::default();
                self.reserve(now)
            }
            Ok(()) => None,
        }
    }

    fn abandon_rewrite(&mut self, now: Boottime, error: Option<&io::Error>) -> Option<Notice> {
        self.rewriting.under_way = None;
        self.rewriting.retry.after_failure(now);
        // It takes space, and means nothing.
        let _ = self.disk.remove(NEW);
        if let (None, Some(error)) = (self.mark, error) {
            self.failure = Some(format!("the journal cannot be written ({error})").into());
        }
        None
    }

    /// Space for what must be written even if nothing may be granted.
    fn reserve(&mut self, now: Boottime) -> Option<Notice> {
        let mark = self.mark?;
        if mark.length + self.ahead.space <= self.reserved {
            self.retry = Retry::default();
            return self.failure.take().map(|_| Notice::Mended);
        }
        if !self.retry.is_due(now) {
            return None;
        }
        let upto = mark.length + 2 * self.ahead.space;
        match self.disk.reserve(FILE, mark.length, upto) {
            Ok(()) => {
                self.reserved = upto;
                self.reserve(now)
            }
            Err(error) => {
                self.retry.after_failure(now);
                let cause = format!("the journal has no space ahead ({error})");
                let is_new = self.failure.replace(cause.as_str().into()).is_none();
                is_new.then_some(Notice::Short(cause))
            }
        }
    }

    fn give_up(&mut self, error: &io::Error) -> Notice {
        self.mark = None;
        self.rewriting.retry = Retry::default();
        let cause = format!("the journal cannot be written ({error})");
        self.failure = Some(cause.as_str().into());
        if self.disk.remove(FILE).is_err() {
            // A log that is left there must not be taken up: the ledger learns of a generation that
            // it lacks.
            self.generation += 1;
            self.rewriting.under_way = None;
        }
        Notice::Failed(cause)
    }
}

/// Looks into the journal of an agent that may be running.
///
/// # Errors
///
/// When it cannot be read, or is not whole.
pub fn look(disk: &mut dyn Disk) -> io::Result<Found> {
    let other = |cause| Err(io::Error::other(cause));
    match read::read(disk, FILE, None) {
        Ok((fold, _)) => {
            let (keeper, engine) = fold.finish().map_err(io::Error::other)?;
            Ok(Found { keeper, engine })
        }
        Err(Unusable::Disk(error)) => Err(error),
        Err(Unusable::Missing | Unusable::OtherBoot) => other(Fresh::Missing.to_string()),
        Err(Unusable::Version(found)) => other(Fresh::OtherVersion { found }.to_string()),
        Err(Unusable::Damaged(cause)) => other(cause),
    }
}

/// A log without records.
fn begin(disk: &mut dyn Disk, boot_id: Uuid, mark: Mark) -> io::Result<()> {
    disk.create(NEW)?;
    let head: [u8; RECORDS_AT] = format::head(boot_id, mark);
    disk.write_at(NEW, 0, &head)
}
