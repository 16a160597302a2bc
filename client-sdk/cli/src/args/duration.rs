//! Durations on the command line.

use std::time::Duration;

/// Longest duration that the command takes: one year. The wire counts ms, and a slip of the unit
/// should be an error rather than a wait for ever.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Reads `10s`, `500ms`, `2m`, `1h 30m`; a number alone, such as `10` or `0.5`, is one of seconds, as for flock(1).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let is_number = text.contains(|it: char| it.is_ascii_digit())
        && text.chars().all(|it| it.is_ascii_digit() || it == '.');
    let seconds = text.parse().ok().filter(|_| is_number);
    let duration = match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(duration)) => duration,
        Some(Err(_)) => Duration::MAX,
        None => humantime::parse_duration(text).map_err(|error| {
            format!("{error}; write seconds, or a number and a unit: 500ms, 10s, 2m, 1h30m")
        })?,
    };
    if duration > LONGEST {
        let rule = "that is longer than a year; leave the option out for its default";
        return Err(rule.to_owned());
    }
    Ok(duration)
}

/// Like [`parse`], but 0 is an error.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be longer than 0; write for example 10s".to_owned()),
        duration => Ok(duration),
    }
}

/// The same in ms, for the wire; less than 1 ms is 1 ms.
pub(crate) fn millis(duration: Duration) -> u64 {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 && !duration.is_zero() { 1 } else { ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, ms: u64) {
        assert_eq!(parse(text).map(millis), Ok(ms), "{text}");
    }

    #[test]
    fn units_are_understood() {
        check("10s", 10_000);
        check("500ms", 500);
        check("2m", 120_000);
        check("1h30m", 5_400_000);
        check("1h 30m", 5_400_000);
        check("0s", 0);
        check("10us", 1);
        check("10", 10_000);
        check("0.5", 500);
        check("0", 0);
    }

    #[test]
    fn what_is_no_duration_says_how_to_write_one() {
        for text in ["", ".", "1.2.3", "1e3", "ten", "-1s", "-1", "s"] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("500ms, 10s, 2m"), "{text}: {error}");
        }
        for long in ["2years", "99999999999", &"9".repeat(400)] {
            assert!(parse(long).is_err_and(|error| error.contains("longer than a year")), "{long}");
        }
        assert!(parse_positive("0s").is_err() && parse_positive("0").is_err());
    }
}
