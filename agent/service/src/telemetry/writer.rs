//! Log lines on their way out.
//!
//! `tracing_appender::non_blocking` is the usual crate. It has no count of lines that could not be written, prints
//! to standard output when its queue is full at the end, which waits where that is the same stuck pipe, and
//! wakes its thread for every line.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::time::FormatTime;

/// Lines that may wait for a slow reader of the log; those beyond are dropped and counted.
const LINES_MAX: usize = 8192;
/// Lines that are written at once.
const BATCH_MAX: usize = 256;
/// How long lines are gathered.
const GATHER: Duration = Duration::from_millis(5);
/// How long the end of the process waits for the log to be written.
const FLUSH_MAX: Duration = Duration::from_millis(500);

enum Message<L> {
    Line(L),
    /// One to be formatted, and when it came about.
    Unformatted(SystemTime, Box<dyn Unformatted>),
    Flush(SyncSender<()>),
}

/// Something to be logged, whose text the log's own thread makes.
pub trait Unformatted: Send {
    /// Logs it.
    fn write(&self);
}

/// The destination of lines. May take as long as it likes: only the log's own thread waits for it.
pub(super) trait Sink<L>: Send + 'static {
    /// Writes some lines; returns how many of them are lost.
    fn write(&mut self, lines: &mut Vec<L>) -> u64;

    /// Says that so many lines are missing; whether it could.
    fn tell_dropped(&mut self, lines: u64) -> bool;
}

/// The line that stands for missing ones.
pub(super) fn dropped_line(lines: u64) -> String {
    format!("{lines} log lines dropped: the log could not be written, or is read too slowly")
}

/// Lines of text, each with its line break.
pub(super) struct Text<W>(pub(super) W);

impl<W: Write + Send + 'static> Sink<Vec<u8>> for Text<W> {
    fn write(&mut self, lines: &mut Vec<Vec<u8>>) -> u64 {
        let written = self.0.write_all(&lines.concat()).and_then(|()| self.0.flush());
        let lost = if written.is_ok() { 0 } else { lines.len() as u64 };
        lines.clear();
        lost
    }

    fn tell_dropped(&mut self, lines: u64) -> bool {
        writeln!(self.0, "{}", dropped_line(lines)).is_ok()
    }
}

thread_local! {
    /// On the log's thread, while it formats a line: when that came about.
    static CAME_ABOUT: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// The way to the log's thread for what is to be formatted there.
static UNFORMATTED: OnceLock<Box<ToThread>> = OnceLock::new();

type ToThread = dyn Fn(Box<dyn Unformatted>) + Send + Sync;

/// Has a line formatted and written by the log's thread; at once where there is none.
pub fn on_log_thread(line: impl Unformatted + 'static) {
    match UNFORMATTED.get() {
        Some(send) => send(Box::new(line)),
        None => line.write(),
    }
}

/// The time of a line.
pub(super) struct Time;

impl FormatTime for Time {
    fn format_time(&self, to: &mut format::Writer<'_>) -> fmt::Result {
        let time = CAME_ABOUT.get().unwrap_or_else(now);
        write!(to, "{}", humantime::format_rfc3339_micros(time))
    }
}

#[expect(clippy::disallowed_methods, reason = "only for people who read the log")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// Takes lines without ever waiting; a thread of its own writes them. The thread ends with this.
pub(super) struct Writer<L> {
    lines: SyncSender<Message<L>>,
    /// Those that the log's thread has just formatted.
    formatted: Formatted<L>,
    dropped: Counter,
}

type Formatted<L> = Arc<Mutex<Vec<L>>>;

/// Nothing panics while it holds the lock.
fn lock<L>(formatted: &Formatted<L>) -> MutexGuard<'_, Vec<L>> {
    formatted.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Send + 'static> Writer<L> {
    pub(super) fn start(sink: impl Sink<L>, dropped: Counter) -> io::Result<Arc<Writer<L>>> {
        let (lines, queue) = sync_channel(LINES_MAX);
        let counted = dropped.clone();
        let formatted = Formatted::default();
        let from = Arc::clone(&formatted);
        let log = move || run(&queue, &from, &counted, sink);
        thread::Builder::new().name("log".to_owned()).spawn(log)?;
        Ok(Arc::new(Writer { lines, formatted, dropped }))
    }

    /// Takes all lines from now on that are to be formatted.
    pub(super) fn format_all(self: &Arc<Self>) {
        let writer = Arc::clone(self);
        // The log is started once.
        let _ = UNFORMATTED.set(Box::new(move |line| {
            writer.give(Message::Unformatted(now(), line));
        }));
    }

    /// Hands a line over; drops it when too many wait.
    pub(super) fn send(&self, line: L) {
        if CAME_ABOUT.get().is_some() {
            lock(&self.formatted).push(line);
        } else {
            self.give(Message::Line(line));
        }
    }

    fn give(&self, message: Message<L>) {
        if self.lines.try_send(message).is_err() {
            self.dropped.inc();
        }
    }

    /// Waits until everything so far is written, but not for ever.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            // In vain when the reader of the log is stuck; the process ends all the same.
            let _ = written.recv_timeout(FLUSH_MAX);
        }
    }
}

