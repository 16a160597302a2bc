//! Holds survive a crash and a restart of the agent; a lost journal costs time, never safety.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::{Acquired, Code, HoldState, UpstreamState};
use tenure_tests::harness::{
    Agent, Client, EventLog, Puppet, Session, binary, boottime_ns, kind_of, until,
};
use uuid::Uuid;

const PROGRAMS: usize = 4;
const SESSIONS_PER_PROGRAM: usize = 50;
const HOLDS_PER_SESSION: usize = 5;

/// Several programs with many sessions and holds, and one waiter each.
struct Crowd {
    programs: Vec<Program>,
    /// Token by hold.
    tokens: BTreeMap<Uuid, u64>,
}

struct Program {
    puppet: Puppet,
    sessions: Vec<(Session, Arc<EventLog>)>,
    /// Held by the first session, waited for by the last one.
    contended: Uuid,
    waiting: Uuid,
}

impl Crowd {
    fn gather(agent: &Agent) -> Crowd {
        let mut tokens = BTreeMap::new();
        let programs = (0..PROGRAMS)
            .map(|p| {
                let mut puppet = Puppet::start(agent);
                let mut sessions = Vec::new();
                let mut holds: Vec<Uuid> = Vec::new();
                for s in 0..SESSIONS_PER_PROGRAM {
                    let with = json!({
                        "name": format!("program {p} session {s}"),
                        "tether": "connection",
                        "linger_ms": 600_000,
                        "project": format!("project {p} {s}"),
                    });
                    let session = puppet.register(&with);
                    let events = puppet.open_events(session.session);
                    events.snapshot();
                    for h in 0..HOLDS_PER_SESSION {
                        let (kind, more) = kind_of(h);
                        let name = format!("{p}-{s}-{h}");
                        let granted = puppet.acquire(session.session, kind, &name, &more);
                        tokens.insert(granted.hold, granted.token);
                        holds.push(granted.hold);
                    }
                    sessions.push((session, events));
                }
                let last = sessions.last().expect("there are sessions").0.session;
                let name = format!("{p}-0-1");
                let waiting = puppet.queue(last, "semaphore", &name, &json!({"limit": 1}));
                Program { puppet, sessions, contended: holds[1], waiting: waiting.hold }
            })
            .collect();
        let crowd = Crowd { programs, tokens };
        assert_eq!(crowd.tokens.len(), PROGRAMS * SESSIONS_PER_PROGRAM * HOLDS_PER_SESSION);
        crowd
    }

    /// Every session comes back with its secret and its last event, and finds what it had.
    fn come_back(&mut self, agent: &Agent) {
        for program in &mut self.programs {
            for (session, events) in &mut program.sessions {
                let again = program.puppet.resume(session);
                assert_eq!(again.page, session.page, "a client's mapping stays right");
                let last = events.last_id();
                program.puppet.close_events(session.session);
                *events = program.puppet.open_events_after(session.session, last);
            }
        }
        assert_eq!(self.seen_by(agent), self.tokens, "the same holds with the same tokens");
    }

    fn seen_by(&self, agent: &Agent) -> BTreeMap<Uuid, u64> {
        let status = agent.http().status();
        status
            .sessions
            .iter()
            .flat_map(|session| &session.holds)
            .filter(|hold| hold.state == HoldState::Held)
            .filter_map(|hold| Some((hold.hold, hold.token?)))
            .collect()
    }

    fn pages_say_held(&self, agent: &Agent) {
        for program in &self.programs {
            let (session, _) = &program.sessions[0];
            assert!(agent.page(session).held(program.contended));
        }
    }

    /// Streams work, queues are intact, tokens go on growing, and nothing was lost on the way.
    fn goes_on(&mut self, agent: &Agent) {
        let mut newest = *self.tokens.values().max().expect("there are holds");
        for program in &mut self.programs {
            let first = program.sessions[0].0.session;
            assert!(program.puppet.release(first, program.contended));
            let (_, events) = program.sessions.last().expect("there are sessions");
            let granted = events.granted(program.waiting);
            assert!(granted.token > newest, "greater than all before the restart");
            newest = granted.token;
            for (session, events) in &program.sessions {
                let lost = events.all().into_iter().find(|seen| seen.event.name() == "lost");
                assert!(lost.is_none(), "{} lost something: {lost:?}", session.session);
            }
        }
        let status = agent.http().status();
        assert_eq!(status.upstream.state, UpstreamState::Up);
        assert_eq!(status.agent.sessions, (PROGRAMS * SESSIONS_PER_PROGRAM) as u64);
        assert_eq!((status.agent.holds, status.agent.waiters), (self.tokens.len() as u64, 0));
    }

    /// The programs die, and nothing remains.
    fn leave(mut self, agent: &Agent) {
        for program in &mut self.programs {
            program.puppet.program().kill();
        }
        until("nothing to be left", || agent.counts() == (0, 0, 0));
        until("no page to be left", || agent.pages().is_empty());
    }
}

