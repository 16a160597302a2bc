//! A stopped agent: everybody knows in time that nothing is held any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::LostReason;
use tenure_tests::harness::{
    Agent, Client, PageFile, Program, TenureRun, boottime_ns, eventually, until,
};

#[test]
fn the_page_ends_by_itself_and_the_agent_owns_up_when_it_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let events = agent.events(session.session);
    let held = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 3000}));
    let page = agent.page(&session);
    assert!(page.held(held.hold));

    agent.pause();
    let valid_until = page.slot(held.slot).valid_until_ns;
    until("valid-until to pass", || boottime_ns() >= valid_until);
    assert!(!page.held(held.hold), "nobody had to tell");
    assert_eq!(page.slot(held.slot).valid_until_ns, valid_until);

    agent.resume();
    let lost = events.lost(held.hold);
    assert_eq!(lost.reason, LostReason::Expired);
    assert_eq!(lost.token, held.token);
    assert_eq!(page.slot(held.slot).valid_until_ns, 0);
    let next = http.acquire(session.session, "leader", "role", &json!({"wait": "block"}));
    assert!(next.token > held.token);
}

#[test]
fn the_time_in_which_the_agent_stood_still_does_not_count_against_a_program() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let with = json!({"keepalive_ms": 4000, "progress_ms": 4000});
    let session = http.register(&with);
    let held = http.acquire(session.session, "lease", "mine", &json!({"ttl_ms": 600_000}));
    let page = agent.page(&session);
    agent.pause();
    let over = boottime_ns() + 5_000_000_000;
    until("what the program has promised to be overdue", || boottime_ns() >= over);
    agent.resume();
    assert_eq!(http.post("/v1/beat", &json!({"session": session.session})).status, 204);
    assert!(page.held(held.hold));
    // A busy machine may have the agent stand still for a second at any time.
    let told = || {
        let log = agent.log();
        let lengths = log.split("stood still for ").skip(1).map(|rest| {
            let (seconds, rest) = rest.split_once(" s: ").expect("a length");
            assert!(rest.starts_with("0 holds expired meanwhile"), "{rest}");
            seconds.parse::<f64>().expect("seconds")
        });
        lengths.filter(|seconds| *seconds >= 4.5).count()
    };
    until("the log to tell", || told() == 1);
}

/// A guarded command that writes down, again and again, how long the machine has been up: the same
/// clock as valid-until.
struct Guarded {
    run: Program,
    child: Pid,
    page: PageFile,
    signs_of_life: PathBuf,
}

impl Guarded {
    fn start(agent: &Agent, trap: &str) -> Guarded {
        let about = agent.dir().join("about");
        let signs_of_life = agent.dir().join("signs-of-life");
        let script = format!(
            "{trap}echo $$ $TENURE_PAGE > {}; while :; do cat /proc/uptime >> {}; sleep 0.02; done",
            about.display(),
            signs_of_life.display()
        );
        let args = ["--leader", "role", "--ttl", "6s", "--kill-after", "2s"];
        let mut command = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]);
        command.command().stdout(Stdio::null()).stderr(Stdio::null());
        let run = command.start();
        let said = eventually("the command to run", || {
            fs::read_to_string(&about).ok().filter(|text| text.ends_with('\n'))
        });
        let (pid, page) = said.trim_end().split_once(' ').expect("two words");
        let child = Pid::from_raw(pid.parse().expect("a process number"));
        Guarded { run, child, page: PageFile::open(Path::new(page)), signs_of_life }
    }

    /// The last time it wrote, ns of CLOCK_BOOTTIME; the kernel tells hundredths of a second.
    fn last_sign_ns(&self) -> u64 {
        let signs = fs::read_to_string(&self.signs_of_life).expect("it wrote some");
        let last = signs.lines().last().and_then(|line| line.split(' ').next());
        let seconds: f64 = last.and_then(|text| text.parse().ok()).expect("seconds since boot");
        (seconds * 1e9) as u64
    }
}

#[test]
fn a_guarded_command_is_told_to_end_in_time_without_the_agent() {
    let mut agent = Agent::start();
    let mut guarded = Guarded::start(&agent, "");
    agent.pause();
    let valid_until = guarded.page.slot(0).valid_until_ns;
    assert_eq!(guarded.run.wait_code(), 74);
    assert!(kill(guarded.child, None).is_err(), "it is gone");
    // Not a measure of speed: SIGTERM comes two seconds before.
    assert!(guarded.last_sign_ns() < valid_until, "it never worked without a hold");
    agent.resume();
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_guarded_command_that_ignores_sigterm_is_killed_without_the_agent() {
    let mut agent = Agent::start();
    let mut guarded = Guarded::start(&agent, "trap '' TERM; ");
    agent.pause();
    assert_eq!(guarded.run.wait_code(), 74);
    assert!(kill(guarded.child, None).is_err(), "it is gone");
    agent.resume();
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn what_left_the_process_group_is_killed_without_the_agent() {
    let mut agent = Agent::start();
    let (about, text) = (agent.dir().join("pid"), agent.dir().join("pid").display().to_string());
    let inner = format!("trap '' TERM; echo $$ > {text}; while :; do sleep 0.02; done");
    let args = ["--leader", "role", "--ttl", "6s", "--kill-after", "1s"];
    let command = ["setsid", "-w", "sh", "-c", &inner];
    let mut command = TenureRun::new(&agent.socket(), &args, &command);
    command.command().stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.start();
    let pid = eventually("the command to run", || {
        fs::read_to_string(&about).ok().filter(|text| text.ends_with('\n'))
    });
    let pid = Pid::from_raw(pid.trim().parse().expect("a process number"));
    agent.pause();
    assert_eq!(run.wait_code(), 74);
    assert!(kill(pid, None).is_err(), "it is gone");
    agent.resume();
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_waiter_is_served_after_the_agent_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let holder = http.register(&json!({"keepalive_ms": 600_000})).session;
    let waiter = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(waiter);
    for kind in ["leader", "semaphore"] {
        let held = http.acquire(holder, kind, "role", &json!({"ttl_ms": 2000}));
        let waiting = http.queue(waiter, kind, "role", &json!({"ttl_ms": 600_000}));
        agent.pause();
        until("valid-until to pass", || {
            boottime_ns() >= held.valid_until_boottime_ns + 2_000_000_000
        });
        agent.signal(Signal::SIGCONT);
        assert!(events.granted(waiting.hold).token > held.token);
    }
}
