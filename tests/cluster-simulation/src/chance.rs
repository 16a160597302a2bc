//! The only source of chance, also for code that asks the system for some.

use std::cell::RefCell;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

thread_local! {
    /// The system's randomness, as this thread sees it.
    static SYSTEM: RefCell<Option<ChaCha8Rng>> = const { RefCell::new(None) };
}

/// A generator that drives a whole run: the same seed gives the same run.
#[derive(Debug)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    /// The generator of a seed. What this thread gets from the system goes by the same seed from now on: the thread
    /// has asked for nothing before.
    pub(crate) fn new(seed: u64) -> Random {
        SYSTEM.with_borrow_mut(|system| *system = Some(ChaCha8Rng::seed_from_u64(!seed)));
        Random::of(seed)
    }

    /// A generator for a part of a run.
    pub(crate) fn of(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is of no consequence for ranges as small as these.
        self.0.next_u64() % end.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn number(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// True so many times out of a thousand.
    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// An index of a list with so many elements.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A hash map's keys, a timeout of an election and an id are drawn from this.
    fn fill(bytes: &mut [u8]) {
        SYSTEM.with_borrow_mut(|system| {
            system.get_or_insert_with(|| ChaCha8Rng::seed_from_u64(0)).fill_bytes(bytes);
        });
    }
}

/// The C library's function of this name, for all code of the program.
///
/// # Safety
///
/// The buffer can be written, and has that length.
// SAFETY: the signature is that of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller says so.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    Random::fill(bytes);
    length.cast_signed()
}
