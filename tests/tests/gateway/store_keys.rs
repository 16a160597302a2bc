//! Keys in the store: every gateway over it goes by them.

use serde_json::json;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{
    Campaigner, Client, Gateway, Key, Postgres, RedisServer, SharedStore, start_agent, until,
};
use tenure_tests::over_every_store;

over_every_store!(
    a_key_is_made_rotated_and_revoked_for_all_gateways_over_one_store,
    with_the_store_away_known_keys_are_good_and_others_are_not_refused_for_good,
    at_the_limit_of_keys_none_is_added_and_those_that_are_revoked_are_shut_out,
);

const IN_STORE: &str = "--keys-in-store";

fn start(upstream: &str) -> Gateway {
    Gateway::start_by(upstream, &[], &[IN_STORE.to_owned()])
}

fn a_key_is_made_rotated_and_revoked_for_all_gateways_over_one_store<S: SharedStore>() {
    let store = S::begin();
    let gateways = [0, 1].map(|_| start(&store.url()));
    let stranger = Key::new("stranger");
    for gateway in &gateways {
        assert_eq!(gateway.status_for(&stranger), 401);
    }
    let key = gateways[0]
        .add_store_key("laptop-7", &["--name", "ci/*", "--expires", "1h", "--right", "history"]);
    let added = gateways[1].try_store_keys(&["add", "--subject", "laptop-7"]);
    let note = String::from_utf8_lossy(&added.stderr);
    assert!(note.contains("within 5 s"), "a script would call at once: {note}");
    let text = String::from_utf8(added.stdout).expect("it speaks UTF-8").trim_end().to_owned();
    let kept = Key { text, line: String::new() };
    let listed = gateways[0].store_keys(&["list"]);
    let line = listed.lines().find(|line| line.starts_with(key.id())).expect("it is listed");
    assert!(line.contains("\"laptop-7\"") && line.contains("until 20"), "{line}");
    assert!(line.contains("never used") && line.contains("names = [\"ci/*\"]"), "{line}");
    for gateway in &gateways {
        until("the key to be good", || gateway.status_for(&key) == 200);
        until("the other key to be good", || gateway.status_for(&kept) == 200);
    }
    until("the use to be noted", || {
        let listed = gateways[1].store_keys(&["list"]);
        listed.lines().any(|line| line.starts_with(key.id()) && line.contains("  used 20"))
    });
    let bounded = gateways[1].call_with(
        &key.header(),
        "POST /v1/upstream/inspect",
        &json!({"resource": {"tenant": "t", "kind": "leader", "name": "prod"}}).to_string(),
    );
    assert_eq!(bounded.expect("it answers").0, 403);
    let resource = json!({"resource": {"tenant": "t", "kind": "leader", "name": "ci/a"}});
    for (key, expected) in [(&key, 200), (&kept, 403)] {
        let head = "POST /v1/upstream/history";
        let asked = gateways[1].call_with(&key.header(), head, &resource.to_string());
        assert_eq!(asked.expect("it answers").0, expected, "rights are kept with the key");
    }

    let rotated = gateways[0].store_keys(&["rotate", key.id(), "--overlap", "1h"]);
    let rotated = Key { text: rotated, line: String::new() };
    for gateway in &gateways {
        until("the new key to be good", || gateway.status_for(&rotated) == 200);
        assert_eq!(gateway.status_for(&key), 200, "the old one is good for a while");
    }
    let streams =
        gateways.each_ref().map(|gateway| (gateway.changes(&key), gateway.changes(&kept)));
    gateways[0].store_keys(&["revoke", key.id()]);
    for (gateway, (revoked, open)) in gateways.iter().zip(streams) {
        revoked.ended();
        open.is_open();
        assert_eq!(gateway.status_for(&key), 401);
        assert_eq!(gateway.status_for(&rotated), 200);
    }
    let again = gateways[0].try_store_keys(&["revoke", key.id()]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("there is no key"), "{said}");
    let everything = store.dump();
    for key in [&key, &kept, &rotated] {
        assert!(!everything.contains(&key.text[12..]), "a secret is in the store");
    }
}

