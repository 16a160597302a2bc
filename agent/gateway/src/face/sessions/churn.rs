//! Identities that register over and over.
//!
//! Two programs that go by one identity, and each of which registers anew whenever the other one has ended its
//! session, would do so for ever. As routers do with routes that come and go (RFC 2439), each registration adds to
//! a figure that halves with time; above one mark an identity is refused until the figure is below another one.
//! So one of the two programs has its session in peace, while the other one waits.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::time::Boottime;

/// The figure halves in this time.
const HALVES_IN: Duration = Duration::from_secs(60);
/// Registrations at once, before an identity is refused.
const SUPPRESSED_ABOVE: f64 = 20.0;
/// It is let in again below this figure.
const REUSED_BELOW: f64 = 10.0;
/// A figure below this is nothing.
const FORGOTTEN_BELOW: f64 = 0.5;
/// Identities that are remembered, 48 bytes each. With more of them all figures start anew.
const REMEMBERED_MAX: usize = 65_536;

/// The figures of identities.
#[derive(Debug, Default)]
pub(super) struct Churn {
    hasher: RandomState,
    figures: Mutex<HashMap<u64, Figure>>,
}

#[derive(Debug, Clone, Copy)]
struct Figure {
    value: f64,
    at: Boottime,
    is_suppressed: bool,
}

impl Figure {
    fn at(self, now: Boottime) -> f64 {
        let halves = now.since(self.at).as_secs_f64() / HALVES_IN.as_secs_f64();
        self.value * (-halves).exp2()
    }
}

impl Churn {
    /// Counts a registration of an identity.
    ///
    /// # Errors
    ///
    /// With how long to wait, when it registers too often.
    pub(super) fn register(&self, now: Boottime, identity: &[&str]) -> Result<(), Duration> {
        let key = self.hasher.hash_one(identity);
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if figures.len() >= REMEMBERED_MAX && !figures.contains_key(&key) {
            figures.retain(|_, figure| figure.at(now) >= FORGOTTEN_BELOW);
            if figures.len() >= REMEMBERED_MAX {
                figures.clear();
            }
        }
        let fresh = Figure { value: 0.0, at: now, is_suppressed: false };
        let figure = figures.entry(key).or_insert(fresh);
        (figure.value, figure.at) = (figure.at(now), now);
        let value = figure.value;
        figure.is_suppressed &= value > REUSED_BELOW;
        figure.is_suppressed |= value + 1.0 > SUPPRESSED_ABOVE;
        if figure.is_suppressed {
            return Err(HALVES_IN.mul_f64((value / REUSED_BELOW).log2().max(0.0)));
        }
        figure.value += 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(5_000_000_000);

    #[test]
    fn whoever_registers_over_and_over_is_refused_until_it_is_calm() {
        let churn = Churn::default();
        let identity = ["p", "lola"];
        for _ in 0..20 {
            churn.register(NOW, &identity).unwrap();
        }
        let wait = churn.register(NOW, &identity).unwrap_err();
        assert_eq!(wait.as_secs(), 60);
        // To ask before its time makes it wait no longer, and no less.
        let half = churn.register(NOW + wait / 2, &identity).unwrap_err();
        assert_eq!(half.as_secs(), 30);
        let bit = Duration::from_millis(1);
        let again = (0..100).take_while(|_| churn.register(NOW + wait + bit, &identity).is_ok());
        assert_eq!(again.count(), 10);
        churn.register(NOW, &["p", "donna"]).unwrap();
        churn.register(NOW, &["pl", "ola"]).unwrap();
    }

    #[test]
    fn a_session_a_minute_is_no_churn_and_what_is_remembered_is_bounded() {
        let churn = Churn::default();
        for minute in 0..1000 {
            churn.register(NOW + HALVES_IN * minute, &["lola"]).unwrap();
        }
        for number in 0..REMEMBERED_MAX + 10 {
            churn.register(NOW, &[&number.to_string()]).unwrap();
        }
        assert!(churn.figures.lock().unwrap().len() <= REMEMBERED_MAX);
    }
}
