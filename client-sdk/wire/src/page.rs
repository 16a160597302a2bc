//! Layout of the validity page: a file of 64·(slots+1) bytes per session, on which a client sees its holds'
//! valid-until without asking the agent.
//!
//! Little endian. Header, 64 bytes: magic, `u32` version, `u32` slots, 16 bytes session uuid,
//! 16 bytes boot id, `u64` revision, zeros. Slot i at 64·(i+1): 16 bytes hold uuid, `u64` token,
//! `u64` valid-until (CLOCK_BOOTTIME ns, 0 = not held, one atomic store), `u32` state, zeros.

/// First eight bytes of a page.
pub const MAGIC: [u8; 8] = *b"TENUREP1";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Slots on a page, unless its session asked for another number.
pub const SLOTS: u32 = 63;
/// Most slots on a page.
pub const SLOTS_MAX: u32 = 4095;
/// Size of a page with [`SLOTS`] slots, bytes.
pub const SIZE: usize = size(SLOTS);
/// Size of the header and of each slot, bytes.
pub const SLOT_SIZE: usize = 64;

/// Size of a page with that many slots, bytes.
///
/// ```
/// assert_eq!(tenure_wire::page::size(63), 4096);
/// ```
pub const fn size(slots: u32) -> usize {
    SLOT_SIZE * (slots as usize + 1)
}

/// Offset of the layout version in the header, bytes.
pub const VERSION_AT: usize = 8;
/// Offset of the number of slots in the header, bytes.
pub const SLOTS_AT: usize = 12;
/// Offset of the session uuid in the header, bytes.
pub const SESSION_AT: usize = 16;
/// Offset of the boot id in the header, bytes.
pub const BOOT_ID_AT: usize = 32;
/// Offset of the revision in the header, bytes. Grows with every write to the page.
pub const REVISION_AT: usize = 48;

/// Offset of the hold uuid in a slot, bytes.
pub const HOLD_AT: usize = 0;
/// Offset of the token in a slot, bytes.
pub const TOKEN_AT: usize = 16;
/// Offset of valid-until in a slot, bytes.
pub const VALID_UNTIL_AT: usize = 24;
/// Offset of the state in a slot, bytes: 0 free, 1 waiting, 2 held, 3 jeopardy, 4 released, 5 lost.
pub const STATE_AT: usize = 32;

/// State of a slot nobody uses.
pub const STATE_FREE: u32 = 0;
/// State of a hold that waits for its grant.
pub const STATE_WAITING: u32 = 1;
/// State of a hold that is renewed in time.
pub const STATE_HELD: u32 = 2;
/// State of a hold whose last renewal is unknown.
pub const STATE_JEOPARDY: u32 = 3;
/// State of a hold that was given back.
pub const STATE_RELEASED: u32 = 4;
/// State of a hold that is gone.
pub const STATE_LOST: u32 = 5;
