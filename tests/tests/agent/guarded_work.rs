//! Guarded work that goes on although its wrapper does not: killed, stopped, or cut off.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{
    Agent, Client, PageFile, Program, TenureRun, boottime_ns, eventually, read_pid, until,
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
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    assert_eq!(run.wait_code(), 74);
    assert!(kill(pid, None).is_err(), "it was ended before the wrapper said so");
}
