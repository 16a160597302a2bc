//! The agent as a service: what it tells its service manager, and what that hands over and keeps.
//! Takes a `tenured` that is built with the feature `systemd`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure::wire::{Acquired, Code};
use tenure_tests::harness::{
    Agent, Client, Events, Http, Puppet, ServiceManager, Session, Setup, boottime_ns, eventually,
    other_users, until,
};
use uuid::Uuid;

const PROGRAMS: usize = 20;
/// The capacity of the agent's queue to its service manager.
const QUEUE: usize = 1024;
/// More than that, and the socket's queue, take.
const SESSIONS: usize = 1800;
const WATCHDOG_MS: u64 = 600;
const NO_SIGN: &str = "no sign of life for the watchdog";

fn service(service_manager: &ServiceManager) -> Setup {
    Agent::setup().service_manager(service_manager)
}

#[test]
fn it_is_ready_when_it_answers_and_says_how_it_is() {
    let manager = ServiceManager::start();
    let mut agent = service(&manager).start();
    manager.hears("READY=1");
    manager.hears("STATUS=embedded up; 0 sessions, 0 holds, 0 waiting");
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "role", &json!({}));
    http.queue(session, "semaphore", "gpu", &json!({"limit": 1}));
    manager.hears("STATUS=embedded up; 1 session, 2 holds, 0 waiting");
    assert_eq!(manager.count("READY=1"), 1);

    agent.signal(Signal::SIGHUP);
    until("the end of the reload", || manager.count("READY=1") == 2);
    let messages = manager.messages();
    let reloading = messages.iter().position(|message| message.starts_with("RELOADING=1"));
    let reloading = reloading.expect("it told that it reloads");
    assert!(messages[reloading].lines().any(|line| line.starts_with("MONOTONIC_USEC=")));
    assert!(messages[reloading + 1..].iter().any(|message| message == "READY=1"));

    assert!(agent.stop().success());
    manager.hears("STOPPING=1");
    assert!(manager.kept().is_empty(), "its sessions are over");
}

#[test]
fn it_is_ready_although_the_upstream_is_not() {
    let manager = ServiceManager::start();
    let _agent = service(&manager).upstream("redis://127.0.0.1:1").start();
    manager.hears("READY=1");
    let status = eventually("a status with the error", || {
        manager.status().filter(|status| status.starts_with("redis") && status.contains("refused"))
    });
    assert!(status.ends_with("; 0 sessions, 0 holds, 0 waiting"), "{status}");
}

#[test]
fn the_socket_is_the_service_manager_s() {
    let manager = ServiceManager::start();
    let before = fs::metadata(manager.socket()).expect("it is there");
    // Comes before there is any agent, and is served.
    let early = std::thread::spawn({
        let socket = manager.socket();
        move || Http::new(&socket).try_call("GET", "/v1/status", b"")
    });
    let mut agent = service(&manager).start();
    let answer = early.join().expect("no panic").expect("an answer");
    assert_eq!(answer.status, 200);

    assert!(agent.stop().success());
    let after = fs::metadata(manager.socket()).expect("it is still there");
    assert_eq!(
        (after.ino(), after.mode(), after.uid()),
        (before.ino(), before.mode(), before.uid())
    );
    // Nobody is refused while no agent runs.
    let patient = std::thread::spawn({
        let socket = manager.socket();
        move || Http::new(&socket).try_call("GET", "/healthz", b"")
    });
    agent.start_again();
    assert_eq!(patient.join().expect("no panic").expect("an answer").status, 200);
    assert!(!agent.log().contains("although socket ="), "both names are the same");
}

#[test]
fn what_nobody_knows_is_closed_and_let_go() {
    let manager = ServiceManager::start();
    let null = || File::open("/dev/null").expect("there is one");
    let gone = format!("session-{}", Uuid::from_u128(7));
    manager.keep("metrics", null());
    manager.keep(&gone, null());
    let agent = service(&manager).start();
    until("nothing to be kept", || manager.kept().is_empty());
    for name in ["metrics", &gone] {
        let quoted = format!("{name:?}").replace('"', "\\\"");
        until("the log to name it", || agent.log().contains(&quoted));
    }
}

#[test]
fn the_watchdog_is_fed_only_by_an_agent_that_works() {
    let manager = ServiceManager::start().watchdog_ms(WATCHDOG_MS);
    let mut agent = service(&manager).start();
    let signs = || manager.count("WATCHDOG=1");
    until("signs of life", || signs() >= 3);

    agent.pause();
    let (before, since) = (signs(), boottime_ns());
    until("the watchdog's time to pass", || boottime_ns() - since > WATCHDOG_MS * 1_000_000);
    assert!(signs() <= before + 1, "none but one that was on its way");
    agent.resume();
    let before = signs();
    until("signs of life again", || signs() >= before + 3);
}

