//! A file system that a test can fill.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A tmpfs on a directory, until it is dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of that size. Takes root.
    pub(super) fn mount(at: PathBuf, size: &str) -> SmallDisk {
        fs::create_dir_all(&at).expect("the directory is ours");
        let options = format!("size={size},mode=0755");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("mount can be run").success(), "a tmpfs can be mounted by root");
        SmallDisk(at)
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        tenure_harness::fill(&self.0);
    }

    /// Makes room again.
    pub fn empty(&self) {
        tenure_harness::empty(&self.0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Files in use go away with their last user.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
