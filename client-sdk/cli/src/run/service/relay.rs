//! The socket of the service manager, and one in its place for the command.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;
use nix::sys::socket::sockopt::{Linger, PassCred};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType,
    UnixAddr, UnixCredentials, bind, getsockname, recvmsg, sendmsg, setsockopt, shutdown, socket,
};
use nix::unistd::{Pid, geteuid, getpid};

use crate::run::family;
use crate::run::kernel::received;

/// Bytes of one message: systemd takes no more.
const MESSAGE_MAX: usize = 4096;
/// Descriptors of one message: the kernel takes no more (SCM_MAX_FD).
const DESCRIPTORS_MAX: usize = 253;
/// Threads that wait for the close of strangers' descriptors; with more of them such descriptors are closed at once, and the relay waits.
const CLOSING_MAX: usize = 8;
/// Such a thread does nothing else.
const CLOSING_STACK: usize = 64 * 1024;
/// The longest wait, after the end of the command, for a manager that is busy.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// The way to the service manager.
pub(super) struct Manager {
    socket: OwnedFd,
    /// Looked up for each message, since a manager that starts anew makes its socket again.
    address: UnixAddr,
}

impl Manager {
    /// Finds it by `NOTIFY_SOCKET`; `None` without one.
    pub(super) fn find() -> Option<Manager> {
        let name = std::env::var_os("NOTIFY_SOCKET")?;
        let address = match name.as_bytes() {
            [b'@', name @ ..] => UnixAddr::new_abstract(name),
            [b'/', ..] => UnixAddr::new(name.as_bytes()),
            _ => return None,
        };
        let socket = datagram_socket().ok()?;
        Some(Manager { socket, address: address.ok()? })
    }

    /// Says this, unless the manager is busy.
    pub(super) fn tell(&self, words: &str) {
        // It is said again soon.
        let _lost = self.send(words.as_bytes(), &[], MsgFlags::MSG_DONTWAIT);
    }

