//! Steps between fork and exec, and calls of the kernel that have no safe form: the one place of
//! the command with `unsafe`.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod exec;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::unistd::{Pid, getpid};

#[cfg(target_os = "linux")]
pub(super) use self::exec::tell_own_pid;

/// Other systems have no such variables.
#[cfg(not(target_os = "linux"))]
pub(super) fn tell_own_pid(_: &mut Command, _: &[&str]) -> io::Result<()> {
    Ok(())
}

/// Other systems have no such variables.
#[cfg(not(target_os = "linux"))]
pub(super) fn close_listened(_: RawFd) {}

/// How the command starts.
pub(super) struct Start<'a> {
    /// Descriptors that it inherits besides the standard three.
    pub(super) inherited: Vec<BorrowedFd<'a>>,
    /// In a process group of its own, and not in this process's.
    pub(super) in_own_group: bool,
    /// The kernel kills it when this process ends (Linux only).
    pub(super) dies_with_parent: bool,
    /// The signal mask that whoever started this process had given it.
    pub(super) mask: SigSet,
}

/// Makes `command` start like this.
///
/// `start` must be kept until the command was spawned: the numbers of its descriptors are used.
pub(super) fn prepare(command: &mut Command, start: &Start<'_>) {
    let inherited: Vec<RawFd> = start.inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let dies_with_parent = start.dies_with_parent;
    let mask = start.mask;
    let parent = getpid();
    if start.in_own_group {
        command.process_group(0);
    }
    let between = move || {
        for fd in &inherited {
            // SAFETY: `start` outlives the spawn, so the descriptor is open in the forked child.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        if dies_with_parent {
            die_with(parent)?;
        }
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls that are async-signal-safe and
    // reads what it owns; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(between) };
}

/// Takes over a descriptor that came in a message.
#[cfg(target_os = "linux")]
pub(super) fn received(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process, and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Closes sockets of `LISTEN_FDS` that were inherited, so that whoever is connected sees it when the command closes them. Descriptors of
/// this program have the flag that these cannot have.
#[cfg(target_os = "linux")]
pub(super) fn close_listened(count: RawFd) {
    const FIRST: RawFd = 3;
    for number in FIRST..FIRST.saturating_add(count.clamp(0, LISTENED_MAX)) {
        // SAFETY: it is only looked at, and may be closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        if fcntl(descriptor, FcntlArg::F_GETFD).is_ok_and(|flags| flags == 0) {
            // It was open, and no part of this program knows of it.
            let _closed = nix::unistd::close(number);
        }
    }
}

/// The kernel's limit for descriptors of a process, by default.
#[cfg(target_os = "linux")]
const LISTENED_MAX: RawFd = 1 << 20;

#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died before the kernel was told.
    if nix::unistd::getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// True if the signal is ignored in this process.
pub(super) fn is_ignored(signal: Signal) -> bool {
    action(signal, None).is_ok_and(|old| old.sa_sigaction == libc::SIG_IGN)
}

/// Stops this process by a signal of job control, as the terminal would, and returns when it goes on. The kernel does
/// not stop a process whom no shell could continue. Does nothing if `still` says no once a signal that continues
/// this process would be noticed.
pub(super) fn stop_by(signal: Signal, still: impl Fn() -> bool) {
    let mut only = SigSet::empty();
    only.add(signal);
    // Each of these could fail only if there were no such signal. One that the terminal sends while it is blocked counts
    // for this: two of them would stop this process twice.
    let before = only.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    if let Ok(old) = action(signal, Some(&default_action())) {
        // SIGCONT takes it back from here on.
        let _sent = kill(getpid(), signal);
        if !still() {
            let _taken_back = action(signal, Some(&ignored()));
        }
        let _stopped = only.thread_unblock();
        let _restored = action(signal, Some(&old));
    }
    let _restored = before.and_then(|before| before.thread_set_mask());
}

/// Gives signals their default action again, so that they end this process, but those that were ignored at its start.
pub(super) fn default_again(signals: &[Signal]) {
    for signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
        let _there_is_none = action(*signal, Some(&default_action()));
    }
}

fn ignored() -> libc::sigaction {
    libc::sigaction { sa_sigaction: libc::SIG_IGN, ..default_action() }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is the default action, no flags, an empty mask.
    unsafe { std::mem::zeroed() }
}

