//! What a shell script expects of `tenure`: the letters of flock(1), words while it waits, and answers
//! from inside a hold.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::json;
use tenure_tests::harness::{Agent, Client, Program, binary, run_to_end, until};
use uuid::Uuid;

type Said = (i32, String, String);

fn start(socket: &Path, args: &[&str]) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", socket).args(args);
    Program::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[track_caller]
fn tenure(socket: &Path, line: &str) -> Said {
    run_to_end(&mut start(socket, &line.split(' ').collect::<Vec<_>>()))
}

/// Runs a script inside a hold on `leader/role`; `tenure` is on its path.
#[track_caller]
fn inside(agent: &Agent, options: &[&str], script: &str) -> Said {
    let args = [&["lock", "role"], options, &["--", "sh", "-c", script]].concat();
    let directory = binary("tenure").parent().expect("a directory").to_owned();
    let path = std::env::var("PATH").expect("a search path");
    let mut command = Command::new(binary("tenure"));
    command
        .env("TENURE_SOCKET", agent.socket())
        .env("PATH", format!("{}:{path}", directory.display()));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run_to_end(&mut Program::start(&mut command))
}

fn hold_role(agent: &Agent) -> (Uuid, Uuid) {
    let mut http = agent.http();
    let session = http.register(&json!({"name": "incumbent", "keepalive_ms": 600_000})).session;
    (session, http.acquire(session, "leader", "role", &json!({})).hold)
}

#[test]
fn the_letters_of_flock_mean_the_same() {
    let agent = Agent::start();
    let socket = agent.socket();
    assert_eq!(tenure(&socket, "lock role -n -- echo ran").1, "ran\n");
    assert_eq!(tenure(&socket, "run --leader role -w 5s -- echo ran").1, "ran\n");
    hold_role(&agent);
    let taken = |line: &str, code: i32, said: &str| {
        let (exit, out, err) = tenure(&socket, line);
        assert_eq!((exit, out.as_str()), (code, ""), "{line}: {err}");
        assert!(if said.is_empty() { err.is_empty() } else { err.contains(said) }, "{line}: {err}");
    };
    taken("lock role -n -- true", 75, "tenure: leader/role: taken by incumbent on ");
    taken("lock role -n -E 7 -- true", 7, "taken by incumbent");
    taken("lock role -nqE 0 -- true", 0, "");
    taken("run --leader role -n -q -- true", 75, "");
    taken("lock role -w 100ms -- true", 75, "tenure: leader/role: not free within --wait 100ms");
    taken("lock role -w 100ms --quiet --conflict-exit-code 9 -- true", 9, "");
    // What is no conflict has its own status, and is said.
    taken("lock role -nqE 0 --ttl 1ms -- true", 64, "ttl");
    taken("run --leader role -c true", 64, "-- sh -c 'COMMAND'");
    taken("lock role --limit 2 -- true", 64, "cannot be used with");
    taken(
        "lock -- true",
        64,
        "required arguments were not provided: <NAME>; see `tenure lock --help`",
    );
}

#[test]
fn a_socket_is_found_or_told_where_it_was_looked_for() {
    let agent = Agent::start();
    let socket = agent.socket();
    assert_eq!(tenure(&socket, "socket"), (0, format!("{}\n", socket.display()), String::new()));
    let (code, out, err) = tenure(Path::new("/nowhere/api.sock"), "socket");
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(err.contains("there is no agent socket at /nowhere/api.sock"), "{err}");
    let (code, _, err) = tenure(Path::new("/etc/passwd"), "socket");
    assert!(code == 69 && err.contains("/etc/passwd is not a socket"), "{err}");
    let (code, _, err) = tenure(Path::new("127.0.0.1:6379"), "socket");
    assert!(code == 64 && err.contains("the agent speaks no TCP"), "{err}");
}

#[test]
fn a_standing_answers_by_its_exit_status() {
    let agent = Agent::start();
    let socket = agent.socket();
    let nothing = |code| (code, String::new(), String::new());
    assert_eq!(tenure(&socket, "standing leader role -q"), nothing(1));
    hold_role(&agent);
    assert_eq!(tenure(&socket, "standing leader role --quiet"), nothing(0));
}

