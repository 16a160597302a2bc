//! A process that a test started, and that ends with it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually;

/// A running process. Dropping it kills it.
pub struct Program {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Program {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// When it cannot be started, naming it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        Program { child, ended: None }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its pipes.
    pub fn pipes(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal, unless it has ended.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let pid = i32::try_from(self.child.id()).expect("process numbers are small");
            kill(Pid::from_raw(pid), signal).expect("a child can be signalled until it is reaped");
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
        }
        self.ended
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of process {}", self.child.id());
        eventually(&what, || self.ended())
    }

    /// Waits until it has ended, and returns its code as a shell would: 128 + n for signal n.
    #[track_caller]
    pub fn wait_code(&mut self) -> i32 {
        let status = self.wait();
        status.code().or_else(|| Some(128 + status.signal()?)).expect("ended, so one of the two")
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// SIGSTOP, and waits until every thread of it has stopped.
    #[track_caller]
    pub fn pause(&mut self) {
        self.signal(Signal::SIGSTOP);
        let pid = self.pid();
        eventually("all threads to stop", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            tasks
                .flatten()
                .all(|task| {
                    let stat = std::fs::read_to_string(task.path().join("stat"));
                    stat.is_ok_and(|stat| stat_field(&stat, 0) == Some("T"))
                })
                .then_some(())
        });
    }

    /// SIGCONT.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Both fail only when it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A field of `/proc/PID/stat` after the name, which may hold blanks; 0 is the state.
fn stat_field(stat: &str, index: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(index)
}

/// Memory that a process has resident, KiB.
///
/// # Panics
///
/// When there is no such process.
#[track_caller]
pub fn rss_kib(pid: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is running");
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
        .expect("a running process has a VmRSS")
}

/// Time that all threads of a process spent on a core, ns.
///
/// # Panics
///
/// When there is no such process.
#[track_caller]
pub fn cpu_ns(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("the process is running")
        .flatten()
        .filter_map(|task| {
            let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            times.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}
