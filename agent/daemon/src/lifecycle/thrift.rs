//! Gives memory back to the system when a burst is over.

use std::convert::Infallible;

use tenure_service::thrift::{LOOK_EVERY, Thrift};

/// An agent may keep so much without being asked, bytes: about what it has when nothing ever
/// happened.
const KEPT_BYTES: u64 = 14 * 1024 * 1024;

/// Looks every few seconds, for as long as it is polled. It may block, so it belongs on a thread that
/// nobody waits for.
#[expect(clippy::disallowed_methods, reason = "the pace of a look, no deadline")]
pub async fn give_memory_back() -> Infallible {
    let mut thrift = Thrift::new(KEPT_BYTES);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        thrift.look();
    }
}
