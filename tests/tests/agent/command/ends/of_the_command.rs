//! The end of the command, and what comes of the wrapper and of the hold.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure_tests::harness::{
    Client, Program, Shell, TenureRun, Typist, binary, boottime_ns, run_to_end, runs, until,
};

use super::scene::Scene;
use super::terminal;

lines! {
    "The end of the command":
    ["exits with a status", "exits with it"] is tried by
        an_exit_status_is_the_wrappers;
    [
        "dies by signal n",
        "gives the hold back, and dies by signal n, without a core; a shell shows 128+n, and ends a loop after Ctrl-C"
    ] is tried by
        the_wrapper_dies_by_the_signal_of_its_command,
        shells_show_128_and_the_signal,
        ctrl_c_ends_a_loop;
    ["exits, and leaves processes that hold its descriptors", "names them on stderr (not with `-q`) and exits with its status"]
    is tried by
        what_a_command_leaves_behind_with_its_hold_is_named,
        what_a_command_leaves_behind_and_does_not_hold_on_is_not_named,
        status_why_and_history_tell_of_leftovers,
        eight_leftovers_are_named,
        nobody_ends_leftovers_that_have_lost_the_hold,
        after_a_restart_of_the_agent_leftovers_keep_no_hold,
        with_tether_child_leftovers_keep_no_hold;
    [
        "left another group in the terminal's foreground of which no process is left (a shell that was killed)",
        "puts its own group there again"
    ] is tried by
        the_terminal_comes_back_from_a_shell_that_was_killed;
    ["cannot be executed, or was not found", "gives the hold back; 126 or 127"] is tried by
        a_command_that_cannot_run_is_told_why_with_the_exit_code_of_shells;
}

fn an_exit_status_is_the_wrappers() {
    let scene = Scene::start();
    for status in [0, 1, 42, 255] {
        let mut run = scene.run(&[], &format!("echo $$ >FILE; GO; exit {status}"));
        scene.said_pid();
        let next = scene.heir();
        assert_eq!(scene.agent.counts(), (2, 1, 1), "the next one waits");
        scene.go();
        assert_eq!(run.wait_code(), status);
        scene.is_passed_on(next);
        scene.no_go();
    }
}

fn the_wrapper_dies_by_the_signal_of_its_command() {
    let scene = Scene::start();
    // A real-time signal has a number but no name.
    for signal in [Signal::SIGKILL as i32, Signal::SIGTERM as i32, Signal::SIGSEGV as i32, 40] {
        let script = format!("echo $$ >FILE; GO; kill -{signal} $$");
        let run = scene.prepare(&[], &script).into_command();
        // Cores are wanted here.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]);
        command.arg(run.get_program()).args(run.get_args()).current_dir(scene.agent.dir());
        let mut run = Program::start(command.env("TENURE_SOCKET", scene.agent.socket()));
        scene.said_pid();
        let next = scene.heir();
        assert_eq!(scene.agent.counts(), (2, 1, 1), "the next one waits");
        scene.go();
        let status = run.wait();
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
        scene.is_passed_on(next);
        scene.no_go();
    }
}

fn shells_show_128_and_the_signal() {
    let scene = Scene::start();
    let path = std::env::var("PATH").expect("a search path");
    let programs = binary("tenure").parent().expect("a directory").display().to_string();
    for shell in ["bash", "dash", "zsh", "fish"] {
        let status = if shell == "fish" { "$status" } else { "$?" };
        let script = format!("tenure lock x -- sh -c 'kill -TERM $$'; echo {status}");
        let mut command = Command::new(shell);
        command.args(["-c", &script]).env("PATH", format!("{programs}:{path}"));
        command.env("TENURE_SOCKET", scene.agent.socket()).env("HOME", scene.agent.dir());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (_, shown, said) = run_to_end(&mut Program::start(&mut command));
        assert_eq!(shown, "143\n", "{shell}: {said}");
    }
}

fn ctrl_c_ends_a_loop() {
    for shell in Shell::ALL {
        terminal::check(shell, &terminal::LOOPS);
    }
}

/// Starts a `sleep`, and says its number as soon as it goes by that name.
const LEAVES_SLEEP: &str =
    "sleep 1000 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $! >FILE";

