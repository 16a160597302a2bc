//! Reading a log from its beginning to its mark, a record at a time.

use std::io::{self, BufReader, Read};

use uuid::Uuid;

use super::disk::Disk;
use super::fold::Fold;
use super::format::{self, Head, Mark, RECORD_HEAD, RECORD_MAX, RECORDS_AT, RecordHead};

/// Read at a time; whatever the length of the file.
const BUFFER: usize = 256 * 1024;

/// Why a log is not taken up.
#[derive(Debug)]
pub(super) enum Unusable {
    Missing,
    OtherBoot,
    Version(u32),
    Damaged(String),
    Disk(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable::Disk(error)
    }
}

/// A file from an offset to an end.
struct Part<'a> {
    disk: &'a mut dyn Disk,
    file: &'static str,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = into.len().min(left);
        let count = self.disk.read_at(self.file, self.at, &mut into[..most])?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The contents of the log, and its end. With a boot only what is of that one.
pub(super) fn read(
    disk: &mut dyn Disk,
    file: &'static str,
    boot_id: Option<Uuid>,
) -> Result<(Fold, Mark), Unusable> {
    let Some(length) = disk.length(file)? else { return Err(Unusable::Missing) };
    let mut head = [0; RECORDS_AT];
    let whole = Part { disk, file, at: 0, end: length }.read_exact(&mut head);
    if let Err(error) = whole {
        return Err(match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("it is shorter than its head"),
            _ => Unusable::Disk(error),
        });
    }
    let mark = match format::parse_head(&head) {
        Head::Foreign => return Err(damaged("it is no journal")),
        Head::Version(found) => return Err(Unusable::Version(found)),
        Head::Journal(boot, _) if boot_id.is_some_and(|this| this != boot) => {
            return Err(Unusable::OtherBoot);
        }
        Head::Journal(_, None) => return Err(damaged("its head is damaged")),
        Head::Journal(_, Some(mark)) => mark,
    };
    if length < mark.length {
        return Err(damaged(&format!("it has {length} of {} bytes", mark.length)));
    }
    let part = Part { disk, file, at: RECORDS_AT as u64, end: mark.length };
    let fold = records(BufReader::with_capacity(BUFFER, part), mark)?;
    Ok((fold, mark))
}

fn records(mut from: impl Read, mark: Mark) -> Result<Fold, Unusable> {
    let mut fold = Fold::default();
    let mut changes = Vec::new();
    let mut reached = Mark { generation: 0, ..Mark::empty(0) };
    while reached.length < mark.length {
        let at = reached.length;
        let broken = |what: &str| damaged(&format!("{what} at byte {at}"));
        let mut head = [0; RECORD_HEAD];
        from.read_exact(&mut head).map_err(|error| cut(error, at))?;
        let head = RecordHead::new(head);
        if head.length() > RECORD_MAX {
            return Err(broken("a record is too long"));
        }
        changes.resize(head.length(), 0);
        from.read_exact(&mut changes).map_err(|error| cut(error, at))?;
        if !head.is_of(&changes) {
            return Err(broken("a record is damaged"));
        }
        let follows = head.sequence() == reached.sequence + 1
            && (reached.generation..=mark.generation).contains(&head.generation());
        if !follows {
            return Err(broken("a record does not follow the one before it"));
        }
        for entry in format::entries(&changes) {
            let entry = entry.map_err(|error| broken(&format!("unknown change ({error})")))?;
            fold.apply(entry);
        }
        reached = Mark {
            generation: head.generation(),
            sequence: head.sequence(),
            length: at + (RECORD_HEAD + changes.len()) as u64,
        };
    }
    if (reached.sequence, reached.length) != (mark.sequence, mark.length) {
        return Err(damaged("it does not end at its mark"));
    }
    Ok(fold)
}

fn cut(error: io::Error, at: u64) -> Unusable {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(&format!("a record is cut at byte {at}")),
        _ => Unusable::Disk(error),
    }
}

fn damaged(what: &str) -> Unusable {
    Unusable::Damaged(what.to_owned())
}
