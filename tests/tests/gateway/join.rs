//! Join keys: one agent exchanges each for a key of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::{Code, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Gateway, Key, SharedStore, start_agent, until,
};
use tenure_tests::over_every_store;

over_every_store!(
    of_two_agents_at_two_gateways_one_gets_a_key_and_keeps_it,
    an_exchange_whose_answer_is_lost_is_repeated,
    an_exchange_is_paced_listed_and_written_down,
    what_is_no_join_key_is_refused_with_the_reason,
);

const ONCE: [&str; 5] = ["--once", "--expires", "1h", "--name", "ci/*"];
const JOIN: &str = "POST /v1/upstream/join";

/// A gateway whose keys are in the store, and its trail.
fn start(store: &impl SharedStore, trail: &TempDir, name: &str) -> Gateway {
    let trail = trail.path().join(name);
    let args = ["--keys-in-store".to_owned(), format!("--audit={}", trail.display())];
    Gateway::start_by(&store.url(), &[], &args)
}

fn is_up(agent: &Agent) -> bool {
    agent.http().status().upstream.state == UpstreamState::Up
}

fn is_refused(agent: &Agent, words: &str) -> bool {
    agent.http().status().upstream.last_error.is_some_and(|error| error.contains(words))
}

fn own_key(agent: &Agent) -> String {
    let kept = agent.dir().join("state/gateway-key");
    // One that no gateway knows is not in the place of a good one.
    let path = if kept.exists() { kept } else { agent.dir().join("state/gateway-key.new") };
    assert_eq!(fs::metadata(&path).expect("it is kept").mode() & 0o777, 0o600);
    let text = fs::read_to_string(path).expect("it is text");
    text.lines().next().expect("it has a key").to_owned()
}

/// The answer to an exchange for a key of that id.
fn join(gateway: &Gateway, key: &Key, id: &str) -> (u16, String) {
    let body = json!({"id": id, "sha256": "0".repeat(64)}).to_string();
    gateway.call_with(&key.header(), JOIN, &body).expect("the gateway answers")
}

fn of_two_agents_at_two_gateways_one_gets_a_key_and_keeps_it<S: SharedStore>() {
    let (store, trail) = (S::begin(), TempDir::new().expect("a directory"));
    let gateways = ["one", "two"].map(|name| start(&store, &trail, name));
    let key = gateways[0].add_store_key("laptop-8", &ONCE);
    assert!(key.text.starts_with("tnj_"), "its form says what it is");
    for gateway in &gateways {
        until("the join key to be known", || {
            let body = r#"{"beats":[]}"#;
            let answer = gateway.call_with(&key.header(), "POST /v1/upstream/renew", body);
            let (status, answer) = answer.expect("the gateway answers");
            status == 401 && answer.contains("this is a join key")
        });
    }
    let mut agents: Vec<Agent> = std::thread::scope(|scope| {
        let starting = [0, 1].map(|at| {
            let gateway = &gateways[at];
            let config = gateway.config(&key);
            scope.spawn(move || start_agent(at, &gateway.url(), &config))
        });
        starting.into_iter().map(|it| it.join().expect("it starts")).collect()
    });
    let used = "was used by another agent already";
    until("one to be let in, and the other refused", || {
        let [one, two] = &agents[..] else { panic!("there are two") };
        is_up(one) && is_refused(two, used) || is_up(two) && is_refused(one, used)
    });
    let winner = usize::from(!is_up(&agents[0]));
    let (mut agent, loser) = (agents.remove(winner), agents.remove(0));
    let own = own_key(&agent);
    assert!(own.starts_with("tnr_"));

    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("leader", "ci/x", &json!({}));
    let refused = program.puppet.ask(program.session, "leader", "prod", &json!({}));
    refused.problem(Code::Forbidden);

    // Its restart exchanges nothing: the join key is gone by then.
    gateways[0].store_keys(&["revoke", key.id()]);
    agent.kill();
    agent.start_again();
    until("it to be let in again", || is_up(&agent));
    assert_eq!(own_key(&agent), own);
    program.come_back();
    program.release(held.hold);

    let listed = gateways[1].store_keys(&["list"]);
    let line = listed.lines().find(|line| line.starts_with(&own[4..12])).expect("it is listed");
    assert!(line.contains("\"laptop-8\"") && line.contains("names = [\"ci/*\"]"), "{line}");
    until("the trail to have the new key", || {
        let trails = ["one", "two"].map(|name| fs::read_to_string(trail.path().join(name)));
        trails.into_iter().flatten().any(|text| {
            text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
                line["event"] == "key" && line["key"] == own[4..12] && line["outcome"] == "added"
            })
        })
    });
    let trails = ["one", "two"].map(|name| fs::read_to_string(trail.path().join(name)));
    let everything = format!(
        "{:?}{trails:?}{}{}{}{}",
        store.dump(),
        agent.log(),
        loser.log(),
        gateways[0].log(),
        gateways[1].log()
    );
    for secret in [&key.text, &own, &own_key(&loser)] {
        assert!(!everything.contains(&secret[12..]), "a secret is in the store, a log or a trail");
    }

    // Its own key taken out, it is not let in again by what it has.
    gateways[0].store_keys(&["revoke", &own[4..12]]);
    until("it to be shut out", || !is_up(&agent));
}

