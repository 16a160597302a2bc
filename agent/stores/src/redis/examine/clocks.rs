//! Clocks: how far the server is away, in time and on its clock, and who writes scores with a clock
//! of his own that is wrong.

use std::fmt::Write;
use std::time::Duration;

use redis::pipe;
use redis::{FromRedisValue, Value};
use tenure_core::model::Resource;
use tenure_host::clock;
use tenure_wire::{Check, DEFAULT_TENANT};
use uuid::Uuid;

use super::rights::grant;
use super::{Asker, NoAnswer, names};
use crate::redis::layout::{About, Layout, hyphenated};

/// Looks at the server's clock; the median counts.
const LOOKS: usize = 5;
/// Clocks that differ by less are good enough to order waiters by, µs.
const SKEW_MAX_US: u64 = 2_000_000;
/// No program reserves a permit for longer without a beat, s; the package's default is 180.
const RESERVED_MAX_S: f64 = 86_400.0;
/// Pages of the keyspace to look at, and keys in each: together a few ms of the server's time.
const PAGES_MAX: usize = 32;
const KEYS_PER_PAGE: &str = "1000";
/// Semaphores to look at.
const SEMAPHORES_MAX: usize = 256;
/// Members to look at in each.
const MEMBERS_MAX: &str = "8";
/// Semaphores that are named.
const NAMED_MAX: usize = 5;

pub(super) async fn look(asker: &mut Asker, layout: &Layout, user: &str) -> Vec<Check> {
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        match Look::take(asker).await {
            Ok(look) => looks.push(look),
            Err(why) => {
                let remedy = grant(user, "+time");
                return vec![Check::unknown(names::CLOCK, why.to_string(), remedy)];
            }
        }
    }
    let round_trip_us = median(looks.iter().map(|look| look.round_trip_us));
    let ahead_us = median(looks.iter().map(|look| look.ahead_us));
    let server_us = looks.iter().map(|look| look.server_us).max().unwrap_or_default();
    vec![
        latency(round_trip_us),
        skew(ahead_us, round_trip_us),
        match scores(asker, layout, server_us).await {
            Ok(check) => check,
            Err(why @ NoAnswer::Forbidden(_)) => Check::unknown(
                names::SCORES,
                format!("whether other programs' clocks are right: {why}"),
                grant(user, "+scan +zrangebyscore"),
            ),
            Err(why) => Check::unknown(names::SCORES, why.to_string(), "run this again"),
        },
    ]
}

/// One look at the server's clock.
struct Look {
    round_trip_us: u64,
    /// How far this host's clock is ahead of the server's, µs.
    ahead_us: i64,
    server_us: u64,
}

