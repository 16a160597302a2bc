//! The past on the page, and revocations from it.

use serde_json::json;
use tenure_tests::harness::{
    Browser, Campaigner, Gateway, Key, RedisServer, Screen, key, start_agent, until,
};

use super::live::{sign_in, until_change};
use super::{has_no_violation, row};

/// Waits until the gateway's history of a resource has so many changes: agents tell of them a little later.
#[track_caller]
fn until_told(gateway: &Gateway, key: Option<&Key>, query: &str, changes: usize) {
    let header = key.map(Key::header).unwrap_or_default();
    until(&format!("{changes} changes of {query}"), || {
        let (status, answer) =
            gateway.call_with(&header, &format!("GET /v1/history?{query}"), "").unwrap();
        assert_eq!(status, 200, "{answer}");
        answer.matches("\"change\":").count() >= changes
    });
}

fn a_page_shows_what_happened_before_it_was_opened(upstream: &str, is_kept_elsewhere: bool) {
    let mut gateway = Gateway::start(upstream);
    let agents = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    let mut first = Campaigner::start(&agents[0], "backup.sh");
    let mut second = Campaigner::start(&agents[1], "indexer");
    let held = first.acquire("leader", "nightly", &json!({}));
    first.release(held.hold);
    second.acquire("leader", "nightly", &json!({}));
    first.acquire("semaphore", "encode", &json!({"limit": 2}));
    until_told(&gateway, None, "tenant=default&kind=leader&name=nightly", 3);
    if is_kept_elsewhere {
        // The gateway's own memory is gone with it.
        gateway.kill();
        gateway.start_again();
    }
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#all", gateway.url()));
    until_change(&browser, "leader/nightly", &["granted", "indexer"]);
    until_change(&browser, "leader/nightly", &["released", "backup.sh", "held for"]);
    browser.until_text(&format!("{} .kind", row("encode")), "semaphore 1 of 2");
    has_no_violation(&browser, "a feed with a past");

    browser.open(&format!("{}/#leader/nightly", gateway.url()));
    for text in ["indexer@beta", "pid ", "user ", "last beat ", "tenure why leader nightly"] {
        browser.until_text("#detail", text);
    }
    browser.until("document.querySelector('#detail .line-of-command')?.innerText.length > 0");
    let words =
        "[...document.querySelectorAll('#detail .changes .state')].map((it) => it.innerText)";
    let expected = json!(["granted", "released", "granted"]);
    browser.until(&format!("JSON.stringify({words}) === JSON.stringify({expected})"));
    browser.keep_screenshot("history");
    has_no_violation(&browser, "a history");
}

#[test]
fn a_page_shows_what_its_gateway_saw_and_its_store_kept() {
    a_page_shows_what_happened_before_it_was_opened("embedded:", false);
}

#[test]
fn a_page_of_a_gateway_that_was_restarted_shows_what_redis_kept() {
    a_page_shows_what_happened_before_it_was_opened(&RedisServer::start().url(), true);
}

#[test]
fn a_key_that_may_takes_a_hold_away_with_a_reason_and_the_trail_has_it() {
    let keys = [Key::new("host"), Key::within("ops", &["--right", "all"])];
    let gateway = Gateway::start_audited("embedded:", &[&keys[0], &keys[1]]);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&keys[0]));
    let mut program = Campaigner::start(&agent, "backup.sh");
    let held = program.acquire("leader", "nightly", &json!({}));
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#leader/nightly", gateway.url()));
    // A key without the right looks, and has no button and no history.
    sign_in(&browser, &keys[0]);
    browser.until_text("#detail", "backup.sh@alpha");
    browser.until_text("#detail", "which this key does not have");
    assert_eq!(browser.value("document.querySelectorAll('#detail .people button').length"), 0);
    browser.click("#leave");
    sign_in(&browser, &keys[1]);
    browser.until_text("#who", "ops");
    browser.until_text("#detail .people button", "Take away");
    browser.click("#detail .people button");
    browser.until_text("#revoke-what", "leader nightly from backup.sh@alpha");
    has_no_violation(&browser, "a dialog that asks for a reason");
    browser.press(key::ESCAPE);
    assert_eq!(browser.value("location.hash"), "#leader/nightly", "the dialog alone was closed");
    assert!(!program.events.has("lost", held.hold));

    browser.click("#detail .people button");
    browser.type_into("#revoke-reason", "upgrade of the database");
    browser.script("document.getElementById('revoke-for').value = '300000'");
    browser.click("#revoke-submit");
    browser.until("!document.getElementById('revoke').open");
    browser.until_text("#detail", "upgrade of the database");
    until("the program to have lost it", || program.events.has("lost", held.hold));
    let line = || {
        let lines = gateway.trail();
        lines.into_iter().find(|line| line["event"] == "revocation")
    };
    until("a line of the trail", || line().is_some());
    let line = line().unwrap();
    assert_eq!(
        (&line["principal"], &line["outcome"], &line["token"]),
        (&json!("ops"), &json!("revoked 1 for 300s: upgrade of the database"), &json!(held.token)),
        "{line}"
    );
    // A later holder keeps it: the token is that of the hold that was seen.
    let body = json!({"tenant": "default", "kind": "leader", "name": "nightly", "token": held.token, "reason": "again"});
    let (status, answer) =
        gateway.call_with(&keys[1].header(), "POST /v1/revoke", &body.to_string()).unwrap();
    assert!(status == 200 && answer.ends_with(r#"{"revoked":0}"#), "{answer}");
}
