//! The way back to the service manager.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use tenure_core::model::SessionId;

/// Descriptors that may wait to be kept. Beyond it a process is not kept: after a restart it is found
/// again by its number and start.
const KEEPS_MAX: usize = 1024;
/// Descriptors that the service manager is asked to keep; FileDescriptorStoreMax= of the unit.
const KEPT_MAX: usize = 4096;
/// A session that ends before this is not worth a message to the service manager.
const KEEP_AFTER: Duration = Duration::from_millis(100);
/// How long the end of the process waits for messages that have not been taken.
const FINISH_PATIENCE: Duration = Duration::from_secs(1);

/// The prefix of a session's process in the service manager's store.
const SESSION_PREFIX: &str = "session-";

/// The session whose process is kept under that name.
pub(super) fn session_named(name: &str) -> Option<SessionId> {
    Some(SessionId(name.strip_prefix(SESSION_PREFIX)?.parse().ok()?))
}

/// A message to the service manager.
#[derive(Debug)]
pub(super) enum Message {
    /// The API answers, also again after a reload.
    Ready,
    /// The configuration is being read, since that instant of CLOCK_MONOTONIC.
    Reloading { monotonic_us: u128 },
    /// The agent ends.
    Stopping,
    /// How the agent is, in one line.
    Status(String),
    /// For the watchdog.
    Alive,
    /// Keep a handle on the process of a session.
    Keep(SessionId, Arc<OwnedFd>),
    /// Forget what is kept under that name.
    Forget(String),
}

impl Message {
    /// As sd_notify(3) has it.
    pub(super) fn assignments(&self) -> Vec<(&'static str, String)> {
        let one = || "1".to_owned();
        match self {
            Message::Ready => vec![("READY", one())],
            Message::Reloading { monotonic_us } => {
                vec![("RELOADING", one()), ("MONOTONIC_USEC", monotonic_us.to_string())]
            }
            Message::Stopping => vec![("STOPPING", one())],
            Message::Status(text) => vec![("STATUS", text.clone())],
            Message::Alive => vec![("WATCHDOG", one())],
            // Without FDPOLL=0 a pidfd would be dropped from the store when its process ends, and
            // nobody would know how it ended.
            Message::Keep(session, _) => vec![
                ("FDSTORE", one()),
                ("FDNAME", format!("{SESSION_PREFIX}{session}")),
                ("FDPOLL", "0".to_owned()),
            ],
            Message::Forget(name) => vec![("FDSTOREREMOVE", one()), ("FDNAME", name.clone())],
        }
    }

    /// The descriptor that goes along.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Message::Keep(_, process) => Some(process.as_raw_fd()),
            _ => None,
        }
    }
}

/// Tells the service manager how the agent is. Never waits: a thread of its own does, since the
/// service manager may be slow to listen. Cheap to clone; silent where nobody listens.
///
/// Its queue is bounded: of each sort of news only the last waits, descriptors to keep are dropped
/// beyond a limit, and there is nothing to forget but what was kept.
#[derive(Clone)]
pub struct Notifier(Option<Arc<Shared>>);

/// The queue, and who waits for it.
struct Shared {
    queue: Mutex<Queue>,
    /// There is more, or the end.
    changed: Condvar,
    /// The thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    /// In order, one of a sort.
    news: VecDeque<Message>,
    /// Names to be removed from the store, before anything else gets the same name.
    forgets: VecDeque<String>,
    /// Descriptors to be kept, each from an instant on.
    keeps: VecDeque<(Instant, SessionId, Arc<OwnedFd>)>,
    /// Sessions whose process is, or is about to be, in the store.
    kept: HashSet<SessionId>,
    /// Processes that were not kept since the queue was last empty.
    dropped: u64,
    finishing: bool,
    has_ended: bool,
}

impl Notifier {
    /// One that nobody listens to.
    pub fn silent() -> Notifier {
        Notifier(None)
    }

