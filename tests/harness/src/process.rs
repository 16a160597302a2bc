//! A process that a test started, and that ends with it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::eventually;

/// A running process. Dropping it kills it.
pub struct Program {
    child: Child,
    /// The process that is meant, where the child only waits for it.
    inner: Option<u32>,
    ended: Option<ExitStatus>,
}

/// A command that runs a program in a PID namespace of its own, where it is number 1 and sees nobody
/// else. Takes root, and [`Program::start_apart`].
pub fn apart(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--"]).arg(program);
    command
}

/// The same with the /proc of the test, which shows other processes by the numbers of the namespace.
pub fn apart_with_foreign_proc(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--"]).arg(program);
    command
}

impl Program {
    /// Starts it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        Program { child, inner: None, ended: None }
    }

    /// Starts a command of [`apart`]: everything that is done to the program is done to the process in
    /// the namespace.
    #[track_caller]
    pub fn start_apart(command: &mut Command) -> Program {
        let mut program = Program::start(command);
        let children = format!("/proc/{0}/task/{0}/children", program.child.id());
        let inner = eventually("the process in the namespace", || {
            if let Some(status) = program.ended() {
                panic!("it ended while starting: {status}");
            }
            std::fs::read_to_string(&children).ok()?.trim().parse().ok()
        });
        program.inner = Some(inner);
        program
    }

    /// Its number, as the test sees it.
    pub fn pid(&self) -> u32 {
        self.inner.unwrap_or_else(|| self.child.id())
    }

    /// Its pipes.
    pub fn pipes(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal, unless it has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let pid = i32::try_from(self.pid()).expect("process numbers are small");
            match kill(Pid::from_raw(pid), signal) {
                // Its parent has reaped it already.
                Err(Errno::ESRCH) if self.inner.is_some() => {}
                done => done.expect("a child can be signalled until it is reaped"),
            }
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
        if self.ended().is_none() {
            // Fail only when it has ended meanwhile.
            match self.inner {
                Some(_) => self.signal(Signal::SIGKILL),
                None => drop(self.child.kill()),
            }
            let _ = self.child.wait();
        }
    }
}

/// True if a process runs. A zombie that nobody has reaped yet does not.
pub fn runs(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat_field(&stat, 0).is_some_and(|state| !["Z", "X"].contains(&state))
}

/// A field of `/proc/PID/stat` after the name, which may hold blanks; 0 is the state.
fn stat_field(stat: &str, index: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(index)
}

/// Memory that a process has resident, KiB.
#[track_caller]
pub fn rss_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS:")
}

/// The most memory that a process ever had resident, KiB.
#[track_caller]
pub fn rss_max_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmHWM:")
}

#[track_caller]
fn memory_kib(pid: u32, key: &str) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is running");
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
        .expect("a running process has memory")
}

/// Time that all threads of a process spent on a core, ns.
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
