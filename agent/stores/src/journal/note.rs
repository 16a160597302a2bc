//! PURE: what the ledger says, and its bytes.

use std::time::Duration;

use tenure_core::time::Boottime;
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"tenure-1";
/// Notes are written to the two slots of the file in turn: a write that is cut short leaves the one before.
pub(super) const SLOT: usize = 4096;
const CRC_AT: usize = 72;
/// Length of what is written.
pub(super) const BYTES: usize = 76;

/// Facts that must survive the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// Grows with every note.
    pub sequence: u64,
    /// No token beyond it was granted.
    pub high_water: u64,
    /// The boot that the rest is of.
    pub boot_id: Uuid,
    /// That of the journal which may be taken up.
    pub generation: u64,
    /// No grant lives longer from its last beat on.
    pub longest_ttl: Duration,
    /// Until then earlier grants may live that nobody knows.
    pub quarantined_until: Boottime,
}

impl Note {
    /// The bytes to write, and their offset.
    pub(super) fn bytes(&self) -> (u64, [u8; BYTES]) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let ttl = u64::try_from(self.longest_ttl.as_nanos()).unwrap_or(u64::MAX);
        let until = self.quarantined_until.as_nanos();
        let numbers = [self.sequence, self.high_water, self.generation, ttl, until];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[8 + at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[48..64].copy_from_slice(self.boot_id.as_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        (self.sequence % 2 * SLOT as u64, bytes)
    }

    pub(super) fn parse(bytes: &[u8; BYTES]) -> Option<Note> {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[8 + at * 8..][..8]);
            u64::from_le_bytes(number)
        };
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[48..64]);
        let note = Note {
            sequence: number(0),
            high_water: number(1),
            generation: number(2),
            longest_ttl: Duration::from_nanos(number(3)),
            quarantined_until: Boottime::from_nanos(number(4)),
            boot_id: Uuid::from_bytes(boot),
        };
        (note.bytes().1 == *bytes).then_some(note)
    }
}