fn an_exchange_whose_answer_is_lost_is_repeated<S: SharedStore>() {
    let (store, trail) = (S::begin(), TempDir::new().expect("a directory"));
    let gateway = start(&store, &trail, "one");
    let key = gateway.add_store_key("laptop-8", &ONCE);
    until("the key to be known", || join(&gateway, &key, "").0 == 422);
    let (url, cut) = cutting_two_answers(gateway.port());
    let mut agent = start_agent(0, &url, &gateway.config(&key));
    until("it to be let in", || is_up(&agent));
    assert_eq!(cut.load(Ordering::Relaxed), 0, "the answers were lost");
    let listed = gateway.store_keys(&["list"]);
    assert_eq!(listed.lines().count(), 2, "the join key and one more: {listed}");

    // The same again gets the same answer, until the key is taken out.
    let own = own_key(&agent);
    let (status, answer) = join(&gateway, &key, "aaaaaaaa");
    assert!(status == 403 && answer.contains("was used by another agent"), "{answer}");
    gateway.store_keys(&["revoke", &own[4..12]]);
    until("it to be told", || is_refused(&agent, "which was revoked"));
    // Somebody may have read it: with another join key comes another one.
    let again = gateway.add_store_key("laptop-8", &ONCE);
    gateway.change_key(&key, &again.text);
    agent.kill();
    agent.start_again();
    until("it to be let in again", || is_up(&agent));
    let next = own_key(&agent);
    assert_ne!(next, own);

    // A join key that is not good does not cost it the key that is.
    gateway.change_key(&key, &key.text);
    agent.kill();
    agent.start_again();
    until("it to be refused", || is_refused(&agent, "or by this one, whose state_dir was lost"));
    gateway.change_key(&key, &again.text);
    agent.kill();
    agent.start_again();
    until("it to be let in with its own", || is_up(&agent));
    assert_eq!(own_key(&agent), next);
}

