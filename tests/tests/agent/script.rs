//! The leader for the life of a script of docs/api.md, typed as it is there.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::json;
use tenure_tests::harness::{
    Agent, Client, PageFile, Program, RedisServer, binary, boottime_ns, read_pid, run_to_end, until,
};

/// Work that goes on until its end: a line in each round, with the instant.
const WORK: &str = "sh -c 'echo $$ >pid; while :; do cat /proc/uptime >>work; sleep 0.05; done'";

/// The ttl is short: a script without an agent ends only with it.
const TTL: &str = "[leader]\nttl = \"8s\"\nbeat = \"2s\"\n";

/// A script with the lines of the document before its own.
struct Script {
    program: Program,
    folder: PathBuf,
    page: PageFile,
}

impl Script {
    fn start(agent: &Agent) -> Script {
        let folder = agent.dir().join("script");
        fs::create_dir(&folder).expect("the agent's directory is ours");
        let mut script = Script::command(agent, WORK);
        let program = Program::start(script.current_dir(&folder));
        until("the script to work", || folder.join("work").exists());
        let page = PageFile::open(&agent.pages()[0]);
        Script { program, folder, page }
    }

    fn command(agent: &Agent, own: &str) -> Command {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api.md");
        let text = fs::read_to_string(page).expect("the document is there");
        let (_, recipe) = text.split_once("```bash\nT()").expect("the recipe");
        let (recipe, _) = recipe.split_once("\n```").expect("its end");
        assert!(recipe.lines().count() <= 12, "{recipe}");
        let mut command = Command::new("bash");
        command.args(["-c", &format!("T(){recipe}\n{own}\n")]);
        let programs = binary("tenure").parent().expect("a folder").to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display()));
        command.env("TENURE_SOCKET", agent.socket()).process_group(0);
        command
    }

    fn valid_until_ns(&self) -> u64 {
        self.page.slot(0).valid_until_ns
    }

    /// Waits for the end of the script, and expects that its work has ended. Returns the instant of the work's last
    /// line.
    fn ends(&mut self) -> u64 {
        let status = self.program.wait();
        assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{status}");
        let work = read_pid(&self.folder.join("pid"));
        until("the work to end", || kill(work, None).is_err());
        let lines = fs::read_to_string(self.folder.join("work")).expect("it has worked");
        let last = lines.lines().last().expect("a line");
        let seconds = last.split(' ').next().expect("an instant").replace('.', "");
        seconds.parse::<u64>().expect("a number") * 10_000_000
    }

    /// Signals every process of the script.
    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.program.pid()).expect("process numbers are small");
        killpg(Pid::from_raw(group), signal).expect("it runs");
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.program.ended().is_none() {
            self.signal(Signal::SIGKILL);
        }
    }
}

fn agent() -> Agent {
    Agent::setup().config(TTL).start()
}

#[test]
fn a_script_has_the_role_until_it_is_killed_or_ends() {
    let agent = agent();
    let first = Script::start(&agent);
    let mut next = Script::command(&agent, "echo mine");
    let mut next = Program::start(next.stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("the second to wait", || agent.counts() == (2, 1, 1));
    let valid_until = first.valid_until_ns();
    drop(first);
    let (code, output, _) = run_to_end(&mut next);
    assert_eq!((code, output.as_str()), (0, "mine\n"));
    assert!(boottime_ns() < valid_until, "a killed script is no longer waited for");
    until("the last session to end", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_script_ends_when_its_hold_is_revoked() {
    let agent = agent();
    let mut script = Script::start(&agent);
    let valid_until = script.valid_until_ns();
    let revoke = json!({"kind": "leader", "name": "nightly"});
    assert_eq!(agent.http().post("/v1/revoke", &revoke).status, 200);
    assert!(script.ends() < valid_until, "it need not wait for its end");
}

#[test]
fn a_script_ends_by_valid_until_when_its_agent_is_killed() {
    let mut agent = agent();
    let mut script = Script::start(&agent);
    agent.kill();
    let valid_until = script.valid_until_ns();
    assert!(script.ends() < valid_until);
}

#[test]
fn a_script_ends_when_its_agent_is_stopped() {
    let mut agent = agent();
    let mut script = Script::start(&agent);
    let valid_until = script.valid_until_ns();
    agent.stop();
    assert!(script.ends() + 1_000_000_000 < valid_until, "its hold was given back at once");
}

#[test]
fn a_script_may_wait_for_all_that_it_has_started() {
    let agent = agent();
    let mut script = Script::command(&agent, "sleep 0.1 & wait; echo waited");
    let mut script = Program::start(script.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (code, output, _) = run_to_end(&mut script);
    assert_eq!((code, output.as_str()), (0, "waited\n"));
}

#[test]
fn a_script_works_on_over_a_restart_of_its_agent() {
    let mut agent = agent();
    let mut script = Script::start(&agent);
    let first = script.valid_until_ns();
    agent.kill();
    agent.start_again();
    until("another ttl to pass", || boottime_ns() > first + 1_000_000_000);
    assert!(script.program.ended().is_none());
}

#[test]
fn a_script_ends_by_valid_until_when_the_store_is_gone() {
    let mut redis = RedisServer::start();
    let agent = Agent::setup().config(TTL).upstream(&redis.url()).start();
    let mut script = Script::start(&agent);
    redis.kill();
    let valid_until = script.valid_until_ns();
    assert!(script.ends() <= valid_until);
}

#[test]
fn a_script_that_slept_past_valid_until_ends_as_it_wakes() {
    let mut agent = agent();
    let mut script = Script::start(&agent);
    // The machine sleeps: neither agent nor script runs, and the watch of the script finds only that time is over.
    agent.pause();
    script.signal(Signal::SIGSTOP);
    let valid_until = script.valid_until_ns();
    until("valid-until to pass", || boottime_ns() > valid_until);
    let woke = boottime_ns();
    script.signal(Signal::SIGCONT);
    agent.resume();
    let last = script.ends();
    assert!(last < woke + 5_000_000_000, "{last} after {woke}");
}
