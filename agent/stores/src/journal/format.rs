//! PURE: the bytes of the log.
//!
//! A head of [`RECORDS_AT`] bytes, and behind it one record for the changes of each turn. The head says
//! what the file is, of which boot, and, in its *mark*, how far it goes: what lies before the mark must be
//! whole, what lies behind it was never told to anybody. So a write that was cut short is told from a file
//! that was damaged or cut. All numbers are little endian.

use uuid::Uuid;

use super::Entry;

const MAGIC: &[u8; 16] = b"tenured journal\n";
/// Grows with every change of this layout or of what is in the records.
pub(super) const VERSION: u32 = 1;
const VERSION_AT: usize = 16;
const BOOT_AT: usize = 24;
pub(super) const MARK_AT: usize = 64;
pub(super) const MARK: usize = 32;
/// The offset of the first record.
pub(super) const RECORDS_AT: usize = 128;
/// Before each record: the length of its changes, CRC-32 of all the rest, generation, sequence.
pub(super) const RECORD_HEAD: usize = 24;
/// A record is closed when it is longer than this.
const SEGMENT: usize = 64 * 1024;
/// Longer records are never written: a segment and one change, whose fields come from a body of 64 KiB.
pub(super) const RECORD_MAX: usize = 1024 * 1024;

/// How far a log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Grows with every agent that writes the journal, and when a journal must not be taken up again.
    pub(super) generation: u64,
    /// How many records there are.
    pub(super) sequence: u64,
    /// The end of the last one.
    pub(super) length: u64,
}

impl Mark {
    pub(super) fn empty(generation: u64) -> Mark {
        Mark { generation, sequence: 0, length: RECORDS_AT as u64 }
    }

    pub(super) fn bytes(self) -> [u8; MARK] {
        let mut bytes = [0; MARK];
        for (at, number) in [self.generation, self.sequence, self.length].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Mark> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let mark = Mark { generation: number(0)?, sequence: number(8)?, length: number(16)? };
        (mark.bytes() == *bytes).then_some(mark)
    }
}

/// The head of a log.
pub(super) fn head(boot_id: Uuid, mark: Mark) -> [u8; RECORDS_AT] {
    let mut head = [0; RECORDS_AT];
    head[..16].copy_from_slice(MAGIC);
    head[VERSION_AT..][..4].copy_from_slice(&VERSION.to_le_bytes());
    head[BOOT_AT..][..16].copy_from_slice(boot_id.as_bytes());
    head[MARK_AT..][..MARK].copy_from_slice(&mark.bytes());
    head
}

/// The contents of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It is of no journal.
    Foreign,
    /// It is of another layout.
    Version(u32),
    /// The boot, and how far the records go; `None` if that is damaged.
    Journal(Uuid, Option<Mark>),
}

pub(super) fn parse_head(head: &[u8; RECORDS_AT]) -> Head {
    let version = [VERSION_AT, VERSION_AT + 1, VERSION_AT + 2, VERSION_AT + 3].map(|at| head[at]);
    let mut boot = [0; 16];
    boot.copy_from_slice(&head[BOOT_AT..][..16]);
    match u32::from_le_bytes(version) {
        _ if head[..16] != *MAGIC => Head::Foreign,
        VERSION => Head::Journal(Uuid::from_bytes(boot), Mark::parse(&head[MARK_AT..][..MARK])),
        other => Head::Version(other),
    }
}

/// The records of one turn, to be written at once.
#[derive(Debug, Default)]
pub(super) struct Turn {
    bytes: Vec<u8>,
    /// The offset of each record.
    records: Vec<usize>,
}

impl Turn {
    pub(super) fn add(&mut self, entry: &Entry) {
        let is_full = |begin: &usize| self.bytes.len() - begin > SEGMENT;
        if self.records.last().is_none_or(is_full) {
            self.records.push(self.bytes.len());
            self.bytes.resize(self.bytes.len() + RECORD_HEAD, 0);
        }
        // Writing plain structs to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.bytes, entry);
        self.bytes.push(b'\n');
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records as they follow a mark, and the mark behind them.
    pub(super) fn behind(&mut self, mark: Mark) -> (&[u8], Mark) {
        let mut next = mark;
        let ends = self.records.iter().skip(1).copied().chain([self.bytes.len()]);
        for (begin, end) in self.records.iter().zip(ends) {
            next.sequence += 1;
            let record = &mut self.bytes[*begin..end];
            let length = (record.len() - RECORD_HEAD) as u32;
            record[..4].copy_from_slice(&length.to_le_bytes());
            record[8..16].copy_from_slice(&next.generation.to_le_bytes());
            record[16..24].copy_from_slice(&next.sequence.to_le_bytes());
            let crc = crc_of(record);
            record[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        next.length += self.bytes.len() as u64;
        (&self.bytes, next)
    }

    /// Empties it, and gives memory of a burst back.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.bytes.shrink_to(4 * SEGMENT);
    }
}

fn crc_of(record: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&record[..4]);
    crc.update(&record[8..]);
    crc.finalize()
}

/// The head of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead {
    bytes: [u8; RECORD_HEAD],
}

impl RecordHead {
    pub(super) fn new(bytes: [u8; RECORD_HEAD]) -> RecordHead {
        RecordHead { bytes }
    }

    fn number(&self, at: usize) -> u64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.bytes[at..][..8]);
        u64::from_le_bytes(number)
    }

    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..][..4]);
        u32::from_le_bytes(word)
    }

    pub(super) fn length(&self) -> usize {
        self.word(0) as usize
    }

    pub(super) fn generation(&self) -> u64 {
        self.number(8)
    }

    pub(super) fn sequence(&self) -> u64 {
        self.number(16)
    }

    pub(super) fn is_of(&self, changes: &[u8]) -> bool {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.bytes[..4]);
        crc.update(&self.bytes[8..]);
        crc.update(changes);
        crc.finalize() == self.word(4)
    }
}

/// The changes of a record.
pub(super) fn entries(changes: &[u8]) -> impl Iterator<Item = serde_json::Result<Entry>> {
    let lines = changes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(serde_json::from_slice)
}
