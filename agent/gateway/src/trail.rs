//! The audit trail: one JSON line for each register, grant, preemption, release, loss, refusal and change
//! of a key.
//!
//! No request waits for it. Lines wait for their thread in a bounded queue; what does not fit is counted,
//! and a line says how many were left out.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use tenure_host::clock;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::access::{Caller, Event, Fact, KeyId};

/// Lines that wait for the disk, about 300 bytes each.
const WAITING_MAX: usize = 16_384;
/// Refusals are left out when fewer places are free: strangers can cause as many as they like.
const FREE_FOR_REFUSALS: usize = WAITING_MAX / 2;

/// The way to the trail. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trail(Option<Arc<Queue>>);

#[derive(Debug)]
struct Queue {
    messages: mpsc::Sender<Message>,
    left_out: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Line(Box<Entry>),
    /// Open the file again: it may have been moved away.
    Reopen,
    /// All before it is to be written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Entry {
    wall_us: u64,
    by: By,
    fact: Fact,
}

/// Somebody whom a line is about.
#[derive(Debug, Clone, Default)]
pub struct By {
    pub key: Option<KeyId>,
    pub principal: Option<Arc<str>>,
    pub peer: Option<SocketAddr>,
}

impl From<&Caller> for By {
    fn from(Caller { principal, key, peer, .. }: &Caller) -> By {
        By { key: *key, principal: Some(Arc::clone(&principal.name)), peer: *peer }
    }
}

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    outcome: &'a str,
}

/// The place of a trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// What a service manager's journal gets.
    Stdout,
    File(PathBuf),
}

impl Place {
    /// The place with that name; `-` is the standard output.
    pub fn named(path: &Path) -> Place {
        if path == Path::new("-") { Place::Stdout } else { Place::File(path.to_owned()) }
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Place::Stdout => Box::new(io::stdout()),
            Place::File(path) => {
                let mut options = File::options();
                Box::new(options.create(true).append(true).mode(0o600).open(path)?)
            }
        })
    }
}

impl Trail {
    /// Keeps a trail, on a thread of its own, which ends with the last clone of this.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or the thread not be started.
    pub fn keep(place: Place) -> io::Result<Trail> {
        let (messages, inbox) = mpsc::channel(WAITING_MAX);
        let output = place.open()?;
        let queue = Arc::new(Queue { messages, left_out: AtomicU64::new(0) });
        let writer = Writer { place, output: BufWriter::new(output), fails: false };
        let left_out = Arc::downgrade(&queue);
        std::thread::Builder::new().name("trail".to_owned()).spawn(move || {
            let take = || left_out.upgrade().map_or(0, |it| it.left_out.swap(0, Ordering::Relaxed));
            writer.run(inbox, take);
        })?;
        Ok(Trail(Some(queue)))
    }

    /// True if there is one.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a line, or counts it as left out.
    pub fn tell(&self, by: By, fact: Fact) {
        let Some(queue) = self.0.as_ref().filter(|_| fact.event != Event::Wait) else { return };
        let fits = fact.event != Event::Refusal || queue.messages.capacity() > FREE_FOR_REFUSALS;
        let entry = Message::Line(Box::new(Entry { wall_us: clock::wall_us(), by, fact }));
        if !fits || queue.messages.try_send(entry).is_err() {
            queue.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file again, after what was told before.
    pub fn reopen(&self) {
        if let Some(queue) = &self.0
            && queue.messages.try_send(Message::Reopen).is_err()
        {
            warn!("the audit trail is too far behind to open its file again");
        }
    }

    /// Waits until all that was told before is written.
    pub async fn flush(&self) {
        let Some(queue) = &self.0 else { return };
        let (done, is_done) = oneshot::channel();
        if queue.messages.send(Message::Flush(done)).await.is_ok() {
            // A thread that has ended writes no more.
            let _ = is_done.await;
        }
    }
}

/// Writes lines until nobody can tell any more.
struct Writer {
    place: Place,
    output: BufWriter<Box<dyn Write + Send>>,
    /// The last attempt failed, and was warned of.
    fails: bool,
}

impl Writer {
    fn run(mut self, mut inbox: mpsc::Receiver<Message>, left_out: impl Fn() -> u64) {
        while let Some(first) = inbox.blocking_recv() {
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(entry) => self.write(&entry),
                    Message::Reopen => self.reopen(),
                    Message::Flush(done) => {
                        self.flush();
                        // Whoever waited may have gone.
                        let _ = done.send(());
                    }
                }
                next = inbox.try_recv().ok();
            }
            let count = left_out();
            if count > 0 {
                let fact = Fact::new(Event::Dropped, &format!("{count} lines were left out"));
                self.write(&Entry { wall_us: clock::wall_us(), by: By::default(), fact });
            }
            self.flush();
        }
        self.flush();
    }

