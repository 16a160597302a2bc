//! Trials of a command whose hold is lost while it runs.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use serde_json::json;
use tenure_tests::harness::{
    Agent, Client, Fleet, Heir, PageFile, RedisServer, TenureRun, read_pid, read_when_there,
    run_to_end, runs, until,
};

use super::scene::{Scene, uptime};

/// Takes no SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ >FILE; while :; do sleep 0.02; done";

pub(super) fn a_command_may_tidy_up_and_the_next_one_here_waits_for_that() {
    let scene = Scene::start();
    let mut run = scene.run(
        &["--kill-after", "1h"],
        "trap 'echo asked >FILE; GO; echo tidy >FILE; exit 0' TERM; echo $$ >FILE; while :; do sleep 0.02; done",
    );
    let pid = scene.said_pid();
    let next = scene.heir();
    scene.revoke();
    assert_eq!(scene.said(), "asked");
    assert_eq!((scene.agent.counts().2, runs(pid)), (1, true), "the next one waits");
    scene.go();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 74);
    // The shell may have more to say about its own children.
    assert!(err.contains("tenure: leader/role: the hold was lost (revoked by "), "{err}");
    assert!(err.contains("): the command is stopped\n"), "{err}");
    assert_eq!((scene.said(), runs(pid)), ("tidy".to_owned(), false));
    scene.is_passed_on(next);
}

pub(super) fn revoked_on_another_host_the_next_one_does_not_wait() {
    let fleet = Fleet::start();
    let [here, there] = &fleet.agents[..] else { panic!("there are two") };
    let [path, asked] = ["pid", "asked"].map(|name| here.dir().join(name));
    let script = format!(
        "trap 'echo asked >{}' TERM; echo $$ >{}; while :; do sleep 0.02; done",
        asked.display(),
        path.display()
    );
    let args = ["--leader", "role", "--kill-after", "1h"];
    let mut run = TenureRun::new(&here.socket(), &args, &["sh", "-c", &script]).start();
    let pid = read_pid(&path);
    let next = Heir::wait_for(there, "leader", "role");
    let revoke = json!({"kind": "leader", "name": "role"});
    assert_eq!(there.http().post("/v1/revoke", &revoke).json(200)["revoked"], 1);
    next.gets_it();
    read_when_there(&asked);
    assert!(runs(pid), "the token alone tells the two apart");
    kill(pid, Signal::SIGKILL).expect("it runs");
    assert_eq!(run.wait_code(), 74);
}

pub(super) fn a_master_of_higher_priority_takes_over() {
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    let script = format!("echo $$ >{}; exec sleep 1000", path.display());
    let args = ["--master", "--project", "p"];
    let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start();
    let pid = read_pid(&path);
    let mut http = agent.http();
    let session = http.register(&json!({"project": "p", "keepalive_ms": 600_000})).session;
    http.acquire(session, "master", "", &json!({"priority": 9}));
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!((code, runs(pid)), (74, false), "{err}");
    assert!(err.contains("master/p: the hold was lost (preempted): "), "{err}");
}

pub(super) fn a_command_that_is_stopped_is_continued_and_may_tidy_up() {
    let scene = Scene::start();
    let script = "trap 'echo tidy >FILE; exit' TERM; echo $$ >FILE; while :; do sleep 0.02; done";
    let mut run = scene.run(&["--kill-after", "1h"], script);
    let pid = scene.said_pid();
    kill(pid, Signal::SIGSTOP).expect("it runs");
    until("it to stop", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        stat.contains(") T ")
    });
    scene.revoke();
    assert_eq!((run.wait_code(), scene.said().as_str()), (74, "tidy"));
}

pub(super) fn the_rest_of_the_group_has_time_to_stop_as_well() {
    let scene = Scene::start();
    let worker = "trap 'sleep 0.2; echo done >FILE; exit' TERM; echo ready >FILE";
    let script = format!("sh -c \"{worker}; while :; do sleep 0.02; done\"; true");
    let mut run = scene.run(&["--kill-after", "1h"], &script);
    assert_eq!(scene.said(), "ready");
    scene.revoke();
    assert_eq!((run.wait_code(), scene.said().as_str()), (74, "done"));
}

pub(super) fn a_command_that_takes_no_sigterm_is_killed_after_that_time() {
    let scene = Scene::start();
    let mut run = scene.run(&["--kill-after", "100ms"], STUBBORN);
    let pid = scene.said_pid();
    scene.revoke();
    assert_eq!((run.wait_code(), runs(pid)), (74, false));
    scene.nothing_is_left();
}

pub(super) fn what_left_the_process_group_is_asked_to_stop_as_well() {
    let scene = Scene::start();
    let inner = "trap \"echo bye >FILE; exit\" TERM; echo $$ >FILE; while :; do sleep 0.02; done";
    let mut run = scene.run(&["--kill-after", "1h"], &format!("exec setsid -w sh -c '{inner}'"));
    let pid = scene.said_pid();
    scene.revoke();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!((code, runs(pid)), (74, false), "{err}");
    assert_eq!(scene.said(), "bye");
}

