//! The thread of the trail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure_host::clock;
use tracing::{info, warn};

use super::file::{Output, Place};
use super::line::Entry;
use super::queue::{Message, Queue, Work};
use super::{By, Limits};
use crate::access::{Event, Fact};

/// Bytes that are written at once.
const AT_ONCE: usize = 16 << 10;
/// Bytes that are kept while the place takes none; further lines are counted. With one line more it is less than the
/// smallest file.
const KEPT_MAX: usize = 48 << 10;
/// How often a place that took nothing is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Writes lines until nobody can add any more. A place that takes none stops nothing but the trail.
pub(super) struct Writer {
    place: Place,
    limits: Limits,
    output: Output,
    /// The bytes that are not written yet.
    text: Vec<u8>,
    /// The first line of that text is in the file in part.
    is_torn: bool,
    /// Lines that nobody will find.
    lost: u64,
    /// The last attempt failed, and was warned of.
    fails: bool,
}

impl Writer {
    pub(super) fn open(place: Place, limits: Limits) -> io::Result<Writer> {
        let output = place.open(limits.bytes_max, limits.files_max)?;
        let (text, is_torn, lost, fails) = (Vec::new(), false, 0, false);
        Ok(Writer { place, limits, output, text, is_torn, lost, fails })
    }

    pub(super) fn run(mut self, queue: &Arc<Queue>) {
        loop {
            let retry = (!self.text.is_empty() || self.lost > 0).then_some(RETRY_EVERY);
            let Work { messages, sums, lost, is_last } = queue.wait(retry);
            self.lost += lost;
            let mut waiting = Vec::new();
            for message in messages {
                match message {
                    Message::Line(entry) => self.add(&entry),
                    Message::Reopen => self.reopen(),
                    Message::Flush(done) => waiting.push(done),
                }
            }
            for sum in sums {
                self.add(&Entry::of_sum(sum));
            }
            self.flush();
            self.tell_lost();
            for done in waiting {
                // Its caller may have gone.
                let _ = done.send(());
            }
            if is_last {
                return;
            }
        }
    }

    fn add(&mut self, entry: &Entry) {
        if self.text.len() >= AT_ONCE {
            self.flush();
        }
        let length = self.text.len();
        let added = length < KEPT_MAX && entry.write(&mut self.text).is_ok();
        if !added {
            self.text.truncate(length);
            self.lost += 1;
        }
    }

    /// Says how many lines nobody will find, once lines are written again.
    fn tell_lost(&mut self) {
        if self.lost == 0 || !self.text.is_empty() {
            return;
        }
        let outcome = format!("{} lines were left out", std::mem::take(&mut self.lost));
        let fact = Fact::new(Event::Dropped, &outcome);
        self.add(&Entry::new(clock::wall_us(), By::default(), &fact));
        self.flush();
    }

    fn flush(&mut self) {
        let written = self.write();
        match written {
            Ok(()) if self.fails => info!("the audit trail is written again"),
            Err(error) if !self.fails => {
                warn!(%error, "the audit trail cannot be written: its lines are counted, and all else goes on");
            }
            Ok(()) | Err(_) => return,
        }
        self.fails = !self.fails;
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.text.is_empty() {
            if !self.is_torn {
                self.output.make_room(self.text.len())?;
            }
            match self.output.write(&self.text) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.is_torn = self.text.get(written - 1) != Some(&b'\n');
                    self.text.drain(..written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        self.flush();
        match self.place.open(self.limits.bytes_max, self.limits.files_max) {
            Ok(output) => {
                self.output = output;
                self.drop_torn();
            }
            Err(error) => warn!(%error, "the audit trail stays in the file that was open before"),
        }
    }

    /// The rest of a line whose beginning is in another file is of no use.
    fn drop_torn(&mut self) {
        if std::mem::take(&mut self.is_torn)
            && let Some(end) = self.text.iter().position(|byte| *byte == b'\n')
        {
            self.text.drain(..=end);
            self.lost += 1;
        }
    }
}
