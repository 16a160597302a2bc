//! Agents and backends of SPEC-032 in the same projects: masters, sessions, messages.

use serde_json::{Value, json};
use tenure::wire::{Code, Event, LostReason};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Contents, Fleet, Http, Proxy, Python, RedisServer, Session,
    start_agent, until,
};
use uuid::Uuid;

/// Beats often enough for a test to wait for what a beat tells, or for what its absence does.
const QUICK: &str =
    "[session]\nttl = \"3s\"\nbeat = \"500ms\"\n[master]\nttl = \"3s\"\nbeat = \"500ms\"\n";
const PROJECT_CHANNEL: &str = "prism:events:project:default:p";
const MASTER: &str = "prism:master:default:p";
const MEMBERS: &str = "prism:project:default:p:sessions";

fn session_channel(session: impl std::fmt::Display) -> String {
    format!("prism:events:session:{session}")
}

fn session_key(session: impl std::fmt::Display) -> String {
    format!("prism:session:{session}")
}

fn of(surface: &str) -> Value {
    json!({"tenant": "default", "project": "p", "surface": surface, "identity": "Donna"})
}

fn desktop() -> Value {
    json!({"surface": "claude_desktop"})
}

/// A session in project `p` that stays without being beaten by its program.
#[track_caller]
fn register(agent: &Agent, more: &Value) -> (Http, Session) {
    let mut http = agent.http();
    let mut with = json!({"project": "p", "keepalive_ms": 600_000});
    for (key, value) in more.as_object().expect("more fields are an object") {
        with[key] = value.clone();
    }
    let session = http.register(&with);
    (http, session)
}

fn is_master(redis: &RedisServer, session: impl std::fmt::Display) -> String {
    redis.command(&["HGET", &session_key(session), "is_master"])
}

#[test]
fn of_two_that_preempt_at_once_exactly_one_wins() {
    const ROUNDS: usize = 100;
    let fleet = Fleet::start();
    let heard = fleet.redis.listen(&["prism:events:*"]);
    let mut low = Campaigner::start(&fleet.agents[0], "low");
    let mut rivals: Vec<(Http, Session)> =
        fleet.agents.iter().map(|agent| register(agent, &desktop())).collect();
    let mut wins = [0; 2];
    for round in 0..ROUNDS {
        let incumbent = low.acquire("master", "", &json!({"wait": "block"}));
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> = rivals
                .iter_mut()
                .map(|(http, session)| {
                    scope.spawn(|| http.ask(session.session, "master", "", &json!({})))
                })
                .collect();
            asking.into_iter().map(|asking| asking.join().expect("it asks")).collect()
        });
        let won: Vec<usize> = (0..2).filter(|rival| answers[*rival].status == 200).collect();
        assert_eq!(won.len(), 1, "round {round}: {answers:?}");
        let (winner, loser) = (won[0], 1 - won[0]);
        wins[winner] += 1;
        let granted: tenure::wire::Acquired = answers[winner].expect(200);
        let refused = answers[loser].problem(Code::Contended);
        let named = refused.holder.expect("the loser is told who won");
        assert_eq!(named.token, granted.token, "round {round}");
        assert_eq!(low.events.lost(incumbent.hold).reason, LostReason::Preempted);
        let value: String = fleet.redis.command(&["GET", MASTER]);
        assert_eq!(value, rivals[winner].1.session.to_string());
        assert_eq!(is_master(&fleet.redis, low.session), "0");
        assert_eq!(is_master(&fleet.redis, rivals[winner].1.session), "1");
        assert_eq!(is_master(&fleet.redis, rivals[loser].1.session), "0");
        let (http, session) = &mut rivals[winner];
        assert!(http.release(session.session, granted.hold));
    }
    eprintln!("{wins:?} of {ROUNDS} rounds");
    let own = session_channel(low.session);
    heard.message(&own, "MasterPreempted");
    until("every preemption to be told", || heard.of_type(&own, "MasterPreempted").len() >= ROUNDS);
    for (mut http, session) in rivals {
        http.end(session.session);
    }
    drop(low);
    until("the sessions to end", || heard.of_type(PROJECT_CHANNEL, "session_ended").len() >= 3);
    fleet.is_left_empty();
    assert_eq!(heard.of_type(&own, "MasterPreempted").len(), ROUNDS, "each once");
    assert_eq!(heard.of_type(PROJECT_CHANNEL, "master_released").len(), ROUNDS, "each once");
    assert_eq!(heard.of_type(PROJECT_CHANNEL, "session_ended").len(), 3, "each once");
}