#[test]
fn a_thousand_holds_survive_a_crash() {
    let mut agent = Agent::start();
    let mut crowd = Crowd::gather(&agent);
    agent.kill();
    crowd.pages_say_held(&agent);
    agent.start_again();
    assert_eq!(crowd.seen_by(&agent), crowd.tokens, "adopted before any client came back");
    crowd.come_back(&agent);
    crowd.goes_on(&agent);
    crowd.leave(&agent);
}

#[test]
fn a_thousand_holds_survive_a_restart() {
    let mut agent = Agent::start();
    let mut crowd = Crowd::gather(&agent);
    agent.signal(Signal::SIGUSR2);
    for program in &crowd.programs {
        for (_, events) in &program.sessions {
            assert_eq!(events.shutdown().cause, "restarting");
        }
    }
    assert!(agent.wait_exit().success());
    crowd.pages_say_held(&agent);
    agent.start_again();
    crowd.come_back(&agent);
    crowd.goes_on(&agent);
    crowd.leave(&agent);
}

#[test]
fn crashes_in_a_row_lose_nothing() {
    let mut agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let with = json!({"tether": "connection", "linger_ms": 600_000});
    let session = puppet.register(&with);
    let mut events = puppet.open_events(session.session);
    let held = puppet.acquire(session.session, "leader", "role", &json!({}));
    for _ in 0..10 {
        agent.kill();
        agent.start_again();
        puppet.resume(&session);
        let last = events.last_id();
        puppet.close_events(session.session);
        events = puppet.open_events_after(session.session, last);
        let standing = agent.http().standing("leader", "role");
        assert_eq!(standing.holders.len(), 1);
        assert_eq!(standing.holders[0].token, held.token);
    }
}

#[test]
fn a_program_that_died_while_the_agent_was_down_holds_nothing() {
    let mut agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let with = json!({"tether": "process"});
    let session = puppet.register(&with).session;
    puppet.acquire(session, "leader", "role", &json!({"ttl_ms": 86_400_000}));
    agent.kill();
    puppet.program().kill();
    agent.start_again();
    let mut http = agent.http();
    let next = http.register(&json!({})).session;
    let granted = http.ask(next, "leader", "role", &json!({"wait": "block"}));
    granted.expect::<Acquired>(200);
    assert_eq!(agent.counts(), (1, 1, 0));
}

#[test]
fn a_wrong_secret_resumes_nothing() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    agent.kill();
    agent.start_again();
    let secret = "0".repeat(session.secret.len());
    let wrong = json!({"resume": {"session": session.session, "secret": secret}});
    http.post("/v1/register", &wrong).problem(Code::Unauthorized);
    http.resume(&session);
}

#[test]
fn after_a_lost_journal_nothing_is_granted_while_an_old_hold_may_be_valid() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let before = http.register(&json!({"keepalive_ms": 600_000})).session;
    let short = http.acquire(before, "leader", "short", &json!({"ttl_ms": 500}));
    let long = http.acquire(before, "lease", "long", &json!({"ttl_ms": 4000, "grace_ms": 0}));

    agent.kill();
    agent.delete_journal();
    agent.start_again();

    let mut http = agent.http();
    let after = http.register(&json!({"keepalive_ms": 600_000})).session;
    let mut grants = Vec::new();
    for (kind, name) in [("leader", "short"), ("lease", "long"), ("semaphore", "never held")] {
        let answer = http.ask(after, kind, name, &json!({"wait": "block"}));
        let granted: Acquired = answer.expect(200);
        let valid_until = [short.valid_until_boottime_ns, long.valid_until_boottime_ns];
        for earlier in valid_until {
            assert!(
                boottime_ns() >= earlier,
                "{kind}/{name} was granted while an old hold was valid"
            );
        }
        grants.push(granted.token);
    }
    assert!(grants.iter().all(|&token| token > short.token.max(long.token)), "{grants:?}");
    assert!(grants.is_sorted_by(|a, b| a < b), "{grants:?}");
    assert_eq!(agent.http().status().upstream.state, UpstreamState::Up);
}

#[test]
fn after_a_lost_journal_the_status_says_so() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let before = http.register(&json!({})).session;
    http.acquire(before, "leader", "role", &json!({"ttl_ms": 600_000}));
    agent.kill();
    agent.delete_journal();
    agent.start_again();
    let mut http = agent.http();
    assert_eq!(http.status().upstream.state, UpstreamState::Quarantined);
    let after = http.register(&json!({})).session;
    let refused = http.ask(after, "leader", "role", &json!({}));
    let problem = refused.problem(Code::UpstreamUnavailable);
    assert!(problem.retry_after_ms.is_some());
    assert!(refused.header("retry-after").is_some());
    http.post("/v1/beat", &json!({"session": before})).problem(Code::SessionUnknown);
}

