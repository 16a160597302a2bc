//! What agents do is seen as it happens, and which agents there are.

use serde_json::json;
use tenure_tests::harness::{
    Agent, Browser, Campaigner, Client, Gateway, Key, RedisServer, Screen, key, start_agent,
};

use super::{has_no_violation, row, stayed_at_home};

/// The changes of the feed of one resource, newest first: the word, who, and why.
fn changes_of(browser: &Browser, resource: &str) -> Vec<[String; 2]> {
    let of = format!("#changes > li:has(a.name[href^={}])", json!(format!("#{resource}")));
    let words = browser.texts(&format!("{of} .state"));
    words.into_iter().zip(browser.texts(&format!("{of} .why"))).map(<[String; 2]>::from).collect()
}

/// Waits until one change of a resource has that word, and all these parts.
#[track_caller]
pub(super) fn until_change(browser: &Browser, resource: &str, parts: &[&str]) {
    let of = json!(format!("#changes > li:has(a.name[href^={}])", json!(format!("#{resource}"))));
    browser.until(&format!(
        "[...document.querySelectorAll({of})].some(({{innerText}}) => \
            {}.every((part) => innerText.includes(part)))",
        json!(parts)
    ));
}

#[track_caller]
fn revoke(agent: &Agent, kind: &str, name: &str) {
    let answer = agent.http().post("/v1/revoke", &json!({"kind": kind, "name": name}));
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn what_agents_do_is_seen_as_it_happens(upstream: &str) {
    let gateway = Gateway::start(upstream);
    let agents = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    let mut first = Campaigner::start(&agents[0], "backup.sh");
    let mut second = Campaigner::start(&agents[1], "indexer");
    let browser = Browser::start();
    browser.open("about:blank");
    browser.requests();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#leaders", gateway.url()));
    browser.until_text("#live", "live");
    until_change(&browser, "master/p", &["announced", "backup.sh"]);

    // A grant, a wait, and a hand-over: with who, and the token of each grant.
    let held = first.acquire("leader", "nightly", &json!({}));
    until_change(&browser, "leader/nightly", &["granted", "backup.sh"]);
    browser.until_text(&row("nightly"), "backup.sh@alpha");
    let waits = second.queue("leader", "nightly", &json!({}));
    until_change(&browser, "leader/nightly", &["waiting", "indexer"]);
    first.release(held.hold);
    until_change(&browser, "leader/nightly", &["granted", "indexer"]);
    browser.until_text(&row("nightly"), "indexer@beta");
    let seen = changes_of(&browser, "leader/nightly");
    let words: Vec<_> = seen.iter().map(|[word, _]| word.as_str()).collect();
    assert_eq!(words, ["granted", "released", "waiting", "granted"], "{seen:?}");
    assert_eq!(seen[3][1], format!("backup.sh · #{}", held.token));
    assert_eq!(seen[1][1], format!("backup.sh · #{}", held.token));
    assert!(seen[0][1].starts_with("indexer · #") && seen[2][1] == "indexer", "{seen:?}");

    // A release that nobody waited for, told in the panel of the resource, too.
    browser.click(&format!("{} a.open", row("nightly")));
    browser.until_text("#detail .changes", "granted");
    second.release(waits);
    until_change(&browser, "leader/nightly", &["released", "indexer"]);
    browser.until_text("#detail .changes", "released");
    browser.until_text("#detail", "Nobody holds it and nobody waits for it.");

    // What is taken from somebody has a reason.
    first.acquire("leader", "nightly", &json!({}));
    revoke(&agents[1], "leader", "nightly");
    until_change(&browser, "leader/nightly", &["revoked", "backup.sh", "an administrator took it"]);
    first.acquire("master", "", &json!({}));
    second.acquire("master", "", &json!({"priority": 9}));
    let why = "backup.sh · a higher priority took it";
    until_change(&browser, "master/p", &["preempted", why]);
    until_change(&browser, "master/p", &["granted", "indexer · #"]);
    // A renewal is none; to Redis it is.
    browser.open(&format!("{}/#all", gateway.url()));
    let often = json!({"ttl_ms": 1500});
    first.acquire("lease", "web-7", &often);
    until_change(&browser, "lease/web-7", &["granted", "backup.sh"]);
    for _ in 0..3 {
        let beat = "document.querySelector('#as-of').innerText";
        let shown = browser.value(beat);
        browser.until(&format!("{beat} !== {shown}"));
    }
    assert_eq!(changes_of(&browser, "lease/web-7").len(), 1);
    has_no_violation(&browser, "a feed");
    stayed_at_home(&browser, &gateway);
}

#[test]
fn what_agents_do_is_seen_as_it_happens_with_the_embedded_store() {
    what_agents_do_is_seen_as_it_happens("embedded:");
}

#[test]
fn what_agents_do_is_seen_as_it_happens_with_redis() {
    what_agents_do_is_seen_as_it_happens(&RedisServer::start().url());
}

#[track_caller]
pub(super) fn sign_in(browser: &Browser, key: &Key) {
    browser.until_text("#sign-in h2", "asks for a key");
    browser.type_into("#key", &format!("{}{}", key.text, key::ENTER));
    browser.until_text("#live", "live");
}

#[test]
fn a_key_lets_people_see_agents_and_changes_within_its_bounds() {
    let keys = [
        Key::within("alpha's", &["--name", "eu/*"]),
        Key::within("beta's", &["--name", "us/*"]),
        Key::within("vera", &["--right", "all"]),
    ];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1], &keys[2]]);
    let agents = [0, 1].map(|at| start_agent(at, &gateway.url(), &gateway.config(&keys[at])));
    let mut first = Campaigner::start(&agents[0], "backup.sh");
    let mut second = Campaigner::start(&agents[1], "indexer");
    let often = json!({"ttl_ms": 3000});
    let (_eu, us) = (
        first.acquire("leader", "eu/nightly", &often),
        second.acquire("leader", "us/nightly", &often),
    );
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#agents", gateway.url()));
    sign_in(&browser, &keys[2]);
    browser.until_text("#summary", "2 agents");
    for subject in ["alpha's", "beta's"] {
        let row = format!("#rows tr:has(.holder[title={}])", json!(subject));
        browser.until_text(&format!("{row} .status"), "beating");
        // Milliseconds, and on a busy machine seconds.
        browser.until_text(&format!("{row} .late"), "s");
        browser.until_text(&format!("{row} .claims"), "1");
        browser.until_text(&format!("{row} .beat"), "s");
        assert_eq!(browser.texts(&format!("{row} .version")), [env!("CARGO_PKG_VERSION")]);
        assert_ne!(browser.texts(&format!("{row} .name")), [""], "its host");
        assert_eq!(browser.texts(&format!("{row} .route")), ["127.0.0.1"]);
    }
    assert_eq!(browser.texts(".views a[data-view=agents] .count"), ["2"]);
    browser.keep_screenshot("agents");
    has_no_violation(&browser, "agents");
    second.release(us.hold);
    until_change(&browser, "leader/us%2Fnightly", &["released", "indexer"]);

    // With bounds one sees one's own.
    browser.click("#leave");
    sign_in(&browser, &keys[0]);
    browser.until_text("#summary", "1 agent");
    browser.until_text("#rows", "alpha's");
    second.acquire("leader", "us/nightly", &json!({}));
    first.acquire("leader", "eu/weekly", &json!({}));
    until_change(&browser, "leader/eu%2Fweekly", &["granted", "backup.sh"]);
    let told = browser.texts("#changes > li");
    assert!(
        !told.iter().any(|it| it.contains("us/")),
        "of us/nightly it was told nothing: {told:?}"
    );
    browser.open(&format!("{}/#leader/us%2Fnightly", gateway.url()));
    browser.until_text("#detail", "This key does not show it");

    // A key that is revoked ends what is open.
    gateway.keys(&["revoke", keys[0].id()]);
    browser.until_text("#sign-in h2", "asks for a key");
    assert_eq!(browser.texts("#changes > li").len(), 0);
}
