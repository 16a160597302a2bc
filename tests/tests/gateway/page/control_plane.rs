//! Mailboxes, runners and proxies on the page.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Browser, FakeProxy, Gateway, Key, PatternRunners, Screen, eventually, register, within,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::{has_no_violation, names, row, stayed_at_home};

const HOUR: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::new().expect("threads can be started")
}

fn mailbox(number: usize) -> String {
    format!("mail-{number:05}@proxy-01")
}

/// The rows of an endpoint.
fn rows(gateway: &Gateway, key: &Key, path: &str) -> Value {
    let (status, answer) =
        gateway.call_with(&key.header(), &format!("GET /v1/{path}"), "").unwrap();
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// What each row says of this.
fn each(answer: &Value, of: &str) -> Vec<Value> {
    answer["rows"].as_array().unwrap().iter().map(|row| row[of].clone()).collect()
}

#[test]
fn a_person_sees_which_mailbox_runner_or_proxy_is_in_trouble() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    std::fs::write(&file, "[mailbox]\ngrace_period = \"1h\"\n").unwrap();
    let config = format!("--config={}", file.display());
    let gateway = Gateway::start_by("embedded:", &[], &[config]);
    let browser = Browser::start();
    browser.look(Screen::DESKTOP);
    browser.open(&gateway.url());
    browser.until_text("#empty", "Nothing is held");
    assert_eq!(browser.value("document.querySelectorAll('.views li[hidden]').length"), 3);

    let runtime = runtime();
    let _inside = runtime.enter();
    let runners = PatternRunners::of(&gateway, 3);
    let proxies = ["proxy-01", "proxy-02"].map(|id| FakeProxy::start(id, Duration::ZERO));
    runtime.block_on(within("the control plane", async {
        for proxy in &proxies {
            assert!(register(&gateway, None, &proxy.id, &proxy.address()).await.unwrap().success);
        }
        for (number, ttl) in [(0, HOUR), (1, HOUR), (2, Duration::from_secs(1))] {
            runners.acquire(number, &mailbox(number), ttl).await.unwrap();
        }
        runners.heartbeat(1, &mailbox(1), "degraded").await.unwrap();
    }));
    let [_reached, mut dead] = proxies;
    dead.kill();

    browser.until_text(".views a[data-view=mailboxes] .count", "3");
    browser.press("8");
    browser.until_text(&format!("{} .status", row(&mailbox(2))), "expiring");
    browser.until_text(&format!("{} .status", row(&mailbox(1))), "degraded");
    browser.until("document.querySelector('#rows .status').innerText === 'expiring'");
    assert_eq!(names(&browser), [mailbox(2), mailbox(1), mailbox(0)], "trouble first");
    let of_first = row(&mailbox(0));
    for (column, text) in
        [("holder", "runner-0"), ("proxy", "proxy-01"), ("route", "10.0.0.1:1"), ("token", "1")]
    {
        browser.until_text(&format!("{of_first} .{column}"), text);
    }
    browser.until_text(&format!("{of_first} .valid"), "59m");
    browser.until_text(&format!("{} .valid", row(&mailbox(2))), "over");
    browser.keep_screenshot("mailboxes");
    has_no_violation(&browser, "mailboxes");
    browser.click(&format!("{of_first} a.open"));
    browser.until_text("#detail .people", "runner-0");
    assert_eq!(browser.value("location.hash"), "#lease/mail-00000%40proxy-01?view=mailboxes");
    has_no_violation(&browser, "an open mailbox");

    browser.open(&format!("{}/#runners", gateway.url()));
    browser.until_text("#rows", "runner-2");
    browser.until_text("#rows tr:first-child .status", "1 in trouble");
    browser.until_text("#rows tr:last-child", "runner-0");
    browser.until("document.querySelector('#rows tr:last-child .beat').innerText.endsWith('s')");
    has_no_violation(&browser, "runners");
    browser.open(&format!("{}/#proxies", gateway.url()));
    browser.until_text("#rows tr:first-child", "proxy-02");
    browser.until_text("#rows tr:first-child .status", "not reached");
    browser.until_text("#rows tr:first-child .holder", "128–255");
    browser.until_text("#rows tr:last-child .status", "up to date");
    browser.keep_screenshot("proxies");
    has_no_violation(&browser, "proxies");
    browser.look(Screen::PHONE);
    for view in ["mailboxes", "runners", "proxies"] {
        browser.open(&format!("{}/#{view}", gateway.url()));
        browser.until_text("#rows", if view == "runners" { "runner-0" } else { "proxy-01" });
        assert_eq!(browser.value("document.documentElement.scrollWidth"), 360, "{view}");
        has_no_violation(&browser, view);
    }
}

