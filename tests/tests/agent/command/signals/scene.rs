//! A command under the wrapper, without a terminal, that writes down every signal that it hears.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, Campaigner, Client, Program, TenureRun, binary, eventually, runs, until,
};
use uuid::Uuid;

pub(super) const NAME: &str = "signalled";
/// The file of what the launcher says.
const SAID: &str = "said";
/// The status of the listener when it is asked to end.
const ENDED: i32 = 7;

/// One wrapper and its command.
pub(super) struct Scene<'a> {
    agent: &'a Agent,
    folder: TempDir,
    launcher: Program,
    wrapper: Pid,
    /// Who holds, while the wrapper waits.
    holder: Option<(Campaigner, Uuid)>,
}

impl<'a> Scene<'a> {
    /// The wrapper waits for the hold.
    #[track_caller]
    pub(super) fn waiting(agent: &'a Agent, ignored: Option<Signal>) -> Scene<'a> {
        let mut holder = Campaigner::start(agent, "holder");
        let held = holder.acquire("leader", NAME, &json!({})).hold;
        let mut scene = Scene::start(agent, ignored, None);
        scene.holder = Some((holder, held));
        until("the wrapper to wait", || agent.counts().2 == 1);
        scene
    }

    /// The command runs; it leaves one signal to its default action.
    #[track_caller]
    pub(super) fn running(
        agent: &'a Agent,
        ignored: Option<Signal>,
        left_alone: Option<Signal>,
    ) -> Scene<'a> {
        let scene = Scene::start(agent, ignored, left_alone);
        scene.command();
        scene
    }

    fn start(agent: &'a Agent, ignored: Option<Signal>, left_alone: Option<Signal>) -> Scene<'a> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("python3");
        command.arg(program("launcher.py")).arg(ignored.map_or("-", Signal::as_str));
        command.arg(binary("tenure")).args(["lock", NAME, "--"]);
        // Python ignores some signals by itself.
        command.args(["sh", "-c", "cat /proc/$$/status >status; exec python3 \"$@\"", "sh"]);
        command.arg(program("listener.py")).arg("heard").args(left_alone.map(Signal::as_str));
        command.env("TENURE_SOCKET", agent.socket()).current_dir(folder.path());
        let said = File::create(folder.path().join(SAID)).expect("it is ours");
        let launcher = Program::start(command.stdin(Stdio::null()).stdout(said));
        let wrapper = Pid::from_raw(said_number(folder.path(), 0));
        Scene { agent, folder, launcher, wrapper, holder: None }
    }