/// The words of a wrapper that has ended, once nothing of its command is left.
#[track_caller]
fn words(run: &mut Program) -> String {
    let mut err = String::new();
    let stderr = run.pipes().stderr.as_mut().expect("standard error is piped");
    stderr.read_to_string(&mut err).expect("it is UTF-8");
    err
}

fn what_a_command_leaves_behind_with_its_hold_is_named() {
    let scene = Scene::start();
    for (args, is_named) in [(&[][..], true), (&["--quiet"], false), (&["-q"], false)] {
        let mut run = scene.run(args, &format!("{LEAVES_SLEEP}; GO; exit 3"));
        let left = scene.said_pid();
        let next = scene.heir();
        scene.go();
        assert_eq!(run.wait_code(), 3);
        assert_eq!(scene.agent.counts(), (2, 1, 1), "what is left keeps the hold");
        kill(left, Signal::SIGKILL).expect("it runs");
        scene.passes_on(next);
        scene.no_go();
        let said = format!(
            "tenure: leader/role: the command has ended, but what it left behind keeps the hold: sleep ({left}); "
        );
        let err = words(&mut run);
        assert!(if is_named { err.starts_with(&said) } else { err.is_empty() }, "{args:?}: {err}");
    }
}

fn what_a_command_leaves_behind_and_does_not_hold_on_is_not_named() {
    let scene = Scene::start();
    // A daemon closes what it has inherited.
    let script = "sleep 999 & keeps=$!; setsid bash -c 'for fd in /proc/self/fd/*; do eval \"exec ${fd##*/}>&-\"; done 2>&-; \
                  exec sleep 1000' & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $! $keeps >FILE";
    let mut run = scene.run(&[], script);
    assert_eq!(run.wait_code(), 0);
    let said = scene.said();
    let pids = said.split_whitespace().map(|pid| pid.parse().expect("a number"));
    let pids: Vec<i32> = pids.collect();
    for pid in &pids {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("it runs");
    }
    let err = words(&mut run);
    assert!(err.contains(&format!("keeps the hold: sleep ({}); ", pids[1])), "{err}");
    scene.nothing_is_left();
}

/// The output of `tenure`.
#[track_caller]
fn told(scene: &Scene, words: &[&str]) -> String {
    let mut command = Command::new(binary("tenure"));
    let output = command.env("TENURE_SOCKET", scene.agent.socket()).args(words).output();
    let output = output.expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn status_why_and_history_tell_of_leftovers() {
    let scene = Scene::start();
    let mut run = scene.run(&[], &format!("{LEAVES_SLEEP}; exit 3"));
    let left = scene.said_pid();
    assert_eq!(run.wait_code(), 3);

    let says = |said: &str, start: &str, end: &str| {
        let line = said.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start:?} is not in {said}"));
        assert!(line.ends_with(end), "{line:?} does not end with {end:?}");
    };
    let now = format!(" ago (exit status 3); what it left behind keeps the hold: sleep ({left})");
    says(&told(&scene, &["status"]), "leader/role: its command ended ", &now);
    let why = told(&scene, &["why", "leader", "role"]);
    says(&why, "  left     its command ended ", &now);
    says(&why, "  next     ps -o ", &format!(" -p {left}"));
    let ended = scene.agent.http().status().sessions[0].ended_command.clone();
    let ended = ended.expect("it has ended");
    assert_eq!((ended.exit_status, ended.leftovers.len()), (Some(3), 1));

    kill(left, Signal::SIGKILL).expect("it runs");
    let past = " before, and what that left behind kept the hold (exit status 3), after ";
    until("the history to tell of it", || {
        let history = told(&scene, &["history", "leader", "role"]);
        history.contains("its command ended ") && history.contains(past)
    });
}

fn eight_leftovers_are_named() {
    let scene = Scene::start();
    // They end with their standard input.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do cat <&3 & until grep -q cat /proc/$!/comm; do sleep 0.01; done; done 3<&0; \
                  echo $$ >FILE";
    let mut run = scene.prepare(&[], script);
    run.command().stdin(Stdio::piped());
    let mut run = run.start();
    scene.said();
    let stdin = run.pipes().stdin.take();
    assert_eq!(run.wait_code(), 0);
    let ended = scene.agent.http().status().sessions[0].ended_command.clone();
    assert_eq!(ended.map(|ended| (ended.leftovers.len(), ended.more)), Some((8, 2)));
    let names = told(&scene, &["status"]).matches("cat (").count();
    drop(stdin);
    assert_eq!((names, words(&mut run).matches("cat (").count()), (8, 8));
    scene.nothing_is_left();
}

