//! Clocks that are wrong.

use std::path::PathBuf;
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
