//! Guarded work that goes on although its wrapper does not: killed, stopped, or cut off.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{
    Agent, Client, PageFile, Program, TenureRun, binary, boottime_ns, eventually, other_users,
    read_pid, until,
};
use uuid::Uuid;

/// A `tenure run` in project p whose command has said its number.
struct Work {
    wrapper: Program,
    command: Pid,
}

impl Work {
    #[track_caller]
    fn start(agent: &Agent, args: &[&str]) -> Work {
        let path = agent.dir().join("pid");
        let script = format!("echo $$ > {}; exec sleep 1000", path.display());
        let mut run = TenureRun::new(&agent.socket(), args, &["sh", "-c", &script]);
        run.command().stdout(Stdio::null()).stderr(Stdio::null());
        let wrapper = run.start();
        let said = eventually("the command to say its number", || {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        let command = Pid::from_raw(said.trim().parse().expect("a process number"));
        Work { wrapper, command }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Fails when the test has ended it.
        let _ = kill(self.command, Signal::SIGKILL);
    }
}

/// Sessions come and go in project p, which is told to all of its sessions, until that one has ended
/// because its reader takes nothing.
#[track_caller]
fn flood(agent: &Agent, slow: Uuid) {
    let mut http = agent.http();
    // The event is long.
    let fields = |peer: usize| json!({"name": format!("{peer:0200}"), "project": "p", "keepalive_ms": 600_000});
    for peer in 0..100 {
        http.register(&fields(peer));
    }
    until("a slow reader to be cut off", || {
        let session = http.register(&fields(100)).session;
        http.end(session);
        http.post("/v1/beat", &json!({"session": slow})).status == 410
    });
}

/// Opens the event stream of a session, and never reads.
fn mute_reader(agent: &Agent, session: Uuid) -> UnixStream {
    let mut stream = UnixStream::connect(agent.socket()).expect("the agent listens");
    let request = format!("GET /v1/events?session={session} HTTP/1.1\r\nhost: agent\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the agent reads");
    stream
}

#[test]
fn a_stream_that_takes_no_more_still_ties_guarded_work() {
    for killed in [true, false] {
        let agent = Agent::start();
        let args = ["--leader", "role", "--project", "p"];
        let mut work = Work::start(&agent, &args);
        let mut http = agent.http();
        // Somebody whose program does not go on without it.
        let ordinary = json!({"project": "p", "tether": "connection", "linger_ms": 1});
        let ordinary = http.register(&ordinary).session;
        let _mute = mute_reader(&agent, ordinary);
        if killed {
            work.wrapper.kill();
        } else {
            work.wrapper.pause();
        }
        // The stream of the command fills up no later than this one.
        flood(&agent, ordinary);
        let rival = http.register(&json!({"keepalive_ms": 600_000})).session;
        http.ask(rival, "leader", "role", &json!({})).problem(Code::Contended);

        let next = http.queue(rival, "leader", "role", &json!({}));
        let events = agent.events(rival);
        kill(work.command, Signal::SIGKILL).expect("the command is running");
        if !killed {
            work.wrapper.resume();
        }
        events.granted(next.hold);
    }
}

#[test]
fn guarded_work_whose_wrapper_was_killed_keeps_its_hold_over_a_restart_while_it_is_valid() {
    let mut agent = Agent::start();
    let mut work = Work::start(&agent, &["--leader", "role", "--ttl", "6s"]);
    let mut http = agent.http();
    let rival = http.register(&json!({"keepalive_ms": 600_000})).session;
    let hold = agent.http().status().sessions.into_iter().flat_map(|session| session.holds);
    let hold = hold.into_iter().find(|hold| hold.name == "role").expect("it holds");
    let page = agent.pages().into_iter().map(|path| PageFile::open(&path));
    let page = page.into_iter().find(|page| page.held(hold.hold)).expect("it has a page");

    work.wrapper.kill();
    agent.kill();
    agent.start_again();
    let kept = page.slot(hold.slot).valid_until_ns;
    assert!(kept > boottime_ns(), "it is valid still");
    let mut http = agent.http();
    http.acquire(rival, "leader", "role", &json!({"wait": "block"}));
    assert!(boottime_ns() >= kept, "the command may work until then");
}

/// Root that may not signal other users, as a user whose command went through sudo.
fn start_as_user(agent: &Agent, guarded: &[&str]) -> Program {
    let args = ["--leader", "role", "--ttl", "6s", "--kill-after", "100ms"];
    let run = TenureRun::new(&agent.socket(), &args, guarded).into_command();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-kill"]).arg(run.get_program()).args(run.get_args());
    command.env("TENURE_SOCKET", agent.socket());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(&mut command)
}

#[test]
fn what_another_user_owns_is_named_and_left_alone_when_its_hold_is_over() {
    if other_users().is_none() {
        return;
    }
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    fs::write(&path, "").expect("it is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    fs::set_permissions(agent.dir(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = format!("trap '' TERM; echo $$ >{}; while :; do sleep 0.05; done", path.display());
    let other = ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", &script];
    // The second one's first process is its own, and can be ended.
    let below = ["sh", "-c", r#""$@"; true"#, "sh"];
    for guarded in [other.to_vec(), [&below[..], &other[..]].concat()] {
        fs::write(&path, "").expect("it is ours");
        let mut run = start_as_user(&agent, &guarded);
        let child = read_pid(&path);
        agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
        // The wrapper knows of the beats up to the one with which it began, a moment ago.
        let kept_until = boottime_ns() + 1_000_000_000;
        let status = run.wait_code();
        assert!(boottime_ns() > kept_until, "{guarded:?}: it was given back before its end");
        // The command has the other end of this pipe, too.
        kill(child, Signal::SIGKILL).expect("the command goes on");
        let mut err = String::new();
        let stderr = run.pipes().stderr.as_mut().expect("standard error is piped");
        stderr.read_to_string(&mut err).expect("it is UTF-8");
        assert_eq!(status, 74, "{err}");
        let named = format!("process {child} of the command belongs to another user");
        assert!(err.contains(&named), "{err}");
        assert_eq!(err.matches("belongs to another user").count(), 1, "{err}");
        until("nothing to be left", || agent.counts() == (0, 0, 0));
    }
}

/// What `tenure` prints.
#[track_caller]
fn told(agent: &Agent, words: &[&str]) -> String {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(words);
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn status_why_and_history_tell_of_a_command_whose_leftovers_keep_the_hold() {
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    let script = format!(
        "sleep 1000 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $! >{}; exit 3",
        path.display()
    );
    let mut run = TenureRun::new(&agent.socket(), &["--leader", "role"], &["sh", "-c", &script]);
    run.command().stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.start();
    let left = read_pid(&path);
    assert_eq!(run.wait_code(), 3);

    let says = |said: &str, start: &str, end: &str| {
        let line = said.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start:?} is not in {said}"));
        assert!(line.ends_with(end), "{line:?} does not end with {end:?}");
    };
    let now = format!(" ago (exit status 3); what it left behind keeps the hold: sleep ({left})");
    says(&told(&agent, &["status"]), "leader/role: its command ended ", &now);
    let why = told(&agent, &["why", "leader", "role"]);
    says(&why, "  left     its command ended ", &now);
    says(&why, "  next     ps -o ", &format!(" -p {left}"));
    let ended = agent.http().status().sessions[0].ended_command.clone().expect("it has ended");
    assert_eq!((ended.exit_status, ended.leftovers.len()), (Some(3), 1));

    kill(left, Signal::SIGKILL).expect("it runs");
    let past = " before, and what that left behind kept the hold (exit status 3), after ";
    until("the history to tell of it", || {
        let history = told(&agent, &["history", "leader", "role"]);
        history.contains("its command ended ") && history.contains(past)
    });
}

#[test]
fn a_program_whose_name_is_no_text_is_ended_as_any_other() {
    let agent = Agent::start();
    // The kernel keeps 15 bytes of the name, and half of the last letter.
    let program = agent.dir().join("synchro-archivée");
    fs::copy("/bin/sleep", &program).expect("it is there");
    let path = agent.dir().join("pid");
    let [program, written] = [&program, &path].map(|it| it.display().to_string());
    let script = format!("setsid '{program}' 1000 & echo $! >'{written}'; exec sleep 1000");
    let mut run = TenureRun::new(&agent.socket(), &["--leader", "role"], &["sh", "-c", &script]);
    run.command().stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.start();
    let pid = read_pid(&path);
    until("the kernel to cut the name", || {
        let name = fs::read(format!("/proc/{pid}/comm")).expect("it runs");
        String::from_utf8(name).is_err()
    });
    told(&agent, &["revoke", "leader", "role"]);
    assert_eq!(run.wait_code(), 74);
    assert!(kill(pid, None).is_err(), "it was ended before the wrapper said so");
}

#[test]
fn what_a_command_leaves_behind_and_does_not_hold_on_is_not_named() {
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    // A daemon closes what it has inherited.
    let script = format!(
        "sleep 999 & keeps=$!; setsid bash -c 'for fd in /proc/self/fd/*; do eval \"exec ${{fd##*/}}>&-\"; done 2>&-; exec sleep 1000' & \
         until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $! $keeps >{}",
        path.display()
    );
    let mut run = TenureRun::new(&agent.socket(), &["--leader", "role"], &["bash", "-c", &script]);
    run.command().stdout(Stdio::null());
    let mut run = run.start();
    assert_eq!(run.wait_code(), 0);
    let pids = fs::read_to_string(&path).expect("it was written");
    let pids: Vec<i32> =
        pids.split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    let mut err = String::new();
    let stderr = run.pipes().stderr.as_mut().expect("standard error is piped");
    for pid in &pids {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("it runs");
    }
    stderr.read_to_string(&mut err).expect("it is UTF-8");
    let keeps = format!("keeps the hold: sleep ({}); ", pids[1]);
    assert!(err.contains(&keeps), "{err}");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn what_a_command_leaves_behind_with_its_hold_is_named() {
    let agent = Agent::start();
    let path = agent.dir().join("pid");
    let script = format!(
        "sleep 1000 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo $! >{}",
        path.display()
    );
    let run = |args: &[&str]| {
        let args = [&["--leader", "role"], args].concat();
        let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]);
        run.command().stdout(Stdio::null());
        let mut run = run.start();
        let left = read_pid(&path);
        assert_eq!(run.wait_code(), 0);
        assert_eq!(agent.counts().1, u64::from(!args.contains(&"child")));
        kill(left, Signal::SIGKILL).expect("it runs");
        fs::remove_file(&path).expect("it is ours");
        let mut err = String::new();
        let stderr = run.pipes().stderr.as_mut().expect("standard error is piped");
        stderr.read_to_string(&mut err).expect("it is UTF-8");
        until("nothing to be left", || agent.counts() == (0, 0, 0));
        (left, err)
    };
    let (left, err) = run(&[]);
    let said = format!(
        "tenure: leader/role: the command has ended, but what it left behind keeps the hold: sleep ({left}); "
    );
    assert!(err.starts_with(&said), "{err}");
    assert_eq!(run(&["--quiet"]).1, "");
    assert_eq!(run(&["--tether", "child"]).1, "");
}