fn nobody_ends_leftovers_that_have_lost_the_hold() {
    let scene = Scene::start();
    let mut run = scene.run(&["--ttl", "3s", "--kill-after", "0s"], LEAVES_SLEEP);
    let left = scene.said_pid();
    assert_eq!(run.wait_code(), 0);
    let next = scene.heir();
    let kept = scene.hold().expect("it is kept").valid_until_boottime_ns;
    scene.revoke();
    next.gets_it();
    assert!(boottime_ns() >= kept, "the next one waited until valid-until");
    assert!(runs(left), "and not for its end");
    kill(left, Signal::SIGKILL).expect("it runs");
}

fn after_a_restart_of_the_agent_leftovers_keep_no_hold() {
    let mut scene = Scene::start();
    let mut run = scene.run(&["--ttl", "3s"], LEAVES_SLEEP);
    let left = scene.said_pid();
    assert_eq!(run.wait_code(), 0);
    let kept = scene.hold().expect("it is kept").valid_until_boottime_ns;
    scene.agent.kill();
    scene.agent.start_again();
    let mut http = scene.agent.http();
    let next = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(next, "leader", "role", &json!({"wait": "block"}));
    assert!(boottime_ns() >= kept && runs(left), "nobody else beats for it");
    kill(left, Signal::SIGKILL).expect("it runs");
}

fn with_tether_child_leftovers_keep_no_hold() {
    let scene = Scene::start();
    let mut run = scene.run(&["--tether", "child"], &format!("{LEAVES_SLEEP}; GO"));
    let left = scene.said_pid();
    let next = scene.heir();
    assert_eq!(scene.agent.counts(), (2, 1, 1), "the next one waits");
    scene.go();
    assert_eq!(run.wait_code(), 0);
    scene.is_passed_on(next);
    assert!(runs(left));
    kill(left, Signal::SIGKILL).expect("it runs");
    assert_eq!(words(&mut run), "");
}

fn the_terminal_comes_back_from_a_shell_that_was_killed() {
    let scene = Scene::start();
    // No shell with jobs is around it, which would take the terminal back itself.
    let script = "tenure lock x -- bash --norc --noprofile --noediting -i; printf 'status-%s\\n' $?; \
                  read a </dev/tty; printf 'got-%s\\n' $a";
    let file = scene.agent.dir().join("script.sh");
    fs::write(&file, script).expect("the directory is ours");
    let mut typist = Typist::before("sh script.sh", scene.agent.dir(), &scene.agent.socket());
    typist.shell_listens();
    typist.line("kill -KILL $$");
    typist.sees("status-137\n");
    scene.nothing_is_left();
    typist.line("word");
    typist.sees("got-word\n");
}

fn a_command_that_cannot_run_is_told_why_with_the_exit_code_of_shells() {
    let scene = Scene::start();
    let script = |name: &str, text: &str| {
        let path = scene.agent.dir().join(name);
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path.display().to_string()
    };
    let lacks = script("lacks", "#!/nowhere/interpreter -x\nexit 0\n");
    let ends = script("ends", "#!/bin/sh\r\nexit 0\r\n");
    let folder = scene.agent.dir().display().to_string();
    for (program, expected, words) in [
        ("/nowhere/no-such-command", 127, "command not found"),
        ("no-such-command", 127, "command not found"),
        ("", 127, "command not found"),
        (&lacks, 127, "its first line names /nowhere/interpreter, which is not there"),
        (&ends, 127, "its first line ends with a carriage return"),
        ("/etc/passwd", 126, "check its mode"),
        (&folder, 126, "it is a directory"),
    ] {
        let run = TenureRun::new(&scene.agent.socket(), &["--leader", "role"], &[program]);
        let (code, _, err) = run.finish();
        assert_eq!(scene.agent.counts(), (0, 0, 0), "{program}: it was given back");
        assert_eq!(code, expected, "{program}: {err}");
        assert!(err.contains(words), "{program}: {err}");
    }
}