/// Holds one thread of a process until it is dropped.
struct Stuck {
    release: Option<Sender<()>>,
    holder: Option<JoinHandle<()>>,
}

impl Stuck {
    #[track_caller]
    fn heart_of(agent: &Agent) -> Stuck {
        let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("it is running");
        let heart = tasks.flatten().find(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "heart")
        });
        let heart = heart.expect("there is a heart").file_name();
        let heart: i32 = heart.display().to_string().parse().expect("a thread's number");
        let (release, released) = channel::<()>();
        let (done, is_done) = channel();
        // A tracer is a thread; what it holds goes on when it ends.
        let holder = std::thread::spawn(move || {
            let held = ptrace::seize(Pid::from_raw(heart), ptrace::Options::empty())
                .and_then(|()| ptrace::interrupt(Pid::from_raw(heart)));
            let _ = done.send(held);
            let _ = released.recv();
        });
        is_done.recv().expect("the thread answers").expect("a child can be traced");
        Stuck { release: Some(release), holder: Some(holder) }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        drop(self.release.take());
        let _ = self.holder.take().map(JoinHandle::join);
    }
}

#[test]
fn a_stuck_heart_gives_no_sign_of_life() {
    let manager = ServiceManager::start().watchdog_ms(WATCHDOG_MS);
    let agent = service(&manager).start();
    let signs = || manager.count("WATCHDOG=1");
    let failures = || agent.log().matches(NO_SIGN).count();
    until("a sign of life", || signs() > 0);

    let stuck = Stuck::heart_of(&agent);
    assert_eq!(agent.http().try_call("GET", "/healthz", b"").expect("an answer").status, 200);
    until("a probe in vain", || failures() > 0);
    let before = signs();
    until("more probes in vain", || failures() > 3);
    assert_eq!(signs(), before);
    drop(stuck);
    until("signs of life again", || signs() > before + 2);
}

#[test]
fn clients_that_take_up_every_connection_do_not_make_it_look_dead() {
    let manager = ServiceManager::start().watchdog_ms(WATCHDOG_MS);
    // The agent's own user is bound by the cap, too.
    let config = "[limits]\nconnections_max = 4\nconnections_per_uid_max = 4\n";
    let agent = service(&manager).config(config).start();
    let observe = || {
        let path = "/v1/observe?kind=leader&name=role";
        Events::try_open(&agent.socket(), path, None).expect("there is room for it")
    };
    let observers: Vec<Events> = (0..4).map(|_| observe()).collect();
    agent.http().get("/readyz").problem(Code::QuotaExceeded);
    let before = manager.count("WATCHDOG=1");
    until("signs of life", || manager.count("WATCHDOG=1") >= before + 4);
    assert!(!agent.log().contains(NO_SIGN), "{}", agent.log());
    drop(observers);
}

#[test]
fn a_busy_service_manager_keeps_nobody_waiting() {
    let manager = ServiceManager::start();
    let agent = service(&manager).start();
    manager.hears("READY=1");
    let mut http = agent.http();
    let mut sessions = Vec::new();
    manager.while_deaf(|| {
        for i in 0..SESSIONS {
            let session = http.register(&json!({"keepalive_ms": 600_000})).session;
            if i % 100 == 0 {
                http.acquire(session, "leader", &format!("role {i}"), &json!({}));
            }
            sessions.push(session);
        }
        assert_eq!(agent.counts(), (SESSIONS as u64, (SESSIONS / 100) as u64, 0));
    });
    assert_eq!(agent.log().matches("does not keep the handles").count(), 1, "{}", agent.log());
    // A descriptor beyond the capacity of the queues is found by its number.
    until("those that waited to be kept", || manager.kept().len() >= QUEUE);
    assert!(manager.kept().len() < SESSIONS);
    for session in sessions {
        http.end(session);
    }
    until("nothing to be kept", || manager.kept().is_empty());
}

/// A program with a session that lasts as long as it does, and a hold.
struct Holder {
    puppet: Puppet,
    session: Session,
    held: Acquired,
    role: String,
}

impl Holder {
    #[track_caller]
    fn start(agent: &Agent, i: usize) -> Holder {
        let mut puppet = Puppet::start(agent);
        let session =
            puppet.register(&json!({"name": format!("program {i}"), "tether": "process"}));
        let role = format!("role {i}");
        let held = puppet.acquire(session.session, "leader", &role, &json!({"ttl_ms": 86_400_000}));
        Holder { puppet, session, held, role }
    }

