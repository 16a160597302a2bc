//! A timer that goes on while the machine sleeps, and fires at once when it wakes up too late.

#[cfg(target_os = "linux")]
pub use self::linux::Timer;
#[cfg(not(target_os = "linux"))]
pub use self::polled::Timer;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::task::{Context, Poll, ready};

    use nix::errno::Errno;
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tenure_core::time::Boottime;
    use tokio::io::unix::AsyncFd;

    struct Descriptor(TimerFd);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    /// One instant to wake up at. Tokio's own timers stop while the machine sleeps; this is a
    /// timerfd of CLOCK_BOOTTIME.
    pub struct Timer {
        descriptor: AsyncFd<Descriptor>,
        armed: Option<Boottime>,
    }

    impl Timer {
        /// A timer that is not set. Needs a tokio runtime with I/O.
        ///
        /// # Errors
        ///
        /// When the process has no descriptor left.
        pub fn new() -> io::Result<Timer> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
            // SAFETY: the descriptor is owned by what is registered, is always the same, and stays
            // open until that is dropped.
            let descriptor = unsafe { AsyncFd::register(Descriptor(timer)) }?;
            Ok(Timer { descriptor, armed: None })
        }

        /// Fires at that instant, at once if it has passed, or never. Costs nothing when that is
        /// what it is set to already.
        #[expect(clippy::expect_used, reason = "settime refuses only malformed times")]
        pub fn set(&mut self, at: Option<Boottime>) {
            if self.armed == at {
                return;
            }
            self.armed = at;
            let timer = &self.descriptor.get_ref().0;
            let done = match at {
                // An instant of zero would disarm.
                Some(at) => timer.set(
                    Expiration::OneShot(TimeSpec::from_duration(std::time::Duration::from_nanos(
                        at.as_nanos().max(1),
                    ))),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                ),
                None => timer.unset(),
            };
            done.expect("a well-formed time on our own descriptor");
        }

        /// Ready when the instant has come; the timer is then no longer set.
        pub fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
            // An error here or of the read can only mean that the runtime is going away. To wake up
            // once too often is harmless, not to wake up is not.
            while let Ok(mut ready) = ready!(self.descriptor.poll_read_ready(context)) {
                let read = nix::unistd::read(&self.descriptor.get_ref().0, &mut [0; 8]);
                ready.clear_ready();
                if read != Err(Errno::EAGAIN) {
                    break;
                }
            }
            self.armed = None;
            Poll::Ready(())
        }

        /// Waits until the instant has come. Can be dropped and called again.
        pub async fn fired(&mut self) {
            std::future::poll_fn(|context| self.poll_fired(context)).await;
        }
    }
}

// Compiled in tests everywhere, so that it cannot rot where it is not used.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", expect(unreachable_pub, reason = "public where it is used"))]
mod polled {
    use std::future::Future;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use tenure_core::time::Boottime;
    use tokio::time::{Sleep, sleep};

    use crate::clock;

    /// How late a timer can be after the machine has slept.
    const LATE_MAX: Duration = Duration::from_secs(1);

    /// One instant to wake up at, for systems without a timer that counts sleep: looks at the clock
    /// at least once a second.
    pub struct Timer {
        armed: Option<Boottime>,
        nap: Pin<Box<Sleep>>,
    }

    impl Timer {
        /// A timer that is not set. Needs a tokio runtime with time.
        ///
        /// # Errors
        ///
        /// None here; see the Linux one.
        #[expect(
            clippy::disallowed_methods,
            reason = "no nap is longer than LATE_MAX; the clock that counts sleep decides"
        )]
        #[expect(clippy::unnecessary_wraps, reason = "the same shape on every system")]
        pub fn new() -> io::Result<Timer> {
            Ok(Timer { armed: None, nap: Box::pin(sleep(LATE_MAX)) })
        }

        /// Fires at that instant, at once if it has passed, or never.
        pub fn set(&mut self, at: Option<Boottime>) {
            if self.armed == at {
                return;
            }
            self.armed = at;
            self.doze();
        }

        /// Ready when the instant has come; the timer is then no longer set.
        pub fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
            loop {
                match self.armed {
                    Some(at) if clock::now() >= at => break,
                    // Also when not set: this registers the task for a later `set`.
                    _ => ready!(self.nap.as_mut().poll(context)),
                }
                self.doze();
            }
            self.armed = None;
            Poll::Ready(())
        }

        /// Waits until the instant has come. Can be dropped and called again.
        pub async fn fired(&mut self) {
            std::future::poll_fn(|context| self.poll_fired(context)).await;
        }

        fn doze(&mut self) {
            let left = self.armed.map_or(LATE_MAX, |at| at - clock::now()).min(LATE_MAX);
            self.nap.as_mut().reset(tokio::time::Instant::now() + left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::time::Boottime;
    use tokio::time::timeout;

    use crate::clock;

    const PATIENCE: Duration = Duration::from_secs(20);

    macro_rules! behaves {
        ($name:ident, $timer:ty) => {
            #[tokio::test]
            async fn $name() {
                let mut timer = <$timer>::new().unwrap();
                let at = clock::now() + Duration::from_millis(5);
                timer.set(Some(at));
                timer.set(Some(at));
                timeout(PATIENCE, timer.fired()).await.unwrap();
                assert!(clock::now() >= at, "not before its instant");

                // Once only, and not when it was unset or moved after it had fired.
                assert!(timeout(Duration::from_millis(1), timer.fired()).await.is_err());
                timer.set(Some(Boottime::ZERO));
                timer.set(Some(clock::now() + PATIENCE * 10));
                assert!(timeout(Duration::from_millis(1), timer.fired()).await.is_err());
                timer.set(None);
                assert!(timeout(Duration::from_millis(1), timer.fired()).await.is_err());

                // An instant that has passed fires at once, also that of boot.
                timer.set(Some(Boottime::ZERO));
                timeout(PATIENCE, timer.fired()).await.unwrap();
            }
        };
    }

    behaves!(the_native_timer, super::Timer);
    behaves!(the_polled_timer, super::polled::Timer);
}
