//! In the place of systemd: hands a socket to agents, hears their notifications, and keeps descriptors
//! from one agent to the next.

use std::collections::BTreeSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, sendmsg, setsockopt,
};
use tempfile::TempDir;

use super::{binary, eventually};

/// Descriptors in one message; the kernel takes no more (SCM_MAX_FD).
pub const DESCRIPTORS_MAX: usize = 253;
/// Bytes of one notification.
const MESSAGE_MAX: usize = 4096;
/// The message that ends the listening thread.
const END: &[u8] = b"END";

/// A service manager. Ends when the last copy is gone.
#[derive(Clone)]
pub struct ServiceManager(Arc<Inner>);

struct Inner {
    dir: TempDir,
    listener: OwnedFd,
    heard: Arc<Mutex<Heard>>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    /// With the process that sent each.
    messages: Vec<(u32, String)>,
    /// By name, as they came; several may have one name.
    store: Vec<(String, Kept)>,
    watchdog_us: Option<u64>,
}

/// A descriptor in the store.
struct Kept(RawFd);

impl Drop for Kept {
    fn drop(&mut self) {
        // It was open, and nobody else's.
        let _ = nix::unistd::close(self.0);
    }
}

impl ServiceManager {
    /// One that listens at a socket of its own, where no agent serves yet.
    #[track_caller]
    pub fn start() -> ServiceManager {
        let dir = TempDir::with_prefix("service-manager-").expect("a directory can be made");
        // It may have to keep thousands.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the kernel tells");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit everybody may");
        let listener = UnixListener::bind(dir.path().join("api.sock")).expect("it is ours");
        let notify = UnixDatagram::bind(dir.path().join("notify")).expect("it is ours");
        setsockopt(&notify, PassCred, &true).expect("every socket of this family can");
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let listening = std::thread::spawn({
            let heard = Arc::clone(&heard);
            move || listen(&notify, &heard)
        });
        let listener = listener.into();
        ServiceManager(Arc::new(Inner { dir, listener, heard, listening: Some(listening) }))
    }

    /// The same with a watchdog for the agents that are started from now on.
    #[must_use]
    pub fn watchdog_ms(self, ms: u64) -> ServiceManager {
        self.heard(|heard| heard.watchdog_us = Some(ms * 1000));
        self
    }

    /// The socket that it listens at.
    pub fn socket(&self) -> PathBuf {
        self.0.dir.path().join("api.sock")
    }

    fn notify(&self) -> PathBuf {
        self.0.dir.path().join("notify")
    }

    fn heard<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.0.heard.lock().expect("no thread panics with it"))
    }

    /// Every notification so far, but for those about the store.
    pub fn messages(&self) -> Vec<String> {
        self.heard(|heard| heard.messages.iter().map(|(_, message)| message.clone()).collect())
    }

    /// The processes from which it heard something. systemd hears that of its service alone.
    pub fn speakers(&self) -> BTreeSet<u32> {
        self.heard(|heard| heard.messages.iter().map(|(sender, _)| *sender).collect())
    }

    /// How often it heard that, from all agents.
    pub fn count(&self, message: &str) -> usize {
        self.messages().iter().filter(|heard| *heard == message).count()
    }

    /// The last status line.
    pub fn status(&self) -> Option<String> {
        let messages = self.messages();
        messages.iter().rev().find_map(|message| message.strip_prefix("STATUS=")).map(str::to_owned)
    }

    /// Waits for a notification.
    #[track_caller]
    pub fn hears(&self, message: &str) {
        eventually(&format!("{message:?}"), || (self.count(message) > 0).then_some(()));
    }

    /// The names of what it keeps, in order.
    pub fn kept(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.heard(|heard| heard.store.iter().map(|(name, _)| name.clone()).collect());
        names.sort();
        names
    }

    /// Does something while it takes no notifications, as when it is busy with other things.
    pub fn while_deaf(&self, act: impl FnOnce()) {
        // It cannot write down what it hears.
        self.heard(|_| act());
    }

    /// Keeps something that no agent asked for.
    #[track_caller]
    pub fn keep(&self, name: &str, descriptor: impl Into<OwnedFd>) {
        use std::os::fd::IntoRawFd;
        let kept = Kept(descriptor.into().into_raw_fd());
        self.heard(|heard| heard.store.push((name.to_owned(), kept)));
    }

    /// Forgets everything that it keeps.
    pub fn forget_all(&self) {
        self.heard(|heard| heard.store.clear());
    }

    /// The command that starts a program as a service: with its descriptors and the socket to notify.
    /// `by` starts its argument, perhaps in a namespace.
    #[track_caller]
    pub fn command(&self, by: impl FnOnce(&Path) -> Command, program: &Path) -> Command {
        let mut command = by(&binary("launch"));
        let (ours, theirs) = UnixStream::pair().expect("sockets can be made");
        self.heard(|heard| {
            let mut names = vec!["api"];
            let mut descriptors = vec![self.0.listener.as_raw_fd()];
            for (name, kept) in &heard.store {
                names.push(name);
                descriptors.push(kept.0);
            }
            let names = names.join(":");
            let text = [IoSlice::new(names.as_bytes())];
            let rights = [ControlMessage::ScmRights(&descriptors)];
            let sent = sendmsg::<()>(ours.as_raw_fd(), &text, &rights, MsgFlags::empty(), None);
            assert_eq!(sent, Ok(names.len()), "what is handed over fits in one message");
            if let Some(us) = heard.watchdog_us {
                command.env("WATCHDOG_USEC", us.to_string());
            }
        });
        command.arg(program).env("NOTIFY_SOCKET", self.notify());
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let told = UnixDatagram::unbound()
            .and_then(|socket| socket.send_to(END, self.dir.path().join("notify")));
        if let (Ok(_), Some(listening)) = (told, self.listening.take()) {
            let _ = listening.join();
        }
    }
}

/// Hears notifications until it is told to end.
fn listen(notify: &UnixDatagram, heard: &Mutex<Heard>) {
    while let Ok((sender, text, descriptors)) = receive(notify) {
        if text == END {
            return;
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(str::to_owned)
        };
        let mut heard = heard.lock().expect("no thread panics with it");
        let name = value("FDNAME").unwrap_or_default();
        if value("FDSTORE").is_some() {
            // A descriptor that is polled is dropped when it hangs up, and so a process that has ended.
            if value("FDPOLL").as_deref() == Some("0") {
                let named = descriptors.into_iter().map(|kept| (name.clone(), kept));
                heard.store.extend(named);
            }
        } else if value("FDSTOREREMOVE").is_some() {
            heard.store.retain(|(kept, _)| *kept != name);
        } else {
            heard.messages.push((sender, text));
        }
    }
}

fn receive(notify: &UnixDatagram) -> io::Result<(u32, Vec<u8>, Vec<Kept>)> {
    let mut text = vec![0; MESSAGE_MAX];
    let mut room = nix::cmsg_space!([RawFd; DESCRIPTORS_MAX], UnixCredentials);
    let (mut descriptors, mut sender) = (Vec::new(), 0);
    let length = {
        let mut parts = [IoSliceMut::new(&mut text)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let got = recvmsg::<()>(notify.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        for message in got.cmsgs()? {
            match message {
                ControlMessageOwned::ScmRights(more) => {
                    descriptors.extend(more.into_iter().map(Kept));
                }
                ControlMessageOwned::ScmCredentials(of) => sender = of.pid().unsigned_abs(),
                _ => {}
            }
        }
        got.bytes
    };
    text.truncate(length);
    Ok((sender, text, descriptors))
}
