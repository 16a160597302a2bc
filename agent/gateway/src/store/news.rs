//! News, on their way to streams: those here, and those at the gateways that share the store.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::time::Boottime;
use tenure_stores::Health;
use tenure_stores::gateway::behind::StoreState;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;
use tenure_stores::relay::{Relay, Told, What};

use super::Listener;
use super::addressees::To;
use super::once::Once;
use super::streams::Streams;

/// The pace of looks at the store for those who have a stream.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// News for a principal, from one gateway to all. Later versions may have more of it.
#[derive(Debug, Serialize, Deserialize)]
struct Relayed<N> {
    /// The gateway that says it.
    by: u64,
    news: N,
}

/// Tells news to those whom they concern.
#[derive(Debug)]
pub(super) struct Teller {
    /// Tells gateways apart.
    own: u64,
    streams: Streams,
    once: Once,
    /// The last word to streams about the store.
    state: StoreState,
    /// The time to look whether that is so still.
    state_due: Boottime,
}

impl Teller {
    pub(super) fn new() -> Result<Teller, getrandom::Error> {
        let (streams, once, state) = (Streams::default(), Once::default(), StoreState::default());
        Ok(Teller { own: getrandom::u64()?, streams, once, state, state_due: Boottime::ZERO })
    }

    /// One more stream of a principal.
    pub(super) fn open(&mut self, now: Boottime, mark: Mark) -> Listener {
        let first = self.state.is_down.then(|| News::Store(self.state.clone()).line().ok());
        Listener { first: first.flatten().map(Bytes::from), rest: self.streams.open(now, mark) }
    }

    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        self.streams.poll_timeout().map(|sweep_at| sweep_at.min(self.state_due))
    }

    /// True if it is time to look how the store does: each second, and always while it is away.
    pub(super) fn state_is_due(&self, now: Boottime) -> bool {
        self.state_due <= now || self.state.is_down
    }

    /// Tells streams that the store has gone away or come back: agents that ask for nothing would not know.
    pub(super) fn tell_state(&mut self, now: Boottime, health: &Health) {
        self.state_due = now + STATE_EVERY;
        let state = StoreState::of(health, now);
        if !state.says_the_same(&self.state)
            && let Ok(line) = News::Store(state.clone()).line()
        {
            self.streams.tell_everybody(&line.into());
        }
        self.state = state;
    }

    /// The principals whose last stream has ended.
    pub(super) fn take_left(&mut self, now: Boottime) -> Vec<Mark> {
        self.streams.take_left(now)
    }

    /// Tells what this gateway's store said, to streams at other gateways, too.
    pub(super) fn tell(
        &mut self,
        now: Boottime,
        to: To,
        news: &News,
        mut relay: Option<&mut dyn Relay>,
    ) {
        let (is_for_all, marks) = match to {
            To::Everybody(marks) => (true, marks),
            To::These(marks) => (false, marks),
        };
        if is_for_all && let Ok(line) = news.line() {
            self.streams.tell_everybody(&line.into());
        }
        for mark in marks {
            if !is_for_all {
                self.tell_here(now, mark, self.own, news);
            }
            if let Some(relay) = &mut relay
                && let Ok(said) = serde_json::to_vec(&Relayed { by: self.own, news })
            {
                relay.relay(now, mark.to_string().into(), said);
            }
        }
    }

    /// Tells what was said in the store, or by a gateway that shares it.
    pub(super) fn pass_on(&mut self, now: Boottime, Told { principal, what }: Told) {
        let Ok(mark) = principal.parse() else { return };
        let (by, news) = match what {
            What::Granted(claim, grant) => (self.own, News::Granted { claim, grant }),
            What::Lost(claim) => (self.own, News::Lost { claim }),
            What::Relayed(said) => match serde_json::from_slice(&said) {
                Ok(Relayed { by, news }) if by != self.own => (by, news),
                // It was told here already, or is of a later version.
                _ => return,
            },
        };
        self.tell_here(now, mark, by, &news);
    }

    fn tell_here(&mut self, now: Boottime, mark: Mark, by: u64, news: &News) {
        if !self.streams.has(mark) {
            return;
        }
        let Ok(line) = news.line().map(Bytes::from) else { return };
        // Of other news a copy does no harm.
        if !matches!(news, News::Message { .. }) || self.once.is_news(now, mark, by, &line) {
            self.streams.tell(mark, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::model::{CallId, ClaimId};
    use uuid::Uuid;

    use super::*;

    const NOW: Boottime = Boottime::ZERO;

    /// What is relayed through it.
    #[derive(Default)]
    struct Pipe(Vec<Told>);

    impl Relay for Pipe {
        fn begin(&mut self) {}
        fn attend(&mut self, _: Boottime, _: CallId, _: Arc<str>) {}
        fn leave(&mut self, _: Boottime, _: Arc<str>) {}

        fn relay(&mut self, _: Boottime, principal: Arc<str>, news: Vec<u8>) {
            self.0.push(Told { principal, what: What::Relayed(news) });
        }

        fn next_told(&mut self) -> Option<Told> {
            self.0.pop()
        }
    }

    fn message() -> News {
        let (tenant, project) = ("t".into(), "p".into());
        News::Message { tenant, project, session: None, payload: "hello".into() }
    }

    async fn next(listener: &mut Listener) -> Option<News> {
        let line = listener.next().await.unwrap()?;
        News::read(line.strip_suffix(b"\n\n")?)
    }

    #[tokio::test]
    async fn what_one_gateway_hears_the_streams_of_another_are_told() {
        let [mut here, mut there] = [0, 1].map(|_| Teller::new().unwrap());
        let mark = Mark::of("alpha");
        let mut streams = [here.open(NOW, mark), there.open(NOW, mark)];
        let mut pipe = Pipe::default();
        let lost = News::Lost { claim: ClaimId(mark.scoped(Uuid::nil())) };
        for news in [&message(), &lost] {
            here.tell(NOW, To::These(vec![mark]), news, Some(&mut pipe));
            // Both have heard the message.
            if news == &message() {
                there.tell(NOW, To::These(vec![mark]), news, Some(&mut pipe));
            }
            for told in pipe.0.drain(..) {
                here.pass_on(NOW, told.clone());
                there.pass_on(NOW, told);
            }
        }
        drop([here, there]);
        for stream in &mut streams {
            assert_eq!(next(stream).await, Some(message()));
            assert_eq!(next(stream).await, Some(lost.clone()));
            assert_eq!(next(stream).await, None);
        }
    }

    #[tokio::test]
    async fn scripts_tell_the_principal_and_what_cannot_be_read_is_left_out() {
        let (mut teller, mark) = (Teller::new().unwrap(), Mark::of("alpha"));
        let mut stream = teller.open(NOW, mark);
        let claim = ClaimId(mark.scoped(Uuid::nil()));
        let principal: Arc<str> = mark.to_string().into();
        for what in [What::Relayed(b"later".to_vec()), What::Granted(claim, None)] {
            teller.pass_on(NOW, Told { principal: Arc::clone(&principal), what });
        }
        assert_eq!(next(&mut stream).await, Some(News::Granted { claim, grant: None }));
    }
}
