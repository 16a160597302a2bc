//! The upstream's answers of the last ten minutes, by the time that they took.

use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_wire::LatencyStatus;

use super::lateness::Lateness;

/// Minutes that the figures speak of: those that are over, and the present one.
const MINUTES: usize = 10;
/// Slowness of so many minutes is no single event.
const OFTEN: usize = 3;
const MINUTE_NS: u64 = 60_000_000_000;
/// Buckets of a minute: four between a time and twice that. The last has all above half an hour.
const BUCKETS: usize = 124;

/// Lateness of this host, and latency of the upstream.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pub(super) lateness: Lateness,
    pub(super) latency: Latency,
}

/// The answers of a minute.
#[derive(Debug, Clone)]
struct Minute {
    /// The minute since boot.
    number: u64,
    counts: [u32; BUCKETS],
    /// The slowest answer, and when it came.
    worst: (Duration, Boottime),
}

impl Minute {
    fn new(number: u64) -> Minute {
        Minute { number, counts: [0; BUCKETS], worst: (Duration::ZERO, Boottime::ZERO) }
    }
}

/// The answers of the last minutes: some 5 KiB, however many there are.
#[derive(Debug, Default)]
pub(super) struct Latency {
    minutes: Vec<Minute>,
}

impl Latency {
    /// Notes an answer that came now.
    pub(super) fn note(&mut self, now: Boottime, took: Duration) {
        let number = now.as_nanos() / MINUTE_NS;
        let at = usize::try_from(number).unwrap_or(0) % MINUTES;
        if self.minutes.is_empty() {
            self.minutes = vec![Minute::new(u64::MAX); MINUTES];
        }
        let minute = &mut self.minutes[at];
        if minute.number != number {
            *minute = Minute::new(number);
        }
        let count = &mut minute.counts[bucket(took)];
        *count = count.saturating_add(1);
        minute.worst = minute.worst.max((took, now));
    }

    /// The figures in `/v1/status`; nothing where nothing was asked.
    pub(super) fn status(&self, now: Boottime) -> Option<LatencyStatus> {
        let present = now.as_nanos() / MINUTE_NS;
        let counts = |minute: &&Minute| {
            present.checked_sub(minute.number).is_some_and(|age| age < MINUTES as u64)
        };
        let recent: Vec<&Minute> = self.minutes.iter().filter(counts).collect();
        let (worst, at) = recent.iter().map(|minute| minute.worst).max()?;
        let sum = |at: usize| recent.iter().map(|minute| u64::from(minute.counts[at])).sum::<u64>();
        let counts: Vec<u64> = (0..BUCKETS).map(sum).collect();
        let answers: u64 = counts.iter().sum();
        let worst_us = micros(worst);
        // Nothing took longer than the worst, wherever its bucket ends.
        let all = |percent| quantile(&counts, percent).map_or(worst_us, |us| us.min(worst_us));
        let by_minute = recent.iter().filter_map(|minute| {
            let counts = minute.counts.map(u64::from);
            quantile(&counts, 99).map(|us| us.min(micros(minute.worst.0)))
        });
        let mut by_minute: Vec<u64> = by_minute.collect();
        by_minute.sort_unstable_by_key(|us| std::cmp::Reverse(*us));
        Some(LatencyStatus {
            answers,
            p50_us: all(50),
            p99_us: all(99),
            p99_often_us: Some(by_minute.get(OFTEN - 1).copied().unwrap_or(0)),
            max_us: worst_us,
            max_ago_ms: u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// The end of the bucket that so many of a hundred answers are in or below; `None` where there are none.
fn quantile(counts: &[u64], percent: u64) -> Option<u64> {
    let rank = (counts.iter().sum::<u64>() * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    found.map(end_us)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The bucket that a time belongs to: 0 to 3 µs have one each, the others are a quarter of a power of two wide.
fn bucket(took: Duration) -> usize {
    let us = micros(took);
    if us < 4 {
        return us as usize;
    }
    let power = us.ilog2() as usize;
    let quarter = ((us >> (power - 2)) & 3) as usize;
    (4 * (power - 1) + quarter).min(BUCKETS - 1)
}

/// The longest time that belongs to a bucket, µs.
fn end_us(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    ((5 + quarter) << (power - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(number: u64) -> Boottime {
        Boottime::from_nanos(number * MINUTE_NS)
    }

    #[test]
    fn a_bucket_ends_where_the_next_one_begins() {
        for at in 0..BUCKETS - 1 {
            let end = end_us(at);
            assert_eq!(bucket(Duration::from_micros(end)), at, "{end}");
            assert_eq!(bucket(Duration::from_micros(end + 1)), at + 1, "{end}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn one_slow_answer_is_the_worst_and_not_the_rule() {
        let mut latency = Latency::default();
        assert_eq!(latency.status(minute(100)), None);
        for second in 0..200 {
            let now = minute(100) + Duration::from_secs(second);
            latency.note(now, Duration::from_micros(if second == 100 { 812_000 } else { 1000 }));
        }
        let status = latency.status(minute(104)).expect("answers");
        assert_eq!((status.answers, status.max_us), (200, 812_000));
        assert_eq!(status.max_ago_ms, 140_000);
        // To a quarter.
        assert!((1000..1250).contains(&status.p50_us), "{status:?}");
        assert!((1000..1250).contains(&status.p99_us), "{status:?}");
    }

    #[test]
    fn what_is_slow_in_three_minutes_is_slow_often() {
        let mut latency = Latency::default();
        for number in 100..110 {
            for answer in 0..100 {
                let slow = answer < 2 && (103..105).contains(&number);
                latency.note(minute(number), Duration::from_millis(if slow { 300 } else { 1 }));
            }
        }
        let often = |latency: &Latency| latency.status(minute(109)).unwrap().p99_often_us.unwrap();
        assert!(often(&latency) < 1250, "{}", often(&latency));
        for _ in 0..2 {
            latency.note(minute(107), Duration::from_millis(300));
        }
        assert_eq!(often(&latency), 300_000);
    }

    #[test]
    fn ten_minutes_later_it_is_forgotten() {
        let mut latency = Latency::default();
        latency.note(minute(100), Duration::from_secs(1));
        assert!(latency.status(minute(109)).is_some());
        assert_eq!(latency.status(minute(110)), None);
        latency.note(minute(110), Duration::from_micros(7));
        let status = latency.status(minute(110)).expect("an answer");
        assert_eq!((status.answers, status.p50_us, status.p99_us, status.max_us), (1, 7, 7, 7));
    }
}
