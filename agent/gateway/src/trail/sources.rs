//! Pure. How many refusals of a source are written down one by one, and what is summed up of the others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::time::Boottime;

/// Sources that are told apart; the others share one.
const SOURCES_MAX: usize = 4096;
/// Sources that have a sum of their own in an interval. What the others left out is summed up together.
const SUMS_MAX: usize = 64;
/// Refusals that are written at once, in seconds of the rate.
const BURST: Duration = Duration::from_secs(5);
/// The refusals of all sources together, in rates of one: many addresses must not push out what succeeded.
const RATES_IN_ALL: u32 = 20;

/// The causer of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Principal(Arc<str>),
    /// The neighbourhood of a caller that was not let in.
    Address(IpAddr),
    /// All that are not told apart.
    Others,
}

/// Refusals of a source that were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sum {
    pub source: Source,
    pub count: u64,
    /// The first and the last reason.
    pub reasons: [Box<str>; 2],
    /// The instants of both, in µs since 1970.
    pub wall_us: [u64; 2],
}

/// A token bucket, as the instant at which the next refusal of an even stream is due.
#[derive(Debug, Default)]
struct Bucket(Option<Boottime>);

impl Bucket {
    fn has_room(&self, now: Boottime, period: Duration) -> bool {
        let due = self.0.map_or(now, |due| due.max(now));
        (due + period).since(now) <= BURST
    }

    fn take(&mut self, now: Boottime, period: Duration) {
        self.0 = Some(self.0.map_or(now, |due| due.max(now)) + period);
    }

    fn is_full(&self, now: Boottime) -> bool {
        self.0.is_none_or(|due| due <= now)
    }
}

#[derive(Debug, Default)]
struct Meter {
    bucket: Bucket,
    sum: Option<Sum>,
}

/// The sources of refusals.
#[derive(Debug)]
pub(super) struct Sources {
    period: Duration,
    meters: HashMap<Source, Meter>,
    in_all: Bucket,
}

impl Sources {
    /// With so many refusals of each source in a second.
    pub(super) fn new(per_second: u32) -> Sources {
        let period = Duration::from_secs(1) / per_second.max(1);
        Sources { period, meters: HashMap::new(), in_all: Bucket::default() }
    }

    /// True if this refusal is to be written down; otherwise it is part of a sum.
    pub(super) fn admit(
        &mut self,
        now: Boottime,
        wall_us: u64,
        source: Source,
        reason: &str,
    ) -> bool {
        let (period, shared) = (self.period, self.period / RATES_IN_ALL);
        if self.meter(source.clone()).bucket.has_room(now, period)
            && self.in_all.has_room(now, shared)
        {
            self.in_all.take(now, shared);
            self.meter(source).bucket.take(now, period);
            return true;
        }
        self.leave_out(wall_us, source, reason);
        false
    }

    /// A refusal is part of the sum of its source.
    pub(super) fn leave_out(&mut self, wall_us: u64, source: Source, reason: &str) {
        let source = self.known(source);
        match &mut self.meter(source.clone()).sum {
            Some(sum) => {
                sum.count += 1;
                sum.wall_us[1] = wall_us;
                if *sum.reasons[1] != *reason {
                    sum.reasons[1] = reason.into();
                }
            }
            none => {
                let reasons = [reason.into(), reason.into()];
                *none = Some(Sum { source, count: 1, reasons, wall_us: [wall_us; 2] });
            }
        }
    }

    /// The sums since the last call. Forgets sources that have been silent.
    pub(super) fn take_sums(&mut self, now: Boottime) -> Vec<Sum> {
        let mut sums: Vec<Sum> =
            self.meters.values_mut().filter_map(|meter| meter.sum.take()).collect();
        self.meters.retain(|_, meter| !meter.bucket.is_full(now));
        // Those that left out most have a line of their own.
        sums.sort_by_key(|sum| (sum.source == Source::Others, Reverse(sum.count)));
        if sums.len() > SUMS_MAX {
            let rest = sums.split_off(SUMS_MAX - 1);
            sums.extend(rest.into_iter().reduce(Sum::with));
        }
        sums
    }

    fn meter(&mut self, source: Source) -> &mut Meter {
        let source = self.known(source);
        self.meters.entry(source).or_default()
    }

    /// The source under which it is counted.
    fn known(&self, source: Source) -> Source {
        let has_room = self.meters.len() < SOURCES_MAX || self.meters.contains_key(&source);
        if has_room { source } else { Source::Others }
    }
}

impl Sum {
    /// Both, as one of nobody in particular.
    fn with(self, other: Sum) -> Sum {
        let is_first = self.wall_us[0] <= other.wall_us[0];
        let is_last = self.wall_us[1] >= other.wall_us[1];
        let wall_us =
            [self.wall_us[0].min(other.wall_us[0]), self.wall_us[1].max(other.wall_us[1])];
        let ([first, last], [others_first, others_last]) = (self.reasons, other.reasons);
        let reasons =
            [if is_first { first } else { others_first }, if is_last { last } else { others_last }];
        Sum { source: Source::Others, count: self.count + other.count, reasons, wall_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(7_000_000_000);
    const S: Duration = Duration::from_secs(1);

    fn address(number: u32) -> Source {
        Source::Address(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn a_burst_is_written_then_the_rate_and_the_rest_is_summed_up() {
        let mut sources = Sources::new(10);
        let mut written = 0;
        for number in 0..1000_u64 {
            let reason = if number < 50 { "first" } else { "later" };
            written += u32::from(sources.admit(NOW, number, address(1), reason));
        }
        assert_eq!(written, 50);
        assert!(sources.admit(NOW, 7, Source::Principal("p".into()), "of another"));
        let sums = sources.take_sums(NOW);
        let expected = Sum {
            source: address(1),
            count: 950,
            reasons: ["later".into(), "later".into()],
            wall_us: [50, 999],
        };
        assert_eq!(sums, [expected]);
        assert!(sources.take_sums(NOW).is_empty());
        let later = (0..1000).filter(|at| sources.admit(NOW + S, *at, address(1), "again"));
        assert_eq!(later.count(), 10);
        sources.take_sums(NOW + S * 60);
        assert!(sources.meters.is_empty(), "a source that is silent is forgotten");
    }

    #[test]
    fn many_sources_share_the_table_the_rate_in_all_and_the_sums() {
        let mut sources = Sources::new(10);
        let written =
            (0..100_000).filter(|at| sources.admit(NOW, u64::from(*at), address(*at), "r"));
        assert_eq!(written.count(), 1000, "20 times the burst of one");
        assert!(sources.meters.len() <= SOURCES_MAX + 1);
        let sums = sources.take_sums(NOW);
        assert_eq!(sums.len(), SUMS_MAX);
        assert_eq!(sums.iter().map(|sum| sum.count).sum::<u64>(), 99_000);
        assert_eq!(sums.last().unwrap().source, Source::Others);
    }
}