fn run<L>(
    queue: &Receiver<Message<L>>,
    formatted: &Formatted<L>,
    dropped: &Counter,
    mut sink: impl Sink<L>,
) {
    let mut lines = Vec::new();
    let mut told = 0;
    while let Ok(first) = queue.recv() {
        let mut flushed = Vec::new();
        for message in std::iter::once(first).chain(queue.try_iter()).take(BATCH_MAX) {
            match message {
                Message::Line(line) => lines.push(line),
                Message::Unformatted(time, line) => {
                    CAME_ABOUT.set(Some(time));
                    line.write();
                    CAME_ABOUT.set(None);
                    lines.append(&mut lock(formatted));
                }
                Message::Flush(done) => flushed.push(done),
            }
        }
        let is_full = lines.len() + flushed.len() >= BATCH_MAX;
        dropped.inc_by(sink.write(&mut lines));
        let untold = dropped.get() - told;
        if untold > 0 && sink.tell_dropped(untold) {
            told += untold;
        }
        for done in flushed {
            let _ = done.try_send(());
        }
        if !is_full {
            // Whoever logs meanwhile need not wake this thread for every line.
            thread::sleep(GATHER);
        }
    }
}

/// A line comes in one piece.
impl Write for &Writer<Vec<u8>> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Silent;

    impl Unformatted for Silent {
        fn write(&self) {}
    }

    /// Blocks until it is let go, then keeps what is written.
    struct Stuck {
        gate: Receiver<()>,
        open: bool,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.open {
                let _ = self.gate.recv();
                self.open = true;
            }
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stuck() -> (SyncSender<()>, Arc<Mutex<Vec<u8>>>, Stuck) {
        let (release, gate) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let stuck = Stuck { gate, open: false, written: Arc::clone(&written) };
        (release, written, stuck)
    }

    /// Looks until the text that was written is as it must be.
    #[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
    fn until<L: Send + 'static>(
        writer: &Writer<L>,
        written: &Mutex<Vec<u8>>,
        holds: impl Fn(&str) -> bool,
    ) -> String {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            writer.flush();
            let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            if holds(&text) {
                return text;
            }
            assert!(std::time::Instant::now() < deadline, "{text}");
        }
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_no_time() {
        let (release, written, stuck) = stuck();
        let dropped = Counter::default();
        let writer = Writer::start(Text(stuck), dropped.clone()).unwrap();
        for _ in 0..LINES_MAX * 2 {
            writer.send(b"line\n".to_vec());
        }
        assert!(dropped.get() > 0);
        release.send(()).unwrap();
        let text = until(&writer, &written, |text| text.contains("log lines dropped"));
        assert!(text.lines().count() <= LINES_MAX + BATCH_MAX + 3);
    }

    #[test]
    fn a_line_that_is_formatted_late_has_the_time_at_which_it_came_about() {
        let (release, written, stuck) = stuck();
        release.send(()).unwrap();
        let writer = Writer::start(Text(stuck), Counter::default()).unwrap();
        CAME_ABOUT.set(Some(SystemTime::UNIX_EPOCH + Duration::from_micros(1_500_000)));
        let mut text = String::new();
        Time.format_time(&mut format::Writer::new(&mut text)).unwrap();
        writer.send(b"formatted\n".to_vec());
        CAME_ABOUT.set(None);
        assert_eq!(text, "1970-01-01T00:00:01.500000Z");
        assert_eq!(*lock(&writer.formatted), [b"formatted\n".to_vec()]);
        writer.flush();
        assert!(written.lock().unwrap().is_empty(), "only the log's thread writes it");
        writer.give(Message::Unformatted(SystemTime::UNIX_EPOCH, Box::new(Silent)));
        until(&writer, &written, |text| text == "formatted\n");
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted() {
        let dropped = Counter::default();
        let writer = Writer::start(Text(Full), dropped.clone()).unwrap();
        for _ in 0..5 {
            writer.send(b"line\n".to_vec());
        }
        writer.flush();
        assert_eq!(dropped.get(), 5);
    }

    /// Loses every line until it works again.
    struct Broken {
        works: Receiver<()>,
        broken: bool,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Sink<Vec<u8>> for Broken {
        fn write(&mut self, lines: &mut Vec<Vec<u8>>) -> u64 {
            self.broken &= self.works.try_recv().is_err();
            let lost = if self.broken { lines.len() } else { 0 };
            lines.clear();
            lost as u64
        }

        fn tell_dropped(&mut self, lines: u64) -> bool {
            if !self.broken {
                self.written.lock().unwrap().extend(dropped_line(lines).bytes());
            }
            !self.broken
        }
    }

    #[test]
    fn what_a_broken_sink_lost_is_told_when_it_works_again() {
        let (mend, works) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let dropped = Counter::default();
        let broken = Broken { works, broken: true, written: Arc::clone(&written) };
        let writer = Writer::start(broken, dropped.clone()).unwrap();
        for _ in 0..7 {
            writer.send(b"line\n".to_vec());
        }
        writer.flush();
        assert_eq!(dropped.get(), 7);
        mend.send(()).unwrap();
        let text = until(&writer, &written, |text| !text.is_empty());
        assert!(text.starts_with("7 log lines dropped"), "{text}");
    }
}
