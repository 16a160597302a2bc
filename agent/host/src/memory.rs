//! Memory that is not needed any more.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Bytes of this process that are in memory, as the kernel counts them; `None` where it does not say.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).ok()?)
}

/// The time that this process has used processors for; `None` where the kernel does not say.
pub fn cpu_time() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let us = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Some(Duration::from_micros(us(usage.user_time()) + us(usage.system_time())))
}

/// Free bytes that an arena of the allocator may keep at its end. Left to itself, glibc raises its bound to twice the largest
/// piece that was ever freed, and [`give_back`] does not reach the ends of arenas other than the first.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const END_BYTES_MAX: libc::c_int = 1 << 20;
/// Larger pieces get a mapping of their own (mmap), which is returned when the piece is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PIECE_BYTES_MAX: libc::c_int = 1 << 20;

/// Makes glibc return free memory to the system early, in the whole process.
pub fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two integers and sets thresholds; memory in use is not touched.
    // JUSTIFICATION: without this, glibc keeps tens of MiB for each thread after a burst.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, END_BYTES_MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE_BYTES_MAX);
    }
}

/// Gives free memory back to the system. Takes a time in proportion to how much is free, and holds up
/// whoever wants memory meanwhile.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number and touches nothing but what the allocator has free.
    // JUSTIFICATION: glibc keeps the free memory of a burst for ever, and has no other way to be asked.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const MIB: u64 = 1024 * 1024;
    /// Each looks at the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn free_memory_goes_back_to_the_system() {
        let _alone = ALONE.lock().unwrap();
        // Small pieces, and one at the end that stays: a large piece would go back by itself.
        let pieces: Vec<Vec<u8>> = (0..64 * 1024).map(|_| vec![1; 1024]).collect();
        let last = vec![1u8; 1024];
        let full = resident_bytes().unwrap();
        assert!(full >= 64 * MIB);
        drop(pieces);
        give_back();
        let left = resident_bytes().unwrap();
        assert!(left + 32 * MIB < full, "{left} of {full} bytes are left");
        drop(last);
    }

    #[test]
    fn what_a_thread_has_freed_is_not_kept_at_the_end_of_its_arena() {
        let _alone = ALONE.lock().unwrap();
        keep_little();
        let (mut full, mut left) = (0, 0);
        let burst = || {
            // A piece so large that glibc would keep twice as much from then on.
            drop(vec![1u8; 30 * MIB as usize]);
            let pieces: Vec<Vec<u8>> = (0..640).map(|_| vec![1; 64 * 1024]).collect();
            full = resident_bytes().unwrap();
            drop(pieces);
            give_back();
            left = resident_bytes().unwrap();
        };
        std::thread::scope(|scope| drop(scope.spawn(burst)));
        assert!(left + 32 * MIB < full, "{left} of {full} bytes are left");
    }
}