    /// The end of the wrapper: its status, or the negative number of a signal.
    #[track_caller]
    fn end(&self) -> i32 {
        said_number(self.folder.path(), 1)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.wrapper, signal).expect("the wrapper is there");
    }

    pub(super) fn signal_command(&self, signal: Signal) {
        kill(self.command(), signal).expect("the command is there");
    }

    /// Continues the job, as a shell does.
    pub(super) fn resume(&self) {
        killpg(self.wrapper, Signal::SIGCONT).expect("the wrapper is there");
    }

    fn lines(&self) -> Vec<String> {
        lines(&self.folder.path().join("heard"))
    }

    /// The process of the command, once it listens. It has a group of its own.
    #[track_caller]
    fn command(&self) -> Pid {
        let pid = listener(&self.folder.path().join("heard"));
        assert_eq!(getpgid(Some(pid)), Ok(pid));
        pid
    }

    /// The signals that the command has heard. Two more have come to it by the wrapper since then, so that none is on
    /// its way.
    #[track_caller]
    pub(super) fn heard(&self, barrier: Signal) -> Vec<String> {
        let name = barrier.as_str();
        let barriers = |lines: &[String]| lines.iter().filter(|line| *line == name).count();
        let before = barriers(&self.lines());
        for count in 1..=2 {
            self.signal(barrier);
            until("a signal to reach the command", || barriers(&self.lines()) >= before + count);
        }
        let mut lines = self.lines();
        assert!(lines.iter().rev().take(2).all(|line| line == name), "{lines:?}");
        lines.truncate(lines.len() - 2);
        lines.split_off(1)
    }

    /// The signals that the command has heard, where nobody passes on any more.
    pub(super) fn heard_so_far(&self) -> Vec<String> {
        self.lines().split_off(1)
    }

    #[track_caller]
    pub(super) fn hears(&self, signal: Signal) {
        let name = signal.as_str();
        until(&format!("{name} to reach the command"), || {
            self.lines().iter().any(|line| line == name)
        });
    }

    /// The wrapper, and its command, are stopped.
    #[track_caller]
    pub(super) fn wrapper_stops(&self) {
        until("the wrapper to stop", || state(self.wrapper) == Some('T'));
    }

    #[track_caller]
    pub(super) fn command_stops(&self) {
        let command = self.command();
        until("the command to stop", || state(command) == Some('T'));
    }

    /// True if the signal is ignored: in the wrapper, and in the command when it was started.
    #[track_caller]
    pub(super) fn ignores(&self, signal: Signal) -> [bool; 2] {
        self.command();
        let wrapper = PathBuf::from(format!("/proc/{}/status", self.wrapper));
        [wrapper, self.folder.path().join("status")].map(|status| {
            let status = fs::read_to_string(status).expect("it is there");
            has(mask(&status, "SigIgn:"), signal)
        })
    }

    /// The signal has got to the wrapper, which did with it what it does.
    #[track_caller]
    pub(super) fn is_taken(&self, signal: Signal) {
        until("the signal to be taken", || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.wrapper));
            let status = status.expect("the wrapper goes on");
            let pending = mask(&status, "SigPnd:") | mask(&status, "ShdPnd:");
            !has(pending & !mask(&status, "SigBlk:"), signal)
        });
    }

    /// The wrapper has died by a signal.
    #[track_caller]
    pub(super) fn wrapper_died_by(&self, signal: Signal) {
        assert_eq!(self.end(), -(signal as i32), "the end of the wrapper");
    }

    /// The holder gives the hold to the wrapper, which has kept its place.
    #[track_caller]
    pub(super) fn gets_the_hold(&mut self) {
        assert_eq!(self.agent.counts().2, 1, "the wrapper has kept its place");
        let (mut holder, held) = self.holder.take().expect("somebody holds");
        holder.release(held);
        self.command();
    }

    /// The queue is empty, and the holder holds.
    #[track_caller]
    pub(super) fn leaves_no_place(&self) {
        until("the place to be gone", || self.agent.counts() == (1, 1, 0));
    }

    /// The command holds, also when the agent has seen the ends of all others.
    #[track_caller]
    pub(super) fn is_held(&self) {
        let args = ["--leader", "another"];
        let (code, _, said) = TenureRun::new(&self.agent.socket(), &args, &["true"]).finish();
        assert_eq!(code, 0, "{said}");
        let sessions = self.agent.http().status().sessions;
        let mut holds = sessions.iter().flat_map(|session| &session.holds);
        assert!(holds.any(|hold| hold.name == NAME), "the hold is kept");
    }

    /// The command ends, and the wrapper with it, as the command does.
    #[track_caller]
    pub(super) fn ends(self) {
        self.end_command();
        assert_eq!(self.end(), ENDED, "the end of the wrapper");
        self.nothing_is_left();
    }

    /// The command, which has lost its wrapper, ends.
    #[track_caller]
    pub(super) fn command_ends(self) {
        let command = self.command();
        self.end_command();
        until("the end of the command", || !runs(command));
        self.nothing_is_left();
    }

    fn end_command(&self) {
        end_listener(self.command());
    }

    /// Nothing is held, and nobody waits.
    #[track_caller]
    pub(super) fn nothing_is_left(mut self) {
        self.holder = None;
        until("nothing to be left", || self.agent.counts() == (0, 0, 0));
        self.launcher.wait();
    }
}

/// A program of this folder.
pub(super) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/command/signals").join(name)
}

/// The whole lines of a file.
pub(super) fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| line.trim_end().to_owned()).collect()
}

/// The process of a listener, once it listens.
#[track_caller]
pub(super) fn listener(heard: &Path) -> Pid {
    let pid = || lines(heard).first()?.strip_prefix("ready ")?.parse().ok();
    Pid::from_raw(eventually("the command to listen", pid))
}

/// Has a listener end.
#[track_caller]
pub(super) fn end_listener(listener: Pid) {
    // `nix` knows no real-time signals.
    let end = format!("-{}", libc::SIGRTMIN() + 5);
    let done = Command::new("kill").args([end, listener.to_string()]).status();
    assert!(done.expect("kill can be run").success());
}

/// A line of the launcher, which is a number.
#[track_caller]
fn said_number(folder: &Path, line: usize) -> i32 {
    let said = || lines(&folder.join(SAID)).get(line)?.parse().ok();
    eventually(&format!("line {line} of the launcher"), said)
}

/// A mask in a `status` of /proc.
#[track_caller]
fn mask(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    u64::from_str_radix(mask.trim(), 16).expect("it is a mask")
}

/// True if the signal is in a mask.
fn has(mask: u64, signal: Signal) -> bool {
    mask >> (signal as u32 - 1) & 1 == 1
}

/// The letter of a process's state.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