fn an_exchange_is_paced_listed_and_written_down<S: SharedStore>() {
    let (store, trail) = (S::begin(), TempDir::new().expect("a directory"));
    let mut gateway = start(&store, &trail, "one");
    let plain = gateway.add_store_key("laptop-7", &[]);
    let slow = ["--once", "--expires", "1h", "--requests-per-second", "1"];
    let key = gateway.add_store_key("laptop-8", &slow);
    until("the key to be good", || join(&gateway, &key, "aaaaaaaa").0 == 200);
    until("a call to come too early", || join(&gateway, &key, "bbbbbbbb").0 == 429);
    let call = gateway.call_with(&key.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#);
    let (status, answer) = call.expect("the gateway answers");
    assert!(status == 401 && answer.contains("was exchanged for an agent's own"), "{answer}");
    let listed = gateway.store_keys(&["list"]);
    let line = listed.lines().find(|line| line.starts_with(key.id())).expect("it is listed");
    assert!(line.contains("exchanged for aaaaaaaa"), "{line}");
    let refused = gateway.try_store_keys(&["rotate", key.id()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is a join key"), "{said}");

    let lines = || {
        let text = fs::read_to_string(trail.path().join("one")).expect("there is a trail");
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == "key").collect::<Vec<_>>()
    };
    until("the trail to have it", || {
        lines().iter().any(|line| {
            line["key"] == key.id()
                && line["principal"] == "laptop-8"
                && line["outcome"] == "exchanged for aaaaaaaa"
                && line["peer"].is_string()
        })
    });
    // What was there before a start is not new.
    let before = lines().len();
    gateway.stop();
    gateway.start_again();
    assert_eq!(gateway.status_for(&plain), 200);
    let fresh = gateway.add_store_key("laptop-9", &[]);
    until("the next key to be written down", || {
        lines().iter().any(|line| line["key"] == fresh.id())
    });
    assert_eq!(lines().len(), before + 1, "{:?}", lines());
}

fn what_is_no_join_key_is_refused_with_the_reason<S: SharedStore>() {
    let (store, trail) = (S::begin(), TempDir::new().expect("a directory"));
    let gateway = start(&store, &trail, "one");
    let (plain, brief) = (
        gateway.add_store_key("laptop-7", &[]),
        gateway.add_store_key("laptop-8", &["--once", "--expires", "2s"]),
    );
    let fresh = gateway.add_store_key("laptop-9", &ONCE);
    until("the keys to be known", || join(&gateway, &fresh, "").0 == 422);
    let (status, answer) = join(&gateway, &plain, "aaaaaaaa");
    assert!(status == 403 && answer.contains("this is no join key"), "{answer}");
    let (_, answer) = join(&gateway, &fresh, "");
    assert!(answer.contains("application/problem+json") && answer.contains(r#""field":"id""#));
    for id in [plain.id(), fresh.id()] {
        let (status, answer) = join(&gateway, &fresh, id);
        assert!(status == 403 && answer.contains("id, which is taken"), "{answer}");
    }
    assert_eq!(gateway.status_for(&plain), 200, "nobody's key was replaced");
    assert_eq!(join(&gateway, &fresh, "aaaaaaaa").0, 200, "it was not used");
    until("the brief key to end", || {
        let (status, answer) = join(&gateway, &brief, "aaaaaaaa");
        status == 401 && answer.contains("has expired")
    });
    assert_eq!(join(&gateway, &Key::new("stranger"), "aaaaaaaa").0, 401);

    for arguments in
        [&["add", "--subject", "x", "--once"][..], &["new", "--subject", "x", "--once"]]
    {
        let refused = gateway.try_store_keys(arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("--once: "), "{said}");
    }
    // A file has nobody who notes that a key was used.
    let in_file = Gateway::start_by("embedded:", &[], &["--keys-in-store".to_owned()]);
    let refused = in_file.try_store_keys(&["add", "--subject", "x", "--once", "--expires", "1h"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("these are in a file"), "{said}");
    let key = Key::new("laptop-7");
    let (status, answer) = join(&Gateway::start_with("embedded:", &[&key]), &key, "aaaaaaaa");
    assert!(status == 403 && answer.contains("this is no join key"), "{answer}");
}

/// Stands before a gateway, and hangs up on the answers to two exchanges; how many are left.
fn cutting_two_answers(port: u16) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let left = Arc::new(AtomicUsize::new(2));
    let cut = Arc::clone(&left);
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            let cut = Arc::clone(&cut);
            std::thread::spawn(move || pass(&near, &far, &cut));
        }
    });
    (url, left)
}

/// Passes bytes on, until the answer to an exchange comes that is to be lost.
fn pass(near: &TcpStream, far: &TcpStream, left: &AtomicUsize) {
    let joins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            copy(near, far, |bytes| {
                let is_join = bytes.windows(JOIN.len()).any(|part| part == JOIN.as_bytes());
                joins.fetch_add(usize::from(is_join), Ordering::SeqCst);
                true
            });
        });
        scope.spawn(|| {
            copy(far, near, |_| {
                let take = |left: usize| left.checked_sub(1);
                joins.swap(0, Ordering::SeqCst) == 0
                    || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err()
            });
        });
    });
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, mut goes_on: impl FnMut(&[u8]) -> bool) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !goes_on(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
