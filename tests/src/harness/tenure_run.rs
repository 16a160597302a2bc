//! The `tenure` command as a test runs it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::Pid;

use super::{Program, apart, binary, eventually};

/// Builds a `tenure run` command line.
pub struct TenureRun {
    command: Command,
}

impl TenureRun {
    /// `tenure run ARGS… -- COMMAND…` against the agent on that socket.
    pub fn new(socket: &Path, args: &[&str], guarded: &[&str]) -> TenureRun {
        TenureRun::by(Command::new(binary("tenure")), socket, args, guarded)
    }

    /// The same in a PID namespace of its own, where it is the first process as in a container. Takes
    /// root.
    #[track_caller]
    pub fn start_apart(socket: &Path, args: &[&str], guarded: &[&str]) -> Program {
        let mut run = TenureRun::by(apart(&binary("tenure")), socket, args, guarded);
        Program::start_apart(&mut run.command)
    }

    fn by(mut command: Command, socket: &Path, args: &[&str], guarded: &[&str]) -> TenureRun {
        command
            .env("TENURE_SOCKET", socket)
            .arg("run")
            .args(args)
            .arg("--")
            .args(guarded)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        TenureRun { command }
    }

    /// The command line itself.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// The command line, for what a test wants to change.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it.
    #[track_caller]
    pub fn start(mut self) -> Program {
        Program::start(&mut self.command)
    }

    /// Runs it to its end: exit code, standard output, standard error.
    #[track_caller]
    pub fn finish(self) -> (i32, String, String) {
        let mut program = self.start();
        run_to_end(&mut program)
    }
}

/// Waits for the end of a program: exit code, standard output, standard error.
#[track_caller]
pub fn run_to_end(program: &mut Program) -> (i32, String, String) {
    let code = program.wait_code();
    let mut out = String::new();
    let mut err = String::new();
    let child = program.pipes();
    let stdout = child.stdout.as_mut().expect("standard output is piped");
    stdout.read_to_string(&mut out).expect("output is UTF-8");
    let stderr = child.stderr.as_mut().expect("standard error is piped");
    stderr.read_to_string(&mut err).expect("output is UTF-8");
    (code, out, err)
}

/// The text of a file, once a command has written a whole line to it.
#[track_caller]
pub fn read_when_there(path: &Path) -> String {
    eventually(&format!("{} to be written", path.display()), || {
        fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
    })
}

/// The process number that a command has written to a file.
#[track_caller]
pub fn read_pid(path: &Path) -> Pid {
    Pid::from_raw(read_when_there(path).trim().parse().expect("a process number"))
}
