//! One principal with a good key does all that it can to a gateway, and others go on as before: for a few seconds on an
//! embedded store here, and for ten minutes on every store by `tests/long hostile`.
//!
//! Held are: no call of another principal is refused or unanswered, none of their holds is lost, and once the key is gone the
//! gateway's memory and the store are as they were. Latencies are printed, and mean something in `tests/long hostile` alone:
//! here all of it shares two cores with other tests. `tests/long hostile` has three phases: calm; calm with every processor
//! kept busy at idle priority; and the attack, with processors as busy.

mod attacks;
mod honest;
mod link;
mod processes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use std::{env, thread};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_host::clock;
use tenure_tests::harness::{Gateway, Key, Postgres, RedisServer, SharedStore, rss_kib, until};

use self::attacks::Attacks;
use self::honest::Honest;
use self::link::Link;

/// The variable with the length of the attack, s.
const LENGTH: &str = "TENURE_HOSTILE_S";
const LENGTH_DEFAULT_S: u64 = 5;
/// The least length of a phase before the attack; otherwise a tenth of the attack's.
const CALM: Duration = Duration::from_secs(5);
const HONEST: usize = 4;
/// A gateway may keep so much more after an attack than before it: marks of claims that ended, by which it refuses late copies,
/// and pages of which a part is in use.
const KEPT_KIB_MAX: u64 = 24 << 10;
/// And take so much during one.
const TAKEN_KIB_MAX: u64 = 256 << 10;
/// A trial at length shows what a gateway has kept when so much time has passed since the end of the keys.
const SHOWN_AFTER: Duration = Duration::from_secs(60);

/// Gateways over one store, with their file of keys.
struct Stage {
    gateways: Vec<Gateway>,
    keys_file: std::path::PathBuf,
    evil: Key,
    honest: Vec<(String, Key)>,
    admin: Key,
    _folder: TempDir,
}

impl Stage {
    fn set(start: impl FnOnce(&[String]) -> Vec<Gateway>) -> Stage {
        let folder = TempDir::new().expect("a temporary directory");
        let keys_file = folder.path().join("keys.toml");
        let bounds =
            ["--tenant", attacks::TENANT, "--ttl-max", "20s", "--requests-per-second", "1000"];
        let evil = Key::within(attacks::PRINCIPAL, &bounds);
        let honest = (0..HONEST).map(|number| format!("honest-{number}"));
        let honest: Vec<_> = honest
            .map(|it| {
                let key = Key::within(&it, &["--tenant", "good"]);
                (it, key)
            })
            .collect();
        let admin = Key::new("admin");
        let mut stage =
            Stage { gateways: Vec::new(), keys_file, evil, honest, admin, _folder: folder };
        stage.write_keys(true);
        stage.gateways = start(&[format!("--keys-file={}", stage.keys_file.display())]);
        stage
    }

    fn write_keys(&self, with_evil: bool) {
        let evil = with_evil.then_some(&self.evil);
        let keys = self.honest.iter().map(|(_, key)| key).chain([&self.admin]).chain(evil);
        let text: String = keys.map(|key| key.line.as_str()).collect();
        let new = self.keys_file.with_extension("new");
        fs::write(&new, text).expect("it is ours");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("it is ours");
        fs::rename(&new, &self.keys_file).expect("it is ours");
        self.gateways.iter().for_each(Gateway::reload);
    }

    fn ports(&self) -> Vec<u16> {
        self.gateways.iter().map(Gateway::port).collect()
    }

    fn rss_kib(&self) -> u64 {
        self.gateways.iter().map(|gateway| rss_kib(gateway.pid())).max().unwrap_or(0)
    }

    /// Names in the store of the hostile tenant.
    fn left(&self) -> usize {
        let mut link = Link::new(self.gateways[0].port(), &self.admin.text);
        let mut found = 0;
        let mut after = Value::Null;
        loop {
            let body = json!({"page": {"after": after, "limit": 1000}}).to_string();
            let (status, text) = link.post("/v1/upstream/resources", &body).expect("it answers");
            assert_eq!(status, 200, "{text}");
            let answer: Value = serde_json::from_str(&text).expect("it is JSON");
            let names = answer["resources"].as_array().expect("a list");
            found += names.iter().filter(|it| it["tenant"] == attacks::TENANT).count();
            after = answer["next"].clone();
            if after.is_null() {
                return found;
            }
        }
    }

