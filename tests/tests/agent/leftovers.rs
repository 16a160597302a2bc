//! After all clients end, nothing of theirs remains.

use serde_json::json;
use tenure_host::directory::Directory;
use tenure_stores::journal::{self, Files};
use tenure_tests::harness::{Agent, Client, Puppet, TenureRun, until};

/// Rows by table. The routing table's version, which only grows, is nobody's.
fn rows(agent: &Agent) -> [usize; 6] {
    let directory = Directory::shared(&agent.runtime_dir()).expect("it is there");
    let found = journal::look(&mut Files::of(directory)).expect("there is a whole journal");
    let (keeper, engine) = (found.keeper, found.engine);
    [
        keeper.sessions.len(),
        keeper.holds.len(),
        engine.grants.len(),
        engine.waiters.len(),
        engine.limits.len(),
        engine.sessions.len(),
    ]
}

#[test]
fn sessions_that_ended_in_any_way_leave_no_row_and_no_page() {
    let agent = Agent::start();
    let empty = rows(&agent);

    let mut http = agent.http();
    let mut programs: Vec<Puppet> = (0..4).map(|_| Puppet::start(&agent)).collect();
    for (i, program) in programs.iter_mut().enumerate() {
        let tether = if i % 2 == 0 { "connection" } else { "process" };
        let session = program.register(&json!({"tether": tether, "project": "p"})).session;
        program.open_events(session);
        program.acquire(session, "leader", &format!("own {i}"), &json!({}));
        program.acquire(session, "semaphore", "shared", &json!({"limit": 8}));
        program.ask(session, "lease", "mailbox", &json!({"wait": "queue", "grace_ms": 0}));
        program.ask(session, "master", "", &json!({"wait": "queue", "priority": i}));
        program.ask(session, "leader", "contended", &json!({"wait": "queue"}));
    }
    let ended = http.register(&json!({})).session;
    http.acquire(ended, "lease", "ended", &json!({}));
    let forgotten = http.register(&json!({"keepalive_ms": 3000})).session;
    http.acquire(forgotten, "semaphore", "shared", &json!({"limit": 8}));
    let (code, _, err) = TenureRun::new(&agent.socket(), &["--leader", "run"], &["true"]).finish();
    assert_eq!(code, 0, "{err}");
    assert!(rows(&agent) != empty, "live sessions are in the journal");

    http.end(ended);
    for (i, program) in programs.iter_mut().enumerate() {
        match i {
            0 | 1 => program.program().kill(),
            // Ends of its own accord when its standard input does.
            _ => drop(program.program().pipes().stdin.take()),
        }
    }
    until("no session to be left", || agent.counts() == (0, 0, 0));
    until("no page to be left", || agent.pages().is_empty());
    let routes = http.get("/v1/routes").json(200);
    assert_eq!(routes["routes"], json!([]));
    let mut last = [0; 6];
    until("no row to be left", || {
        let now = rows(&agent);
        if now != last {
            eprintln!("{now:?}");
        }
        last = now;
        last == empty
    });
}