/// A process that a command leaves behind: not in its process group, holding on to nothing, and ignoring
/// SIGTERM. Writes its process number. Its parent ends at once.
const ESCAPED: &str = "(python3 -c 'import os,signal,sys,time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); \
     os.closerange(0, 256); open(sys.argv[1], \"w\").write(f\"{os.getpid()}\\n\"); time.sleep(1000)' FILE &)";

pub(super) fn what_left_the_process_group_does_not_outlive_the_hold() {
    let scene = Scene::start();
    let args = ["--kill-after", "200ms"];
    let mut run = scene.run(&args, &format!("{ESCAPED}; sleep 1000"));
    let pid = scene.said_pid();
    scene.revoke();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!((code, runs(pid)), (74, false), "{err}");

    // Nobody ends it where the command ends by itself: what closes everything leaves the hold, as the help says.
    let mut run = scene.run(&args, &format!("{ESCAPED}; GO"));
    let pid = scene.said_pid();
    scene.go();
    assert_eq!((run.wait_code(), runs(pid)), (0, true));
    kill(pid, Signal::SIGKILL).expect("it runs");
    scene.nothing_is_left();
}

/// Writes down, again and again, how long the machine has been up: by the clock of valid-until.
const SIGNS: &str =
    "echo $$ $TENURE_PAGE >FILE; while :; do cat /proc/uptime >>FILE-signs; sleep 0.02; done";

/// A command that gives [`SIGNS`], whose agent stands still until it has ended: in time.
#[track_caller]
fn check_without_the_agent(args: &[&str], script: &str) {
    let mut scene = Scene::start();
    let mut run = scene.run(args, script);
    let said = scene.said();
    let (pid, page) = said.split_once(' ').expect("two words");
    let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a process number"));
    let page = PageFile::open(page.as_ref());
    scene.agent.pause();
    assert_eq!((run.wait_code(), runs(pid)), (74, false));
    let signs = read_when_there(&scene.agent.dir().join("said-signs"));
    let last = uptime(signs.lines().last().expect("there is one"));
    let valid_until = Duration::from_nanos(page.slot(0).valid_until_ns);
    // Not a measure of speed: SIGTERM comes seconds before, and SIGKILL a quarter of a second.
    assert!(last < valid_until, "it never worked without a hold: {last:?}, {valid_until:?}");
    scene.agent.resume();
    scene.nothing_is_left();
}

pub(super) fn without_the_agent_a_command_is_told_to_end_in_time() {
    check_without_the_agent(&["--ttl", "6s", "--kill-after", "2s"], SIGNS);
}

/// Long enough for the longest time from SIGKILL to valid-until.
const LONG_TTL: &str = "13s";

pub(super) fn without_the_agent_a_command_that_takes_no_sigterm_is_killed() {
    let script = format!("trap '' TERM; {SIGNS}");
    check_without_the_agent(&["--ttl", LONG_TTL, "--kill-after", "2s"], &script);
}

pub(super) fn without_the_agent_what_left_the_process_group_is_killed() {
    let script = format!("exec setsid -w sh -c 'trap \"\" TERM; {SIGNS}'");
    check_without_the_agent(&["--ttl", LONG_TTL, "--kill-after", "1s"], &script);
}

/// A busy machine may be that late with the end of a command.
const MARGIN: &str = "[margin]\ndivisor = 8\n";

/// An agent goes away while a command on its host needs so long to end, or never does; another host waits meanwhile.
#[track_caller]
pub(super) fn check_next_host(ttl: &str, to_end: &str, go_away: impl FnOnce(&mut Agent)) -> Fleet {
    let mut fleet = Fleet::start_with(RedisServer::start(), 2, MARGIN);
    let folder = fleet.agents[0].dir().to_owned();
    let (pid, lock) = (folder.join("pid"), folder.join("lock"));
    // The file is locked for as long as anything of the command runs.
    let script =
        format!("trap '{to_end}' TERM; echo $$ >{}; while :; do sleep 0.05; done", pid.display());
    let args = ["--leader", "role", "--ttl", ttl, "--kill-after", "1m"];
    let lock = lock.display().to_string();
    let flock = ["flock", &lock, "sh", "-c", &script];
    let mut run = TenureRun::new(&fleet.agents[0].socket(), &args, &flock).start();
    read_pid(&pid);
    let next = ["flock", "--nonblock", &lock, "true"];
    let mut next = TenureRun::new(&fleet.agents[1].socket(), &args, &next).start();
    until("the other to wait", || fleet.agents[1].counts().2 == 1);
    go_away(&mut fleet.agents[0]);
    let (code, _, err) = run_to_end(&mut next);
    assert_eq!(code, 0, "{to_end:?}: two hold it at once: {err}");
    assert_eq!(run.wait_code(), 74);
    fleet
}

pub(super) fn without_the_agent_it_has_ended_before_another_host_begins() {
    let fleet = check_next_host("6s", "", Agent::pause);
    fleet.agents[0].resume();
    until("nothing to be left", || fleet.agents[0].counts() == (0, 0, 0));
}
