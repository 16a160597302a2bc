//! Log lines on their way out.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for a slow reader of the log; those beyond are dropped and counted.
const LINES_MAX: usize = 8192;
/// Lines that are written at once.
const BATCH_MAX: usize = 256;
/// How long lines are gathered.
const GATHER: Duration = Duration::from_millis(5);
/// How long the end of the process waits for the log to be written.
const FLUSH_MAX: Duration = Duration::from_millis(500);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Takes lines without ever waiting; a thread of its own writes them. The thread ends with the last
/// clone of this.
#[derive(Clone)]
pub(super) struct Writer {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn to(out: impl Write + Send + 'static) -> io::Result<Writer> {
        let (lines, queue) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        thread::Builder::new().name("log".to_owned()).spawn(move || run(&queue, &counter, out))?;
        Ok(Writer { lines, dropped })
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

fn run(queue: &Receiver<Message>, dropped: &AtomicU64, mut out: impl Write) {
    let mut text = Vec::new();
    while let Ok(first) = queue.recv() {
        let mut flushed = Vec::new();
        let mut room = BATCH_MAX;
        for message in std::iter::once(first).chain(queue.try_iter()) {
            match message {
                Message::Line(line) => text.extend_from_slice(&line),
                Message::Flush(done) => flushed.push(done),
            }
            room -= 1;
            if room == 0 {
                break;
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(text, "{lost} log lines dropped: the log is read too slowly");
        }
        // Where a log cannot be written, there is nowhere to say so.
        let _ = out.write_all(&text);
        let _ = out.flush();
        text.clear();
        for done in flushed {
            let _ = done.try_send(());
        }
        if room > 0 {
            // Whoever logs meanwhile need not wake this thread for every line.
            thread::sleep(GATHER);
        }
    }
}

/// One line in the making.
pub(super) struct Line<'a> {
    writer: &'a Writer,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() && self.writer.lines.try_send(Message::Line(text)).is_err() {
            self.writer.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { writer: self, text: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

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

    #[test]
    #[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
    fn a_stuck_reader_costs_lines_and_no_time() {
        let (release, gate) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let stuck = Stuck { gate, open: false, written: Arc::clone(&written) };
        let writer = Writer::to(stuck).unwrap();
        for _ in 0..LINES_MAX * 2 {
            writer.make_writer().write_all(b"line\n").unwrap();
        }
        release.send(()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            writer.flush();
            let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            if text.contains("log lines dropped") {
                assert!(text.lines().count() <= LINES_MAX + BATCH_MAX + 3);
                break;
            }
            assert!(std::time::Instant::now() < deadline, "nothing was said of dropped lines");
        }
    }
}
