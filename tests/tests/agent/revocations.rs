//! A resource is taken away by an administrator: who did it and why reaches the loser, both logs and whoever took it.

use serde_json::{Value, json};
use std::process::Command;

use tenure::wire::{Code, Problem, Revoked};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Fleet, TenureRun, binary, read_when_there, run_to_end, until,
};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

fn name_of(kind: &str) -> &'static str {
    if kind == "master" { "p" } else { "role" }
}

/// The user that runs the tests, as the agent names it.
fn me() -> String {
    let user =
        nix::unistd::User::from_uid(nix::unistd::getuid()).expect("the directory of users answers");
    user.expect("whoever runs tests has a name").name
}

fn revoke(by: &Agent, kind: &str, more: &Value) -> Revoked {
    let mut body = json!({"kind": kind, "name": name_of(kind)});
    for (key, value) in more.as_object().expect("more fields are an object") {
        body[key] = value.clone();
    }
    by.http().post("/v1/revoke", &body).expect(200)
}

#[test]
fn the_loser_on_the_other_host_is_told_by_whom_and_why() {
    let fleet = Fleet::start();
    let [here, there] = &fleet.agents[..] else { panic!("two agents") };
    let mut holder = Campaigner::start(here, "billing");
    let by = format!("{} on beta", me());
    for kind in KINDS {
        let held = holder.acquire(kind, "role", &json!({}));
        let revoked = revoke(there, kind, &json!({"reason": "upgrade of the \"database\""}));
        assert_eq!(revoked.revoked, 1, "{kind}");
        let [from] = &revoked.from[..] else { panic!("{kind}: {revoked:?}") };
        assert_eq!(
            (from.name.as_str(), from.host.as_str(), from.token),
            ("billing", "alpha", held.token)
        );
        let lost = holder.events.lost(held.hold);
        assert_eq!(lost.by.as_deref(), Some(by.as_str()), "{kind}");
        assert_eq!(lost.detail.as_deref(), Some("upgrade of the \"database\""), "{kind}");
        let told = |agent: &Agent, wanted: &[&str]| {
            let log = agent.log();
            log.lines()
                .any(|line| line.contains("WARN") && wanted.iter().all(|it| line.contains(it)))
        };
        let token = held.token.to_string();
        until("the loser's host to log it", || {
            told(here, &["lost", kind, &token, &by, "upgrade of the"])
        });
        until("the other host to log it", || {
            told(there, &["revoked", kind, &token, &by, "billing on alpha", "upgrade of the"])
        });
    }
}

#[test]
fn permits_of_many_are_taken_and_named() {
    let fleet = Fleet::start();
    let mut holders: Vec<Campaigner> =
        fleet.agents.iter().map(|agent| Campaigner::start(agent, "worker")).collect();
    let held: Vec<_> = holders
        .iter_mut()
        .map(|holder| holder.acquire("semaphore", "role", &json!({"limit": 4})))
        .collect();
    let revoked = revoke(&fleet.agents[0], "semaphore", &json!({"reason": "maintenance"}));
    assert_eq!(revoked.revoked, 2);
    let mut hosts: Vec<&str> = revoked.from.iter().map(|it| it.host.as_str()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["alpha", "beta"]);
    for (holder, held) in holders.iter().zip(held) {
        assert_eq!(holder.events.lost(held.hold).detail.as_deref(), Some("maintenance"));
    }
}

#[test]
fn the_loser_may_not_have_it_again_until_then_also_after_a_restart() {
    let mut fleet = Fleet::start();
    let mut http = fleet.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({}));
    let mut other = Campaigner::start(&fleet.agents[1], "other");
    let hour = json!({"reason": "upgrade", "for_ms": 3_600_000});
    assert_eq!(revoke(&fleet.agents[1], "leader", &hour).revoked, 1);
    let refused = |http: &mut tenure_tests::harness::Http, more: &Value| -> Problem {
        http.ask(session, "leader", "role", more).expect(409)
    };
    until("the loss to be known", || {
        http.status().sessions.iter().all(|session| session.holds.is_empty())
    });
    let by = format!("leader/role was taken from this session by {} on beta: upgrade; ", me());
    for restarts in [false, true] {
        if restarts {
            fleet.agents[0].kill();
            fleet.agents[0].start_again();
            http = fleet.agents[0].http();
        }
        let once = refused(&mut http, &json!({}));
        assert_eq!(once.code, Code::Contended, "{once}");
        assert!(once.detail.starts_with(&by), "{once}");
        assert!(once.retry_after_ms.is_some_and(|ms| ms > 3_000_000), "{once:?}");
        let waited = refused(&mut http, &json!({"wait": "block", "timeout_ms": 50}));
        assert!(waited.detail.starts_with(&by), "{waited}");
    }
    // It is free for everybody else.
    let held = other.acquire("leader", "role", &json!({}));
    other.release(held.hold);
}

#[test]
fn a_wait_of_the_loser_lasts_until_then() {
    let agent = Agent::start();
    let mut holder = Campaigner::start(&agent, "holder");
    let held = holder.acquire("leader", "role", &json!({}));
    assert_eq!(revoke(&agent, "leader", &json!({"for_ms": 400})).revoked, 1);
    assert_eq!(holder.events.lost(held.hold).reason.as_str(), "revoked");
    let again = holder.acquire("leader", "role", &json!({"wait": "block"}));
    assert!(again.token > held.token);
}

#[test]
fn the_command_says_from_whom_it_took_what_and_the_loser_by_whom() {
    let agent = Agent::setup().config("host_name = \"alpha\"\n").start();
    let file = agent.dir().join("said");
    let script = format!("echo ready > {}; exec sleep 600", file.display());
    let args = ["--leader", "role", "--name", "nightly"];
    let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start();
    assert_eq!(read_when_there(&file).trim(), "ready");
    let revoke = |more: &[&str]| {
        let out = Command::new(binary("tenure"))
            .env("TENURE_SOCKET", agent.socket())
            .args(["revoke", "leader", "role"])
            .args(more)
            .output()
            .expect("the command runs");
        (
            out.status.code(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let (code, said) = revoke(&["--reason", "upgrade", "--for", "10m"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("leader/role: 1 grant revoked; kept from others until"), "{said}");
    assert!(said.contains("taken from nightly on alpha, pid "), "{said}");
    let (code, _, err) = run_to_end(&mut run);
    let expected = format!("the hold was lost (revoked by {} on alpha: upgrade)", me());
    assert!(code == 74 && err.contains(&expected), "{code}: {err}");
    let (code, said) = revoke(&["--for", "25h"]);
    assert_ne!(code, Some(0), "at most a day: {said}");
    let (code, said) = revoke(&["--reason", "a\nb"]);
    assert_ne!(code, Some(0), "no text that forges a line of the log: {said}");
}