    /// The whole trial; `meanwhile` has to succeed during the attack.
    fn run(&self, store: &str, meanwhile: impl FnOnce(&[Gateway])) {
        let length = env::var(LENGTH).ok().map(|it| it.parse().expect("a number of s"));
        let is_alone = length.is_some();
        let length = Duration::from_secs(length.unwrap_or(LENGTH_DEFAULT_S));
        let calm = CALM.max(length / 10);
        let keys: Vec<_> =
            self.honest.iter().map(|(it, key)| (it.clone(), key.text.clone())).collect();
        let honest = Honest::start(&self.ports(), &keys);
        honest.are_served(2);
        honest.take_latencies();
        lasts(calm, || {});
        let (normal, before_kib) = (honest.take_latencies(), self.rss_kib());
        let busy_processors = is_alone.then(processes::busy_processors);
        if is_alone {
            lasts(calm, || {});
        }
        let busy = honest.take_latencies();

        let attacks = Attacks::begin(&self.ports(), &self.evil.text);
        let (began, mut taken_kib) = (clock::now(), 0);
        lasts(length / 2, || taken_kib = taken_kib.max(self.rss_kib()));
        meanwhile(&self.gateways);
        lasts(length.saturating_sub(clock::now().since(began)), || {
            taken_kib = taken_kib.max(self.rss_kib())
        });
        honest.are_served(1);
        let attacked = honest.take_latencies();
        let taken = self.left();
        let ended = clock::now();
        self.write_keys(false);
        let calls = attacks.end();
        drop(busy_processors);

        until("what the hostile principal had to be gone from the store", || self.left() == 0);
        until("the gateway to give its memory back", || {
            self.rss_kib() <= before_kib + KEPT_KIB_MAX
        });
        let clean_after = clock::now().since(ended);
        if is_alone {
            lasts(SHOWN_AFTER.saturating_sub(clean_after), || {});
        }
        let rest = self.rss_kib();
        honest.are_served(2);
        println!(
            "{store}: {} s, {calls} hostile calls, {taken} hostile names in the store; others in calm, \
             with busy processors, attacked: p50 {} {} {}, p99 {} {} {}, longest {} {} {} us; RSS {} -> {} -> {} MiB, clean after {} s",
            length.as_secs(),
            quantile(&normal, 0.5),
            quantile(&busy, 0.5),
            quantile(&attacked, 0.5),
            quantile(&normal, 0.99),
            quantile(&busy, 0.99),
            quantile(&attacked, 0.99),
            quantile(&normal, 1.0),
            quantile(&busy, 1.0),
            quantile(&attacked, 1.0),
            before_kib >> 10,
            taken_kib >> 10,
            rest >> 10,
            clean_after.as_secs(),
        );
        let refused = honest.refused();
        assert!(
            refused.is_empty(),
            "{} of others: {:#?}",
            refused.len(),
            &refused[..refused.len().min(5)]
        );
        assert!(taken_kib <= TAKEN_KIB_MAX, "{taken_kib} KiB");
        assert!(taken > 0 && calls > 0, "nothing was attacked");
        let log: String = self.gateways.iter().map(Gateway::log).collect();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// The value below which such a part of them is.
fn quantile(ascending: &[u64], part: f64) -> u64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last as f64 * part) as usize).copied().unwrap_or(0)
}

/// Does something now and then for so long.
fn lasts(time: Duration, mut look: impl FnMut()) {
    let began = clock::now();
    while clock::now().since(began) < time {
        look();
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn others_go_on_over_an_embedded_store() {
    Stage::set(|args| vec![Gateway::start_by("embedded:", &[], args)]).run("embedded", |_| {});
}

#[test]
#[ignore = "wants a machine for itself: tests/long hostile"]
fn others_go_on_over_redis() {
    let redis = RedisServer::start();
    Stage::set(|args| vec![Gateway::start_by(&redis.url(), &[], args)]).run("redis", |_| {});
}

#[test]
#[ignore = "wants a machine for itself: tests/long hostile"]
fn others_go_on_over_postgres() {
    let server = Postgres::begin();
    let url = SharedStore::url(&server);
    Stage::set(|args| vec![Gateway::start_by(&url, &[], args)]).run("postgres", |_| {});
}

#[test]
#[ignore = "wants a machine for itself: tests/long hostile"]
fn others_go_on_in_a_cluster_that_grows_and_is_backed_up() {
    let folder = TempDir::new().expect("a temporary directory");
    let added = std::cell::RefCell::new(None);
    Stage::set(|args| Gateway::nodes(3, args)).run("cluster", |nodes| {
        let backup = folder.path().join("backup").display().to_string();
        nodes[1].cluster(&["backup", &backup]);
        added.replace(Some(nodes[0].node_beside(&[])));
    });
}