impl Look {
    async fn take(asker: &mut Asker) -> Result<Look, NoAnswer> {
        let (sent, wall_us) = (clock::now(), clock::wall_us());
        let (seconds, micros): (u64, u64) = asker.ask(&["TIME"]).await?;
        let round_trip_us = u64::try_from(clock::now().since(sent).as_micros()).unwrap_or(u64::MAX);
        let server_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        // The server looked at its clock in the middle, if both ways are equally long.
        let here_us = wall_us.saturating_add(round_trip_us / 2);
        Ok(Look { round_trip_us, ahead_us: signed(here_us) - signed(server_us), server_us })
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// The one in the middle; zero of none.
fn median<T: Ord + Copy + Default>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A few looks say nothing of how it goes: who asks judges by the answers of the last minutes.
fn latency(round_trip_us: u64) -> Check {
    let detail = format!("a round trip takes {} at the moment", brief(round_trip_us));
    Check::ok(names::LATENCY, detail)
}

/// The agent itself never compares clocks; programs that write the keys themselves do.
fn skew(ahead_us: i64, round_trip_us: u64) -> Check {
    let by = ahead_us.unsigned_abs();
    let which = if ahead_us < 0 { "behind" } else { "ahead of" };
    let detail = format!(
        "this host's clock is {} {which} the server's (± {}); the agent goes by neither",
        brief(by),
        brief(round_trip_us / 2)
    );
    if by <= SKEW_MAX_US {
        return Check::ok(names::CLOCK, detail);
    }
    Check::warning(
        names::CLOCK,
        format!("{detail}, but programs on this host that write the keys themselves do"),
        "set the clocks, here or of the server: run a time daemon (chrony, systemd-timesyncd)",
    )
}

fn brief(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", Duration::from_micros(us).as_secs_f64() * 1e3),
        _ => format!("{:.1} s", Duration::from_micros(us).as_secs_f64()),
    }
}

/// A key with scores of time.
struct Scored {
    key: String,
    resource: Resource,
    is_queue: bool,
}

/// Looks at some semaphores for scores that lie further in the future than they can, if they were
/// written by a right clock. Clocks that are behind cannot be told from entries that are old.
async fn scores(asker: &mut Asker, layout: &Layout, server_us: u64) -> Result<Check, NoAnswer> {
    let (keys, is_whole) = semaphores(asker, layout).await?;
    let now = Duration::from_micros(server_us).as_secs_f64();
    let skew = Duration::from_micros(SKEW_MAX_US).as_secs_f64();
    let mut questions = pipe();
    for Scored { key, is_queue, .. } in &keys {
        let from = now + skew + if *is_queue { 0.0 } else { RESERVED_MAX_S };
        let range = [key, &format!("({from}"), "+inf", "WITHSCORES", "LIMIT", "0", MEMBERS_MAX];
        questions.cmd("ZRANGEBYSCORE").arg(&range);
    }
    let mut found = Vec::new();
    if !keys.is_empty() {
        for (scored, answer) in keys.iter().zip(asker.ask_all(&mut questions).await?) {
            let Ok(members) = Vec::<(String, f64)>::from_redis_value(answer?) else { continue };
            if let Some(ahead) = foreign(asker, layout, scored, &members, now).await? {
                found.push(ahead);
            }
        }
    }
    let looked = keys.iter().filter(|scored| scored.is_queue).count();
    Ok(judge(&found, keys.len() - looked, looked, is_whole))
}

/// The finding about one key, in words, unless the agents' own entries are all there is.
async fn foreign(
    asker: &mut Asker,
    layout: &Layout,
    scored: &Scored,
    members: &[(String, f64)],
    now: f64,
) -> Result<Option<String>, NoAnswer> {
    let Scored { resource, is_queue, .. } = scored;
    if members.is_empty() {
        return Ok(None);
    }
    // Agents write the server's time, and may hold for longer than others do.
    let mut questions = pipe();
    for (member, _) in members {
        let id = Uuid::try_parse(member).map(hyphenated).unwrap_or_default();
        questions.exists(layout.claim(&resource.tenant, &id));
    }
    let mut worst: Option<f64> = None;
    for ((_, score), answer) in members.iter().zip(asker.ask_all(&mut questions).await?) {
        if answer? == Value::Int(0) {
            worst = Some(worst.unwrap_or(0.0).max(score - now));
        }
    }
    let Some(seconds) = worst else { return Ok(None) };
    let mut text = resource.name.to_string();
    if &*resource.tenant != DEFAULT_TENANT {
        let _infallible = write!(text, " of tenant {}", resource.tenant);
    }
    let who = if *is_queue { "a waiter" } else { "a holder's end" };
    let _infallible = write!(text, " ({who} {seconds:.1} s in the future)");
    Ok(Some(text))
}

/// Semaphores' keys, and whether the whole keyspace was looked at.
async fn semaphores(asker: &mut Asker, layout: &Layout) -> Result<(Vec<Scored>, bool), NoAnswer> {
    let pattern = layout.permits_pattern();
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    for _ in 0..PAGES_MAX {
        let page = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", KEYS_PER_PAGE, "TYPE", "zset"];
        let (next, names): (String, Vec<Value>) = asker.ask(&page).await?;
        for name in names {
            // Not every name in a server is text.
            let Ok(key) = String::from_redis_value(name) else { continue };
            let (resource, is_queue) = match layout.about(key.as_bytes()) {
                Some(About::Queue(resource)) => (resource, true),
                Some(About::Permits(resource)) => (resource, false),
                _ => continue,
            };
            keys.push(Scored { key, resource, is_queue });
        }
        if next == "0" {
            return Ok((keys, true));
        }
        if keys.len() >= SEMAPHORES_MAX {
            break;
        }
        cursor = next;
    }
    keys.truncate(SEMAPHORES_MAX);
    Ok((keys, false))
}

fn judge(found: &[String], held: usize, queues: usize, is_whole: bool) -> Check {
    let sample = if is_whole { "" } else { " (a sample)" };
    let looked = format!("{held} held and {queues} queued semaphores looked at{sample}");
    if found.is_empty() {
        return Check::ok(names::SCORES, format!("{looked}: no clock of a program is ahead"));
    }
    let named = found.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match found.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Check::warning(
        names::SCORES,
        format!("{looked}: programs whose clocks are ahead wrote {named}{more}"),
        "set the clocks of the hosts that these programs run on: such a waiter is served late, such \
         a holder outlives its death",
    )
}

#[cfg(test)]
mod tests {
    use tenure_wire::Verdict;

    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([5, 1, 9, 2, 3].into_iter()), 3);
        assert_eq!(median([-7].into_iter()), -7);
        assert_eq!(median(std::iter::empty::<u64>()), 0);
    }

    #[test]
    fn a_clock_that_is_wrong_is_a_warning_to_both_sides() {
        assert_eq!(skew(1_900_000, 300).verdict, Verdict::Ok);
        let check = skew(0, 300);
        assert!(check.detail.starts_with("this host's clock is 0 µs ahead of"), "{check:?}");
        for ahead_us in [2_100_000, -2_100_000] {
            let check = skew(ahead_us, 300);
            assert_eq!(check.verdict, Verdict::Warning);
            assert!(check.detail.contains("2.1 s"), "{check:?}");
            assert!(check.detail.contains("(± 150 µs)"), "{check:?}");
        }
    }

    #[test]
    fn a_few_looks_are_told_and_not_judged() {
        assert_eq!(latency(80_000).verdict, Verdict::Ok);
        assert_eq!(latency(80_000).detail, "a round trip takes 80.0 ms at the moment");
    }

    #[test]
    fn only_some_are_named() {
        let found: Vec<String> = (0..7).map(|number| format!("s{number}")).collect();
        let check = judge(&found, 3, 4, false);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.detail.contains("s0, s1, s2, s3, s4 and 2 more"), "{check:?}");
        assert!(check.detail.starts_with("3 held and 4 queued semaphores looked at (a sample)"));
        assert_eq!(judge(&[], 3, 4, true).verdict, Verdict::Ok);
    }
}
