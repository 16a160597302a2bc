//! The validity page: a file of 64·(slots+1) bytes per session, on which a client sees its holds'
//! valid-until without asking the agent.
//!
//! Little endian. Header, 64 bytes: magic, `u32` version, `u32` slots, 16 bytes session uuid,
//! 16 bytes boot id, `u64` revision, zeros. Slot i at 64·(i+1): 16 bytes hold uuid, `u64` token,
//! `u64` valid-until (CLOCK_BOOTTIME ns, 0 = not held, one atomic store), `u32` state, zeros.
//!
//! Its instants are the agent's clock. A reader in another time namespace has another one: before it
//! trusts a page it must compare the two as [`check_clock`] does, with what the grant said.
//!
//! [`Page`] reads it: one load and one clock read, no system call into the agent, and right even
//! when the agent is stopped or dead.

mod clock;
mod map;
mod reader;

pub use self::clock::{ClocksDiffer, boottime_ns, check_clock};
#[cfg(all(feature = "client", target_os = "linux"))]
pub(crate) use self::map::Wiped;
pub use self::reader::{Page, PageError};
pub use crate::wire::page::*;