    /// True if anybody listens.
    pub fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Starts the thread, which hands each message to `send`. `kept` is in the store already.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub(super) fn start(
        kept: HashSet<SessionId>,
        mut send: impl FnMut(&Message) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Notifier> {
        let queue = Queue { kept, ..Queue::default() };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            ended: Condvar::new(),
        });
        let notifier = Notifier(Some(Arc::clone(&shared)));
        std::thread::Builder::new().name("notifier".to_owned()).spawn(move || {
            let mut failing = false;
            while let Some(message) = shared.next() {
                let sent = send(&message);
                if let Err(error) = &sent
                    && !failing
                {
                    tracing::warn!(%error, "the service manager cannot be told anything");
                }
                failing = sent.is_err();
            }
            shared.queue().has_ended = true;
            shared.ended.notify_all();
        })?;
        Ok(notifier)
    }

    /// The API answers; after [`Notifier::reloading`], the reload is done.
    pub fn ready(&self) {
        self.tell(Message::Ready);
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        // Fails on no system that has a service manager.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.tell(Message::Reloading { monotonic_us: now.as_micros() });
    }

    /// The agent ends.
    pub fn stopping(&self) {
        self.tell(Message::Stopping);
    }

    /// How the agent is, in one line.
    pub fn status(&self, text: String) {
        self.tell(Message::Status(text));
    }

    /// A sign of life for the watchdog.
    pub fn alive(&self) {
        self.tell(Message::Alive);
    }

    /// Has a handle on the process of a session kept for the next agent, in the place of one that is
    /// kept already. A session that ends within 100 ms is never told of.
    pub fn keep(&self, session: SessionId, process: Arc<OwnedFd>) {
        self.with(|queue| queue.keep(session, process));
    }

    /// Has the handle on the process of a session forgotten.
    pub fn forget(&self, session: SessionId) {
        self.with(|queue| queue.forget(session));
    }

    /// Has whatever is kept under that name forgotten.
    pub(super) fn discard(&self, name: String) {
        self.with(|queue| queue.forgets.push_back(name));
    }

    /// Waits a moment until everything is told. Nothing is told afterwards.
    pub fn finish(&self) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.queue();
        queue.finishing = true;
        shared.changed.notify_one();
        // In time or not: the process ends now.
        drop(shared.ended.wait_timeout_while(queue, FINISH_PATIENCE, |queue| !queue.has_ended));
    }

    fn tell(&self, message: Message) {
        self.with(|queue| queue.tell(message));
    }

    fn with(&self, change: impl FnOnce(&mut Queue)) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.queue();
        if queue.finishing {
            return;
        }
        change(&mut queue);
        shared.changed.notify_one();
    }
}

