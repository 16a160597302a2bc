//! R5: what a user that takes all that it is given costs the agent, and the users beside it.

use std::time::Duration;

use serde_json::Value;

use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Attacker, boottime_ns, rss_kib, rss_max_kib};

/// Nobody's.
const VICTIM: u32 = 64_001;
const ATTACKER: u32 = 64_002;
/// The agent's memory at most, and soon after, MiB.
const RSS_MAX_MIB: f64 = 256.0;
const RSS_AFTER_MIB: f64 = 20.0;
/// Room for the journal, MiB.
const RUNTIME_MIB: u64 = 4096;
/// The time until memory is given back.
const SOON: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Other users' calls may take so many times as long as without an attack, or as beside a program that only
/// uses as many cores.
const TIMES_NORMAL: f64 = 5.0;
const TIMES_HOG: f64 = 2.0;
/// An attack lasts so many rounds.
const ROUNDS: u32 = 4;

/// Attacks, as `attacker` takes them, each in a process of its own: two at least, so that those that only
/// use a core, beside which they are measured, leave none free on a small machine either.
struct Scenario {
    id: &'static str,
    what: &'static str,
    attacks: &'static [&'static [&'static str]],
}

/// Measures one of them.
macro_rules! scenarios {
    ($($name:ident: $id:literal $what:literal $attacks:expr;)*) => {
        $(pub(super) fn $name(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
            Scenario { id: $id, what: $what, attacks: &$attacks }.measure(effort, report)
        })*
    };
}

scenarios! {
    project: "R5a" "streams of a project's 400 sessions" [&["project", "200"], &["project", "200"]];
    listeners: "R5b" "400 programs that listen while others come and go" [&["listeners", "200"], &["listeners", "200"]];
    status: "R5c" "status unread by 300, with 20 000 holds" [&["status", "1000", "10", "150"], &["status", "1000", "10", "150"]];
    routes: "R5d" "routes unread by 150, with 42 000 leases" [&["routes", "350", "60", "75"], &["routes", "350", "60", "75"]];
    standings: "R5e" "standings unread by 150, with 42 000 waiters" [&["standing", "350", "60", "75"], &["standing", "350", "60", "75"]];
    observer: "R5e" "an observer that never reads, with 42 000 waiters" [&["observer", "350", "60"], &["observer", "350", "60"]];
    dashboards: "R5f" "4 readers of the status in a loop" [&["dashboards", "250", "40", "2"], &["dashboards", "250", "40", "2"]];
    bodies: "R5g" "9 900 slow bodies" [&["bodies", "4950"], &["bodies", "4950"]];
    heads: "R5g" "9 900 slow heads" [&["heads", "4950"], &["heads", "4950"]];
    openapi: "R5h" "openapi.json unread by 9 000" [&["openapi", "4500"], &["openapi", "4500"]];
    churn: "R5i" "2 × 1 000 connections that come and go" [&["churn", "1000"], &["churn", "1000"]];
    leases: "R5j" "leases with the longest attributes" [&["leases", "60"], &["leases", "60"]];
    log: "R5k" "grants with the longest names" [&["log"], &["log"], &["log"]];
}

impl Scenario {
    fn measure(&self, effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
        let round = Duration::from_millis(effort.round_ms);
        let agent = Agent::setup().runtime_in_memory(RUNTIME_MIB).open_to_all().start();
        let mut victim = Attacker::start(&agent, VICTIM, &["victim"])?;
        std::thread::sleep(round / 4);
        victim.seen()?;
        std::thread::sleep(round);
        let normal = Watch::of(&victim.seen()?)?;
        let hogs = self.attacks.iter().map(|_| Attacker::start(&agent, ATTACKER, &["hog"]));
        let mut hogs = hogs.collect::<anyhow::Result<Vec<_>>>()?;
        hogs.iter_mut().try_for_each(Attacker::begin)?;
        victim.seen()?;
        std::thread::sleep(round);
        let hogged = Watch::of(&victim.seen()?)?;
        drop(hogs);

        let attackers = self.attacks.iter().map(|attack| Attacker::start(&agent, ATTACKER, attack));
        let mut attackers = attackers.collect::<anyhow::Result<Vec<_>>>()?;
        let prepared = Watch::of(&victim.seen()?)?;
        attackers.iter_mut().try_for_each(Attacker::begin)?;
        std::thread::sleep(round * ROUNDS);
        let seen: Vec<_> = attackers.iter_mut().map(Attacker::seen).collect::<Result<_, _>>()?;
        let attacked = Watch::of(&victim.seen()?)?;
        let most_mib = rss_max_kib(agent.pid()) as f64 / 1024.0;
        drop(attackers);
        let ended_ns = boottime_ns();
        let passed = || Duration::from_nanos(boottime_ns() - ended_ns);
        let mib = || rss_kib(agent.pid()) as f64 / 1024.0;
        while mib() > RSS_AFTER_MIB && passed() < SOON {
            std::thread::sleep(LOOK_EVERY);
        }
        let (after_mib, took) = (mib(), passed());
        let calm = Watch::of(&victim.seen()?)?;

        let Scenario { id, what, .. } = self;
        let seen = seen.iter().map(|seen| seen["seen"].to_string()).collect::<Vec<_>>().join(", ");
        let mut add = |measure: &str, value, unit, most, against| {
            let what = format!("{what}: {measure}");
            report.add(id, &what, (value, unit), Limit::Most(most), against);
        };
        add("memory at most", most_mib, "MiB", RSS_MAX_MIB, seen);
        let watches = [&normal, &hogged, &prepared, &attacked, &calm];
        let lost = f64::from(u8::from(watches.iter().any(|watch| !watch.held)));
        let failures: Vec<_> = watches.iter().map(|watch| watch.failures.as_str()).collect();
        let failures = format!("its calls that failed: {}", failures.join(" "));
        add("another's hold lost", lost, "", 0.0, failures);
        let most_ms = (TIMES_NORMAL * normal.p99_ms).max(TIMES_HOG * hogged.p99_ms);
        let against = format!(
            "normally {:.1} ms, beside {} that use a core each {:.1} ms; max {:.0} ms, {} calls",
            normal.p99_ms,
            self.attacks.len(),
            hogged.p99_ms,
            attacked.max_ms,
            attacked.calls
        );
        add("another's calls, p99", attacked.p99_ms, "ms", most_ms, against);
        let against = format!("after {:.1} s", took.as_secs_f64());
        add("memory soon after", after_mib, "MiB", RSS_AFTER_MIB, against);
        Ok(())
    }
}

/// The victim's calls of some time.
struct Watch {
    calls: usize,
    p99_ms: f64,
    max_ms: f64,
    held: bool,
    failures: String,
}

impl Watch {
    fn of(seen: &Value) -> anyhow::Result<Watch> {
        let times_ms: Vec<f64> = serde_json::from_value(seen["times_ms"].clone())?;
        anyhow::ensure!(!times_ms.is_empty(), "the victim made no call");
        let times_ms = Samples::new(times_ms);
        Ok(Watch {
            calls: times_ms.values().len(),
            p99_ms: times_ms.quantile(0.99),
            max_ms: times_ms.quantile(1.0),
            held: seen["held"] == true,
            failures: seen["failures"].to_string(),
        })
    }
}
