//! Durations for people.

use std::time::Duration;

/// A duration as people say it: its two largest units, ms only below 10 s.
pub fn brief(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    let two = |large: u64, unit: &str, small: u64, sub: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{sub}") }
    };
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_brief() {
        let check = |ms, text: &str| assert_eq!(brief(Duration::from_millis(ms)), text);
        check(0, "0ms");
        check(999, "999ms");
        check(1_250, "1.2s");
        check(59_999, "59s");
        check(60_000, "1m");
        check(61_000, "1m1s");
        check(7_260_000, "2h1m");
        check(90_000_000, "1d1h");
    }
}
