//! The gateway's status page, in a real browser.

mod control_plane;
mod live;
mod past;
mod picture;

use std::path::Path;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Agent, Browser, Campaigner, Client, Gateway, Key, Puppet, RedisServer, Screen, axe, key,
    start_agent,
};

/// What would run if a name were taken for markup.
const HOSTILE: &str = "<img src=x onerror=document.title='taken'>";
const RIGHT_TO_LEFT: &str = "אבג/דהו";

/// The value of a header of an answer.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

/// The row of the resource with this name.
fn row(name: &str) -> String {
    format!("#rows tr:has(a.open[title={}])", json!(name))
}

/// The names of the rows that are shown.
fn names(browser: &Browser) -> Vec<String> {
    browser.texts("#rows a.open")
}

#[track_caller]
fn has_no_violation(browser: &Browser, what: &str) {
    browser.script(&axe());
    let violations = "axe.run(document).then(({violations}) => violations.map(({id, nodes}) => \
        [id, nodes.map(({html, failureSummary}) => [html, failureSummary])]))";
    let found = browser.promised(violations);
    assert_eq!(found, json!([]), "{what}");
}

/// No request went elsewhere, no rule of the policy was broken, and no script failed.
#[track_caller]
fn stayed_at_home(browser: &Browser, gateway: &Gateway) {
    let home = gateway.url();
    let elsewhere: Vec<_> =
        browser.requests().into_iter().filter(|it| !it.starts_with(&home)).collect();
    assert!(elsewhere.iter().all(|it| it.starts_with("data:,")), "{elsewhere:?}");
    // An answer that is no success is an error to the console; the page says what it is.
    let is_of_page = |it: &String| !it.contains("Failed to load resource");
    let told: Vec<_> = browser.console().into_iter().filter(is_of_page).collect();
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn files_need_no_key_and_let_nothing_else_run() {
    let gateway = Gateway::start_with("embedded:", &[&Key::new("host")]);
    for (path, media_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page/api.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let (status, answer) = gateway.call(&format!("GET {path}"), "").unwrap();
        assert_eq!((status, header(&answer, "content-type")), (200, Some(media_type)), "{path}");
        let policy = header(&answer, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"));
        assert_eq!(header(&answer, "referrer-policy"), Some("no-referrer"));
        assert_eq!(header(&answer, "cache-control"), Some("no-cache"));

        let tag = header(&answer, "etag").unwrap();
        for (known, expected) in [(tag, 304), ("\"another\"", 200), ("\"a\", W/", 200)] {
            let condition = format!("If-None-Match: {known}\r\n");
            let (status, again) =
                gateway.call_with(&condition, &format!("GET {path}"), "").unwrap();
            assert_eq!(status, expected, "{path} {known}: {again}");
        }
        let several = format!("If-None-Match: \"another\", W/{tag}\r\n");
        assert_eq!(gateway.call_with(&several, &format!("GET {path}"), "").unwrap().0, 304);
    }
    assert_eq!(gateway.call("POST /", "").unwrap().0, 405);
}

#[test]
fn a_key_is_asked_for_kept_in_the_tab_and_forgotten() {
    let (known, unknown) = (Key::new("host"), Key::new("nobody"));
    let gateway = Gateway::start_with("embedded:", &[&known]);
    let browser = Browser::start();
    let kept = "Object.values(sessionStorage).concat(Object.values(localStorage))";
    browser.look(Screen::DESKTOP);
    browser.open(&gateway.url());
    browser.until_text("#sign-in h2", "asks for a key");
    assert_eq!(browser.value("document.activeElement.id"), "key");
    has_no_violation(&browser, "the form");

    browser.type_into("#key", &format!("{}{}", unknown.text, key::ENTER));
    browser.until_text("#key-error", "This key is not known");
    assert_eq!(browser.value(kept), json!([]));

    browser.type_into("#key", &format!("{}{}", known.text, key::ENTER));
    browser.until_text("#empty", "tenure run --leader hello -- sleep 60");
    browser.until_text("#quiet-feed", "Nothing has changed that this gateway knows of.");
    assert_eq!(browser.value(kept), json!([known.text]));
    has_no_violation(&browser, "an empty page");
    for (view, command) in [
        ("projects", "tenure run --master --project my-project"),
        ("leases", "tenure run --lease"),
        ("semaphores", "tenure run --semaphore"),
    ] {
        browser.click(&format!(".views a[data-view={view}]"));
        browser.until_text("#empty", command);
    }
    // It comes back with its tab, and is in no address.
    browser.open(&format!("{}/#leaders", gateway.url()));
    browser.until_text("#empty", "tenure run --leader nightly");

    browser.click("#leave");
    browser.until_text("#sign-in h2", "asks for a key");
    assert_eq!(browser.value(kept), json!([]));
    assert_eq!(browser.value("document.querySelector('#rows').childElementCount"), 0);
    for address in browser.requests() {
        assert!(!address.contains("tnr_"), "{address}");
    }
    let trail = gateway.log();
    assert!(!trail.contains(&known.text), "{trail}");
}

/// Programs of two hosts that have one resource of each kind, and names that are not harmless.
fn some_holds(agents: &[Agent; 2]) -> Vec<Campaigner> {
    let mut first = Campaigner::start(&agents[0], "backup.sh");
    let mut second = Campaigner::start(&agents[1], "indexer");
    first.acquire("leader", "nightly", &json!({}));
    second.queue("leader", "nightly", &json!({}));
    first.acquire("lease", "web-7", &json!({"attributes": {"address": "10.0.0.7:8982"}}));
    first.acquire("semaphore", "encode", &json!({"limit": 2}));
    second.acquire("semaphore", "encode", &json!({"limit": 2}));
    second.queue("semaphore", "encode", &json!({"limit": 2}));
    second.acquire("master", "", &json!({}));
    for name in [HOSTILE, RIGHT_TO_LEFT, &"x".repeat(200)] {
        first.acquire("leader", name, &json!({}));
    }
    vec![first, second]
}

#[test]
fn a_person_sees_who_holds_what_and_why_they_wait() {
    let gateway = Gateway::start("embedded:");
    let agents = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    let mut programs = some_holds(&agents);
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&gateway.url());
    browser.until_text("#summary", "7 resources");
    browser.until_text(&row("nightly"), "backup.sh@alpha");
    assert_eq!(browser.texts(".views a[data-view=leaders] .count"), ["4"]);
    assert_eq!(browser.texts("#store"), ["embedded up"]);
    let shown = names(&browser);
    assert!(shown.iter().any(|name| name == HOSTILE), "{shown:?}");
    assert!(shown.iter().any(|name| name == RIGHT_TO_LEFT), "{shown:?}");
    browser.keep_screenshot("desktop-light");
    has_no_violation(&browser, "light");

    // A link shows somebody else the same, in detail.
    browser.open(&format!("{}/#semaphore/encode", gateway.url()));
    browser.until_text("#detail", "2 of 2");
    browser.until_text("#detail .people", "backup.sh@alpha");
    browser.until_text("#detail ol.people", "indexer@beta");
    browser.until_text("#detail", "tenure why semaphore encode");
    browser.open(&format!("{}/#leases", gateway.url()));
    browser.until_text(&row("web-7"), "10.0.0.7:8982");
    browser.open(&format!("{}/#projects", gateway.url()));
    browser.until_text(&row("p"), "indexer@beta");
    browser.until_text(&format!("{} .members", row("p")), "2");

    browser.look(Screen::DARK);
    browser.open(&format!("{}/#leader/nightly", gateway.url()));
    browser.until_text("#detail ol.people", "indexer@beta");
    browser.keep_screenshot("desktop-dark");
    has_no_violation(&browser, "dark");

    browser.look(Screen::PHONE);
    for (place, text) in [("all", "web-7"), ("semaphores", "2 of 2"), ("leases", "10.0.0.7:8982")] {
        browser.open(&format!("{}/#{place}", gateway.url()));
        browser.until_text("#rows", text);
        assert_eq!(browser.value("document.documentElement.scrollWidth"), 360, "{place}");
        browser.keep_screenshot(&format!("phone-{place}"));
        has_no_violation(&browser, place);
    }
    browser.open(&format!("{}/#leader/{}", gateway.url(), "x".repeat(200)));
    browser.until_text("#detail .people", "backup.sh@alpha");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    has_no_violation(&browser, "a resource on a phone");

    // What is new shows up by itself.
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#leaders", gateway.url()));
    browser.until_text("#summary", "4 leaders");
    browser.script("window.isTheSame = true");
    programs[1].acquire("leader", "<b>new</b>", &json!({}));
    browser.until_text(&row("<b>new</b>"), "indexer@beta");
    assert_eq!(browser.value("window.isTheSame"), true);
    assert_eq!(browser.value("document.title"), "Leaders · Tenure");
    assert_eq!(browser.value("document.querySelectorAll('main img, main b').length"), 0);
}

#[test]
fn a_keyboard_is_enough() {
    let gateway = Gateway::start("embedded:");
    let agents = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    let _programs = some_holds(&agents);
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#leaders", gateway.url()));
    browser.until_text("#summary", "4 leaders");
    let focused = || browser.value("document.activeElement.innerText");

    browser.press("/");
    assert_eq!(browser.value("document.activeElement.id"), "search");
    browser.type_into("#search", "Night");
    browser.until_text("#summary", "1 leader with “Night”");
    assert_eq!(names(&browser), ["nightly"]);
    browser.press(key::DOWN);
    assert_eq!(focused(), "nightly");
    browser.press(key::ENTER);
    browser.until_text("#detail", "backup.sh@alpha");
    assert_eq!(browser.value("location.hash"), "#leader/nightly?search=Night");
    browser.press(key::ESCAPE);
    browser.until("document.getElementById('detail').hidden");
    assert_eq!(
        (browser.value("location.hash"), focused()),
        (json!("#leaders?search=Night"), json!("nightly"))
    );

    browser.open(&format!("{}/#all", gateway.url()));
    browser.until_text("#summary", "7 resources");
    let all = names(&browser);
    for (key, expected) in
        [("j", &all[0]), ("j", &all[1]), (key::DOWN, &all[2]), ("k", &all[1]), (key::UP, &all[0])]
    {
        browser.press(key);
        assert_eq!(focused(), json!(expected));
    }
    browser.press("4");
    browser.until_text("#list-title", "Leases");
    browser.press("?");
    assert_eq!(browser.value("document.getElementById('keys').open"), true);
    browser.press(key::ESCAPE);
    assert_eq!(browser.value("document.getElementById('keys').open"), false);

    // Everything that can be pressed is reached by Tab, and each rests where it can be seen.
    browser.open("about:blank");
    browser.open(&format!("{}/#leader/nightly", gateway.url()));
    browser.until_text("#detail", "backup.sh@alpha");
    let here = "(document.activeElement.id || document.activeElement.innerText.trim())";
    let mut reached = Vec::new();
    while reached.last() != Some(&Value::from("BODY")) && reached.len() < 60 {
        browser.press(key::TAB);
        reached.push(
            browser.value(&format!("document.activeElement === document.body ? 'BODY' : {here}")),
        );
    }
    for wanted in ["skip", "help", "search", "nightly", HOSTILE, "close"] {
        assert!(reached.contains(&Value::from(wanted)), "{wanted} of {reached:?}");
    }
}

#[test]
fn five_thousand_resources_are_searched_and_turned_over() {
    const COUNT: usize = 5_000;
    const HOLDS_OF_SESSION: usize = 50;
    let gateway = Gateway::start("embedded:");
    let agent = start_agent(0, &gateway.url(), "");
    let mut program = Puppet::start(&agent);
    for first in (0..COUNT).step_by(HOLDS_OF_SESSION) {
        let session = program.register(&json!({"name": "indexer", "tether": "process"})).session;
        for number in first..first + HOLDS_OF_SESSION {
            let kind = ["leader", "lease"][number % 2];
            program.acquire(session, kind, &format!("eu/shard-{number:04}"), &json!({}));
        }
    }
    let browser = Browser::start();
    // Its first tab has a page of its own.
    browser.open("about:blank");
    browser.requests();
    browser.look(Screen::DESKTOP);
    browser.open(&gateway.url());
    browser.until_text("#summary", "5,000 resources");
    browser.until_text("#page-number", "Page 1 of 100");
    assert_eq!(names(&browser).len(), 50);
    browser.open(&format!("{}/#leaders?page=2", gateway.url()));
    browser.until_text("#range", "51–100 of 2,500");
    browser.until_text("#rows", "eu/shard-0100");
    browser.keep_screenshot("desktop-5000");
    has_no_violation(&browser, "5 000 resources");
    browser.press("n");
    browser.until_text("#range", "101–150 of 2,500");
    browser.click("#last");
    browser.until_text("#rows", "eu/shard-4998");
    assert_eq!(browser.value("location.hash"), "#leaders?page=50");
    browser.click("#search");
    browser.type_into("#search", "SHARD-123");
    browser.until_text("#summary", "5 leaders with “SHARD-123”");
    browser.until_text("#range", "1–5 of 5");
    browser.type_into("#search", "x");
    browser.until_text("#empty", "No leader has “SHARD-123x” in its name.");
    browser.open(&format!("{}/#leader/eu%2Fshard-4998", gateway.url()));
    browser.until_text("#detail .people", "indexer@alpha");
    // Its name is in those of 2 500 that come before it.
    let session = program.register(&json!({"name": "watcher", "tether": "process"})).session;
    program.acquire(session, "leader", "shard-", &json!({}));
    browser.open(&format!("{}/#leader/shard-", gateway.url()));
    browser.until_text("#detail .people", "watcher@alpha");
    browser.open(&format!("{}/#leader/shard", gateway.url()));
    browser.until_text("#detail", "Nobody holds it and nobody waits for it.");
    browser.open(&format!("{}/#leaders?page=99", gateway.url()));
    browser.until_text("#empty", "Go to page 51, the last");
    stayed_at_home(&browser, &gateway);
}

#[test]
fn a_store_that_is_away_is_said_and_its_holds_are_in_jeopardy() {
    let mut redis = RedisServer::setup().durable().start();
    let mut gateway = Gateway::start(&redis.url());
    let agent = start_agent(0, &gateway.url(), "");
    let mut program = Campaigner::start(&agent, "backup.sh");
    program.acquire("leader", "nightly", &json!({}));
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#leaders", gateway.url()));
    browser.until_text(&row("nightly"), "held");
    assert_eq!(browser.texts("#notice"), Vec::<String>::new());

    redis.pause();
    browser.until_text("#notice", "The store does not answer");
    browser.until_text(&row("nightly"), "jeopardy");
    assert_eq!(browser.texts("#store"), ["redis down"]);
    browser.keep_screenshot("store-down");
    has_no_violation(&browser, "a store that is away");
    redis.resume();
    browser.until("document.getElementById('notice').hidden");
    browser.until_text("#store", "redis up");

    gateway.kill();
    browser.until_text("#notice", "The gateway does not answer");
    browser.until_text("#live", "not live");
    gateway.start_again();
    browser.until("document.getElementById('notice').hidden");
}

#[test]
fn each_file_of_the_page_is_small_and_has_no_address_of_elsewhere() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/gateway/src/face/page");
    for file in std::fs::read_dir(folder).expect("it is there") {
        let path = file.expect("it can be read").path();
        let text = std::fs::read_to_string(&path).expect("it is text");
        assert!(text.lines().count() <= 450, "{}", path.display());
        let addresses =
            text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
        let is_allowed = path.ends_with("mod.rs") || addresses == 0;
        assert!(is_allowed, "{} names another host", path.display());
        for unsafe_way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!text.contains(unsafe_way), "{} has {unsafe_way}", path.display());
        }
    }
}
