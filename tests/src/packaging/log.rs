//! A log of the run: printed as it goes, and kept.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The output of a run, on standard output and in a file.
pub struct Log {
    file: RefCell<File>,
    passed: Cell<u32>,
}

impl Log {
    /// Starts a new file.
    pub fn create(path: &Path) -> std::io::Result<Log> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Log { file: RefCell::new(File::create(path)?), passed: Cell::new(0) })
    }

    /// A line, or several.
    pub fn say(&self, text: &str) {
        let text = format!("{}\n", text.trim_end());
        // Both fail only when nobody reads, or the disk is full; the exit code says the same.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = self.file.borrow_mut().write_all(text.as_bytes());
    }

    /// An expectation.
    #[track_caller]
    pub fn expect(&self, what: &str, is_met: bool) {
        assert!(is_met, "expected in vain: {what}");
        self.passed.set(self.passed.get() + 1);
        self.say(&format!("   ok: {what}"));
    }

    /// How many expectations were met.
    pub fn passed(&self) -> u32 {
        self.passed.get()
    }
}