#[test]
fn a_script_asks_whether_it_still_holds_without_the_agent() {
    let agent = Agent::start();
    let (code, out, err) = inside(&agent, &[], "tenure held && tenure held -v");
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("held, valid for "), "{out}");
    // The agent is stopped, and what it says does not matter.
    let script = format!("kill -STOP {0}; tenure held -v; kill -CONT {0}; exit 5", agent.pid());
    let (code, out, _) = inside(&agent, &[], &script);
    assert!(code == 5 && out.starts_with("held, valid for "), "{out}");
    let lost = "trap '' TERM; tenure revoke leader role >&2; tenure held -v; echo $?; exit 0";
    let (code, out, err) = inside(&agent, &["--on-lost", "ignore"], lost);
    assert_eq!((code, out.as_str()), (0, "not held any more\n1\n"), "{err}");

    let (code, _, err) = tenure(&agent.socket(), "held");
    assert_eq!(code, 64, "{err}");
    assert!(err.contains("TENURE_HOLD is not set: this is for commands inside a hold"), "{err}");
}

#[test]
fn a_command_that_promised_progress_and_makes_none_loses_its_hold() {
    let agent = Agent::start();
    let progress = ["--progress", "1s"];
    let (code, _, err) = inside(&agent, &progress, "exec sleep 1000");
    assert_eq!(code, 74, "{err}");
    let said = "leader/role: the hold was lost (stalled): no `tenure beat` for --progress 1s: ";
    assert!(err.contains(said), "{err}");
    // Twice its time, and it says so.
    let script = "for i in 1 2 3 4 5 6 7 8; do tenure beat || exit; sleep 0.25; done; echo done";
    assert_eq!(inside(&agent, &progress, script), (0, "done\n".to_owned(), String::new()));
    // Its session is gone, and so is what it had.
    let (code, _, err) = inside(&agent, &[], "TENURE_SESSION=$TENURE_HOLD tenure beat");
    assert!(code == 74 && err.contains("the hold is lost"), "{err}");
}

#[test]
fn a_wait_is_no_lack_of_progress() {
    let agent = Agent::start();
    let (session, hold) = hold_role(&agent);
    let args = ["lock", "role", "--progress", "300ms", "-q", "--", "echo", "ran"];
    let mut run = start(&agent.socket(), &args);
    until("it to wait", || agent.counts().2 == 1);
    let over = tenure_tests::harness::boottime_ns() + 1_500_000_000;
    until("its time to be over several times", || tenure_tests::harness::boottime_ns() >= over);
    assert!(agent.http().release(session, hold));
    assert_eq!(run_to_end(&mut run), (0, "ran\n".to_owned(), String::new()));
}

#[test]
fn a_wait_is_not_silent() {
    let agent = Agent::start();
    let (session, hold) = hold_role(&agent);
    let mut first = start(&agent.socket(), &["lock", "role", "--", "true"]);
    until("the first one to wait", || agent.counts().2 == 1);
    let mut second = start(&agent.socket(), &["lock", "role", "-w", "3s", "--", "true"]);
    let mut quiet = start(&agent.socket(), &["lock", "role", "-q", "-w", "3s", "--", "true"]);
    let (code, _, err) = run_to_end(&mut second);
    assert_eq!(code, 75, "{err}");
    let lines: Vec<&str> = err.lines().collect();
    let [waiting, end] = lines[..] else { panic!("two lines: {err}") };
    assert!(waiting.starts_with("tenure: waiting for leader/role: held by incumbent on "), "{err}");
    assert!(waiting.contains(" (token ") && waiting.ends_with("in line"), "{err}");
    assert!(end.starts_with("tenure: leader/role: not free within --wait 3s"), "{err}");
    assert_eq!(run_to_end(&mut quiet), (75, String::new(), String::new()));
    assert!(agent.http().release(session, hold));
    let (code, _, err) = run_to_end(&mut first);
    assert!(code == 0 && err.contains("1st in line"), "{err}");
}