/// Ends this process by a signal, and leaves no core: the command that died by it may have left one. Returns if the
/// signal does not end a process.
pub(crate) fn die_by(signal: libc::c_int) {
    #[cfg(target_os = "linux")]
    let _no_core = nix::sys::prctl::set_dumpable(false);
    #[cfg(not(target_os = "linux"))]
    let _no_core = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: the default action has no handler; the set is plain data that sigemptyset fills in; the calls have no
    // other memory. They fail for a number that is no signal, and for SIGKILL, which needs none of them but the last.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// True if the terminal tells this process, as the first of its session, of its hang-up, and not its group.
pub(super) fn leads_session() -> bool {
    nix::unistd::getsid(None) == Ok(getpid())
}

/// Sets the action of a signal if there is a new one, and returns the old one.
fn action(signal: Signal, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an action of all zeros is valid; it is overwritten below.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are null or valid for the call. A new action is the default one or one
    // that was in force before, whose handler is still there.
    match unsafe { libc::sigaction(signal as libc::c_int, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The change of a child's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing since the last look.
    None,
    /// This signal stopped it.
    Stopped(libc::c_int),
    /// It has ended and can be reaped.
    Ended,
}

/// Looks at a child without reaping it.
pub(super) fn look(child: Pid) -> io::Result<Change> {
    // `nix` has this for Linux only, and has no word for a real-time signal. Stops come first: to the kernel
    // a child that has ended is none that could stop, which fails with ECHILD.
    if let Ok(Some(signal)) = wait_state(child, libc::WSTOPPED) {
        return Ok(Change::Stopped(signal));
    }
    let ended = wait_state(child, libc::WEXITED | libc::WNOWAIT)?;
    Ok(ended.map_or(Change::None, |_| Change::Ended))
}

/// Has the kernel give the orphans of this process's descendants to it (Linux only), so that none of
/// them is out of its sight.
pub(super) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Reaps what other processes left to this one. One of its own children that has ended hides those behind it until it is reaped.
pub(super) fn reap_orphans(is_own: impl Fn(Pid) -> bool) {
    let ended = libc::WEXITED | libc::WNOWAIT;
    while let Ok(Some((orphan, _))) = wait(libc::P_ALL, 0, ended) {
        // Fails when it was no child any more; then nothing is left to do about it.
        if is_own(orphan) || wait_state(orphan, libc::WEXITED).is_err() {
            return;
        }
    }
}

/// `si_status` of the child if it is in one of the asked states.
fn wait_state(child: Pid, states: libc::c_int) -> io::Result<Option<libc::c_int>> {
    let id = libc::id_t::try_from(child.as_raw()).map_err(io::Error::other)?;
    Ok(wait(libc::P_PID, id, states)?.map(|(_, status)| status))
}

/// A child that is in one of the asked states, if there is one now, with its `si_status`.
fn wait(
    which: libc::idtype_t,
    id: libc::id_t,
    states: libc::c_int,
) -> io::Result<Option<(Pid, libc::c_int)>> {
    // SAFETY: `siginfo_t` is plain data; zeros are what the call leaves when there is nothing.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the call.
    match unsafe { libc::waitid(which, id, &raw mut info, states | libc::WNOHANG) } {
        // SAFETY: waitid filled in the fields of SIGCHLD, or left zeros.
        0 if unsafe { info.si_pid() } == 0 => Ok(None),
        // SAFETY: as above.
        0 => Ok(Some(unsafe { (Pid::from_raw(info.si_pid()), info.si_status()) })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The local year, month, day, hour, minute and second of an instant, seconds since 1970.
pub(crate) fn local_time(seconds: u64) -> Option<[i32; 6]> {
    let seconds = libc::time_t::try_from(seconds).ok()?;
    // SAFETY: `tm` is plain data, for which zeros are a value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live until the call returns.
    let known = unsafe { !libc::localtime_r(&raw const seconds, &raw mut tm).is_null() };
    known.then_some([
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
    ])
}

/// A timer on the clock of valid-until, as the runtime wants it.
#[cfg(target_os = "linux")]
pub(super) struct Timer(nix::sys::timerfd::TimerFd);

#[cfg(target_os = "linux")]
impl Timer {
    /// One that is not set, registered with the runtime.
    pub(super) fn register() -> io::Result<tokio::io::unix::AsyncFd<Timer>> {
        use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Timer(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?);
        // SAFETY: the timer owns its descriptor, which is neither replaced nor closed before it.
        Ok(unsafe { tokio::io::unix::AsyncFd::register(timer) }?)
    }
}

#[cfg(target_os = "linux")]
impl std::ops::Deref for Timer {
    type Target = nix::sys::timerfd::TimerFd;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(target_os = "linux")]
impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        std::os::fd::AsFd::as_fd(&self.0).as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_at_any_instant_is_an_end() {
        // Each ends at another point of a look.
        for _ in 0..100 {
            let mut child = Command::new("true").spawn().expect("it starts");
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
            while look(pid).expect("nobody else reaps it") != Change::Ended {}
            assert!(child.wait().expect("it was not reaped").success());
        }
    }

    #[test]
    fn a_stop_is_told_once() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it starts");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        kill(pid, Signal::SIGSTOP).expect("it runs");
        let stopped = Change::Stopped(Signal::SIGSTOP as libc::c_int);
        while look(pid).expect("nobody else reaps it") != stopped {}
        assert_eq!(look(pid).ok(), Some(Change::None));
        child.kill().expect("it runs");
        while look(pid).expect("nobody else reaps it") != Change::Ended {}
        child.wait().expect("it was not reaped");
    }
}
