//! `tenure acquire` and `tenure release`: a hold that lasts over several commands.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_tests::harness::{
    Agent, Client, Program, TenureRun, binary, copy_for_others, other_users, run_to_end, until,
};

#[track_caller]
fn tenure(
    agent: &Agent,
    variables: &BTreeMap<String, String>,
    line: &str,
) -> (i32, String, String) {
    let mut command = Command::new(binary("tenure"));
    command.args(line.split(' ')).env("TENURE_SOCKET", agent.socket()).envs(variables);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run_to_end(&mut Program::start(command))
}

/// A script, with `tenure` in its search path.
#[track_caller]
fn shell(agent: &Agent, script: &str) -> (i32, String, String) {
    let mut command = Command::new("sh");
    let folder = binary("tenure").parent().expect("it lies in one").to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    command.args(["-c", script]).env("PATH", path).env("TENURE_SOCKET", agent.socket());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run_to_end(&mut Program::start(command))
}

/// The variables for the next command.
#[track_caller]
fn acquired(agent: &Agent, line: &str) -> BTreeMap<String, String> {
    let (code, out, err) = tenure(agent, &BTreeMap::new(), line);
    assert_eq!((code, &*err), (0, ""), "{out}");
    let pairs = out.lines().map(|line| line.split_once('=').expect("NAME=VALUE"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_hold_lasts_over_several_commands_until_it_is_given_back() {
    let agent = Agent::start();
    let job = acquired(&agent, "acquire --leader deploy --for 10m");
    let holder = agent.http().standing("leader", "deploy").holders.remove(0);
    assert_eq!(holder.token.to_string(), job["TENURE_TOKEN"]);
    for (line, code) in [
        ("held", 0),
        ("beat", 0),
        ("run -n --leader deploy -- true", 75),
        ("acquire -n --leader deploy --for 10m", 75),
        ("acquire -nqE 7 --leader deploy --for 10m", 7),
        ("release --status 3", 0),
        ("held", 1),
        ("release", 1),
        ("run -n --leader deploy -- true", 0),
    ] {
        assert_eq!(tenure(&agent, &job, line).0, code, "{line}");
    }
    until("the history to have its exit status", || {
        let (_, told, _) = tenure(&agent, &job, "history leader deploy --json");
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        let mut changes = told["changes"].as_array().expect("there is a list").iter();
        changes.any(|change| change["exit_status"] == 3)
    });
}

#[test]
fn what_nobody_beats_for_and_what_its_process_has_left_is_given_back() {
    let agent = Agent::start();
    acquired(&agent, "acquire --leader forgotten --for 1s");
    let mut shell = Program::start(Command::new("sleep").arg("600"));
    let pid = shell.pid();
    let job = acquired(&agent, &format!("acquire --leader work --for-pid {pid} --name job-7"));
    assert_eq!(tenure(&agent, &job, "held").0, 0);
    let holder = agent.http().standing("leader", "work").holders.remove(0);
    assert_eq!((holder.pid, &*holder.name), (Some(pid), "job-7"));
    until("nobody to hold it", || agent.http().standing("leader", "forgotten").holders.is_empty());
    // A restart of the agent watches the same process.
    let mut agent = agent;
    agent.signal(Signal::SIGUSR2);
    assert!(agent.start_next().success());
    assert_eq!(tenure(&agent, &job, "held").0, 0);
    shell.kill();
    until("its process to be missed", || {
        agent.http().standing("leader", "work").holders.is_empty()
    });
    let (code, _, err) = tenure(&agent, &job, &format!("acquire --leader work --for-pid {pid}"));
    assert_eq!(code, 1);
    assert!(err.contains("--for-pid is ") && err.contains("no such process runs"), "{err}");
}

/// The tie is that of the named process, and not of the command that waits.
#[test]
fn a_restart_of_the_agent_during_the_wait_changes_no_tie() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let incumbent = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(incumbent, "leader", "work", &json!({"ttl_ms": 600_000}));
    let mut shell = Program::start(Command::new("sleep").arg("600"));
    let mut command = Command::new(binary("tenure"));
    command.args(["acquire", "--leader", "work", "--for-pid", &shell.pid().to_string()]);
    command.env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
    let mut acquire = Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let waits = |agent: &Agent| agent.http().standing("leader", "work").waiting == 1;
    until("it to wait", || waits(&agent));
    agent.signal(Signal::SIGUSR2);
    assert!(agent.start_next().success());
    until("it to wait again", || waits(&agent));
    assert!(agent.http().end(incumbent));
    let (code, _, err) = run_to_end(&mut acquire);
    assert_eq!((code, &*err), (0, ""));
    // The agent has seen the end of the command, and of one that came later.
    acquired(&agent, "acquire --leader other --for 10m");
    let holder = agent.http().standing("leader", "work").holders.remove(0);
    assert_eq!(holder.pid, Some(shell.pid()));
    shell.kill();
    until("the shell to be missed", || agent.http().standing("leader", "work").holders.is_empty());
}

/// A variable of a process has an end, and so have all of them together.
#[test]
fn a_script_may_acquire_again_and_again() {
    let agent = Agent::start();
    let script = "for turn in $(seq 40); do hold=$(tenure acquire --leader l --for-pid $$ --export) || exit; \
                  eval \"$hold\"; tenure release || exit; done; echo ${#TENURE_HOLDS}";
    let (code, out, err) = shell(&agent, script);
    assert_eq!((code, &*err), (0, ""));
    let length: usize = out.trim().parse().expect("a number");
    assert!(length < 20 * 37, "{length}");
    let (code, _, err) = shell(&agent, "tenure release");
    assert_eq!(code, 64);
    assert!(err.contains("TENURE_SESSION is not set"), "{err}");
}

#[test]
fn what_is_lost_cannot_be_given_back() {
    let agent = Agent::start();
    let job = acquired(&agent, "acquire --leader work --for 10m --max-hold 300ms");
    until("its time to be over", || agent.http().standing("leader", "work").holders.is_empty());
    let (code, _, err) = tenure(&agent, &job, "release");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("holds nothing any more"), "{err}");
}

#[test]
fn a_shell_takes_the_lines_with_export() {
    let agent = Agent::start();
    let script = "hold=$(tenure acquire -n --leader import --for-pid $$ --export) || exit; eval \"$hold\"; tenure held && echo \"$TENURE_TOKEN\"";
    let (code, out, err) = shell(&agent, script);
    assert_eq!((code, &*err), (0, ""));
    assert!(out.trim().parse::<u64>().is_ok_and(|token| token > 0), "{out}");
    until("the shell to be missed", || {
        agent.http().standing("leader", "import").holders.is_empty()
    });
}

#[test]
fn a_process_of_somebody_else_is_not_named() {
    let Some([uid, other]) = other_users() else { return };
    let agent = Agent::setup().open_to_all().start();
    let mut theirs = Program::start(Command::new("setpriv").args([
        &*format!("--reuid={other}"),
        "--clear-groups",
        "sleep",
        "600",
    ]));
    let pid = theirs.pid();
    until("it to be theirs", || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|found| found.uid() == other)
    });
    let mut command = Command::new("setpriv");
    command
        .args([&*format!("--reuid={uid}"), "--clear-groups"])
        .arg(copy_for_others("tenure", agent.dir()));
    command.current_dir("/").args(["acquire", "--leader", "work", "--for-pid", &pid.to_string()]);
    let command = command.env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
    let (code, out, err) =
        run_to_end(&mut Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())));
    assert_eq!((code, &*out), (77, ""), "{err}");
    assert!(
        err.contains("--for-pid is ") && err.contains("that process is another user's"),
        "{err}"
    );
    let status_of = |body: Value| {
        let body = body.to_string();
        let answer = agent.http().try_call("POST", "/v1/register", body.as_bytes());
        answer.expect("it answers").status
    };
    // Root may name anybody's, but none for another tether, and none that there cannot be.
    assert_eq!(status_of(json!({"pid": pid, "tether": "process"})), 201);
    assert_eq!(status_of(json!({"pid": 1})), 422);
    assert_eq!(status_of(json!({"pid": 1, "tether": "connection"})), 422);
    assert_eq!(status_of(json!({"pid": 4_194_304, "tether": "process"})), 404);
    assert_eq!(status_of(json!({"pid": 0, "tether": "process"})), 404);
    theirs.kill();
}

/// The variables of a `tenure run` are those of another session.
#[test]
fn a_command_cannot_give_back_what_is_held_around_it() {
    let agent = Agent::start();
    let tenure = binary("tenure");
    let script = format!("{0} release; echo $?; {0} held", tenure.display());
    let mut run = TenureRun::new(&agent.socket(), &["--leader", "role"], &["sh", "-c", &script]);
    let command = run.command().stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, out, err) = run_to_end(&mut Program::start(command));
    assert_eq!((code, &*out), (0, "64\n"), "{err}");
    assert!(err.contains("which gives back at its end"), "{err}");
}
