//! P23: how soon proxies are told of routes, also beside dead and slow ones, and of very many.

use std::net::TcpListener;
use std::ops::Range;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{
    FakeProxy, Gateway, PatternRunners, Runners, Told, boottime_ns, cpu_ns, register,
};

const PROXIES: usize = 50;
/// Of them have no listener; have one that takes nothing; answer late.
const GONE: Range<usize> = 0..5;
const SILENT: Range<usize> = 5..10;
const SLOW: Range<usize> = 10..15;
const SLOW_BY: Duration = Duration::from_secs(2);
/// Changes for each round of the effort.
const CHANGES: usize = 10;
/// Those that nobody renews.
const ENDING: usize = 30;
const ENDING_TTL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(3600);
/// Mailboxes of one tenant; a quick run has the first alone.
const MANY: [usize; 2] = [1_300, 10_000];
/// Their ttl, within which all of them are granted and renewed once.
const MANY_TTL_S: u64 = 45;
/// Changes of one of them for each round.
const MANY_CHANGES: usize = 3;
/// A store renews so many at once.
const BEATS: usize = 512;
/// From a change to the proxies that are well, and from the end of a route to its removal, ms.
const TOLD_MS: f64 = 1000.0;
const ENDED_MS: f64 = 100.0;

struct Bench {
    store: &'static str,
    gateway: Gateway,
    runtime: Runtime,
    _config: tempfile::TempDir,
}

pub(super) fn beside_dead_and_slow_ones(
    effort: &Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    for (store, url) in [("embedded", "embedded:".to_owned()), ("Redis", redis.url())] {
        Bench::new(store, &url)?.of_some_proxies(effort, report)?;
    }
    Ok(())
}

pub(super) fn of_many_mailboxes(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let quick = effort.holds_max < Effort::FULL.holds_max;
    for count in MANY.into_iter().take(if quick { 1 } else { MANY.len() }) {
        let redis = SharedRedis::start();
        Bench::new("embedded", "embedded:")?.of_many(count, effort, None, report)?;
        Bench::new("Redis", &redis.url())?.of_many(count, effort, Some(&redis), report)?;
    }
    Ok(())
}

fn mailbox(number: usize) -> String {
    format!("mail-{number}@proxy-01")
}

/// How long after `since` a proxy was told of a mailbox last, ms.
fn lag_ms(proxy: &FakeProxy, mailbox: &str, since: u64) -> f64 {
    let at = proxy.told().lock().at.get(mailbox).copied().unwrap_or(u64::MAX);
    (at as f64 - since as f64) / 1e6
}

/// Waits until a proxy was told this of a mailbox.
fn until_told(proxy: &FakeProxy, mailbox: &str, status: Option<&str>) -> anyhow::Result<()> {
    let found = proxy.told().wait(|told: &Told| {
        let known = told.routes.get(mailbox).map(|(_, status)| status.as_str());
        (known == status).then_some(())
    });
    found.map_err(|_| anyhow::anyhow!("{} was not told {status:?} of {mailbox}", proxy.id))
}

impl Bench {
    fn new(store: &'static str, url: &str) -> anyhow::Result<Bench> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("gateway.toml");
        let text = format!("[mailbox]\ngrace_period = \"{}s\"\n", GRACE.as_secs());
        std::fs::write(&file, text)?;
        let gateway = Gateway::start_by(url, &[], &[format!("--config={}", file.display())]);
        Ok(Bench { store, gateway, runtime: Runtime::new()?, _config: dir })
    }

    fn registered(&self, id: &str, address: &str) -> anyhow::Result<()> {
        let ack = self.runtime.block_on(register(&self.gateway, None, id, address))?;
        anyhow::ensure!(ack.success, "{}", ack.message);
        Ok(())
    }

    fn row(&self, what: &str, times: Vec<f64>, limit: f64, more: &str, report: &mut Report) {
        let times = Samples::new(times);
        let (count, p50, most) = (times.values().len(), times.median(), times.quantile(1.0));
        let against = format!("p50 {p50:.0}, max {most:.0} ms, of {count}{more}");
        let (title, value) = (format!("{}: {what}", self.store), (times.quantile(0.99), "ms"));
        report.add("P23", &title, value, Limit::Most(limit), against);
    }

