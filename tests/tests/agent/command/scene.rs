//! One command under the wrapper, and the next one in line.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::{HoldState, HoldView};
use tenure_tests::harness::{Agent, Client, Heir, Program, TenureRun, read_when_there, until};

const LEADER: [&str; 2] = ["--leader", "role"];

/// What /proc/uptime leaves off is less than this.
pub(super) const UPTIME_STEP: Duration = Duration::from_millis(10);

/// The time since boot in a line of /proc/uptime.
#[track_caller]
pub(super) fn uptime(line: &str) -> Duration {
    let seconds: Option<f64> = line.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.expect("seconds since boot"))
}

/// An agent, a file in which a command says how far it is, and one for which it waits.
pub(super) struct Scene {
    pub(super) agent: Agent,
    file: PathBuf,
    go: PathBuf,
}

impl Scene {
    #[track_caller]
    pub(super) fn start() -> Scene {
        let agent = Agent::start();
        let [file, go] = ["said", "go"].map(|name| agent.dir().join(name));
        Scene { agent, file, go }
    }

    /// A script, in which `FILE` is the file, and `GO` waits until the test says so.
    pub(super) fn script(&self, script: &str) -> String {
        let go = format!("while [ ! -e {} ]; do sleep 0.02; done", self.go.display());
        script.replace("FILE", &self.file.display().to_string()).replace("GO", &go)
    }

    /// Starts a script under the wrapper.
    #[track_caller]
    pub(super) fn run(&self, args: &[&str], script: &str) -> Program {
        self.prepare(args, script).start()
    }

    /// The same before its start.
    pub(super) fn prepare(&self, args: &[&str], script: &str) -> TenureRun {
        let args = [&LEADER[..], args].concat();
        TenureRun::new(&self.agent.socket(), &args, &["sh", "-c", &self.script(script)])
    }

    /// The last line that was said, once there is one, which is then taken away.
    #[track_caller]
    pub(super) fn said(&self) -> String {
        let said = read_when_there(&self.file);
        fs::remove_file(&self.file).expect("it is ours");
        said.trim().to_owned()
    }

    /// True if something was said.
    pub(super) fn has_said(&self) -> bool {
        self.file.exists()
    }

    #[track_caller]
    pub(super) fn said_pid(&self) -> Pid {
        Pid::from_raw(self.said().parse().expect("a process number"))
    }

    /// The time since boot that was said, by the clock of valid-until.
    #[track_caller]
    pub(super) fn said_uptime(&self) -> Duration {
        uptime(&self.said())
    }

    /// Lets the command go on, which waits for that.
    pub(super) fn go(&self) {
        fs::write(&self.go, "").expect("the directory is ours");
    }

    /// Has the next command wait again.
    pub(super) fn no_go(&self) {
        fs::remove_file(&self.go).expect("it is ours");
    }

    pub(super) fn revoke(&self) {
        let revoke = json!({"kind": "leader", "name": "role"});
        assert_eq!(self.agent.http().post("/v1/revoke", &revoke).json(200)["revoked"], 1);
    }

    /// Somebody who waits for the role.
    #[track_caller]
    pub(super) fn heir(&self) -> Heir {
        Heir::wait_for(&self.agent, "leader", "role")
    }

    /// The one that waited has the role, and nothing of the wrapper is left.
    #[track_caller]
    pub(super) fn is_passed_on(&self, next: Heir) {
        assert_eq!(self.agent.counts(), (1, 1, 0), "the next one holds, and nobody else");
        self.passes_on(next);
    }

    /// The one that waits gets the role, and nothing of the wrapper will be left.
    #[track_caller]
    pub(super) fn passes_on(&self, next: Heir) {
        next.gets_it();
        self.agent.http().end(next.session);
        self.nothing_is_left();
    }

    /// The hold on the role.
    pub(super) fn hold(&self) -> Option<HoldView> {
        let status = self.agent.http().status();
        let mut holds = status.sessions.into_iter().flat_map(|session| session.holds);
        holds.find(|hold| hold.name == "role" && hold.state != HoldState::Waiting)
    }

    #[track_caller]
    pub(super) fn nothing_is_left(&self) {
        until("nothing to be left", || self.agent.counts() == (0, 0, 0));
    }
}
