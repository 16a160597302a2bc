//! A file system that a test can fill, break and hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SmallDisk;

/// More than a node writes in a test.
const IMAGE_BYTES: u64 = 512 << 20;
const BELOW: &str = "600m";

/// An ext4 in a file in memory, until it is dropped. Takes root.
#[derive(Debug)]
pub struct DiskImage {
    at: PathBuf,
    _below: SmallDisk,
}

#[track_caller]
fn run(program: &str, arguments: &[&str], path: &Path) {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.expect("it can be run");
    assert!(output.status.success(), "{program} {arguments:?} {}: {output:?}", path.display());
}

impl DiskImage {
    #[track_caller]
    pub(super) fn mount(at: &Path) -> DiskImage {
        let below = SmallDisk::mount(at.join("below"), BELOW);
        let (image, at) = (at.join("below/image"), at.join("disk"));
        let file = fs::File::create(&image).expect("root makes files");
        file.set_len(IMAGE_BYTES).expect("it takes no room yet");
        run("mkfs.ext4", &["-q", "-O", "^has_journal", "-m", "0"], &image);
        fs::create_dir(&at).expect("the directory is ours");
        run("mount", &["-o", "loop", &image.display().to_string()], &at);
        DiskImage { at, _below: below }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        tenure_harness::fill(&self.at);
    }

    /// Makes room again.
    pub fn empty(&self) {
        tenure_harness::empty(&self.at);
    }

    /// Has everything wait that writes to it or syncs.
    #[track_caller]
    pub fn freeze(&self) {
        run("fsfreeze", &["-f"], &self.at);
    }

    #[track_caller]
    pub fn thaw(&self) {
        run("fsfreeze", &["-u"], &self.at);
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        // It may be frozen. Files in use go away with their last user.
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.at).output();
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
