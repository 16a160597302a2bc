//! The wall clock of a server under test, which knows no chance either.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Overrides the calls by which a program reads the wall clock, or opens the kernel's random numbers.
const SOURCE: &str = include_str!("clock.c");

/// A wall clock that stands still until it is set.
///
/// A file of eight bytes, µs since 1970, that the server maps into its memory: setting it costs one
/// system call, and holds before that call returns.
pub(crate) struct Clock {
    file: File,
    path: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that shows `us`, with its files in `folder`.
    pub(crate) fn build(folder: &Path, us: u64) -> Clock {
        let source = folder.join("clock.c");
        let library = folder.join("clock.so");
        std::fs::write(&source, SOURCE).expect("the folder can be written");
        let built = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .expect("cc is missing: install a C compiler");
        assert!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
        let path = folder.join("clock");
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let clock = Clock { file: file.expect("the folder can be written"), path, library };
        clock.set(us);
        clock
    }

    /// The environment of a program that goes by this clock.
    pub(crate) fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("TENURE_TEST_CLOCK", &self.path)]
    }

    /// Sets it to so many µs since 1970.
    pub(crate) fn set(&self, us: u64) {
        self.file.write_all_at(&us.to_ne_bytes(), 0).expect("the file can be written");
    }
}