fn with_the_store_away_known_keys_are_good_and_others_are_not_refused_for_good<S: SharedStore>() {
    let mut store = S::begin();
    let mut gateway = start(&store.url());
    let known = gateway.add_store_key("known", &[]);
    until("the key to be good", || gateway.status_for(&known) == 200);
    let stranger = Key::new("stranger");
    assert_eq!(gateway.status_for(&stranger), 401);
    store.kill();
    until("the gateway to see that the store is away", || gateway.status_for(&stranger) == 503);
    assert_eq!(gateway.status_for(&known), 200);
    let (_, answer) = gateway
        .call_with(&stranger.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#)
        .expect("it answers");
    assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
    // One that starts meanwhile serves, and knows nobody.
    gateway.stop();
    gateway.start_again();
    assert_eq!(gateway.status_for(&known), 503);
    store.start_again();
    until("the store to be asked", || gateway.status_for(&stranger) == 401);
    until("the key to be good again", || gateway.status_for(&known) == 200);
}

#[test]
fn keys_of_a_store_that_comes_back_empty_are_put_back_once() {
    let mut redis = RedisServer::start();
    let gateways = [0, 1].map(|_| start(&redis.url()));
    let known = gateways[0].add_store_key("known", &["--name", "ci/*", "--expires", "1h"]);
    let revoked = gateways[0].add_store_key("revoked", &[]);
    gateways[0].store_keys(&["revoke", revoked.id()]);
    for gateway in &gateways {
        until("the key to be good", || gateway.status_for(&known) == 200);
    }
    for _ in 0..2 {
        redis.kill();
        redis.start_again();
        until("the key to be in the store again", || {
            redis.command(&["EXISTS", &format!("tenure:key:{}", known.id())])
        });
        let listed = gateways[0].store_keys(&["list"]);
        let line = listed.lines().find(|line| line.starts_with(known.id()));
        let is_whole =
            |line: &&str| line.contains("names = [\"ci/*\"]") && line.contains("until 20");
        assert!(line.filter(is_whole).is_some(), "bounds and end are those of before: {listed}");
        for gateway in &gateways {
            until("the key to be good", || gateway.status_for(&known) == 200);
            until("the other one to be refused", || gateway.status_for(&revoked) == 401);
        }
    }
    let put_back = |gateway: &Gateway| gateway.log().contains("put back as this gateway knew them");
    assert!(gateways.iter().any(put_back), "it is told");
    // A key that is taken out after that stays out.
    gateways[1].store_keys(&["revoke", known.id()]);
    for gateway in &gateways {
        until("the key to be refused", || gateway.status_for(&known) == 401);
    }
}

/// What is done to the keys in a store behind its back.
trait Keys: SharedStore {
    /// The key has ended long ago.
    fn expire(&self, id: &str);

    fn has(&self, id: &str) -> bool;

    /// Adds so many, and nothing but their ids where that can be.
    fn fill(&self, count: u32, name: &str);
}

impl Keys for RedisServer {
    fn expire(&self, id: &str) {
        self.command::<()>(&["HSET", &format!("tenure:key:{id}"), "expires_at", "1000000"]);
    }

    fn has(&self, id: &str) -> bool {
        self.command(&["EXISTS", &format!("tenure:key:{id}")])
    }

    fn fill(&self, count: u32, name: &str) {
        let fill =
            format!("for i = 1, {count} do redis.call('SADD', 'tenure:keys', '{name}' .. i) end");
        self.command::<()>(&["EVAL", &fill, "0"]);
    }
}

impl Keys for Postgres {
    fn expire(&self, id: &str) {
        self.sql(&format!("update tenure.key set expires_at = 1000000 where id = '{id}'"));
    }

    fn has(&self, id: &str) -> bool {
        self.count(&format!("select count(*) from tenure.key where id = '{id}'")) > 0
    }

    fn fill(&self, count: u32, name: &str) {
        self.sql(&format!(
            "insert into tenure.key (id, principal, sha256, bounds) \
             select '{name}' || i, 'p', '', '{{}}' from generate_series(1, {count}) i"
        ));
    }
}

fn at_the_limit_of_keys_none_is_added_and_those_that_are_revoked_are_shut_out<S: Keys>() {
    let store = S::begin();
    let gateway = start(&store.url());
    let [old, key, kept] = ["old", "key", "kept"].map(|name| gateway.add_store_key(name, &[]));
    for key in [&old, &key, &kept] {
        until("the key to be good", || gateway.status_for(key) == 200);
    }
    store.expire(old.id());
    let listed = gateway.store_keys(&["list"]);
    assert!(listed.contains(key.id()) && !listed.contains(old.id()), "it expired: {listed}");
    assert!(!store.has(old.id()));

    store.fill(39_998, "k");
    let refused = gateway.try_store_keys(&["add", "--subject", "more"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("there are 40000 keys"), "{said}");
    // As a gateway without the limit would: the keys cannot be read any more.
    store.fill(2, "x");
    gateway.store_keys(&["revoke", key.id()]);
    until("the key to be good no more", || gateway.status_for(&key) != 200);
    assert_eq!(gateway.status_for(&kept), 200);
}

#[test]
fn an_embedded_store_has_its_keys_beside_it() {
    let mut gateway = start("embedded:");
    let key = gateway.add_store_key("laptop-7", &[]);
    until("the key to be good", || gateway.status_for(&key) == 200);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&key));
    let mut program = Campaigner::start(&agent, "program");
    program.acquire("leader", "role", &json!({}));
    gateway.kill();
    gateway.start_again();
    assert_eq!(gateway.status_for(&key), 200);
    gateway.store_keys(&["revoke", key.id()]);
    until("the key to be good no more", || gateway.status_for(&key) == 401);
    until("the agent to be told", || agent.http().status().upstream.state != UpstreamState::Up);
}
