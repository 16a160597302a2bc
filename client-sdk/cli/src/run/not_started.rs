//! Why a command did not start, and what to do.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::exit;
use crate::failure::Failure;
use crate::show::shown;

/// The kernel reads so much of the first line of a script.
const FIRST_LINE_MAX: u64 = 256;

/// The failure to start a command, with the exit status that shells have for it.
pub(super) fn not_started(command: &[OsString], error: &io::Error) -> Failure {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let name = shown(&program.to_string_lossy()).to_string();
    let errno = error.raw_os_error().map(Errno::from_raw);
    if errno == Some(Errno::ENOENT) {
        let why = match place_of(program) {
            None => {
                "command not found; there is no shell here: give a program or its path".to_owned()
            }
            Some(path) => format!("cannot be executed: {}", what_it_lacks(&path)),
        };
        return Failure::new(exit::NOT_FOUND, format!("{name}: {why}"));
    }
    let way_out = match errno {
        Some(Errno::EACCES) if place_of(program).is_some_and(|path| path.is_dir()) => {
            "; it is a directory"
        }
        Some(Errno::EACCES) => "; check its mode, and those of the directories on the way to it",
        Some(Errno::EAGAIN) => {
            "; the limit of processes is reached: see `ulimit -u`, and pids.max of the cgroup"
        }
        Some(Errno::EMFILE | Errno::ENFILE) => {
            "; it takes more open files than this process may have: raise `ulimit -n`"
        }
        Some(Errno::E2BIG) => {
            "; its arguments and the environment are longer than the system takes"
        }
        _ => "",
    };
    Failure::new(exit::NOT_EXECUTABLE, format!("{name}: cannot be executed: {error}{way_out}"))
}

/// The file of a program that is there.
fn place_of(program: &OsStr) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Why a program whose file is there was not found: something that it names is not.
fn what_it_lacks(path: &Path) -> String {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST_LINE_MAX).read_to_end(&mut head));
    let script = if read.is_ok() { head.strip_prefix(b"#!") } else { None };
    let Some(line) = script.and_then(|text| text.split(|byte| *byte == b'\n').next()) else {
        return "a program that it names, such as its loader, is not there; it may be for another machine or C \
                library"
            .to_owned();
    };
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let interpreter = words.next().unwrap_or_default();
    if interpreter.ends_with(b"\r") {
        return "its first line ends with a carriage return; write it with the line ends of Unix"
            .to_owned();
    }
    let place = Path::new(OsStr::from_bytes(interpreter));
    let lacks = if place.exists() { "which lacks something itself" } else { "which is not there" };
    format!("its first line names {}, {lacks}", shown(&place.to_string_lossy()))
}
