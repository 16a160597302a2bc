//! What can be checked without the agent: the socket, the clock, the kernel.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access};
use tenure::wire::Check;
use uuid::Uuid;

use crate::failure::brief;

/// The socket: is it one, and may we open it?
pub(super) fn socket(path: &Path) -> Check {
    let shown = path.display();
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) => {
            let remedy = "start the agent with `tenured`, or name its socket with --socket";
            return Check::failure("socket", format!("{shown}: {error}"), remedy);
        }
    };
    if !metadata.file_type().is_socket() {
        let remedy = "name the agent's socket with --socket or TENURE_SOCKET";
        return Check::failure("socket", format!("{shown} is not a socket"), remedy);
    }
    let mode = metadata.mode() & 0o777;
    let group = group(metadata.gid());
    let detail = format!("{shown}, {}:{group}, mode {mode:04o}", user(metadata.uid()));
    if access(path, AccessFlags::W_OK).is_err() {
        let remedy = format!(
            "you ({}) may not open it: join its group with `sudo usermod -aG {group} {}` and log \
             in again, or start an agent of your own",
            user(Uid::effective().as_raw()),
            user(Uid::effective().as_raw()),
        );
        return Check::failure("socket", detail, remedy);
    }
    if mode & 0o002 != 0 {
        let remedy = "everybody on this host may use it: give it mode 0660 and a group";
        return Check::warning("socket", detail, remedy);
    }
    Check::ok("socket", detail)
}

fn user(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

fn group(gid: u32) -> String {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    group.map_or_else(|| gid.to_string(), |group| group.name)
}

/// Whether the agent counts time from the same boot as this process.
pub(super) fn boot(theirs: Uuid) -> Check {
    let ours = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let ours = ours.ok().and_then(|text| text.trim().parse::<Uuid>().ok());
    match ours {
        Some(ours) if ours != theirs => Check::failure(
            "boot",
            format!("the agent's boot id is {theirs}, this one is {ours}"),
            "the socket leads to another machine: valid-untils cannot be compared; run an agent here",
        ),
        _ => Check::ok("boot", "the agent runs under this kernel"),
    }
}

/// How long the machine has slept since boot: holds whose time passed in it were lost.
pub(super) fn clock() -> Check {
    let read = |clock| clock_gettime(clock).map(Duration::from);
    #[cfg(target_os = "linux")]
    let pair = (read(ClockId::CLOCK_BOOTTIME), read(ClockId::CLOCK_MONOTONIC));
    #[cfg(not(target_os = "linux"))]
    let pair = (read(ClockId::CLOCK_MONOTONIC), read(ClockId::CLOCK_MONOTONIC));
    match pair {
        (Ok(with_sleep), Ok(without)) => {
            let slept = with_sleep.saturating_sub(without);
            // The two clocks are read one after the other.
            if slept < Duration::from_millis(100) {
                Check::ok("clock", "the machine has not slept since boot")
            } else {
                let detail = format!("the machine has slept {} since boot", brief(slept));
                Check::ok("clock", format!("{detail}; holds that ended meanwhile were lost"))
            }
        }
        (Err(error), _) | (_, Err(error)) => Check::failure(
            "clock",
            format!("cannot be read: {error}"),
            "valid-untils need CLOCK_BOOTTIME: use a kernel that has it",
        ),
    }
}

/// Whether the kernel tells without a race that a process has ended.
#[cfg(target_os = "linux")]
pub(super) fn pidfd() -> Check {
    use nix::sys::socket::{getsockopt, sockopt};
    let peer = std::os::unix::net::UnixStream::pair().map_err(|error| error.to_string()).and_then(
        |(one, _other)| getsockopt(&one, sockopt::PeerPidfd).map_err(|error| error.to_string()),
    );
    match peer {
        Ok(_) => Check::ok("pidfd", "the kernel tells at once when a process has ended"),
        Err(error) => Check::warning(
            "pidfd",
            format!("SO_PEERPIDFD: {error}"),
            "the agent watches process ids and their start times instead; Linux 6.5 is better",
        ),
    }
}

/// Whether the kernel tells without a race that a process has ended.
#[cfg(not(target_os = "linux"))]
pub(super) fn pidfd() -> Check {
    Check::ok("pidfd", "not on this system; the agent watches processes with kqueue")
}

#[cfg(test)]
mod tests {
    use tenure::wire::Verdict;

    use super::*;

    #[test]
    fn a_socket_is_told_from_other_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("api.sock");
        assert_eq!(socket(&path).verdict, Verdict::Failure);
        std::fs::write(&path, "").expect("written");
        assert!(socket(&path).detail.ends_with("is not a socket"));
        std::fs::remove_file(&path).expect("removed");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        assert_ne!(socket(&path).verdict, Verdict::Failure);
    }

    #[test]
    fn another_boot_is_another_machine() {
        assert_eq!(boot(Uuid::nil()).verdict, Verdict::Failure);
    }
}
