//! File systems without room.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The file that takes all the room.
const FILE: &str = "fill";

/// Fills a file system to the last byte.
pub fn fill(at: &Path) {
    let mut file = fs::File::create(at.join(FILE)).expect("root makes files");
    for size in [64 * 1024, 4096, 1] {
        let bytes = vec![0x5a; size];
        loop {
            match file.write(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Makes room again.
pub fn empty(at: &Path) {
    match fs::remove_file(at.join(FILE)) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => panic!("{error}"),
    }
}
