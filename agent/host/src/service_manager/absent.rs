//! A build that cannot speak with systemd, started by it.

use std::ffi::OsString;

/// A line for the administrator when systemd expects something of this process.
pub(super) fn notice(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Option<String> {
    let is_ours = |name: &str| variable(name).is_some_and(|value| *value == *pid.to_string());
    let mut expected = Vec::new();
    if variable("NOTIFY_SOCKET").is_some() {
        expected.push("NOTIFY_SOCKET");
    }
    if variable("LISTEN_FDS").is_some() && is_ours("LISTEN_PID") {
        expected.push("LISTEN_FDS");
    }
    let is_watched = variable("WATCHDOG_PID").is_none() || is_ours("WATCHDOG_PID");
    if variable("WATCHDOG_USEC").is_some() && is_watched {
        expected.push("WATCHDOG_USEC");
    }
    if expected.is_empty() {
        return None;
    }
    Some(format!(
        "systemd set {}, but this build does not speak with systemd: Type=notify and Type=notify-reload \
         wait in vain for readiness, a watchdog kills the agent, and a socket that was handed over is \
         not served; install the package, or build with `cargo build --release -p tenured --features \
         systemd` (needs libsystemd-dev and pkg-config), or use Type=exec without WatchdogSec= and \
         without a socket unit",
        expected.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            variables.iter().find(|(given, _)| *given == name).map(|(_, value)| value.into())
        };
        notice(variable, 7)
    }

    #[test]
    fn says_what_the_build_lacks_and_how_to_get_it() {
        let all = of(&[
            ("NOTIFY_SOCKET", "/run/systemd/notify"),
            ("LISTEN_FDS", "1"),
            ("LISTEN_PID", "7"),
            ("WATCHDOG_USEC", "30000000"),
            ("WATCHDOG_PID", "7"),
        ]);
        let all = all.unwrap();
        assert!(
            all.starts_with("systemd set NOTIFY_SOCKET, LISTEN_FDS, WATCHDOG_USEC, but"),
            "{all}"
        );
        assert!(all.contains("--features systemd"), "{all}");
        assert!(of(&[("WATCHDOG_USEC", "1")]).is_some());
    }

    #[test]
    fn is_silent_about_what_is_for_others() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "8")]), None);
        assert_eq!(of(&[("LISTEN_FDS", "1")]), None);
        assert_eq!(of(&[("WATCHDOG_USEC", "1"), ("WATCHDOG_PID", "8")]), None);
    }
}
