//! The end of this command: exit statuses, with numbers of BSD `sysexits.h` where one fits, and deaths.

/// The request was refused.
pub(crate) const REFUSED: u8 = 1;
/// The command line is wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The agent or its upstream cannot be reached (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The guarded command was stopped because its hold was lost (`EX_IOERR`).
pub(crate) const LOST: u8 = 74;
/// The resource was not acquired (`EX_TEMPFAIL`).
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The agent's policy, or its upstream, forbids it (`EX_NOPERM`).
pub(crate) const FORBIDDEN: u8 = 77;
/// The guarded command cannot be executed, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The guarded command was not found, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The status of something that a signal ended, as shells say it.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The way in which this command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It exits with this status.
    Exit(u8),
    /// It dies by this signal, as the guarded command did: a shell that saw only a status would go on with the
    /// next command of a loop after Ctrl-C.
    Signal(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(9), 137);
        assert_eq!(by_signal(200), 255);
    }
}
