//! `tenure run` from the start of its command to the end of what that left behind: losses, restarts of
//! the agent, and what the command inherits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::{HoldState, HoldView};
use tenure_tests::harness::{
    Agent, Client, Program, TenureRun, binary, other_users, read_pid, read_when_there, run_to_end,
    runs, until,
};

const LEADER: [&str; 2] = ["--leader", "role"];
/// Takes no SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ > FILE; while :; do sleep 0.02; done";

/// An agent, and a file in which a command says how far it is.
struct Scene {
    agent: Agent,
    file: PathBuf,
}

impl Scene {
    fn start() -> Scene {
        let agent = Agent::start();
        let file = agent.dir().join("said");
        Scene { agent, file }
    }

    /// Starts a script, in which `FILE` is the file.
    #[track_caller]
    fn run(&self, args: &[&str], script: &str) -> Program {
        let script = script.replace("FILE", &self.file.display().to_string());
        let args = [&LEADER[..], args].concat();
        TenureRun::new(&self.agent.socket(), &args, &["sh", "-c", &script]).start()
    }

    /// The last line that was said, once there is one, which is then taken away.
    #[track_caller]
    fn said(&self) -> String {
        let said = read_when_there(&self.file);
        fs::remove_file(&self.file).expect("it is ours");
        said.trim().to_owned()
    }

    #[track_caller]
    fn said_pid(&self) -> Pid {
        Pid::from_raw(self.said().parse().expect("a process number"))
    }

    fn revoke(&self) {
        let revoke = json!({"kind": "leader", "name": "role"});
        assert_eq!(self.agent.http().post("/v1/revoke", &revoke).status, 200);
    }

    /// The hold on the role.
    fn hold(&self) -> Option<HoldView> {
        let status = self.agent.http().status();
        let mut holds = status.sessions.into_iter().flat_map(|session| session.holds);
        holds.find(|hold| hold.name == "role" && hold.state != HoldState::Waiting)
    }

    fn is_held(&self) -> bool {
        self.hold().is_some()
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        until("nothing to be left", || self.agent.counts() == (0, 0, 0));
    }
}

#[test]
fn a_loss_is_told_and_the_command_may_tidy_up() {
    let scene = Scene::start();
    let script = "trap 'echo tidy > FILE; exit 0' TERM; echo ready > FILE; \
                  while :; do sleep 0.02; done";
    let mut run = scene.run(&[], script);
    assert_eq!(scene.said(), "ready");
    scene.revoke();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 74);
    // The shell may have more to say about its own children.
    assert!(err.contains("tenure: leader/role: the hold was lost (revoked by "), "{err}");
    assert!(err.contains("): the command is stopped\n"), "{err}");
    assert_eq!(scene.said(), "tidy");
    scene.nothing_is_left();
}

#[test]
fn the_rest_of_the_group_has_time_to_stop_as_well() {
    let scene = Scene::start();
    let worker = "trap 'sleep 0.2; echo done > FILE; exit' TERM; echo ready > FILE";
    let script = format!("sh -c \"{worker}; while :; do sleep 0.02; done\"; true");
    let mut run = scene.run(&["--kill-after", "1h"], &script);
    assert_eq!(scene.said(), "ready");
    scene.revoke();
    assert_eq!(run.wait_code(), 74);
    assert_eq!(scene.said(), "done");
}

#[test]
fn a_command_that_takes_no_sigterm_is_killed() {
    let scene = Scene::start();
    for args in [&["--kill-after", "100ms"][..], &["--on-lost", "kill", "--kill-after", "1h"]] {
        let mut run = scene.run(args, STUBBORN);
        let pid = scene.said_pid();
        scene.revoke();
        assert_eq!(run.wait_code(), 74, "{args:?}");
        assert!(!runs(pid), "{args:?}");
        scene.nothing_is_left();
    }
}