    fn of_some_proxies(&self, effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
        let mut proxies: Vec<FakeProxy> = (0..PROXIES)
            .map(|number| {
                let delay = if SLOW.contains(&number) { SLOW_BY } else { Duration::ZERO };
                FakeProxy::start(&format!("proxy-{number:02}"), delay)
            })
            .collect();
        for proxy in &proxies {
            self.registered(&proxy.id, &proxy.address())?;
        }
        let changes = CHANGES * effort.rounds;
        let _inside = self.runtime.enter();
        let runners = PatternRunners::of(&self.gateway, changes + ENDING);
        self.runtime.block_on(runners.acquire(0, &mailbox(0), TTL))?;
        proxies.iter().try_for_each(|proxy| until_told(proxy, &mailbox(0), Some("active")))?;
        proxies[GONE.start..SILENT.end].iter_mut().for_each(FakeProxy::kill);
        let silent: Vec<TcpListener> = proxies[SILENT]
            .iter()
            .map(|proxy| TcpListener::bind(proxy.address()))
            .collect::<Result<_, _>>()?;

        let mut lags = Vec::new();
        for number in 1..changes {
            let (began, name) = (boottime_ns(), mailbox(number));
            self.runtime.block_on(runners.acquire(number, &name, TTL))?;
            for proxy in &proxies[SLOW.end..] {
                until_told(proxy, &name, Some("active"))?;
                lags.push(lag_ms(proxy, &name, began));
            }
        }
        let beside = "; 5 have no listener, 5 read nothing, 5 answer after 2 s";
        self.row("acquire → 35 of 50 proxies are told, p99", lags, TOLD_MS, beside, report);

        drop(silent);
        let began = boottime_ns();
        for proxy in &mut proxies[GONE.start..SILENT.end] {
            proxy.start_again();
        }
        let mut back = Vec::new();
        for proxy in &proxies[GONE.start..SILENT.end] {
            let all = proxy.told().wait(|told| (told.routes.len() == changes).then_some(()));
            all.map_err(|_| anyhow::anyhow!("{} is not right", proxy.id))?;
            let last = proxy.told().lock().at.values().max().copied().unwrap_or(u64::MAX);
            back.push((last as f64 - began as f64) / 1e6);
        }
        self.row("10 dead proxies start → each has all routes, p99", back, TOLD_MS, "", report);
        self.of_ends(&proxies[SLOW.end..], &runners, changes, report)
    }

    /// Routes that nobody renews.
    fn of_ends(
        &self,
        proxies: &[FakeProxy],
        runners: &PatternRunners,
        first: usize,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut began = Vec::new();
        for number in first..first + ENDING {
            began.push((mailbox(number), boottime_ns()));
            self.runtime.block_on(runners.acquire(number, &mailbox(number), ENDING_TTL))?;
        }
        let lags = |status: Option<&str>, life: Duration| -> anyhow::Result<Vec<f64>> {
            let mut lags = Vec::new();
            for (name, began) in &began {
                for proxy in proxies {
                    until_told(proxy, name, status)?;
                    lags.push(lag_ms(proxy, name, began + life.as_nanos() as u64));
                }
            }
            Ok(lags)
        };
        let expiring = lags(Some("expiring"), ENDING_TTL)?;
        let removed = lags(None, ENDING_TTL + GRACE)?;
        self.row("ttl → 35 proxies are told `expiring`, p99", expiring, ENDED_MS, "", report);
        self.row("ttl + grace → 35 proxies remove the route, p99", removed, ENDED_MS, "", report);
        Ok(())
    }

    /// Very many mailboxes: one of them changes, and then all end at the same instant.
    fn of_many(
        &self,
        count: usize,
        effort: &Effort,
        redis: Option<&SharedRedis>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let runners = Runners::new(&self.gateway, None);
        let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
        self.registered(&proxy.id, &proxy.address())?;
        for number in 0..count {
            runners.take_for(number, &mailbox(number), "active", MANY_TTL_S, GRACE.as_secs());
        }
        let all = proxy.told().wait(|told| (told.routes.len() == count).then_some(()));
        all.map_err(|_| anyhow::anyhow!("the proxy does not know all"))?;

        let changes = MANY_CHANGES * effort.rounds;
        let scripts = redis.map(SharedRedis::scripts);
        let cpu = cpu_ns(self.gateway.pid());
        let mut lags = Vec::new();
        for change in 0..changes {
            let status = ["degraded", "active"][change % 2];
            let began = boottime_ns();
            runners.take_for(0, &mailbox(0), status, MANY_TTL_S, GRACE.as_secs());
            until_told(&proxy, &mailbox(0), Some(status))?;
            lags.push(lag_ms(&proxy, &mailbox(0), began));
        }
        let each_ms = (cpu_ns(self.gateway.pid()) - cpu) as f64 / 1e6 / changes as f64;
        let calls = redis.zip(scripts).map(|(it, before)| it.scripts() - before);
        let calls =
            calls.map_or_else(String::new, |it| format!(", {} scripts", it / changes as u64));
        let more = format!("; {each_ms:.1} ms of the gateway's processor time each{calls}");
        self.row(
            &format!("{count} mailboxes, one changes → told, p99"),
            lags,
            TOLD_MS,
            &more,
            report,
        );

        let numbers: Vec<usize> = (0..count).collect();
        let mut renewed = Vec::with_capacity(count);
        for some in numbers.chunks(BEATS) {
            runners.renew(some.iter().map(|number| (*number, mailbox(*number))), MANY_TTL_S);
            renewed.extend(std::iter::repeat_n(boottime_ns(), some.len()));
        }
        let spread = (renewed.last().unwrap_or(&0) - renewed.first().unwrap_or(&0)) / 1_000_000;
        let life = (Duration::from_secs(MANY_TTL_S) + GRACE).as_nanos() as u64;
        let ended = proxy.told().wait(|told| told.routes.is_empty().then_some(()));
        ended.map_err(|_| anyhow::anyhow!("the proxy has routes that have ended"))?;
        let lags = numbers.iter().zip(&renewed);
        let lags = lags.map(|(number, at)| lag_ms(&proxy, &mailbox(*number), at + life)).collect();
        let more = format!("; they end within {spread} ms");
        self.row(
            &format!("{count} mailboxes end at once → told, p99"),
            lags,
            TOLD_MS,
            &more,
            report,
        );
        Ok(())
    }
}