    fn name(&self) -> String {
        format!("session-{}", self.session.session)
    }
}

fn tokens(agent: &Agent) -> BTreeMap<Uuid, u64> {
    let sessions = agent.http().status().sessions;
    let holds = sessions.into_iter().flat_map(|session| session.holds);
    holds.filter_map(|hold| Some((hold.hold, hold.token?))).collect()
}

#[track_caller]
fn processes_are_watched_over_a_crash(setup: Setup, manager: &ServiceManager, status: &Value) {
    let mut agent = setup.start();
    let mut holders: Vec<Holder> = (0..PROGRAMS).map(|i| Holder::start(&agent, i)).collect();
    let names = |holders: &[Holder]| {
        let mut names: Vec<String> = holders.iter().map(Holder::name).collect();
        names.sort();
        names
    };
    until("every process to be kept", || manager.kept() == names(&holders));

    // Twice, because the second agent has its watches from descriptors alone.
    for _ in 0..2 {
        agent.kill();
        let mut dead = holders.pop().expect("there are some");
        dead.puppet.program().kill();
        agent.start_again();
        let expected: BTreeMap<Uuid, u64> =
            holders.iter().map(|holder| (holder.held.hold, holder.held.token)).collect();
        until("the dead one's session to end, and no other", || tokens(&agent) == expected);
        let end = ended(&agent, &dead.session);
        assert_eq!(end["exit_status"], *status, "how it died: {end}");
        until("the dead one to be forgotten", || manager.kept() == names(&holders));
    }

    // Those that live are watched.
    let mut dying = holders.pop().expect("there are some");
    dying.puppet.program().kill();
    let mut http = agent.http();
    let next = http.register(&json!({})).session;
    let granted = http.ask(next, "leader", &dying.role, &json!({"wait": "block"}));
    assert!(granted.expect::<Acquired>(200).token > dying.held.token);
    let ask = json!({"session": next});
    let released = http.post("/v1/release", &ask);
    assert_eq!(released.status, 200);
    assert_eq!(tokens(&agent).len(), PROGRAMS - 3, "nobody else lost anything");
    for mut holder in holders {
        let session = holder.session.session;
        assert!(holder.puppet.release(session, holder.held.hold), "it was still there");
        holder.puppet.end(session);
    }
    until("nothing to be kept", || manager.kept().is_empty());
}

/// The log line of a session's end.
#[track_caller]
fn ended(agent: &Agent, session: &Session) -> Value {
    eventually("the end to be logged", || {
        agent.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(
            |line| {
                line["message"] == "session ended" && line["session"] == session.session.to_string()
            },
        )
    })
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("this is Linux");
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[test]
fn processes_are_watched_again_after_a_crash() {
    let manager = ServiceManager::start();
    // Linux tells how a process ended since 6.15.
    let status = if kernel() >= (6, 15) { json!(137) } else { Value::Null };
    processes_are_watched_over_a_crash(service(&manager), &manager, &status);
}

#[test]
fn processes_without_a_number_are_watched_again_after_a_crash() {
    if other_users().is_none() {
        return;
    }
    let manager = ServiceManager::start();
    // It tells nobody who has no number for it.
    let setup = service(&manager).apart();
    processes_are_watched_over_a_crash(setup, &manager, &Value::Null);
}

#[test]
fn a_process_without_number_or_kept_handle_has_to_show_itself() {
    if other_users().is_none() {
        return;
    }
    let manager = ServiceManager::start();
    let mut agent = service(&manager).apart().start();
    let mut silent = Holder::start(&agent, 0);
    let mut shown = Holder::start(&agent, 1);
    until("both to be kept", || manager.kept().len() == 2);
    agent.kill();
    manager.forget_all();
    agent.start_again();
    shown.puppet.resume(&shown.session);
    until("the silent one's session to end", || tokens(&agent).into_keys().eq([shown.held.hold]));
    until("the other one to be kept again", || manager.kept() == [shown.name()]);
    silent.puppet.program().kill();
    shown.puppet.program().kill();
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_planned_restart_keeps_processes_too() {
    let manager = ServiceManager::start();
    let mut agent = service(&manager).start();
    // Ends before its process would be kept for good: what waits is told at the end.
    let holder = Holder::start(&agent, 0);
    agent.signal(Signal::SIGUSR2);
    assert!(agent.wait_exit().success());
    until("the process to be kept", || manager.kept() == [holder.name()]);
    agent.start_again();
    assert_eq!(tokens(&agent), BTreeMap::from([(holder.held.hold, holder.held.token)]));
}
