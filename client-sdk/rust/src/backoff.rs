//! How long to wait before trying again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LAST: Duration = Duration::from_secs(1);

/// 10 ms, doubled each time up to 1 s. Without jitter: the agent is on this host.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a pause before a repetition: after a sleep of the machine it is only a little longer"
    )]
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.step()).await;
    }

    pub(crate) fn step(&mut self) -> Duration {
        let step = self.next;
        self.next = LAST.min(step * 2);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_second() {
        let mut backoff = Backoff::new();
        let steps: Vec<u128> = (0..9).map(|_| backoff.step().as_millis()).collect();
        assert_eq!(steps, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