impl Shared {
    /// No code panics while it holds the lock, and what it guards is right between any two calls.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message, when it is due; `None` at the end.
    #[expect(
        clippy::disallowed_methods,
        reason = "a machine that sleeps meanwhile keeps a descriptor later, no more"
    )]
    fn next(&self) -> Option<Message> {
        let mut queue = self.queue();
        loop {
            let now = Instant::now();
            if let Some(message) = queue.next(now) {
                return Some(message);
            }
            if queue.finishing {
                return None;
            }
            queue = match queue.keeps.front().map(|(due, ..)| due.saturating_duration_since(now)) {
                Some(nap) => {
                    let waited = self.changed.wait_timeout(queue, nap);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Queue {
    /// In the place of what is older, and would be told only to be overtaken.
    fn tell(&mut self, message: Message) {
        let sort = std::mem::discriminant(&message);
        self.news.retain(|waiting| std::mem::discriminant(waiting) != sort);
        self.news.push_back(message);
    }

    #[expect(clippy::disallowed_methods, reason = "as in next")]
    fn keep(&mut self, session: SessionId, process: Arc<OwnedFd>) {
        self.forget(session);
        let full = if self.keeps.len() >= KEEPS_MAX {
            Some("it does not listen")
        } else if self.kept.len() >= KEPT_MAX {
            Some("its store is full")
        } else {
            None
        };
        if let Some(why) = full {
            if self.dropped == 0 {
                tracing::warn!(
                    %session,
                    why,
                    "the service manager does not keep the handles on some processes: after a restart \
                     they are looked for by number and start"
                );
            }
            self.dropped += 1;
            return;
        }
        self.kept.insert(session);
        self.keeps.push_back((Instant::now() + KEEP_AFTER, session, process));
    }

    fn forget(&mut self, session: SessionId) {
        if !self.kept.remove(&session) {
            return;
        }
        // The latest first: most sessions that end early are young.
        let waiting = self.keeps.iter().rposition(|(_, waiting, _)| *waiting == session);
        match waiting {
            Some(at) => drop(self.keeps.remove(at)),
            None => self.forgets.push_back(format!("{SESSION_PREFIX}{session}")),
        }
    }

    fn next(&mut self, now: Instant) -> Option<Message> {
        if let Some(message) = self.news.pop_front() {
            return Some(message);
        }
        if let Some(name) = self.forgets.pop_front() {
            return Some(Message::Forget(name));
        }
        if self.keeps.front().is_some_and(|(due, ..)| *due <= now || self.finishing) {
            let (_, session, process) = self.keeps.pop_front()?;
            return Some(Message::Keep(session, process));
        }
        if self.keeps.is_empty() && self.kept.len() < KEPT_MAX {
            let dropped = std::mem::take(&mut self.dropped);
            if dropped > 1 {
                tracing::warn!(
                    dropped,
                    "processes whose handles the service manager does not keep"
                );
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;

    use uuid::Uuid;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn session(number: usize) -> SessionId {
        SessionId(Uuid::from_u128(number as u128))
    }

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(File::open("/dev/null").unwrap().into())
    }

    fn text(message: &Message) -> String {
        let assignments = message.assignments();
        let lines: Vec<String> =
            assignments.iter().map(|(key, value)| format!("{key}={value}")).collect();
        lines.join(" ")
    }

    /// A notifier whose messages wait until the test takes them.
    fn slow() -> (Notifier, mpsc::Receiver<String>) {
        let (sent, taken) = mpsc::sync_channel(0);
        let send = move |message: &Message| {
            let text = format!(
                "{}{}",
                text(message),
                if message.descriptor().is_some() { " +" } else { "" }
            );
            sent.send(text).map_err(io::Error::other)
        };
        (Notifier::start(HashSet::new(), send).unwrap(), taken)
    }

    fn next(taken: &mpsc::Receiver<String>) -> String {
        taken.recv_timeout(PATIENCE).unwrap()
    }

    #[test]
    fn of_each_sort_of_news_the_last_waits() {
        let (notifier, taken) = slow();
        notifier.ready();
        // Taken by the thread, which now waits for the test.
        while !notifier.0.as_ref().unwrap().queue().news.is_empty() {
            std::thread::yield_now();
        }
        for i in 0..3 {
            notifier.reloading();
            notifier.alive();
            notifier.status(format!("status {i}"));
            notifier.ready();
        }
        notifier.stopping();
        assert_eq!(next(&taken), "READY=1");
        assert!(next(&taken).starts_with("RELOADING=1 MONOTONIC_USEC="));
        assert_eq!(next(&taken), "WATCHDOG=1");
        assert_eq!(next(&taken), "STATUS=status 2");
        assert_eq!(next(&taken), "READY=1");
        assert_eq!(next(&taken), "STOPPING=1");
        notifier.finish();
        assert!(taken.recv_timeout(PATIENCE).is_err(), "the thread has ended");
        notifier.ready();
    }

    #[test]
    fn keeps_and_forgets_processes_by_session() {
        let (notifier, taken) = slow();
        let (one, two) = (session(1), session(2));
        notifier.keep(one, descriptor());
        let kept = format!("FDSTORE=1 FDNAME=session-{one} FDPOLL=0 +");
        assert_eq!(next(&taken), kept);
        // The later one takes the place of the first; what is forgotten early is never told of.
        notifier.keep(two, descriptor());
        notifier.forget(two);
        notifier.forget(two);
        notifier.keep(one, descriptor());
        assert_eq!(next(&taken), format!("FDSTOREREMOVE=1 FDNAME=session-{one}"));
        assert_eq!(next(&taken), kept);
        notifier.discard("stray".to_owned());
        assert_eq!(next(&taken), "FDSTOREREMOVE=1 FDNAME=stray");
        assert_eq!(session_named(&format!("session-{one}")), Some(one));
        assert_eq!(session_named("session-x"), None);
    }

    #[test]
    fn nothing_grows_while_nobody_listens() {
        let (notifier, taken) = slow();
        notifier.ready();
        for i in 0..KEEPS_MAX + 10 {
            notifier.keep(session(i), descriptor());
        }
        let held = |what: fn(&Queue) -> usize| what(&notifier.0.as_ref().unwrap().queue());
        assert_eq!(held(|queue| queue.keeps.len()), KEEPS_MAX);
        assert_eq!(held(|queue| queue.kept.len()), KEEPS_MAX);
        assert_eq!(held(|queue| queue.dropped as usize), 10);
        for i in 0..KEEPS_MAX + 10 {
            notifier.forget(session(i));
        }
        assert_eq!(held(|queue| queue.keeps.len() + queue.forgets.len()), 0);
        drop(taken);
        notifier.finish();
    }

    #[test]
    fn no_more_is_kept_than_the_store_takes() {
        let mut queue = Queue { kept: (0..KEPT_MAX).map(session).collect(), ..Queue::default() };
        queue.keep(session(KEPT_MAX), descriptor());
        assert_eq!((queue.keeps.len(), queue.dropped), (0, 1));
        queue.keep(session(1), descriptor());
        assert_eq!((queue.keeps.len(), queue.forgets.len()), (1, 1), "in the place of its own");
    }
}
