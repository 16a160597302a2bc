//! Gives memory back to the system when a burst is over.

use std::io;
use std::thread;

use tenure_service::thrift::{LOOK_EVERY, Thrift};

/// A gateway may keep so much without being asked, bytes: about what it has when nothing ever happened.
const KEPT_BYTES: u64 = 20 * 1024 * 1024;
/// One whose callers never leave it in peace gives back after so many looks, so that a burst is not kept for ever.
const BUSY_LOOKS_MAX: u32 = 6;

/// Looks every few seconds on a thread of its own, until the process ends.
///
/// # Errors
///
/// When there is no thread.
pub fn give_memory_back() -> io::Result<()> {
    let look = || {
        let mut thrift = Thrift::new(KEPT_BYTES).at_last_after(BUSY_LOOKS_MAX);
        loop {
            rest();
            thrift.look();
        }
    };
    thread::Builder::new().name("thrift".to_owned()).spawn(look).map(drop)
}

fn rest() {
    thread::sleep(LOOK_EVERY);
}
