//! Changes that have been told, but are not in the database yet.
//!
//! A transaction of SQLite takes longer than everything else that is done for a client. So the
//! changes of a turn are first appended here, in one write to the page cache, which survives the
//! agent as well as a transaction does; the database follows a moment later, with the changes of
//! many turns at once. What is found here at a start is applied to the database again: changes
//! replace or remove whole rows, so that doing them twice is doing them once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{engine, keeper};

/// More than this is written to the database at once instead.
const BYTES_MAX: u64 = 1024 * 1024;
/// Before each turn's changes: their length, and their CRC-32. A turn that was cut short is none.
const HEAD: usize = 8;

/// A change of the journal, whoever made it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Change {
    Keeper(keeper::journal::Entry),
    Engine(engine::journal::Entry),
}

/// `journal.redo` beside the database.
#[derive(Debug)]
pub(super) struct Redo {
    file: File,
    length: u64,
    /// The changes of this turn, behind room for their head.
    turn: Vec<u8>,
}

impl Redo {
    /// Opens the file, or makes it, and reads the changes that the database may lack.
    pub(super) fn open(path: &Path) -> io::Result<(Redo, Vec<Change>)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        let changes = parse(&bytes);
        Ok((Redo { file, length: 0, turn: Vec::new() }, changes))
    }

    /// Adds a change to this turn's.
    pub(super) fn add(&mut self, change: &Change) {
        if self.turn.is_empty() {
            self.turn.resize(HEAD, 0);
        }
        // Writing plain structs to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.turn, change);
        self.turn.push(b'\n');
    }

    /// Whether this turn has changes.
    pub(super) fn has_turn(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Makes this turn's changes survive the agent. Whether there was room for them.
    pub(super) fn write_turn(&mut self) -> io::Result<bool> {
        let Some((head, changes)) = self.turn.split_at_mut_checked(HEAD) else { return Ok(true) };
        let length = changes.len() as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(changes).to_le_bytes());
        if self.length + self.turn.len() as u64 > BYTES_MAX {
            return Ok(false);
        }
        self.file.write_all_at(&self.turn, self.length)?;
        self.length += self.turn.len() as u64;
        self.turn.clear();
        Ok(true)
    }

    /// The database has everything.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.turn.clear();
        if self.length > 0 {
            self.file.set_len(0)?;
            self.length = 0;
        }
        Ok(())
    }

    /// Forgets also what was there at the start.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.clear()
    }
}

fn parse(mut bytes: &[u8]) -> Vec<Change> {
    let mut changes = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(HEAD) {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let Some((turn, rest)) = rest.split_at_checked(word(0) as usize) else { break };
        if turn.is_empty() || crc32fast::hash(turn) != word(4) {
            break;
        }
        let lines = turn.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // Of the same program, which wrote them; a later one has another schema and does not come here.
        changes.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
        bytes = rest;
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock::Boottime;
    use crate::keeper::journal::Entry;

    fn valid(row: u64) -> Change {
        Change::Keeper(Entry::Valid { row, valid_until: Boottime::from_nanos(row) })
    }

    fn rows(changes: &[Change]) -> Vec<u64> {
        let row = |change: &Change| match change {
            Change::Keeper(Entry::Valid { row, .. }) => *row,
            other => panic!("{other:?}"),
        };
        changes.iter().map(row).collect()
    }

    #[test]
    fn whole_turns_survive_and_cut_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.redo");
        let (mut redo, found) = Redo::open(&path).unwrap();
        assert!(found.is_empty());
        for turn in [&[1, 2][..], &[3]] {
            turn.iter().for_each(|row| redo.add(&valid(*row)));
            assert!(redo.write_turn().unwrap());
        }
        redo.add(&valid(4));
        assert_eq!(rows(&Redo::open(&path).unwrap().1), [1, 2, 3], "turn by turn");

        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(rows(&Redo::open(&path).unwrap().1), [1, 2]);
        let mut damaged = whole.clone();
        damaged[HEAD + 3] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert!(Redo::open(&path).unwrap().1.is_empty());

        redo.clear().unwrap();
        assert!(Redo::open(&path).unwrap().1.is_empty());
    }

    #[test]
    fn a_turn_without_room_is_refused_and_nothing_of_it_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.redo");
        let (mut redo, _) = Redo::open(&path).unwrap();
        redo.add(&valid(1));
        assert!(redo.write_turn().unwrap());
        (0..BYTES_MAX / 16).for_each(|row| redo.add(&valid(row)));
        assert!(!redo.write_turn().unwrap());
        assert_eq!(rows(&Redo::open(&path).unwrap().1), [1]);
    }
}
