//! Gives memory back to the system when a burst is over.

use std::convert::Infallible;
use std::time::Duration;

use tenure_host::memory;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// An agent may keep so much without being asked, bytes: about what it has when nothing ever
/// happened.
const KEPT_BYTES: u64 = 14 * 1024 * 1024;
/// Less than this makes no difference, bytes.
const NOTABLE_BYTES: u64 = 1024 * 1024;
/// Looks after which it is tried again although nothing seems to have changed: what was used is free
/// by then, perhaps, and nobody else can tell.
const LOOKS_MAX: u32 = 4;
/// A busy process is left alone: whoever wants memory meanwhile has to wait. Of a core.
const BUSY_SHARE: f64 = 0.3;

/// Looks every few seconds, for as long as it is polled. It may block, so it belongs on a thread that
/// nobody waits for.
#[expect(clippy::disallowed_methods, reason = "the pace of a look, no deadline")]
pub async fn give_memory_back() -> Infallible {
    let mut before = Look::now();
    let mut given_back: Option<u64> = None;
    let mut looks = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = Look::now();
        looks += 1;
        let is_new = given_back.is_none_or(|after| look.resident.abs_diff(after) > NOTABLE_BYTES);
        let is_calm = look.cpu.saturating_sub(before.cpu) < LOOK_EVERY.mul_f64(BUSY_SHARE)
            && look.resident <= before.resident + NOTABLE_BYTES;
        if look.resident > KEPT_BYTES && is_calm && (is_new || looks >= LOOKS_MAX) {
            memory::give_back();
            let after = memory::resident_bytes().unwrap_or(look.resident);
            tracing::debug!(before = look.resident, after, "gave free memory back");
            given_back = Some(after);
            looks = 0;
        }
        before = look;
    }
}

struct Look {
    resident: u64,
    cpu: Duration,
}

impl Look {
    fn now() -> Look {
        // A size that cannot be seen is never given back.
        Look {
            resident: memory::resident_bytes().unwrap_or(0),
            cpu: memory::cpu_time().unwrap_or(Duration::MAX),
        }
    }
}
