//! Values as they are written.

use std::path::PathBuf;
use std::time::Duration;

use super::Refusal;

/// The rule for durations.
pub const DURATION: &str = "must be a duration such as \"15s\" or \"500ms\"";

/// A duration of whole milliseconds.
///
/// # Errors
///
/// With the rule that the text breaks; the same below.
pub fn duration(text: &str) -> Result<Duration, Refusal> {
    let duration = humantime::parse_duration(text).map_err(|_| DURATION.to_owned())?;
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("must be whole milliseconds".to_owned());
    }
    Ok(duration)
}

/// A duration within bounds, which are part of it.
pub fn duration_in(text: &str, min: Duration, max: Duration) -> Result<Duration, Refusal> {
    let duration = duration(text)?;
    if (min..=max).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("must be from {} to {}", show(min), show(max)))
    }
}

/// A number within bounds, which are part of it.
pub fn count(text: &str, min: u64, max: u64) -> Result<u64, Refusal> {
    text.parse()
        .ok()
        .filter(|count| (min..=max).contains(count))
        .ok_or_else(|| format!("must be a number from {min} to {max}"))
}

/// True or false.
pub fn switch(text: &str) -> Result<bool, Refusal> {
    text.parse().map_err(|_| "must be true or false, without quotes".to_owned())
}

/// An absolute path, so that it means the same wherever the agent is started.
pub fn path(text: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("must be an absolute path".to_owned()) }
}

/// A duration as it is written in a file.
pub fn show(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_there_and_back() {
        for (text, shown) in [("15s", "15s"), ("500ms", "500ms"), ("1m 30s", "90s"), ("0s", "0s")] {
            assert_eq!(show(duration(text).unwrap()), shown);
        }
        for text in ["", "15", "-1s", "1us", "fast"] {
            duration(text).unwrap_err();
        }
    }
}