    fn write(&mut self, entry: &Entry) {
        let written = serde_json::to_writer(&mut self.output, &entry.line());
        let written = written.map_err(io::Error::from).and_then(|()| self.output.write_all(b"\n"));
        self.note(written);
    }

    fn flush(&mut self) {
        let flushed = self.output.flush();
        self.note(flushed);
    }

    fn reopen(&mut self) {
        self.flush();
        match self.place.open() {
            Ok(output) => self.output = BufWriter::new(output),
            Err(error) => warn!(%error, "the audit trail stays in the file that was open before"),
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) if self.fails => info!("the audit trail is written again"),
            Err(error) if !self.fails => warn!(%error, "the audit trail cannot be written"),
            Ok(()) | Err(_) => return,
        }
        self.fails = !self.fails;
    }
}

impl Entry {
    fn line(&self) -> Line<'_> {
        let Entry { wall_us, by: By { key, principal, peer }, fact } = self;
        let Fact { event, session, claim, resource, token, outcome, .. } = fact;
        let time = UNIX_EPOCH + Duration::from_micros(*wall_us);
        Line {
            time: humantime::format_rfc3339_micros(time).to_string(),
            event: *event,
            key: key.map(|key| key.to_string()),
            principal: principal.as_deref(),
            peer: *peer,
            session: session.map(|session| session.to_string()),
            claim: claim.map(|claim| claim.to_string()),
            resource: resource.as_ref().map(ToString::to_string),
            token: *token,
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::Value;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn told(trail: &Trail, event: Event, outcome: &str) {
        trail.tell(By::default(), Fact::new(event, outcome));
    }

    #[tokio::test]
    async fn lines_come_in_order_and_a_moved_file_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let trail = Trail::keep(Place::named(&path)).unwrap();
        told(&trail, Event::Register, "\"one\"\n");
        trail.tell(
            By { principal: Some("p".into()), peer: Some(([127, 0, 0, 1], 7).into()), key: None },
            Fact { token: Some(9), ..Fact::new(Event::Grant, "two") },
        );
        trail.flush().await;
        let found = lines(&path);
        assert_eq!(found[0]["outcome"], "\"one\"\n");
        let second = &found[1];
        assert_eq!((&second["event"], &second["principal"]), (&"grant".into(), &"p".into()));
        assert_eq!((&second["peer"], &second["token"]), (&"127.0.0.1:7".into(), &9.into()));
        assert!(second["time"].as_str().unwrap().ends_with('Z') && second.get("key").is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        std::fs::rename(&path, &moved).unwrap();
        trail.reopen();
        told(&trail, Event::Loss, "three");
        trail.flush().await;
        assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
    }

    #[tokio::test]
    async fn what_does_not_fit_is_counted_and_refusals_leave_room_for_the_rest() {
        let (messages, inbox) = mpsc::channel(WAITING_MAX);
        let queue = Arc::new(Queue { messages, left_out: AtomicU64::new(0) });
        let trail = Trail(Some(Arc::clone(&queue)));
        let left_out = || queue.left_out.load(Ordering::Relaxed);
        // Nobody writes.
        for _ in 0..WAITING_MAX {
            told(&trail, Event::Refusal, "r");
        }
        assert_eq!(left_out(), FREE_FOR_REFUSALS as u64);
        for _ in 0..WAITING_MAX {
            told(&trail, Event::Grant, "g");
        }
        assert_eq!(left_out(), WAITING_MAX as u64);

        let dir = tempfile::tempdir().unwrap();
        let place = Place::File(dir.path().join("audit"));
        let output = BufWriter::new(place.open().unwrap());
        drop(trail);
        let count = left_out();
        drop(queue);
        let said = std::cell::Cell::new(count);
        Writer { place, output, fails: false }.thread_of_its_own(inbox, move || said.replace(0));
        let found = lines(&dir.path().join("audit"));
        assert_eq!(found.len(), WAITING_MAX + 1);
        assert_eq!(found[WAITING_MAX]["outcome"], format!("{WAITING_MAX} lines were left out"));
        assert_eq!(found[0]["event"], "refusal");
    }

    impl Writer {
        /// Runs it where it may block.
        fn thread_of_its_own(
            self,
            inbox: mpsc::Receiver<Message>,
            left_out: impl Fn() -> u64 + Send,
        ) {
            std::thread::scope(|scope| {
                scope.spawn(move || self.run(inbox, left_out));
            });
        }
    }
}