#[test]
fn a_command_does_not_wait_for_a_hold_of_any_command_around_it() {
    let agent = Agent::start();
    for script in ["tenure lock role -- true", "tenure lock other -- tenure lock role -- true"] {
        let (code, out, err) = inside(&agent, &[], script);
        assert_eq!(code, 75, "{script}: {out}{err}");
        assert!(err.contains("leader/role: held by a `tenure run` around this command"), "{err}");
    }
    // It may have another one, and try this one.
    let (code, _, err) = inside(&agent, &[], "tenure lock other -- tenure lock third -- true");
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = inside(&agent, &[], "tenure lock other -- tenure lock role -n -- true");
    assert!(code == 75 && err.contains("role: taken by a `tenure run` around this"), "{err}");
}

#[test]
fn a_command_of_any_name_runs() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let names: [&[u8]; 7] = [
        b"caf\xe9",
        "e\u{301}".as_bytes(),
        "a\u{fe0f}".as_bytes(),
        "a\u{200b}b".as_bytes(),
        "\u{202e}".as_bytes(),
        b"\x1b]0;x\x07",
        b"a\nb c",
    ];
    for name in names {
        let program = folder.path().join(OsStr::from_bytes(name));
        std::os::unix::fs::symlink("/bin/echo", &program).expect("it is ours");
        let mut command = Command::new(binary("tenure"));
        command
            .env("TENURE_SOCKET", agent.socket())
            .args(["lock", "role", "--"])
            .arg(&program)
            .arg("ran");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = run_to_end(&mut Program::start(&mut command));
        assert_eq!(said, (0, "ran\n".to_owned(), String::new()), "{}", name.escape_ascii());
    }
}

#[test]
fn a_script_without_a_first_line_runs_as_shells_run_it() {
    let agent = Agent::start();
    let script = agent.dir().join("script");
    fs::write(&script, "test -n \"$TENURE_HOLD\" && echo \"$1\"; exit 3\n")
        .expect("the folder is ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = script.display().to_string();
    let said = run_to_end(&mut start(&agent.socket(), &["lock", "role", "--", &script, "word"]));
    assert_eq!(said, (3, "word\n".to_owned(), String::new()));
}

#[test]
fn descriptors_that_were_open_reach_the_command() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("in"), "word\n").expect("it is ours");
    for lock in ["run --leader role", "run --leader role --tether child", "lock role"] {
        let mut shell = Command::new("sh");
        let script = format!(
            "exec \"$0\" {lock} -- sh -c 'cat <&3 >&4; echo five >&5; echo nine >&9' 3<in 4>four 5>five 9>nine"
        );
        shell.arg("-c").arg(script).arg(binary("tenure")).current_dir(folder.path());
        shell.env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = run_to_end(&mut Program::start(&mut shell));
        assert_eq!(said, (0, String::new(), String::new()), "{lock}");
        let said = ["four", "five", "nine"].map(|name| {
            let file = folder.path().join(name);
            let text = fs::read_to_string(&file).expect("the shell made it");
            fs::remove_file(&file).expect("it is ours");
            text
        });
        assert_eq!(said, ["word\n", "five\n", "nine\n"], "{lock}");
    }
}

/// The letter of a process's state.
fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let after_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    after_name.chars().next().expect("a state")
}

#[test]
fn sigtstp_to_one_process_stops_no_other_of_its_group() {
    let agent = Agent::start();
    let tenure = binary("tenure").display().to_string();
    let script = format!("sleep 600 & echo $!; {tenure} lock role -- sleep 600 & echo $!; wait");
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .env("TENURE_SOCKET", agent.socket())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("a shell");
    let said = BufReader::new(shell.stdout.take().expect("it is piped"));
    let pids: Vec<i32> =
        said.lines().take(2).map(|line| line.unwrap().parse().expect("a number")).collect();
    let [sibling, wrapper] = pids[..] else { panic!("{pids:?}") };
    let group = Pid::from_raw(i32::try_from(shell.id()).expect("a process id"));
    until("the command to run", || agent.counts().1 == 1);
    kill(Pid::from_raw(wrapper), Signal::SIGTSTP).expect("it is ours");
    until("the wrapper to stop", || state(wrapper) == 'T');
    assert_eq!([state(sibling), state(group.as_raw())], ['S', 'S']);
    killpg(group, Signal::SIGKILL).expect("it is ours");
    shell.wait().expect("it ends");
}
