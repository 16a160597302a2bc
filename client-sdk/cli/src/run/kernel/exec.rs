//! execve(2) by the child itself, for variables with a value that nobody knows before it is there.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use nix::unistd::getpid;

/// Has the command find its own process id in these variables. Nobody knows that before the fork, so the environment is written, and
/// the program executed, where [`prepare`](super::prepare) ends; to be called last.
///
/// # Errors
///
/// When an argument or a variable has a NUL in it.
pub(in crate::run) fn tell_own_pid(command: &mut Command, variables: &[&str]) -> io::Result<()> {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    environment.retain(|name, _| !variables.iter().any(|variable| name == variable));
    let text = |text: &OsStr| CString::new(text.as_bytes()).map(CString::into_raw);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut words: Vec<*mut c_char> = words.map(text).collect::<Result<_, _>>()?;
    words.push(std::ptr::null_mut());
    let assigned = environment.iter().map(|(name, value)| {
        let mut assignment = name.clone();
        assignment.push("=");
        assignment.push(value);
        text(&assignment)
    });
    let mut assignments: Vec<*mut c_char> = assigned.collect::<Result<_, _>>()?;
    let mut places = Vec::new();
    for variable in variables {
        let assignment = text(OsStr::new(&format!("{variable}={ROOM_FOR_PID}")))?;
        // SAFETY: so far into the text its room begins.
        places.push(unsafe { assignment.add(variable.len() + 1) });
        assignments.push(assignment);
    }
    assignments.push(std::ptr::null_mut());
    let exec = Exec { words, assignments, places };
    // SAFETY: between fork and exec `run` writes to memory of its own and makes system calls that are async-signal-safe.
    unsafe { command.pre_exec(move || exec.run()) };
    Ok(())
}

/// As long as any process id.
const ROOM_FOR_PID: &str = "0000000000";

/// The arguments of execve(2), each with the null pointer at its end. What they point to is never freed: one command is started.
struct Exec {
    words: Vec<*mut c_char>,
    assignments: Vec<*mut c_char>,
    /// The places of the process id: each has [`ROOM_FOR_PID`] and a NUL behind it.
    places: Vec<*mut c_char>,
}

// SAFETY: nobody else has the pointers, and only the forked child writes to what they point to.
unsafe impl Send for Exec {}
// SAFETY: the same.
unsafe impl Sync for Exec {}

impl Exec {
    /// Executes the program; returns the error if that fails.
    fn run(&self) -> io::Result<()> {
        let mut digits = [0; ROOM_FOR_PID.len()];
        let mut rest = getpid().as_raw().unsigned_abs();
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for place in &self.places {
            let count = digits.len() - first;
            // SAFETY: a place has room for all of the digits and a NUL.
            unsafe {
                place.cast::<u8>().copy_from_nonoverlapping(digits[first..].as_ptr(), count);
                place.add(count).write(0);
            }
        }
        // SAFETY: both lists end with a null pointer, and have texts that live for ever.
        unsafe {
            libc::execvpe(
                self.words[0],
                self.words.as_ptr().cast(),
                self.assignments.as_ptr().cast(),
            )
        };
        Err(io::Error::last_os_error())
    }
}
