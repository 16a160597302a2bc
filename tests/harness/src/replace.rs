//! Files that are replaced while programs read them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Puts a file in the place of the one before, if there is one. A reader has the whole of one or the other.
#[track_caller]
pub fn replace(path: &Path, content: &[u8]) {
    let next = path.with_extension("next");
    fs::write(&next, content).expect("it is ours");
    fs::set_permissions(&next, Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(next, path).expect("it is ours");
}
