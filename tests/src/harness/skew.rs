//! Clocks that are wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Has a program, and everything that it starts, see a clock on the wall that is so many seconds ahead, or
/// behind if negative. Clocks that nobody sets, as that since boot, stay as they are. Takes libfaketime.
#[track_caller]
pub fn skew(command: &mut Command, seconds: f64) {
    command
        .env("LD_PRELOAD", library())
        .env("FAKETIME", format!("{seconds:+}s"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// A clock on the wall that can be set while a program runs.
#[derive(Debug)]
pub struct Skew(PathBuf);

impl Skew {
    /// Keeps what it shows in a file of that directory.
    #[track_caller]
    pub(super) fn new(directory: &Path, ahead_s: f64) -> Skew {
        let skew = Skew(directory.join("clock"));
        skew.set(ahead_s);
        skew
    }

    /// Has it show so many seconds more than the real one.
    #[track_caller]
    pub(super) fn set(&self, ahead_s: f64) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{ahead_s:+}")).expect("it is ours");
        std::fs::rename(&new, &self.0).expect("it is ours");
    }

    /// Has a program see it.
    #[track_caller]
    pub(super) fn show(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", &self.0)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// Where Debian has it, for whatever processor this is.
#[track_caller]
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("every system has it");
    folders
        .flatten()
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists())
        .expect("libfaketime is installed: tests/prepare faketime=faketime")
}
