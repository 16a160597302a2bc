//! The upstream's latency, judged by the last minutes.

use std::time::{Duration, SystemTime};

use tenure::wire::{Check, LatencyStatus};

use crate::show::status::micros;
use crate::show::when;

/// Whoever acquires feels it if one answer in a hundred takes longer, µs.
const P99_MAX_US: u64 = 50_000;
/// An answer that takes longer is told to be late even if it was the only one: beats of short holds fail by it, µs.
const WORST_MAX_US: u64 = 1_000_000;

pub(super) fn latency(latency: &LatencyStatus, now: SystemTime) -> Check {
    const NAME: &str = "latency";
    let LatencyStatus { answers, p50_us, p99_us, max_us, max_ago_ms } = *latency;
    let at = now.checked_sub(Duration::from_millis(max_ago_ms)).unwrap_or(SystemTime::UNIX_EPOCH);
    let (p50, p99, worst) = (micros(p50_us), micros(p99_us), micros(max_us));
    let at = when::local(at);
    // Today's date goes without saying.
    let at = at.rsplit(' ').next().unwrap_or_default();
    let detail = format!(
        "{answers} answers of the upstream in the last 10 min: p50 {p50}, p99 {p99}, worst {worst} at {at}"
    );
    if p99_us > P99_MAX_US {
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
        let check = |p99_us, max_us| {
            let of =
                LatencyStatus { answers: 900, p50_us: 900, p99_us, max_us, max_ago_ms: 60_000 };
            latency(&of, now)
        };
        let well = check(4000, 812_000);
        assert_eq!(well.verdict, Verdict::Ok);
        let begin = "900 answers of the upstream in the last 10 min: p50 900 µs, p99 4.0 ms, worst 812.0 ms at ";
        let at = well.detail.strip_prefix(begin).unwrap_or_else(|| panic!("{}", well.detail));
        assert_eq!(at.len(), "02:13:00".len(), "{at}");
        let spike = check(4000, 3_000_000);
        assert_eq!(spike.verdict, Verdict::Warning);
        assert!(spike.remedy.expect("a way out").starts_with("now and then"));
        let slow = check(80_000, 100_000);
        assert_eq!(slow.verdict, Verdict::Warning);
        assert!(slow.remedy.expect("a way out").starts_with("use a server that is nearer"));
    }
}
