//! Clocks that are wrong.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::binary;

/// libfaketime moves the instants of all timers of the kernel, also of those that go by a clock that it leaves as it is: they
/// would fire days early or late, or be refused.
const TIMERS: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>
int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old) {
    return syscall(SYS_timerfd_settime, fd, flags, new, old);
}
"#;

/// Has a program, and everything that it starts, see a clock on the wall that is so many seconds ahead, or
/// behind if negative. Clocks that nobody sets, as that since boot, stay as they are. Takes libfaketime.
#[track_caller]
pub fn skew(command: &mut Command, seconds: f64) {
    command
        .env("LD_PRELOAD", libraries())
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
            .env("LD_PRELOAD", libraries())
            .env("FAKETIME_TIMESTAMP_FILE", &self.0)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// The libraries that do it; the first one that has a function is asked.
#[track_caller]
fn libraries() -> OsString {
    let mut all = timers().to_owned().into_os_string();
    all.push(":");
    all.push(library());
    all
}

/// The one that leaves timers alone, which is made when it is first needed.
#[track_caller]
fn timers() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let path = binary("tenured").with_file_name("libtimers.so");
        // Another test program may be making it.
        let new = path.with_extension(std::process::id().to_string());
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&new).stdin(Stdio::piped());
        let mut cc = cc.spawn().expect("cc is installed: tests/prepare cc=build-essential");
        cc.stdin.take().expect("a pipe").write_all(TIMERS.as_bytes()).expect("it reads");
        assert!(cc.wait().is_ok_and(|status| status.success()), "cc failed");
        std::fs::rename(&new, &path).expect("it is ours");
        path
    })
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