#[test]
fn a_backend_preempts_the_master_of_an_agent() {
    let fleet = Fleet::start_with(RedisServer::start(), 2, QUICK);
    let heard = fleet.redis.listen(&["prism:events:*"]);
    let mut ours = Campaigner::start(&fleet.agents[0], "ours");
    let held = ours.acquire("master", "", &json!({}));
    let mut backend = Python::backend(&fleet.redis.python_url());

    let peer = backend.call("register", &of("cli"));
    assert_eq!(peer["master"], json!(false), "the place is taken");
    let winner = backend.call("register", &of("claude_desktop"));
    assert_eq!(winner["master"], json!(true));
    assert_eq!(ours.events.lost(held.hold).reason, LostReason::Preempted);
    let (_, message) = ours.events.wait_for("the preemptor's message", |event| match event {
        Event::Message(message) if message.payload["type"] == "MasterPreempted" => {
            Some(message.clone())
        }
        _ => None,
    });
    assert!(message.direct, "it was sent to this session alone");
    let told = || heard.of_type(&session_channel(ours.session), "MasterPreempted").len();
    until("the listener to hear it, too", || told() > 0);
    assert_eq!(told(), 1);
    // The backend does not correct the hash of whom it preempted; the agent does it for its own.
    until("the hash to be right", || is_master(&fleet.redis, ours.session) == "0");
    let refused = ours.puppet.ask(ours.session, "master", "", &json!({}));
    let holder = refused.problem(Code::Contended).holder.expect("the holder is known");
    assert_eq!((holder.host.as_str(), holder.name.as_str()), ("m-1", "Donna"));

    let waiting = ours.queue("master", "", &json!({}));
    backend.call("release", &winner);
    ours.events.granted(waiting);
    let beat = backend.call("heartbeat", &peer);
    assert_eq!(beat, json!({"session": true, "master": false}));
}

#[test]
fn an_agent_preempts_the_master_of_a_backend() {
    let fleet = Fleet::start();
    let mut backend = Python::backend(&fleet.redis.python_url());
    let theirs = backend.call("register", &of("cli"));
    assert_eq!(theirs["master"], json!(true));
    backend.call("subscribe", &theirs);
    let mut peer = Campaigner::start(&fleet.agents[0], "peer");
    peer.puppet.ask(peer.session, "master", "", &json!({})).problem(Code::Contended);

    let (mut http, ours) = register(&fleet.agents[1], &desktop());
    let held = http.acquire(ours.session, "master", "", &json!({}));
    let told = backend.event(0, "message");
    assert_eq!(told["payload"]["type"], "MasterPreempted");
    let id = theirs["session"].as_str().expect("an id");
    assert_eq!(told["channel"], json!(session_channel(id)));
    assert_eq!(is_master(&fleet.redis, id), "0", "the preemptor corrects it");
    let beat = backend.call("heartbeat", &theirs);
    assert_eq!(beat, json!({"session": true, "master": false}));
    // The same priority joins as a peer, on both sides.
    assert_eq!(backend.call("register", &of("claude_desktop"))["master"], json!(false));
    let again = peer.puppet.ask(peer.session, "master", "", &json!({"priority": 100}));
    again.problem(Code::Contended);

    assert!(http.release(ours.session, held.hold));
    let pick = |event: &Value| {
        (event["payload"]["type"] == "master_released").then(|| event["channel"].clone())
    };
    assert_eq!(backend.event_after(0, "master_released", pick), json!(PROJECT_CHANNEL));
    let count = |kind: &str| {
        backend.events().iter().filter(|event| event["payload"]["type"] == kind).count()
    };
    assert_eq!((count("MasterPreempted"), count("master_released")), (1, 1), "each once");
}

#[test]
fn an_agent_does_not_preempt_a_backend_of_its_own_priority() {
    let fleet = Fleet::start();
    let mut backend = Python::backend(&fleet.redis.python_url());
    let theirs = backend.call("register", &of("claude_desktop"));
    assert_eq!(theirs["master"], json!(true));
    let (mut http, ours) = register(&fleet.agents[0], &desktop());
    http.ask(ours.session, "master", "", &json!({})).problem(Code::Contended);
    let held = http.acquire(ours.session, "master", "", &json!({"priority": 101}));
    assert!(held.token > 0);
}