#[test]
fn what_ran_out_while_the_agent_was_away_is_free_when_it_is_back() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let short = json!({"ttl_ms": 3000});
    let held = http.acquire(session.session, "leader", "role", &short);
    http.acquire(session.session, "semaphore", "gpu", &short);
    let page = agent.page(&session);
    agent.kill();
    let valid_until = page.slot(held.slot).valid_until_ns;
    // The upstream's own time ends a little later.
    until("both to run out", || boottime_ns() >= valid_until + 1_000_000_000);
    agent.start_again();
    let mut http = agent.http();
    let other = http.register(&json!({"keepalive_ms": 600_000})).session;
    assert!(http.standing("leader", "role").holders.is_empty());
    http.acquire(other, "leader", "role", &json!({}));
    http.acquire(other, "semaphore", "gpu", &json!({}));
}

#[test]
fn what_has_ended_answers_after_a_crash_as_before_it() {
    let mut agent = Agent::setup().config("[limits]\nremember = \"1h\"\n").start();
    let mut http = agent.http();
    let mut register = || http.register(&json!({"keepalive_ms": 600_000})).session;
    let (session, gone) = (register(), register());
    http.post("/v1/release", &json!({"session": gone})).json(200);
    let requested = |name: &str| json!({"request": name});
    let lives = http.acquire(session, "leader", "lives", &requested("lives"));
    let released = http.acquire(session, "leader", "released", &requested("released"));
    http.post("/v1/release", &json!({"session": session, "hold": released.hold})).json(200);
    let lost = http.acquire(session, "semaphore", "lost", &requested("lost"));
    http.post("/v1/revoke", &json!({"kind": "semaphore", "name": "lost"})).json(200);
    // The second agent has not itself seen the state that it takes up.
    for _ in 0..2 {
        agent.kill();
        agent.start_again();
        let mut http = agent.http();
        let again = http.acquire(session, "leader", "lives", &requested("lives"));
        assert_eq!((again.hold, again.token), (lives.hold, lives.token));
        for (kind, name, hold) in
            [("leader", "released", released.hold), ("semaphore", "lost", lost.hold)]
        {
            let problem = http.ask(session, kind, name, &requested(name)).problem(Code::HoldLost);
            assert_eq!(problem.hold, Some(hold), "{}", problem.detail);
        }
        let release = json!({"session": session, "hold": lost.hold});
        http.post("/v1/release", &release).problem(Code::HoldLost);
        http.post("/v1/release", &json!({"session": gone})).problem(Code::SessionLost);
    }
    assert_eq!(agent.counts().1, 1, "nothing was granted anew");
    agent.http().acquire(session, "leader", "released", &requested("another"));
}

#[test]
fn a_quarantine_is_no_readiness_and_can_be_ended() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let before = http.register(&json!({})).session;
    http.acquire(before, "leader", "role", &json!({"ttl_ms": 600_000}));
    agent.kill();
    agent.delete_journal();
    agent.start_again();
    let ready = agent.http().get("/readyz").problem(Code::UpstreamUnavailable);
    assert!(ready.detail.contains("quarantine"), "{}", ready.detail);
    let end = |more: &[&str]| {
        let mut command = Command::new(binary("tenured"));
        command.args(["quarantine", "end", "--socket"]).arg(agent.socket()).args(more);
        let output = command.output().expect("it can be run");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, told) = end(&[]);
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("two holders") && told.contains("--yes"), "{told}");
    assert_eq!(agent.http().status().upstream.state, UpstreamState::Quarantined);
    let (code, told) = end(&["--yes"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("before its time"), "{told}");
    assert_eq!(agent.http().get("/readyz").status, 200);
    let mut http = agent.http();
    let after = http.register(&json!({})).session;
    http.acquire(after, "leader", "role", &json!({}));
    until("the log to say so", || agent.log().contains("ended by hand"));
    let (code, told) = end(&[]);
    assert_eq!((code, told.as_str()), (Some(0), "the agent grants: there is no quarantine\n"));
}

/// Until the next agent is there nobody beats. Without a bound of its own the restart would take as
/// long as a stop may.
#[test]
fn stuck_connections_do_not_hold_up_a_restart() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let with = json!({"ttl_ms": 20_000});
    let grant = http.acquire(session.session, "leader", "role", &with);
    let body = b"POST /v1/register HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let head = b"GET /healthz HTTP/1.1\r\n";
    let unread = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    let _stuck: Vec<_> = [&body[..], &head[..], &unread]
        .into_iter()
        .map(|bytes| {
            let mut stream = UnixStream::connect(agent.socket()).expect("it listens");
            stream.write_all(bytes).expect("it takes that");
            stream
        })
        .collect();
    // Those above have been accepted before.
    assert_eq!(agent.http().get("/healthz").status, 200);
    agent.signal(Signal::SIGUSR2);
    assert!(agent.wait_exit().success());
    assert!(agent.log().contains("connections that hold up the restart are cut"));
    agent.start_again();
    let holder = agent.http().standing("leader", "role").holders.remove(0);
    assert_eq!(holder.token, grant.token, "the hold is as it was");
    assert!(agent.page(&session).held(grant.hold));
}
