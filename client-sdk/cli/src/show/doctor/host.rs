//! Checks without the agent: the socket, the clock, the kernel.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access};
use tenure::page::{ClocksDiffer, check_clock};
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
        let you = user(Uid::effective().as_raw());
        let remedy =
            format!("you ({you}) may not open it: {}", way_in(&group, metadata.gid(), &you));
        return Check::failure("socket", detail, remedy);
    }
    if mode & 0o002 != 0 {
        let remedy = "everybody on this host may use it: give it mode 0660 and a group";
        return Check::warning("socket", detail, remedy);
    }
    Check::ok("socket", detail)
}

/// How somebody comes by the right to use the socket of that group. Members of some groups have power
/// over the whole host, and nobody should join them for a socket.
fn way_in(group: &str, gid: u32, you: &str) -> String {
    const POWERFUL: [&str; 8] =
        ["root", "wheel", "sudo", "admin", "adm", "docker", "disk", "shadow"];
    if gid == 0 || POWERFUL.contains(&group) {
        "have the agent started with a group of its own for its socket (`groupadd tenured`, and \
         start it again), or start an agent of your own"
            .to_owned()
    } else {
        format!(
            "join its group with `sudo usermod -aG {group} {you}` and log in again, or start an \
             agent of your own"
        )
    }
}

fn user(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

fn group(gid: u32) -> String {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    group.map_or_else(|| gid.to_string(), |group| group.name)
}

/// Checks that the agent counts time from the same boot as this process.
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

/// Checks that this command reads the clock that the agent read between then and now.
pub(super) fn same_clock(asked_at_ns: u64, theirs_ns: u64) -> Result<(), ClocksDiffer> {
    // As if it had told a hold that is valid for the shortest time.
    check_clock(asked_at_ns, 1, theirs_ns.saturating_add(1_000_000))
}

/// The failure to report in another time namespace.
pub(super) fn other_clock(differ: ClocksDiffer) -> Check {
    let remedy = "valid-untils mean nothing here, and `tenure run` and the SDK refuse to go on: leave the \
                  time namespace, or start an agent in it";
    Check::failure("clock", differ.to_string(), remedy)
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

/// Checks that the kernel tells without a race that a process has ended.
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

/// Checks that the kernel tells without a race that a process has ended.
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
    fn nobody_is_advised_to_join_a_group_with_power_over_the_host() {
        assert!(way_in("tenured", 990, "alice").contains("usermod -aG tenured alice"));
        for (group, gid) in [("root", 0), ("daemon", 0), ("wheel", 10), ("sudo", 27)] {
            let way = way_in(group, gid, "alice");
            assert!(!way.contains("usermod") && way.contains("a group of its own"), "{way}");
        }
    }

    #[test]
    fn another_boot_is_another_machine() {
        assert_eq!(boot(Uuid::nil()).verdict, Verdict::Failure);
    }
}
