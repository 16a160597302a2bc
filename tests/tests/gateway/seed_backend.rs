//! Agents on a backend that offers the session plane (SPEC-032) and nothing else.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenure::wire::{Checkpointed, Code, HoldState, LostReason, Role, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Program, SeedBackend, binary, run_to_end, until,
};

/// Beats often enough for a test to wait for what a beat tells.
const QUICK: &str =
    "[session]\nttl = \"3s\"\nbeat = \"500ms\"\n[master]\nttl = \"3s\"\nbeat = \"500ms\"\n";
/// Valid for longer than a test keeps the backend away.
const LONG: &str =
    "[session]\nttl = \"60s\"\nbeat = \"500ms\"\n[master]\nttl = \"60s\"\nbeat = \"500ms\"\n";

fn two_agents(backend: &SeedBackend, config: &str) -> [Agent; 2] {
    ["alpha", "beta"].map(|host| backend.agent(host, config))
}

/// The names of the sessions that the backend shows, in order.
fn names(backend: &SeedBackend) -> Vec<String> {
    let status = backend.status();
    let sessions = status["sessions"].as_array().expect("a list");
    let name = |it: &Value| it["agent_identity"].as_str().expect("a name").to_owned();
    let mut names: Vec<_> = sessions.iter().map(name).collect();
    names.sort_unstable();
    names
}

fn nothing_is_left(backend: &SeedBackend) {
    until("the backend to have nothing", || names(backend).is_empty());
}

#[track_caller]
fn role(of: &mut Campaigner) -> Role {
    let body = json!({"session": of.session});
    of.puppet.post("/v1/checkpoint", &body).expect::<Checkpointed>(200).role
}

/// True if the only hold of a program is not in jeopardy.
fn is_safe(program: &mut Campaigner) -> bool {
    program.puppet.status().sessions[0].holds[0].state == HoldState::Held
}

#[test]
fn masters_are_elected_handed_over_and_preempted() {
    let backend = SeedBackend::start(3);
    let agents = two_agents(&backend, QUICK);
    let mut first = Campaigner::start(&agents[0], "first");
    let mut second = Campaigner::start(&agents[1], "second");
    assert_eq!(names(&backend), [""; 0], "who only registers does not run");

    let held = first.acquire("master", "", &json!({}));
    assert_eq!(backend.status()["master"]["agent_identity"], "first");
    assert_eq!(role(&mut first), Role::Master);
    let refused = second.puppet.ask(second.session, "master", "", &json!({}));
    let holder = refused.problem(Code::Contended).holder.expect("the backend shows it");
    assert_eq!((&*holder.name, holder.token), ("first", held.token));
    until("the peer to be listed", || names(&backend) == ["first", "second"]);
    assert_eq!(role(&mut second), Role::Peer);
    let standing = second.puppet.standing("master", "p");
    assert_eq!((standing.holding, standing.members), (1, 2), "{standing:?}");

    let waiting = second.queue("master", "", &json!({}));
    first.release(held.hold);
    let next = second.events.granted(waiting);
    assert!(next.token > held.token);

    // A program that dies hands over at once, and an agent that dies after a ttl.
    let waiting = first.queue("master", "", &json!({}));
    second.kill();
    let again = first.events.granted(waiting);
    assert!(again.token > next.token);
    let mut desktop =
        Campaigner::start_with(&agents[1], "desktop", &json!({"surface": "claude_desktop"}));
    assert_eq!(backend.status()["master"]["agent_identity"], "first", "it has not asked yet");
    let taken = desktop.acquire("master", "", &json!({}));
    assert!(taken.token > again.token);
    assert_eq!(first.events.lost(waiting).reason, LostReason::Preempted);
    desktop.puppet.ask(desktop.session, "master", "", &json!({})).problem(Code::Contended);
    let waiting = first.queue("master", "", &json!({}));
    let [alpha, mut beta] = agents;
    beta.kill();
    assert!(first.events.granted(waiting).token > taken.token);
    drop((first, desktop));
    until("every session to end", || alpha.counts() == (0, 0, 0));
    nothing_is_left(&backend);
}

#[test]
fn a_program_without_an_agent_preempts_and_is_waited_for() {
    // It starts again within a ttl, on a busy machine, too.
    let mut backend = SeedBackend::start(12);
    let agent = backend.agent("alpha", &QUICK.replace("\"3s\"", "\"12s\""));
    let mut ours = Campaigner::start(&agent, "ours");
    let held = ours.acquire("master", "", &json!({}));
    backend.register("claude_desktop");
    assert_eq!(ours.events.lost(held.hold).reason, LostReason::Preempted);
    // It never beats.
    let waiting = ours.queue("master", "", &json!({}));
    assert!(ours.events.granted(waiting).token > held.token);

    // A hold that the backend has forgotten is lost.
    backend.kill();
    backend.start_again();
    assert_eq!(ours.events.lost(waiting).reason, LostReason::UpstreamReset);
    ours.acquire("master", "", &json!({}));
}

