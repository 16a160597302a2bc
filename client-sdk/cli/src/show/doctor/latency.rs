//! The upstream's latency, judged by the last minutes.

use std::time::{Duration, SystemTime};

use tenure::wire::{Check, LatencyStatus};

use crate::show::status::micros;
use crate::show::when;

/// Whoever acquires feels it if answers take longer, µs.
const SLOW_US: u64 = 50_000;
/// An answer that takes longer is told to be late even if it was the only one: beats of short holds fail by it, µs.
const WORST_MAX_US: u64 = 1_000_000;
/// A few slow answers make the p99 of fewer answers than this.
const P99_ANSWERS_MIN: u64 = 1000;
/// Fewer answers have no p99.
const P99_SHOWN_MIN: u64 = 100;

pub(super) fn latency(latency: &LatencyStatus, now: SystemTime) -> Check {
    const NAME: &str = "latency";
    let LatencyStatus { answers, p50_us, p99_us, p99_often_us, max_us, max_ago_ms } = *latency;
    let at = now.checked_sub(Duration::from_millis(max_ago_ms)).unwrap_or(SystemTime::UNIX_EPOCH);
    let (p50, worst) = (micros(p50_us), micros(max_us));
    let p99 = match answers {
        P99_SHOWN_MIN.. => format!(", p99 {}", micros(p99_us)),
        _ => String::new(),
    };
    let at = when::local(at);
    // Today's date goes without saying.
    let at = at.rsplit(' ').next().unwrap_or_default();
    let detail = format!(
        "{answers} answers of the upstream in the last 10 min: p50 {p50}{p99}, worst {worst} at {at}"
    );
    // Agents of before do not tell of single minutes.
    let is_often = p99_us.min(p99_often_us.unwrap_or(p99_us)) > SLOW_US;
    if p50_us > SLOW_US || (answers >= P99_ANSWERS_MIN && is_often) {
        let remedy = "use a server that is nearer, or see whether it is overloaded; keep ttls far above \
                      the worst";
        return Check::warning(NAME, detail, remedy);
    }
    if max_us > WORST_MAX_US {
        let remedy = format!(
            "now and then, not always: see what the server, the network or this host did at {at}, and keep \
             ttls far above it"
        );
        return Check::warning(NAME, detail, remedy);
    }
    Check::ok(NAME, detail)
}

#[cfg(test)]
mod tests {
    use tenure::wire::Verdict;

    use super::*;

    #[test]
    fn it_is_judged_by_the_rule_and_a_spike_has_its_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let check = |answers, [p50_us, p99_us, often_us, max_us]: [u64; 4]| {
            let p99_often_us = Some(often_us);
            let max_ago_ms = 60_000;
            latency(
                &LatencyStatus { answers, p50_us, p99_us, p99_often_us, max_us, max_ago_ms },
                now,
            )
        };
        let remedy = |check: Check| check.remedy.unwrap_or_default();
        let well = check(900, [900, 4000, 4000, 812_000]);
        assert_eq!(well.verdict, Verdict::Ok);
        let begin = "900 answers of the upstream in the last 10 min: p50 900 µs, p99 4.0 ms, worst 812.0 ms at ";
        let at = well.detail.strip_prefix(begin).unwrap_or_else(|| panic!("{}", well.detail));
        assert_eq!(at.len(), "02:13:00".len(), "{at}");
        let spike = check(900, [900, 4000, 4000, 3_000_000]);
        assert_eq!(spike.verdict, Verdict::Warning);
        assert!(remedy(spike).starts_with("now and then"));
        // One slow answer of a few is their p99.
        let few = check(7, [900, 80_000, 0, 80_000]);
        assert_eq!(few.verdict, Verdict::Ok, "{few:?}");
        assert!(!few.detail.contains("p99"), "{few:?}");
        assert_eq!(check(999, [900, 80_000, 80_000, 100_000]).verdict, Verdict::Ok);
        assert_eq!(check(9000, [900, 80_000, 4000, 100_000]).verdict, Verdict::Ok, "one minute");
        for slow in
            [check(9000, [900, 80_000, 60_000, 100_000]), check(7, [60_000, 60_000, 0, 60_000])]
        {
            assert_eq!(slow.verdict, Verdict::Warning, "{slow:?}");
            assert!(remedy(slow).starts_with("use a server that is nearer"));
        }
    }
}