    fn send(&self, words: &[u8], descriptors: &[OwnedFd], flags: MsgFlags) -> nix::Result<()> {
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let rights = if numbers.is_empty() { &[][..] } else { &rights };
        let (words, to) = ([IoSlice::new(words)], Some(&self.address));
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg(self.socket.as_raw_fd(), &words, rights, flags, to) {
                Err(Errno::EINTR) => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// Takes what the command says to its service manager, and passes it on.
///
/// This has a thread of its own. Senders choose the descriptors that come with a message, and closing one of those may take any time,
/// while the hold is to be watched.
pub(super) struct Relay {
    socket: Arc<OwnedFd>,
    address: OsString,
    is_ending: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Relay {
    /// Begins with the wrapper's own words, if there are any.
    ///
    /// # Errors
    ///
    /// When no socket or no thread can be made.
    pub(super) fn start(manager: Manager, own_words: Option<String>) -> io::Result<Relay> {
        let socket = datagram_socket()?;
        setsockopt(&socket, PassCred, &true)?;
        // The kernel finds a name that nobody has, which leaves no file.
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed())?;
        let bound: UnixAddr = getsockname(socket.as_raw_fd())?;
        let name = bound.as_abstract().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let address = OsString::from_vec([b"@", name].concat());
        let (socket, is_ending) = (Arc::new(socket), Arc::<AtomicBool>::default());
        let (ending, ended) = channel();
        let (theirs, ends) = (Arc::clone(&socket), Arc::clone(&is_ending));
        thread::Builder::new().name("notify".to_owned()).spawn(move || {
            // Signals are for the thread that watches over the command.
            let _always_possible = SigSet::all().thread_block();
            if let Some(words) = own_words {
                let _lost = manager.send(words.as_bytes(), &[], MsgFlags::empty());
            }
            while let Ok(received) = receive(theirs.as_raw_fd()) {
                match received {
                    Arrival::Message { words, descriptors } => {
                        let _lost = manager.send(&words, &descriptors, MsgFlags::empty());
                    }
                    Arrival::Refused(descriptors) => close_aside(descriptors),
                    // All that came before has been read.
                    Arrival::Nothing if ends.load(Ordering::Acquire) => break,
                    Arrival::Nothing => {}
                }
            }
            let _nobody_waits = ending.send(());
        })?;
        Ok(Relay { socket, address, is_ending, ended })
    }

    /// `NOTIFY_SOCKET` for the command.
    pub(super) fn address(&self) -> OsString {
        self.address.clone()
    }

    /// Passes on what has come by now, and ends.
    pub(super) fn end(self) {
        self.is_ending.store(true, Ordering::Release);
        // A read returns nothing from now on, once it has returned what came before.
        if shutdown(self.socket.as_raw_fd(), Shutdown::Read).is_ok() {
            let _busy = self.ended.recv_timeout(LAST_WORDS_MAX);
        }
    }
}

fn datagram_socket() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
}

enum Arrival {
    Message {
        words: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    },
    /// It is not to be passed on.
    Refused(Vec<OwnedFd>),
    /// A signal, or the end of the socket.
    Nothing,
}

/// Waits for a message.
fn receive(socket: RawFd) -> nix::Result<Arrival> {
    let mut text = [0; MESSAGE_MAX];
    let mut room = nix::cmsg_space!([RawFd; DESCRIPTORS_MAX], UnixCredentials);
    let mut descriptors = Vec::new();
    let mut sender = None;
    let (length, is_whole) = {
        let mut parts = [IoSliceMut::new(&mut text)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let got = match recvmsg::<()>(socket, &mut parts, Some(&mut room), flags) {
            Err(Errno::EINTR) => return Ok(Arrival::Nothing),
            got => got?,
        };
        // Without a descriptor that is free the kernel cuts them off, and the message says nothing.
        let controls = got.cmsgs();
        let is_whole = controls.is_ok() && !got.flags.contains(MsgFlags::MSG_TRUNC);
        for control in controls.into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmRights(numbers) => {
                    descriptors.extend(numbers.into_iter().map(received));
                }
                ControlMessageOwned::ScmCredentials(found) => sender = Some(found),
                _ => {}
            }
        }
        (got.bytes, is_whole)
    };
    let Some(sender) = sender else {
        // Every message has its sender.
        return Ok(if is_whole { Arrival::Nothing } else { Arrival::Refused(descriptors) });
    };
    let words = without_main_pid(&text[..length]);
    Ok(match is_whole && !words.is_empty() && may_speak(&sender) {
        true => Arrival::Message { words, descriptors },
        false => Arrival::Refused(descriptors),
    })
}

/// Closes descriptors of strangers: the close of a socket may wait for its peer for as long as the stranger has said, that of a file for
/// its file system.
fn close_aside(descriptors: Vec<OwnedFd>) {
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    if descriptors.is_empty() {
        return;
    }
    let no_wait = libc::linger { l_onoff: 0, l_linger: 0 };
    for descriptor in &descriptors {
        // What is no socket has no such option.
        let _not_a_socket = setsockopt(descriptor, Linger, &no_wait);
    }
    if WAITING.fetch_add(1, Ordering::Relaxed) >= CLOSING_MAX {
        drop(descriptors);
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let close = move || {
        drop(descriptors);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().stack_size(CLOSING_STACK).spawn(close).is_err() {
        // They were closed here.
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True for processes of this user and of root, and for those of the command that have become another user. Anybody on the host can
/// send to a name without a file.
fn may_speak(sender: &UnixCredentials) -> bool {
    sender.uid() == 0
        || sender.uid() == geteuid().as_raw()
        || family::descends(Pid::from_raw(sender.pid()), getpid())
}

/// The message without the lines that would make another process the service: its manager hears this one.
fn without_main_pid(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"MAINPID"));
    lines.collect::<Vec<_>>().join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_stays_this_process() {
        let check = |said: &str, passed_on: &str| {
            assert_eq!(without_main_pid(said.as_bytes()), passed_on.as_bytes());
        };
        check("READY=1", "READY=1");
        check("READY=1\nMAINPID=7\nSTATUS=a b\n", "READY=1\nSTATUS=a b\n");
        check("MAINPID=7", "");
        check("MAINPIDFD=1\nMAINPIDFDID=9", "");
        check("", "");
    }
}