/// The master is preempted while nothing that Redis says by itself reaches its agent.
#[track_caller]
fn is_told_of_preemption_by_its_beat(deaf: &Agent, preemptor: &Agent) {
    let mut low = Campaigner::start(deaf, "low");
    let held = low.acquire("master", "", &json!({}));
    let (mut http, high) = register(preemptor, &desktop());
    http.acquire(high.session, "master", "", &json!({}));
    assert_eq!(low.events.lost(held.hold).reason, LostReason::Preempted);
}

#[test]
fn a_preempted_master_is_told_although_every_push_is_lost() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let deaf = start_agent(0, &proxy.url(), QUICK);
    let preemptor = start_agent(1, &redis.url(), QUICK);
    proxy.swallow_news();
    is_told_of_preemption_by_its_beat(&deaf, &preemptor);
}

#[test]
fn a_preempted_master_is_told_although_its_agent_may_neither_track_nor_subscribe() {
    let redis = RedisServer::start();
    let _: () = redis.command(&[
        "ACL",
        "SETUSER",
        "deaf",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-client",
        "-subscribe",
        "-psubscribe",
        "-ssubscribe",
    ]);
    let url = redis.url().replace("redis+unix://", "redis+unix://deaf:secret@");
    let deaf = start_agent(0, &url, QUICK);
    let preemptor = start_agent(1, &redis.url(), QUICK);
    is_told_of_preemption_by_its_beat(&deaf, &preemptor);
}

#[test]
fn an_agent_announces_sessions_as_a_backend_does() {
    let fleet = Fleet::start();
    let mut backend = Python::backend(&fleet.redis.python_url());
    let theirs = backend.call("register", &of("cli"));
    let (mut http, ours) = register(&fleet.agents[0], &json!({"name": "Lola", "surface": "cli"}));
    until("both to be announced", || fleet.redis.command::<u64>(&["SCARD", MEMBERS]) == 2);
    let dump = fleet.redis.dump();
    let hash = |session: &str| match &dump[&session_key(session)].contents {
        Contents::Hash(fields) => fields.clone(),
        other => panic!("a session is a HASH: {other:?}"),
    };
    let theirs_id = theirs["session"].as_str().expect("an id");
    let (ours_hash, theirs_hash) = (hash(&ours.session.to_string()), hash(theirs_id));
    for (field, value) in &theirs_hash {
        assert!(ours_hash.contains_key(field), "{field} is missing in {ours_hash:?}");
        if ["tenant_id", "project_id", "agent_surface"].contains(&field.as_str()) {
            assert_eq!(&ours_hash[field], value);
        }
    }
    assert_eq!(ours_hash["agent_identity"], "Lola");
    assert_eq!(ours_hash["is_master"], "0");
    for id in [ours.session.to_string(), theirs_id.to_owned()] {
        let left = dump[&session_key(id)].expires_in_ms.expect("a session expires");
        assert!(left <= 90_000, "{left} ms");
    }
    let seen = backend.call("status", &of("cli"));
    assert_eq!(seen["sessions"].as_object().map(|sessions| sessions.len()), Some(2));
    assert_eq!(seen["master"], theirs["session"]);
    let mut names = fleet.agents[1].http().standing("master", "p").sessions;
    names.sort();
    assert_eq!(names, ["Donna", "Lola"], "both sorts are listed");

    backend.call("release", &theirs);
    http.acquire(ours.session, "master", "", &json!({"wait": "block"}));
    let seen = backend.call("status", &of("cli"));
    assert_eq!(seen["master"], json!(ours.session));
    assert_eq!(seen["master_hash"]["is_master"], json!("1"));
    http.end(ours.session);
    drop(backend);
    fleet.is_left_empty();
}

#[test]
fn messages_pass_between_both_sorts() {
    let fleet = Fleet::start();
    let mut backend = Python::backend(&fleet.redis.python_url());
    let programs: Vec<Campaigner> =
        fleet.agents.iter().map(|agent| Campaigner::start(agent, "program")).collect();
    let payload = json!({"type": "note", "text": "größe"});
    let mut to_all = of("cli");
    to_all["payload"] = payload.clone();
    until("both agents to listen", || backend.call("broadcast", &to_all).as_u64() >= Some(2));
    let one = programs[1].session;
    backend.call("broadcast", &json!({"session": one, "payload": {"type": "nudge"}}));
    for program in &programs {
        let (_, message) = program.events.wait_for("the broadcast", |event| match event {
            Event::Message(message) if message.payload == payload => Some(message.clone()),
            _ => None,
        });
        assert_eq!((message.project.as_str(), message.direct), ("p", false));
    }
    let nudged = |program: &Campaigner| {
        program.events.all().iter().any(|seen| match &seen.event {
            Event::Message(message) => message.direct && message.payload["type"] == "nudge",
            _ => false,
        })
    };
    until("the one to be nudged", || nudged(&programs[1]));
    assert!(!nudged(&programs[0]), "nobody else");
}

