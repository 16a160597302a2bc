//! By pidfds and `/proc`.

use std::fs;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use tenure_core::time::Boottime;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::instant_of;

/// Starts to watch a process. The future ends when the process has: with its exit code, or 128 + the
/// signal that ended it, or `None` where the kernel does not tell. Dropping it ends the watch.
///
/// # Errors
///
/// When the process has no descriptor left.
pub fn exited(pidfd: &OwnedFd) -> io::Result<impl Future<Output = Option<i32>> + Send + use<>> {
    // A duplicate, because several sessions may come from one connection, and a descriptor can
    // be registered only once.
    let own = pidfd.try_clone()?;
    // SAFETY: an OwnedFd is always the same descriptor, and open until it is dropped.
    let watch = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
    Ok(async move {
        // Fails only when the runtime is going away, and this future with it.
        while watch.readable().await.is_ok_and(|mut ready| {
            let not_yet = !has_exited(watch.get_ref());
            if not_yet {
                ready.clear_ready();
            }
            not_yet
        }) {}
        exit_status(watch.get_ref())
    })
}

/// True if the process has ended by now.
pub fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// As /proc/self/fdinfo shows it for pidfds alone: 0 in another PID namespace, -1 when it has
/// ended.
pub(super) fn listed_number(descriptor: &OwnedFd) -> Option<i64> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
    about.ok()?.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// The exit code, or 128 + the signal, of a process that has ended.
fn exit_status(pidfd: &OwnedFd) -> Option<i32> {
    let unreaped = match information(pidfd)? {
        Information::Exit(status) => return Some(decode(status)),
        Information::Unreaped(unreaped) => unreaped,
    };
    // Its parent has not waited for it yet; till then the kernel tells through /proc.
    let pid = unreaped.pid;
    let status = stat(pid);
    let told = may_look_into(&unreaped);
    match information(pidfd)? {
        Information::Exit(status) => Some(decode(status)),
        // Still there, so the number was its own.
        Information::Unreaped(_) if told => field(&status?, EXIT_CODE).map(decode),
        Information::Unreaped(_) => None,
    }
}

/// True if the exit code in /proc is one; to others the kernel shows 0. See ptrace(2), "Ptrace
/// access mode checking".
fn may_look_into(process: &libc::pidfd_info) -> bool {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let same_user = [process.ruid, process.euid, process.suid] == [uid; 3];
    let same_group = [process.rgid, process.egid, process.sgid] == [gid; 3];
    // Readable for those with CAP_SYS_PTRACE alone.
    (same_user && same_group) || fs::read(format!("/proc/{}/io", process.pid)).is_ok()
}

/// As waitpid(2) encodes it.
fn decode(status: i32) -> i32 {
    match status & 0x7f {
        0 => (status >> 8) & 0xff,
        signal => 128 + signal,
    }
}

enum Information {
    /// Waited for by its parent; how it ended.
    Exit(i32),
    /// Running, or still to be waited for.
    Unreaped(libc::pidfd_info),
}

/// Since Linux 6.13, exits since 6.15; `linux/pidfd.h`.
fn information(pidfd: &OwnedFd) -> Option<Information> {
    let mut info = MaybeUninit::<libc::pidfd_info>::zeroed();
    // SAFETY: all-zero bytes are a valid pidfd_info, which has nothing but integers.
    unsafe { info.assume_init_mut() }.mask =
        u64::from(libc::PIDFD_INFO_PID | libc::PIDFD_INFO_CREDS | libc::PIDFD_INFO_EXIT);
    // SAFETY: the descriptor is open, the request's number contains the size of pidfd_info, and
    // the kernel writes no more than that.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, info.as_mut_ptr()) };
    Errno::result(done).ok()?;
    // SAFETY: initialised above, and the kernel wrote integers into it.
    let info = unsafe { info.assume_init() };
    if info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0 {
        Some(Information::Exit(info.exit_code))
    } else {
        (info.pid != 0).then_some(Information::Unreaped(info))
    }
}

/// `None` if there is no process of that number.
pub(super) fn open(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Ok(None) };
    // SAFETY: no pointers are passed; the result is checked before it is used.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = match Errno::result(descriptor) {
        Ok(descriptor) => i32::try_from(descriptor).map_err(io::Error::other)?,
        // A thread has a number, and is no process.
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// A handle on the process at the other end, where the kernel offers one. `None`, or a handle on
/// an ended process, when it has ended.
pub(crate) fn of_peer(
    stream: &UnixStream,
    pid: Option<u32>,
    uid: u32,
    accepted_at: Boottime,
) -> Option<OwnedFd> {
    match getsockopt(stream, PeerPidfd) {
        // Since Linux 6.16 also for a process that is gone.
        Ok(pidfd) => Some(pidfd),
        Err(Errno::ENOPROTOOPT) => by_number(pid?, uid, accepted_at),
        // The process is gone, or this one is out of descriptors.
        Err(_) => None,
    }
}

