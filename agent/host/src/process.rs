//! Watching processes that are not our children.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unwatched;

use std::io;
use std::os::fd::OwnedFd;

use nix::unistd::{SysconfVar, sysconf};
use tenure_core::model::Process;
use tenure_core::time::Boottime;

#[cfg(target_os = "linux")]
use self::linux as system;
pub use self::system::{exited, has_exited};
pub(super) use self::system::{has_our_numbers, of_peer, start_ticks};
#[cfg(not(target_os = "linux"))]
use self::unwatched as system;

/// A new handle on a process that was watched before this agent started; `None` when it has ended,
/// also when another one has got its number.
///
/// # Errors
///
/// When the system does not tell, for want of descriptors perhaps: the process may live.
pub fn reopen(process: Process) -> io::Result<Option<OwnedFd>> {
    let Some(pidfd) = system::open(process.pid)? else { return Ok(None) };
    let started = start_ticks(process.pid);
    if has_exited(&pidfd) {
        return Ok(None);
    }
    match started {
        Some(ticks) => Ok((ticks == process.start_ticks).then_some(pidfd)),
        None => Err(io::Error::other("/proc does not tell when it started")),
    }
}

/// A handle on a running process, its user, and when it started in clock ticks since boot; `None` when there is none of that number.
///
/// # Errors
///
/// When the system does not tell, or has no such handles.
pub(super) fn named(pid: u32) -> io::Result<Option<(OwnedFd, u32, u64)>> {
    let Some(pidfd) = system::open(pid)? else { return Ok(None) };
    let found = system::owner(pid).zip(start_ticks(pid));
    // If it still runs now, the number was its own a moment ago.
    if has_exited(&pidfd) {
        return Ok(None);
    }
    let (owner, started) = found.ok_or_else(|| io::Error::other("/proc does not show it"))?;
    Ok(Some((pidfd, owner, started)))
}

/// The number of the process; `None` when it has ended, has none here, or the kernel does not tell.
pub fn number(pidfd: &OwnedFd) -> Option<u32> {
    system::listed_number(pidfd)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&pid| pid != 0)
}

/// True if a descriptor is a handle on a process.
#[cfg(feature = "systemd")]
pub(super) fn is_handle(descriptor: &OwnedFd) -> bool {
    system::listed_number(descriptor).is_some()
}

/// When this process started; `None` where the system does not tell.
pub(super) fn started() -> Option<Boottime> {
    instant_of(start_ticks(std::process::id())?)
}

/// The instant of so many clock ticks since boot.
fn instant_of(ticks: u64) -> Option<Boottime> {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let ticks_per_second = u64::try_from(ticks_per_second).ok().filter(|&ticks| ticks > 0)?;
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second);
    Some(Boottime::from_nanos(u64::try_from(ns).ok()?))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