#[test]
fn what_a_session_plane_does_not_have_is_refused_with_the_way_out() {
    let backend = SeedBackend::start(60);
    let agent = backend.agent("alpha", LONG);
    until("the status to say it", || {
        let words = agent.http().status().upstream.last_error;
        words.is_some_and(|words| words.contains("masters work"))
    });
    let mut program = Campaigner::start(&agent, "program");
    for (kind, with) in [
        ("leader", json!({})),
        ("lease", json!({"wait": "block"})),
        ("semaphore", json!({"limit": 2, "wait": "queue"})),
    ] {
        let answer = program.puppet.ask(program.session, kind, "n", &with);
        let detail = answer.problem(Code::Forbidden).detail;
        for says in [&*format!("{kind} \"n\""), "only the session plane", "tenured-gateway"] {
            assert!(detail.contains(says), "{kind}: {detail}");
        }
    }
    for (with, says) in [
        (json!({"priority": 7}), "priority: 7"),
        (json!({"ttl_ms": 120_000}), "ttl_ms: 120000 is longer than the 60000 ms"),
    ] {
        let answer = program.puppet.ask(program.session, "master", "", &with);
        let detail = answer.problem(Code::Forbidden).detail;
        assert!(detail.contains(says), "{detail}");
    }
    let routes = program.puppet.get("/v1/routes").text();
    assert!(routes.contains("the routing table of leases: the upstream offers only"), "{routes}");
    assert_eq!(names(&backend), [""; 0], "what was refused leaves nothing");

    let mut doctor = Command::new(binary("tenure"));
    doctor.env("TENURE_SOCKET", agent.socket()).arg("doctor");
    doctor.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (_, out, err) = run_to_end(&mut Program::start(&mut doctor));
    assert!(out.contains("gateway.session_plane") && out.contains("masters work"), "{out}{err}");
}

#[test]
fn a_lost_answer_is_repeated_and_leaves_no_second_session() {
    let backend = SeedBackend::start(60);
    let [alpha, beta] = &two_agents(&backend, LONG);
    let mut first = Campaigner::start(alpha, "first");
    backend.set(&json!({"lose": "/register"}));
    let held = first.acquire("master", "", &json!({"wait": "block"}));
    assert_eq!(names(&backend), ["first"], "it was found, and not registered twice");
    for path in ["/heartbeat", "/status"] {
        backend.set(&json!({"lose": path}));
        until("jeopardy", || !is_safe(&mut first));
        backend.set(&json!({"lose": null}));
        until("it to be safe", || is_safe(&mut first));
    }
    let mut second = Campaigner::start(beta, "second");
    let waiting = second.queue("master", "", &json!({}));
    backend.set(&json!({"lose": "/release"}));
    first.release(held.hold);
    assert!(second.events.granted(waiting).token > held.token);
    backend.set(&json!({"lose": null}));
    second.release(waiting);
    until("it to be released", || backend.status()["master"].is_null());
}

#[test]
fn a_backend_that_is_away_puts_holds_in_jeopardy_and_a_wrong_key_is_told() {
    let mut backend = SeedBackend::start(60);
    let agent = backend.agent("alpha", LONG);
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("master", "", &json!({}));
    backend.set(&json!({"store": false}));
    program.events.jeopardy(held.hold);
    backend.set(&json!({"store": true}));
    until("it to be safe", || is_safe(&mut program));

    backend.set(&json!({"key": "another"}));
    until("the agent to say why", || {
        let upstream = agent.http().status().upstream;
        upstream.state == UpstreamState::Down
            && upstream.last_error.is_some_and(|it| it.contains("this key is not known"))
    });
    assert_eq!(program.puppet.status().sessions[0].holds.len(), 1, "it is not lost");
    backend.set(&json!({"key": "key-of-the-backend"}));
    until("it to be safe", || is_safe(&mut program));

    // It is gone, and comes back without its memory.
    backend.kill();
    until("jeopardy", || !is_safe(&mut program));
    backend.start_again();
    assert_eq!(program.events.lost(held.hold).reason, LostReason::UpstreamReset);
    program.acquire("master", "", &json!({}));
}

#[test]
fn an_agent_that_is_started_again_finds_its_master() {
    let backend = SeedBackend::start(60);
    let mut agent = backend.agent("alpha", LONG);
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("master", "", &json!({}));
    agent.kill();
    agent.start_again();
    program.come_back();
    assert_eq!(role(&mut program), Role::Master);
    assert_eq!(names(&backend), ["program"]);
    program.release(held.hold);
    until("it to be released", || backend.status()["master"].is_null());
}
