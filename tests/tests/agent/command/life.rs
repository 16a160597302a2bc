//! `tenure run` while its command runs: short holds, hidden pages, and what the command inherits.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tenure_tests::harness::{Program, binary, other_users, run_to_end, runs, until};

use super::scene::Scene;

#[test]
fn a_healthy_short_hold_is_left_alone() {
    let scene = Scene::start();
    // Less is left at any time than SIGKILL comes after SIGTERM.
    let mut run = scene.run(&["--ttl", "3s", "--kill-after", "10s"], "GO; exit 3");
    let mut seen = Vec::new();
    until("some renewals", || {
        let valid_until = scene.hold().map(|hold| hold.valid_until_boottime_ns);
        seen.extend(valid_until);
        seen.dedup();
        seen.len() > 4
    });
    scene.go();
    assert_eq!(run.wait_code(), 3);
}

#[test]
fn without_a_page_the_agent_is_asked() {
    if other_users().is_none() {
        return;
    }
    let mut scene = Scene::start();
    let script = scene.script("trap '' TERM; echo $$ >FILE; while :; do sleep 0.02; done");
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