#[test]
fn what_runs_out_is_told_once_however_many_agents_look_on() {
    let redis = RedisServer::setup().option("notify-keyspace-events", "Ex").start();
    let mut fleet = Fleet::start_with(redis, 3, QUICK);
    let heard = fleet.redis.listen(&["prism:events:*"]);
    let onlookers: Vec<Campaigner> =
        fleet.agents[1..].iter().map(|agent| Campaigner::start(agent, "onlooker")).collect();
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    holder.acquire("master", "", &json!({}));
    let gone = holder.session;
    fleet.agents[0].kill();

    heard.message(PROJECT_CHANNEL, "master_released");
    heard.wait_for("the end of the session", |channel, text| {
        let message: Value = serde_json::from_str(text).ok()?;
        let ours = message["type"] == "session_ended" && message["session"] == json!(gone);
        (ours && channel == PROJECT_CHANNEL).then_some(())
    });
    for onlooker in &onlookers {
        onlooker.events.wait_for("master_released", |event| match event {
            Event::Message(message) => (message.payload["type"] == "master_released").then_some(()),
            _ => None,
        });
    }
    let members: Vec<String> = fleet.redis.command(&["SMEMBERS", MEMBERS]);
    assert!(!members.contains(&gone.to_string()), "it is reaped from the set");
    assert_eq!(heard.of_type(PROJECT_CHANNEL, "master_released").len(), 1, "{:?}", heard.all());
    drop(onlookers);
    fleet.agents.remove(0);
    fleet.is_left_empty();
    assert_eq!(heard.of_type(PROJECT_CHANNEL, "master_released").len(), 1);
    assert_eq!(heard.of_type(PROJECT_CHANNEL, "session_ended").len(), 3);
}

#[test]
fn a_master_key_that_nobody_can_renew_is_free() {
    let fleet = Fleet::start();
    let nobody = Uuid::from_u128(7).to_string();
    // The key of a SETNX whose EXPIRE never came.
    let _: () = fleet.redis.command(&["SET", MASTER, &nobody]);
    let _: () = fleet.redis.command(&["SADD", MEMBERS, &nobody]);
    let mut program = Campaigner::start(&fleet.agents[0], "program");
    let held = program.acquire("master", "", &json!({"wait": "block"}));
    let expires: i64 = fleet.redis.command(&["PTTL", MASTER]);
    assert!(expires > 0, "it expires now");
    assert_eq!(fleet.agents[1].http().standing("master", "p").sessions, ["program"]);
    program.release(held.hold);
    drop(program);
    fleet.is_left_empty();
}

#[test]
fn a_session_that_redis_forgot_is_announced_again() {
    let fleet = Fleet::start_with(RedisServer::start(), 2, QUICK);
    let (_http, session) = register(&fleet.agents[0], &json!({"name": "Lola"}));
    until("it to be announced", || fleet.redis.command::<u64>(&["SCARD", MEMBERS]) == 1);
    let _: () = fleet.redis.command(&["DEL", &session_key(session.session), MEMBERS]);
    until("it to be listed again", || {
        fleet.agents[1].http().standing("master", "p").sessions == ["Lola"]
    });
}

#[test]
fn the_session_prefix_is_configurable() {
    let config = "[redis]\nsession_prefix = \"plane\"\ntenure_prefix = \"own\"\n";
    let fleet = Fleet::start_with(RedisServer::start(), 1, config);
    let (mut http, session) = register(&fleet.agents[0], &json!({}));
    http.acquire(session.session, "master", "", &json!({}));
    http.acquire(session.session, "lease", "mailbox", &json!({}));
    let keys = fleet.redis.keys();
    for key in ["plane:master:default:p", "plane:project:default:p:sessions", "own:lease:mailbox"] {
        assert!(keys.contains(&key.to_owned()), "{key} is missing in {keys:?}");
    }
    assert!(keys.iter().all(|key| !key.starts_with("prism:") && !key.starts_with("tenure:")));
}