/// Before Linux 6.5: the number may have got another owner since it connected. What started
/// before the connection was accepted, with the same number and the same user, is not told
/// apart.
fn by_number(pid: u32, uid: u32, accepted_at: Boottime) -> Option<OwnedFd> {
    let before = start_ticks(pid)?;
    if instant_of(before)? > accepted_at {
        return None;
    }
    let pidfd = open(pid).ok()??;
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    // A process that may not be looked into shows root as its owner; see proc(5).
    let same = start_ticks(pid) == Some(before) && (owner == uid || owner == 0);
    same.then_some(pidfd)
}

/// The user of a process; root for one whose users, real, effective and saved, differ.
pub(super) fn owner(pid: u32) -> Option<u32> {
    let uids = status(pid, "Uid:")?;
    let mut uids = uids.split_ascii_whitespace().map(str::parse::<u32>);
    let (real, effective, saved) = (uids.next()?.ok()?, uids.next()?.ok()?, uids.next()?.ok()?);
    Some(if real == effective && real == saved { real } else { 0 })
}

/// True if a process knows others by the numbers that they have here: it is in no PID namespace within ours. `None` when /proc
/// does not show it.
pub(crate) fn has_our_numbers(pid: u32) -> Option<bool> {
    Some(status(pid, "NSpid:")?.split_ascii_whitespace().count() == 1)
}

/// A line of /proc/PID/status; see proc_pid_status(5).
fn status(pid: u32, name: &str) -> Option<String> {
    let status = text_of(pid, "status")?;
    Some(status.lines().find_map(|line| line.strip_prefix(name))?.to_owned())
}

/// When a process started, in clock ticks since boot; `None` when there is none of that number.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    field(&stat(pid)?, START_TIME)
}

fn stat(pid: u32) -> Option<String> {
    text_of(pid, "stat")
}

/// A file of a process in /proc, in which the name of its program may have any bytes.
fn text_of(pid: u32, name: &str) -> Option<String> {
    let bytes = proc_is_ours().then(|| fs::read(format!("/proc/{pid}/{name}")).ok())??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// True if /proc shows our PID namespace. One of another shows other processes by our numbers,
/// as in a container that was given its host's.
fn proc_is_ours() -> bool {
    static OURS: LazyLock<bool> = LazyLock::new(|| {
        let us = fs::read_link("/proc/self");
        us.is_ok_and(|us| us.to_str() == Some(&std::process::id().to_string()))
    });
    *OURS
}

const START_TIME: usize = 22;
const EXIT_CODE: usize = 52;

/// A field of /proc/pid/stat by its number in proc(5), from 3 on. The second one, the name of
/// the program, may contain anything, but everything after the last parenthesis is numbers.
fn field<T: std::str::FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn reads_past_hostile_names() {
        let stat = "7 (a) R 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(field(stat, START_TIME), Some(4242_u64));
        assert_eq!(field::<u64>("7 (a", START_TIME), None);
    }

    #[test]
    fn a_program_may_have_a_name_that_is_no_text() {
        let folder = tempfile::TempDir::new().expect("a directory can be made");
        // The kernel keeps 15 bytes of the name, and half of the last letter.
        let program = folder.path().join("synchro-archivée");
        fs::copy("/bin/sleep", &program).expect("it is there");
        let mut child = std::process::Command::new(program).arg("1000").spawn().expect("it starts");
        let pid = child.id();
        // The kernel sets the name late in exec: spawn may return a little earlier.
        let comm = || fs::read(format!("/proc/{pid}/comm")).expect("it runs");
        let deadline = clock::now() + std::time::Duration::from_secs(30);
        while String::from_utf8(comm()).is_ok() && clock::now() < deadline {
            std::thread::yield_now();
        }
        let name = comm();
        let seen = (start_ticks(pid).is_some(), has_our_numbers(pid));
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        assert!(String::from_utf8(name).is_err());
        assert_eq!(seen, (true, Some(true)));
    }

    #[test]
    fn decodes_as_a_shell_does() {
        assert_eq!(decode(3 << 8), 3);
        assert_eq!(decode(0), 0);
        assert_eq!(decode(9), 137);
        assert_eq!(decode(11 | 0x80), 139, "with a core dump");
    }

    #[test]
    fn opens_by_number_only_the_right_user() {
        let me = nix::unistd::geteuid().as_raw();
        let pid = std::process::id();
        let now = clock::now();
        assert!(by_number(pid, me, now).is_some());
        if me != 0 {
            assert!(by_number(pid, me + 1, now).is_none());
        }
        assert!(by_number(pid, me, Boottime::ZERO).is_none(), "started after it connected");
    }
}
