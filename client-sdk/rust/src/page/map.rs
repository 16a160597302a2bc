//! Memory that others change: the page, and what a fork wipes. The only file of the crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{Mmap, MmapOptions};
#[cfg(all(feature = "client", target_os = "linux"))]
use memmap2::{MmapMut, MmapRaw};

use super::{SLOT_SIZE, SLOTS_MAX, size};

/// Another process writes what is read here, so that every read is an atomic load.
#[derive(Debug)]
pub(super) struct Map {
    map: Mmap,
}

impl Map {
    /// Maps the file read-only, as far as a page may reach; `None` when it is shorter than a header.
    pub(super) fn open(path: &Path) -> io::Result<Option<(Map, std::fs::Metadata)>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.len() < SLOT_SIZE as u64 {
            return Ok(None);
        }
        let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX).min(size(SLOTS_MAX));
        // SAFETY: no reference into the map is ever made except to atomics, which another process
        // may change. The agent makes the file in its full size and never truncates it, so that
        // no access faults.
        let map = unsafe { MmapOptions::new().len(length).map(&file)? };
        Ok(Some((Map { map }, metadata)))
    }

    /// Bytes.
    pub(super) fn length(&self) -> usize {
        self.map.len()
    }

    /// The little-endian `u64` at `at`, a multiple of 8. What was written before it is seen after.
    pub(super) fn load_u64(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.map.len(), "an offset of the page");
        let address = self.map.as_ptr().wrapping_add(at).cast::<AtomicU64>();
        // SAFETY: the map is as long as asserted, begins at a memory page and lives as long as `self`,
        // so that the address is inside of it and aligned. The memory is only accessed atomically
        // by this process, and never written: an atomic load of this size does not write.
        let value = unsafe { &*address }.load(Ordering::Acquire);
        u64::from_le(value)
    }

    /// The little-endian `u32` at `at`, a multiple of 4.
    pub(super) fn load_u32(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len(), "an offset of the page");
        let address = self.map.as_ptr().wrapping_add(at).cast::<AtomicU32>();
        // SAFETY: as in `load_u64`.
        let value = unsafe { &*address }.load(Ordering::Acquire);
        u32::from_le(value)
    }

    /// The 16 bytes at `at`, a multiple of 8.
    pub(super) fn load_bytes(&self, at: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.load_u64(at).to_le_bytes());
        bytes[8..].copy_from_slice(&self.load_u64(at + 8).to_le_bytes());
        bytes
    }
}

/// A word that is zero at first, and zero again in every process that was forked off this one.
#[cfg(all(feature = "client", target_os = "linux"))]
pub(crate) struct Wiped {
    map: MmapRaw,
}

#[cfg(all(feature = "client", target_os = "linux"))]
impl Wiped {
    /// Fails on kernels before 4.14, and wherever the system call is not let through.
    pub(crate) fn new() -> io::Result<Wiped> {
        let map = MmapRaw::from(MmapMut::map_anon(size_of::<AtomicU64>())?);
        // SAFETY: the address and length are those of a private, anonymous map of our own, which the kernel
        // rounds up to memory pages that nothing else is in.
        let done =
            unsafe { libc::madvise(map.as_mut_ptr().cast(), map.len(), libc::MADV_WIPEONFORK) };
        if done == 0 { Ok(Wiped { map }) } else { Err(io::Error::last_os_error()) }
    }

    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        // SAFETY: the map has room for it, begins at a memory page and lives as long as `self`. This process
        // accesses it only atomically, and no other one at all.
        unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>() }
    }
}
