//! macOS has no process handles; a session there is tied to its connection or its calls.

use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;

use tenure_core::time::Boottime;
use tokio::net::UnixStream;

pub fn exited(_: &OwnedFd) -> io::Result<impl Future<Output = Option<i32>> + Send + use<>> {
    Ok(pending())
}

pub fn has_exited(_: &OwnedFd) -> bool {
    false
}

pub(super) fn open(_: u32) -> io::Result<Option<OwnedFd>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn listed_number(_: &OwnedFd) -> Option<i64> {
    None
}

pub(crate) fn of_peer(_: &UnixStream, _: Option<u32>, _: u32, _: Boottime) -> Option<OwnedFd> {
    None
}

pub(super) fn owner(_: u32) -> Option<u32> {
    None
}

pub(crate) fn has_our_numbers(_: u32) -> Option<bool> {
    Some(true)
}

pub(crate) fn start_ticks(_: u32) -> Option<u64> {
    None
}
