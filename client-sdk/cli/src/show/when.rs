//! Instants as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure::wire::Holder;

use crate::run::kernel::local_time;

/// The time of day as this host has it.
#[allow(clippy::disallowed_methods, reason = "people read it, and nothing goes by it")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Date and time of day where the reader is.
pub(super) fn local(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Some([year, month, day, hour, minute, second]) = local_time(seconds) else {
        return format!("@{seconds}");
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The time of day where the reader is, with the date where that is another one than now.
fn time_of_day(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (local(at), local(now));
    match (at.split_once(' '), now.split_once(' ')) {
        (Some((date, time)), Some((today, _))) if date == today => time.to_owned(),
        _ => at,
    }
}

/// The words about a holder that has ended, with the end of its hold; `None` for a holder that goes on.
pub(crate) fn kept(holder: &Holder, now: SystemTime) -> Option<String> {
    let until = now + Duration::from_millis(holder.kept_ms?);
    holder.kept_in_words(Some(&time_of_day(until, now)), "--at-least")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_says_until_when() {
        let noon = UNIX_EPOCH + Duration::from_secs(1_795_694_400);
        let kept_for = |ms, ended_ms| {
            let holder =
                Holder { since_ms: 3001, kept_ms: Some(ms), ended_ms, ..Holder::default() };
            kept(&holder, noon).expect("it is kept")
        };
        let until = |seconds| local(noon + Duration::from_secs(seconds));
        let time = until(597).split_once(' ').map(|(_, time)| time.to_owned()).expect("a time");
        assert_eq!(
            kept_for(597_000, Some(2000)),
            format!("ended 2.0s ago, kept until {time} (--at-least 10m)")
        );
        let days = kept_for(86_400_000, None);
        let expected =
            format!("its holder has let go, kept until {} (--at-least 1d)", until(86_400));
        assert_eq!(days, expected);
        assert_eq!(kept(&Holder::default(), noon), None);
    }
}
