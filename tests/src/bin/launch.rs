//! Becomes another program, with descriptors as a service manager hands them over: numbered from 3 on,
//! and named in the environment. They come, with their names, in one message on standard input.
//!
//! Exists because only the process itself knows the number that LISTEN_PID must have, and because a test
//! has threads, which may start other programs, and must not let those inherit anything.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tenure_tests::harness::DESCRIPTORS_MAX;

/// The number of the first descriptor that is handed over, as sd_listen_fds(3) has it.
const FIRST: RawFd = 3;
/// For the names.
const MESSAGE_MAX: usize = 32 * 1024;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().context("usage: launch PROGRAM [ARGUMENT…]")?;
    // Descriptors that an ancestor left open would stand in the way.
    let open: Vec<String> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .map(|entry| entry.file_name().display().to_string())
        .collect();
    for descriptor in open.iter().filter_map(|name| name.parse::<RawFd>().ok()) {
        if descriptor >= FIRST {
            // Fails for the one that the directory was read with.
            let _ = nix::unistd::close(descriptor);
        }
    }
    let mut text = vec![0; MESSAGE_MAX];
    let mut descriptors = Vec::new();
    let mut room = nix::cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let length = {
        let mut parts = [IoSliceMut::new(&mut text)];
        let stdin = std::io::stdin().as_raw_fd();
        // Without MSG_CMSG_CLOEXEC: the program is to have them.
        let got = recvmsg::<()>(stdin, &mut parts, Some(&mut room), MsgFlags::empty())?;
        for message in got.cmsgs()? {
            if let ControlMessageOwned::ScmRights(more) = message {
                descriptors.extend(more);
            }
        }
        got.bytes
    };
    // The kernel gives the lowest numbers that are free.
    if !descriptors.iter().copied().eq(FIRST..FIRST + descriptors.len() as RawFd) {
        bail!("descriptors came as {descriptors:?}");
    }
    let pid = std::process::id().to_string();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    if !descriptors.is_empty() {
        let names = std::str::from_utf8(&text[..length])?;
        command
            .env("LISTEN_PID", &pid)
            .env("LISTEN_FDS", descriptors.len().to_string())
            .env("LISTEN_FDNAMES", names);
    }
    if std::env::var_os("WATCHDOG_USEC").is_some() {
        command.env("WATCHDOG_PID", &pid);
    }
    Err(command.exec().into())
}
