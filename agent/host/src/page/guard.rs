//! Access to memory of a file that may fail.
//!
//! The memory of a file faults (SIGBUS) when the file was truncated, when its disk fails, or when a
//! write comes after its file system turned read-only. Signals are the only way in which the system
//! tells that, and checking beforehand would cost a system call for each write, and leave a gap.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

/// The access of this thread that is under way, and whether it has failed. A fault comes to the
/// thread that makes it.
struct Access {
    start: AtomicUsize,
    length: AtomicUsize,
    has_failed: AtomicBool,
}

thread_local! {
    static ACCESS: Access = const {
        Access {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }
    };
}

/// The handler that was there before, for faults of other memory.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `access`, which may fault in these bytes of memory. After a fault they are no longer the
/// file's: what was written is nowhere, and the mapping is only good to be given back.
///
/// # Errors
///
/// When memory faulted.
pub(super) fn guarded<T>(
    start: *const u8,
    length: usize,
    access: impl FnOnce() -> T,
) -> io::Result<T> {
    install();
    ACCESS.with(|mine| {
        mine.has_failed.store(false, Ordering::Relaxed);
        mine.start.store(start.addr(), Ordering::Relaxed);
        mine.length.store(length, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let result = access();
        compiler_fence(Ordering::SeqCst);
        mine.length.store(0, Ordering::Relaxed);
        if mine.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other("its memory cannot be used any more (SIGBUS)"));
        }
        Ok(result)
    })
}

fn install() {
    EARLIER.get_or_init(|| {
        // SAFETY: a zeroed sigaction is a valid one, and both are filled before they are used; the
        // handler only does what is allowed in one.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            let mut earlier: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                on_fault;
            ours.sa_sigaction = handler as libc::sighandler_t;
            // On the stack for signals, as the handler of Rust's runtime is.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut ours.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut earlier);
            earlier
        }
    });
}

/// Puts other memory in the place of what failed, so that the access under way can end.
extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid description.
    let at = unsafe { (*info).si_addr() }.addr();
    let is_replaced = ACCESS.with(|mine| {
        let (start, length) = (&mine.start, &mine.length);
        let (start, length) = (start.load(Ordering::Relaxed), length.load(Ordering::Relaxed));
        if at.wrapping_sub(start) >= length {
            return false;
        }
        // SAFETY: these bytes are a mapping of this process, only used for words that any thread may
        // change at any time, and mmap is a plain system call.
        let replaced = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        mine.has_failed.store(true, Ordering::Relaxed);
        replaced != libc::MAP_FAILED
    });
    if !is_replaced && let Some(earlier) = EARLIER.get() {
        // The access is made again, and meets the handler that was there before.
        // SAFETY: it was in effect before.
        unsafe { libc::sigaction(libc::SIGBUS, std::ptr::from_ref(earlier), std::ptr::null_mut()) };
    }
}
