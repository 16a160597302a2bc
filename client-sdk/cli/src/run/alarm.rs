//! An alarm on the clock of valid-until, which a suspended machine does not set back.

#[cfg(target_os = "linux")]
pub(super) use self::timer::Alarm;

#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{Expiration, TimerSetTimeFlags};
    use tokio::io::unix::AsyncFd;

    use super::super::kernel::Timer;

    /// Rings at an instant.
    pub(crate) struct Alarm {
        timer: AsyncFd<Timer>,
    }

    impl Alarm {
        /// One that is not set.
        ///
        /// # Errors
        ///
        /// When the process has no descriptor left.
        pub(crate) fn new() -> io::Result<Alarm> {
            Ok(Alarm { timer: Timer::register()? })
        }

        /// Sets it to an instant (one that is over rings at once), or switches it off.
        ///
        /// # Errors
        ///
        /// None for a valid instant.
        pub(crate) fn set(&mut self, at: Option<u64>) -> io::Result<()> {
            let timer = self.timer.get_ref();
            match at {
                None => timer.unset()?,
                Some(at) => {
                    // An instant of 0 would switch it off.
                    let at = TimeSpec::from_duration(Duration::from_nanos(at.max(1)));
                    let absolute = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                    timer.set(Expiration::OneShot(at), absolute)?;
                }
            }
            Ok(())
        }

        /// Returns when it rings. Dropping the future loses nothing.
        pub(crate) async fn rung(&self) {
            while let Ok(mut guard) = self.timer.readable().await {
                if let Ok(Ok(())) = guard.try_io(|timer| Ok(timer.get_ref().wait()?)) {
                    return;
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use self::timer::Alarm;

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::io;
    use std::time::Duration;

    use tenure::page::boottime_ns;

    /// The runtime's timers stop while the machine sleeps: look at the clock this often.
    const LOOK: Duration = Duration::from_millis(200);

    /// Rings at an instant.
    pub(crate) struct Alarm {
        at: Option<u64>,
    }

    impl Alarm {
        /// One that is not set.
        pub(crate) fn new() -> io::Result<Alarm> {
            Ok(Alarm { at: None })
        }

        /// Sets it to an instant, or switches it off.
        pub(crate) fn set(&mut self, at: Option<u64>) -> io::Result<()> {
            self.at = at;
            Ok(())
        }

        /// Returns when it rings.
        pub(crate) async fn rung(&self) {
            let Some(at) = self.at else { return std::future::pending().await };
            while boottime_ns() < at {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "no nap is longer than LOOK; the clock that counts sleep decides"
                )]
                tokio::time::sleep(
                    LOOK.min(Duration::from_nanos(at.saturating_sub(boottime_ns()))),
                )
                .await;
            }
        }
    }
}