#[test]
fn on_lost_runs_a_program_first() {
    let scene = Scene::start();
    let (program, mark) = (scene.agent.dir().join("program"), scene.agent.dir().join("mark"));
    let text =
        format!("#!/bin/sh\necho $1 $TENURE_LOST_REASON $TENURE_TOKEN > {}\n", mark.display());
    fs::write(&program, text).expect("the directory is ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let on_lost = format!("{} word", program.display());
    let script = format!(
        "trap 'cat {} > FILE; exit' TERM; echo $TENURE_TOKEN > FILE; while :; do sleep 0.02; done",
        mark.display()
    );
    let mut run = scene.run(&["--on-lost", &on_lost, "--kill-after", "1h"], &script);
    let token = scene.said();
    scene.revoke();
    assert_eq!(run.wait_code(), 74);
    assert_eq!(scene.said(), format!("word revoked {token}"));
}

#[test]
fn a_healthy_short_hold_is_left_alone() {
    let scene = Scene::start();
    let go = scene.agent.dir().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 3", go.display());
    // Less is left at any time than SIGKILL comes after SIGTERM.
    let mut run = scene.run(&["--ttl", "3s", "--kill-after", "10s"], &script);
    let mut seen = Vec::new();
    until("some renewals", || {
        let valid_until = scene.hold().map(|hold| hold.valid_until_boottime_ns);
        seen.extend(valid_until);
        seen.dedup();
        seen.len() > 4
    });
    fs::write(go, "").expect("the directory is ours");
    assert_eq!(run.wait_code(), 3);
}

#[test]
fn without_a_page_the_agent_is_asked() {
    if other_users().is_none() {
        return;
    }
    let mut scene = Scene::start();
    let script = STUBBORN.replace("FILE", &scene.file.display().to_string());
    let pages = scene.agent.runtime_dir().join("pages");
    let mut command = Command::new("unshare");
    // Its pages are hidden from the command, as by a container that has the socket only.
    let hidden = format!("mount -t tmpfs none {} && exec \"$@\"", pages.display());
    command.args(["--mount", "--", "sh", "-c", &hidden, "sh"]).arg(binary("tenure"));
    command.args(["run", "--leader", "role", "--ttl", "4s", "--kill-after", "500ms", "--"]);
    command.args(["sh", "-c", &script]).env("TENURE_SOCKET", scene.agent.socket());
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Program::start(&mut command);
    let pid = scene.said_pid();
    let first = scene.hold().expect("it is held").valid_until_boottime_ns;
    until("it to be renewed", || {
        scene.hold().is_some_and(|hold| hold.valid_until_boottime_ns > first + 4_000_000_000)
    });
    assert!(runs(pid), "it hears of renewals");
    scene.agent.pause();
    assert_eq!(run_to_end(&mut run).0, 74);
    assert!(!runs(pid));
    scene.agent.resume();
}

#[test]
fn a_restart_of_the_agent_disturbs_neither_the_command_nor_a_wait() {
    let mut scene = Scene::start();
    let mut run = scene.run(&["--ttl", "10m"], "echo $$ > FILE; exec sleep 1000");
    let pid = scene.said_pid();
    let mut next = scene.run(&[], "echo next > FILE");
    until("it to wait", || scene.agent.counts().2 == 1);
    scene.agent.kill();
    scene.agent.start_again();
    until("both to be back", || {
        let sessions = scene.agent.http().status().sessions;
        sessions.len() == 2 && sessions.iter().all(|session| session.streams == 1)
    });
    assert!(runs(pid));
    assert_eq!(scene.agent.counts(), (2, 1, 1));
    scene.revoke();
    assert_eq!(run.wait_code(), 74);
    assert_eq!(next.wait_code(), 0);
    assert_eq!(scene.said(), "next");
    scene.nothing_is_left();
}

#[test]
fn what_the_command_leaves_behind_keeps_the_hold() {
    let scene = Scene::start();
    let mut run = scene.run(&[], "sleep 1000 >/dev/null 2>&1 & echo $! > FILE");
    let pid = scene.said_pid();
    assert_eq!(run.wait_code(), 0);
    // A session of the test's own proves that the agent has seen the end of the wrapper.
    let mut other =
        TenureRun::new(&scene.agent.socket(), &["--leader", "other"], &["true"]).start();
    assert_eq!(other.wait_code(), 0);
    assert!(scene.is_held());
    kill(pid, Signal::SIGTERM).expect("it runs");
    scene.nothing_is_left();
}

#[test]
fn with_tether_child_the_command_dies_with_the_wrapper() {
    let scene = Scene::start();
    let mut run = scene.run(&["--tether", "child"], "echo $$ > FILE; exec sleep 1000");
    let pid = scene.said_pid();
    run.kill();
    until("the command to be gone", || !runs(pid));
    scene.nothing_is_left();
}

#[test]
fn what_was_ignored_stays_ignored_and_nothing_is_blocked() {
    let scene = Scene::start();
    let script = format!(
        "trap '' HUP; exec {} run --leader a -- grep Sig /proc/self/status",
        binary("tenure").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("TENURE_SOCKET", scene.agent.socket());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (_, status, _) = run_to_end(&mut Program::start(&mut command));
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    };
    // Without those of the C library's own.
    let ignored = field("SigIgn:") & ((1 << 31) - 1);
    assert_eq!(ignored, 1 << (Signal::SIGHUP as u32 - 1), "{status}");
    assert_eq!(field("SigBlk:"), 0, "{status}");
}

#[test]
fn a_status_is_a_table_or_json_and_needs_an_agent() {
    let mut scene = Scene::start();
    let tenure = |socket: &Path, args: &[&str]| {
        let mut command = Command::new(binary("tenure"));
        command.env("TENURE_SOCKET", socket).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        run_to_end(&mut Program::start(&mut command))
    };
    let socket = scene.agent.socket();
    let (code, table, err) = tenure(&socket, &["status"]);
    assert_eq!(code, 0, "{err}");
    assert!(table.contains("upstream  embedded up") && !table.contains('\x1b'), "{table}");
    let (_, text, _) = tenure(&socket, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status["upstream"]["state"], "up");
    assert_eq!(tenure(&socket, &["status", "--quiet"]), (0, String::new(), String::new()));

    scene.agent.stop();
    for args in [&["status"][..], &["status", "--quiet"], &["doctor"], &["events"]] {
        let (code, out, err) = tenure(&socket, args);
        assert_eq!(code, 69, "{args:?}: {out}{err}");
    }
}

/// A process that a command leaves behind: not in its process group, holding on to nothing, and ignoring
/// SIGTERM. Writes its process number.
fn escaped(text: &str) -> String {
    let program = "import os,signal,time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); \
                   os.closerange(0, 256); open(sys.argv[1], \"w\").write(f\"{os.getpid()}\\n\"); \
                   time.sleep(1000)";
    // Its parent ends at once.
    format!("(python3 -c 'import sys,{}' {text} &)", program.trim_start_matches("import "))
}

#[test]
fn what_left_the_process_group_does_not_outlive_the_hold() {
    let agent = Agent::start();
    for (name, rest) in
        [("left", "sleep 1000"), ("gone", "while [ ! -s FILE ]; do sleep 0.02; done")]
    {
        let path = agent.dir().join(name);
        let text = path.display().to_string();
        // It is stopped while it runs, or left something behind that keeps the hold.
        let script = format!("{}; {}", escaped(&text), rest.replace("FILE", &text));
        let args = [&LEADER[..], &["--kill-after", "200ms"]].concat();
        let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start();
        let pid = read_pid(&path);
        if name == "left" {
            agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
            let (code, _, err) = run_to_end(&mut run);
            assert_eq!(code, 74, "{err}");
            assert!(!runs(pid), "{name}: it works on without the hold");
        } else {
            // Not stopped: who closes everything is on his own, as the help says.
            assert_eq!(run.wait_code(), 0);
            assert!(runs(pid));
            kill(pid, Signal::SIGKILL).expect("it runs");
        }
        until("nothing to be left", || agent.counts() == (0, 0, 0));
    }
}

#[test]
fn what_left_the_process_group_is_asked_to_stop_as_well() {
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    let text = path.display();
    let last = agent.dir().join("last");
    let last_text = last.display();
    let inner = format!(
        "trap \"echo bye > {last_text}; exit\" TERM; echo $$ > {text}; \
                         while :; do sleep 0.02; done"
    );
    let args = [&LEADER[..], &["--kill-after", "1h"]].concat();
    let command = ["setsid", "-w", "sh", "-c", &inner];
    let mut run = TenureRun::new(&agent.socket(), &args, &command).start();
    let pid = read_pid(&path);
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 74, "{err}");
    assert!(!runs(pid));
    assert_eq!(read_when_there(&last), "bye\n");
}
