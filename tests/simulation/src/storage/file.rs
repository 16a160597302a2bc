//! A file in memory and on the medium.

use super::PAGE;

#[derive(Debug, Default, Clone)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    /// Up to where it has space.
    pub(super) reserved: u64,
    /// Bytes on the medium; `None` if not even its name is.
    pub(super) durable: Option<Vec<u8>>,
    /// Writes since then.
    pub(super) unsynced: Vec<(u64, Vec<u8>)>,
}

impl File {
    /// Up to where it can be written although nothing is free.
    pub(super) fn space(&self) -> u64 {
        (self.bytes.len() as u64).max(self.reserved).next_multiple_of(PAGE)
    }
}

pub(super) fn put(into: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let Ok(at) = usize::try_from(at) else { return };
    let end = at + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[at..end].copy_from_slice(bytes);
}
