//! systemd: see sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3).

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use systemd::daemon;

use super::notifier::{Message, Notifier, session_named};
use super::{API, Handed, HandoverError};
use crate::process;

pub(super) fn take() -> Result<Handed, HandoverError> {
    let threads = fs::read_dir("/proc/self/task").map_err(HandoverError::Thread)?.count();
    if threads != 1 {
        return Err(HandoverError::Threads);
    }
    // SAFETY: counted above: no other thread can look at the environment, and main has not installed
    // any signal handler yet.
    let listed = unsafe { daemon::listen_fds_with_names_unset_environment() };
    // SAFETY: the same.
    let watchdog_us = unsafe { daemon::watchdog_enabled_unset_environment() };
    let fail = |variables| {
        move |error: systemd::Error| {
            let source = error.into_io_error();
            HandoverError::Environment { variables, source }
        }
    };
    let listed = listed.map_err(fail("LISTEN_FDS and LISTEN_FDNAMES"))?;
    let watchdog_us = watchdog_us.map_err(fail("WATCHDOG_USEC and WATCHDOG_PID"))?;
    let descriptors = listed.iter().map(|(descriptor, name)| {
        // SAFETY: systemd gave this descriptor to this process, libsystemd has found it open, and as
        // the variables are gone nobody takes it again.
        (name.to_owned(), unsafe { OwnedFd::from_raw_fd(descriptor) })
    });
    let Sorted { listener, processes, strays } = sort(descriptors);

    // Stays in the environment, because libsystemd looks there for each message; the agent starts no
    // other program.
    let notifier = if std::env::var_os("NOTIFY_SOCKET").is_some() {
        let kept = processes.keys().copied().collect();
        Notifier::start(kept, send).map_err(HandoverError::Thread)?
    } else {
        Notifier::silent()
    };
    let notices = strays.into_iter().map(|name| {
        let notice = format!(
            "closed a descriptor that systemd handed over as {name:?}: the API's socket is named \
             \"{API}\" (FileDescriptorName={API}), kept processes \"session-…\", and there is one of each"
        );
        // A descriptor under the name of something that is kept would take it along.
        let is_kept = session_named(&name).is_some_and(|session| processes.contains_key(&session));
        if !is_kept && !name.chars().any(char::is_control) {
            notifier.discard(name);
        }
        notice
    });
    let notices = notices.collect();
    let watchdog = (watchdog_us > 0).then(|| Duration::from_micros(watchdog_us));
    Ok(Handed { listener, processes, notifier, watchdog, notices })
}

struct Sorted {
    listener: Option<OwnedFd>,
    processes: HashMap<tenure_core::model::SessionId, OwnedFd>,
    /// Names of what was closed.
    strays: Vec<String>,
}

fn sort(descriptors: impl Iterator<Item = (CString, OwnedFd)>) -> Sorted {
    let mut sorted = Sorted { listener: None, processes: HashMap::new(), strays: Vec::new() };
    for (name, descriptor) in descriptors {
        let name = name.to_string_lossy().into_owned();
        if name == API && sorted.listener.is_none() {
            sorted.listener = Some(descriptor);
            continue;
        }
        match session_named(&name) {
            Some(session)
                if process::is_handle(&descriptor) && !sorted.processes.contains_key(&session) =>
            {
                sorted.processes.insert(session, descriptor);
            }
            _ => sorted.strays.push(name),
        }
    }
    sorted
}

fn send(message: &Message) -> io::Result<()> {
    let descriptors: Vec<_> = message.descriptor().into_iter().collect();
    let sent = daemon::pid_notify_with_fds(0, message.assignments().iter(), &descriptors);
    sent.map(drop).map_err(systemd::Error::into_io_error)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tenure_core::model::SessionId;
    use uuid::Uuid;

    use super::*;

    fn pidfd() -> OwnedFd {
        // SAFETY: no pointers are passed, and the result is a new descriptor.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
        assert!(descriptor > 0);
        // SAFETY: as above, it is ours alone.
        unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
    }

    fn file() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn sorts_by_name_and_takes_only_handles_on_processes() {
        let session = SessionId(Uuid::from_u128(7));
        let name = |name: &str| CString::new(name).unwrap();
        let of_session = name(&format!("session-{session}"));
        let handed = [
            (name("tenured.socket"), file()),
            (of_session.clone(), file()),
            (of_session.clone(), pidfd()),
            (of_session, pidfd()),
            (name("api"), file()),
            (name("api"), file()),
            (name("session-x"), pidfd()),
        ];
        let sorted = sort(handed.into_iter());
        assert!(sorted.listener.is_some());
        assert_eq!(sorted.processes.into_keys().collect::<Vec<_>>(), [session]);
        let of_session = format!("session-{session}");
        let strays = ["tenured.socket", &of_session, &of_session, "api", "session-x"];
        assert_eq!(sorted.strays, strays);
    }

    #[test]
    fn is_taken_before_threads_start() {
        // This test is a thread.
        assert!(matches!(take(), Err(HandoverError::Threads)));
    }
}