#[test]
fn ten_thousand_mailboxes_are_searched_and_turned_over() {
    const RUNNERS: usize = 100;
    const MAILBOXES: usize = 10_000;
    let gateway = Gateway::start("embedded:");
    let runtime = runtime();
    let _inside = runtime.enter();
    let runners = PatternRunners::of(&gateway, RUNNERS);
    runtime.block_on(within("the runners", async {
        let mut all = JoinSet::new();
        for runner in 0..RUNNERS {
            let runners = runners.clone();
            all.spawn(async move {
                for number in (runner..MAILBOXES).step_by(RUNNERS) {
                    runners.acquire(runner, &mailbox(number), HOUR).await?;
                }
                runners.heartbeat(runner, &mailbox(runner + RUNNERS), "degraded").await
            });
        }
        all.join_all().await.into_iter().for_each(|done| done.unwrap());
    }));
    let browser = Browser::start();
    // Its first tab has a page of its own.
    browser.open("about:blank");
    browser.requests();
    browser.look(Screen::DESKTOP);
    browser.open(&format!("{}/#mailboxes", gateway.url()));
    browser.until_text("#summary", "10,000 mailboxes");
    browser.until_text("#page-number", "Page 1 of 200");
    browser.until("[...document.querySelectorAll('#rows .status')].every((it) => it.innerText === 'degraded')");
    assert_eq!((names(&browser).len(), &*names(&browser)[0]), (50, &*mailbox(100)));
    has_no_violation(&browser, "10 000 mailboxes");
    browser.click("#last");
    browser.until_text("#rows", &mailbox(9999));
    browser.click("#search");
    browser.type_into("#search", "RUNNER-42");
    browser.until_text("#summary", "100 mailboxes with “RUNNER-42”");
    browser.type_into("#search", "x");
    browser.until_text("#empty", "No mailbox has “RUNNER-42x” in its name.");
    browser.open(&format!("{}/#runners?page=2", gateway.url()));
    browser.until_text("#range", "51–100 of 100");
    stayed_at_home(&browser, &gateway);
}

#[test]
fn a_key_shows_the_mailboxes_runners_and_proxies_within_its_bounds() {
    let all = Key::within("all", &["--right", "proxy"]);
    let rights = ["--right", "proxy", "--right", "agents"];
    let some = Key::within("some", &[&["--name", "mail-00001*"], &rights[..]].concat());
    let other = Key::within("other", &["--tenant", "acme"]);
    let gateway = Gateway::start_with("embedded:", &[&all, &some, &other]);
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    let acked = runtime().block_on(register(&gateway, Some(&all), "proxy-01", &proxy.address()));
    assert!(acked.unwrap().success);
    let runners = tenure_tests::harness::Runners::new(&gateway, Some(&all));
    for number in 0..3 {
        runners.take(number, &mailbox(number), "active");
    }
    eventually("the routes to be read", || {
        (rows(&gateway, &all, "mailboxes")["total"] == 3).then_some(())
    });
    for (key, mailboxes, proxies) in [(&all, 3, 1), (&some, 1, 1), (&other, 0, 0)] {
        for (path, expected) in
            [("mailboxes", mailboxes), ("runners", mailboxes), ("proxies", proxies)]
        {
            assert_eq!(rows(&gateway, key, path)["total"], expected, "{path}");
        }
    }
    let page = rows(&gateway, &all, "mailboxes?offset=1&limit=1&search=MAIL-");
    assert_eq!((&page["total"], &page["offset"]), (&json!(3), &json!(1)));
    assert_eq!(each(&page, "mailbox_id"), [mailbox(1)]);
    assert_eq!(each(&page, "runner_id"), ["runner-1"]);
    for (path, rule) in [
        ("mailboxes?limit=101", "a number from 1 to 100"),
        ("runners?kind=lease", "there are: search, offset, limit"),
    ] {
        let call = gateway.call_with(&all.header(), &format!("GET /v1/{path}"), "");
        let (status, answer) = call.unwrap();
        assert!(status == 422 && answer.contains(rule), "{answer}");
    }
}
