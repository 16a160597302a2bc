//! Leaders that die, one after the other.

use tenure_tests::harness::{LeaderKills, Nodes};

/// How many; a few without it.
const KILLS: &str = "TENURE_CLUSTER_KILLS";

#[test]
fn killed_leaders_lose_no_hold_and_no_lease_ends_early() {
    let rounds = std::env::var(KILLS).map_or(3, |text| text.parse().expect("a number"));
    let Some(mut nodes) = Nodes::start(3) else { return };
    let mut kills = LeaderKills::of(&mut nodes, rounds);
    assert_eq!(kills.lost, 0);
    assert_eq!(kills.late_ms.len() + kills.late_in_gap_ms.len(), rounds);
    for (what, times) in [
        ("granted again", &mut kills.again_ms),
        ("lease late", &mut kills.late_ms),
        ("lease that ended before that late", &mut kills.late_in_gap_ms),
    ] {
        times.sort_by(f64::total_cmp);
        let Some(longest) = times.last() else { continue };
        let [p50, p99] = [0.5, 0.99].map(|part| times[((times.len() - 1) as f64 * part) as usize]);
        println!(
            "{what}, {} of {rounds} kills: p50 {p50:.0} ms, p99 {p99:.0} ms, max {longest:.0} ms",
            times.len()
        );
    }
    let early = kills.late_ms.iter().chain(&kills.late_in_gap_ms).find(|late| **late < 0.0);
    assert_eq!(early, None);
}
