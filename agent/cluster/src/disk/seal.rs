//! PURE. Checksums of all that is kept, and of the file to which SQLite appends it first.
//!
//! SQLite has no checksum of what it stores: an entry that the disk has changed would be applied as it is, and this
//! node would differ from the others. Its log of writes has some, but what follows a damaged place there is left out
//! without a word: a node would forget a vote that it has given.

/// Bytes of a checksum.
const SEAL: usize = 4;
/// SQLite's log of writes (<https://sqlite.org/fileformat2.html#walformat>): its header, and that of a frame.
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The magic number, but for its lowest bit: set, checksums are of big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// The disk gave back something else than was written.
#[derive(Debug, thiserror::Error)]
#[error("the disk has changed what was written: its checksum is another one")]
pub(super) struct Changed;

/// Adds a checksum.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// Takes the checksum off.
///
/// # Errors
///
/// When it is another one.
pub(super) fn unseal(mut bytes: Vec<u8>) -> Result<Vec<u8>, Changed> {
    let sum = bytes.split_off(bytes.len().saturating_sub(SEAL));
    if sum == crc32fast::hash(&bytes).to_be_bytes() { Ok(bytes) } else { Err(Changed) }
}

/// The first frame of a log of writes that is damaged although it was synced; 0 is the header.
///
/// A transaction whose write broke off is no damage: nobody was told of it. It is damage if another transaction follows
/// it, because that is written after the sync of this one.
pub(super) fn damaged_frame(wal: &[u8]) -> Option<usize> {
    let header = wal.get(..HEADER)?;
    let magic = word(header, 0)?;
    let is_big = magic & 1 == 1;
    let sums = |at: &[u8], first| Some((word(at, first)?, word(at, first + 4)?));
    if magic & !1 != MAGIC || sums(header, 24)? != sum((0, 0), &header[..24], is_big) {
        // The header is synced before any frame. Zeros are a file that was never synced.
        let is_new = wal.len() == HEADER || header.iter().all(|byte| *byte == 0);
        return (!is_new).then_some(0);
    }
    let (page, salts) = (word(header, 8)? as usize, sums(header, 16)?);
    let mut before = sums(header, 24)?;
    let (mut damaged, mut is_after_commit) = (None, false);
    for (index, frame) in wal[HEADER..].chunks_exact(FRAME_HEADER + page).enumerate() {
        let own = sums(frame, 16)?;
        let expected = sum(sum(before, &frame[..8], is_big), &frame[FRAME_HEADER..], is_big);
        let is_good = sums(frame, 8)? == salts && own == expected;
        if !is_good {
            damaged = damaged.or(Some(index + 1));
        } else if is_after_commit && damaged.is_some() {
            return damaged;
        }
        is_after_commit = sums(frame, 8)? == salts && word(frame, 4)? != 0;
        before = own;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn sum(before: (u32, u32), bytes: &[u8], is_big: bool) -> (u32, u32) {
    bytes.chunks_exact(8).fold(before, |(first, second), pair| {
        let word = |at: usize| {
            let word = word(pair, at).unwrap_or_default();
            if is_big { word } else { word.swap_bytes() }
        };
        let first = first.wrapping_add(word(0)).wrapping_add(second);
        (first, second.wrapping_add(word(4)).wrapping_add(first))
    })
}
