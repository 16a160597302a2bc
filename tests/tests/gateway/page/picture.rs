//! The picture of the page in the documentation: of a gateway over Redis, and agents of four hosts. Each run takes it
//! anew as target/screenshots/status-page.png; with `UPDATE_PICTURE=1` it becomes docs/images/status-page.png.

use std::path::Path;

use serde_json::{Value, json};
use tenure_tests::harness::{Agent, Browser, Campaigner, Client, Gateway, RedisServer, Screen};

use super::{has_no_violation, row};

/// Largest picture that is worth its place in the repository, bytes.
const BYTES_MAX: u64 = 200_000;
const SCREEN: Screen = Screen { width: 1360, height: 820, is_dark: false };

#[test]
fn the_picture_of_the_documentation_is_of_a_page_like_any() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis.url());
    let hosts = ["ams-01", "ams-02", "fra-07", "lap-vera"];
    let agents = hosts.map(|host| {
        let config = format!("host_name = {host:?}\n");
        Agent::setup().upstream(&gateway.url()).config(&config).start()
    });
    let start = |host: usize, name: &str, project: &str| {
        Campaigner::start_with(&agents[host], name, &json!({"project": project}))
    };
    let none = json!({});
    let [mut web, mut web_2] = [0, 1].map(|host| start(host, "web", "shop"));
    let mut indexer = start(2, "indexer", "search");
    let mut backup = start(0, "backup.sh", "ops");
    let mut spare = start(1, "backup.sh", "ops");
    let mut mail = start(1, "mail-store", "mail");
    let mut trainers = [0, 1, 2, 3].map(|host| start(host, "train.py", "research"));
    for program in [&mut web, &mut indexer, &mut backup, &mut mail, &mut trainers[3]] {
        program.acquire("master", "", &json!({"priority": 1}));
    }
    web_2.queue("master", "", &json!({"priority": 1}));
    backup.acquire("leader", "nightly-backup", &none);
    spare.queue("leader", "nightly-backup", &none);
    let compaction = indexer.acquire("leader", "prod/index-compaction", &none);
    web.acquire("leader", "prod/invoices", &none);
    spare.acquire("leader", "prod/cert-renewal", &none);
    for (program, name, address) in
        [(&mut web, "web-1", "10.0.4.11:8080"), (&mut web_2, "web-2", "10.0.4.12:8080")]
    {
        program.acquire("lease", name, &route(address, "edge-1"));
    }
    mail.acquire("lease", "mailbox-7", &route("10.0.4.12:8982", "imap-2"));
    let four = json!({"limit": 4});
    let permits = trainers.each_mut().map(|program| program.acquire("semaphore", "gpu", &four));
    indexer.queue("semaphore", "gpu", &four);
    mail.acquire("semaphore", "smtp-out", &json!({"limit": 10}));

    let browser = Browser::start();
    browser.look(SCREEN);
    browser.open(&gateway.url());
    browser.until_text("#live", "live");
    browser.until_text("#summary", "14 resources");
    // What happens meanwhile.
    mail.queue("semaphore", "gpu", &four);
    trainers[1].release(permits[1].hold);
    trainers[1].queue("semaphore", "gpu", &four);
    backup.kill();
    browser.until_text(&row("nightly-backup"), "backup.sh@ams-02");
    spare.acquire("master", "", &none);
    let revoked = json!({"kind": "leader", "name": "prod/index-compaction"});
    assert_eq!(agents[3].http().post("/v1/revoke", &revoked).status, 200);
    indexer.events.lost(compaction.hold);
    web.acquire("leader", "prod/index-compaction", &none);
    web_2.acquire("master", "", &json!({"priority": 9}));
    browser.until_text(&row("shop"), "web@ams-02");
    browser.until_text(&row("ops"), "backup.sh@ams-02");
    browser.until_text(&row("prod/index-compaction"), "web@ams-01");
    browser.until_text("#changes", "preempted");
    let taken = browser.keep_screenshot("status-page");
    has_no_violation(&browser, "the picture");

    let bytes = taken.metadata().expect("it was taken").len();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes; take less into the picture");
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images/status-page.png");
        std::fs::copy(taken, place).expect("the folder is there");
    }
}

fn route(address: &str, proxy: &str) -> Value {
    json!({"attributes": {"address": address, "proxy_id": proxy, "status": "ready"}})
}
