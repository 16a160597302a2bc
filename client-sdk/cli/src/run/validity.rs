//! Until when the hold is valid, as far as is known here.

use std::time::Duration;

use tenure::client::Client;
use tenure::page::Page;
use tenure::wire::{Acquired, HoldState, HoldView, Registered};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// The result of the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Valid until this instant of the page's clock, unless renewed.
    Until(u64),
    /// The agent has ended it.
    Ended,
}

/// The source of validity: the session's page, or, when that cannot be opened (the agent may not
/// give away files, or its directory is not mounted here), the agent itself.
pub(super) struct Validity {
    client: Client,
    hold: Uuid,
    slot: u32,
    session: Uuid,
    page: Option<Page>,
    /// Without a page: what the agent said last, and when to ask again.
    told: Reading,
    ask_at: Instant,
    ask_every: Duration,
}

impl Validity {
    /// The validity of a fresh grant.
    pub(super) fn new(client: &Client, registered: &Registered, acquired: &Acquired) -> Validity {
        // Three chances before two thirds of the ttl without news count as danger; and never a
        // storm, whatever the agent says.
        let ask_every = Duration::from_millis((acquired.ttl_ms / 6).max(50));
        Validity {
            client: client.clone(),
            hold: acquired.hold,
            slot: acquired.slot,
            session: registered.session,
            page: open(registered),
            told: Reading::Until(acquired.valid_until_boottime_ns),
            ask_at: Instant::now() + ask_every,
            ask_every,
        }
    }

    /// After the agent was restarted: its page may be another file.
    pub(super) fn attached_again(&mut self, registered: &Registered) {
        if !self.page.as_ref().is_some_and(|page| page.is_at(registered.page.as_ref())) {
            self.page = open(registered);
        }
    }

    /// Takes what the agent said of the hold in an event. It may be older than what was asked for.
    pub(super) fn told(&mut self, valid_until: u64) {
        if let Reading::Until(known) = self.told {
            self.told = Reading::Until(known.max(valid_until));
        }
    }

    /// Looks.
    pub(super) fn read(&self) -> Reading {
        match &self.page {
            None => self.told,
            Some(page) => match page.valid_until(self.slot, self.hold) {
                0 => Reading::Ended,
                instant => Reading::Until(instant),
            },
        }
    }

    /// Without a page: asks the agent every sixth of the ttl, and returns when something new is
    /// known; an agent that does not answer leaves validity to run out. With a page: never returns.
    /// Dropping the future loses nothing but a question.
    pub(super) async fn changed(&mut self) {
        if self.page.is_some() {
            return std::future::pending().await;
        }
        loop {
            #[expect(
                clippy::disallowed_methods,
                reason = "the pace of questions; when validity ends is up to the alarm"
            )]
            sleep_until(self.ask_at).await;
            self.ask_at = Instant::now() + self.ask_every;
            if let Some(reading) = self.ask().await
                && reading != self.told
            {
                self.told = reading;
                return;
            }
        }
    }

    async fn ask(&self) -> Option<Reading> {
        let status = self.client.status().await.ok()?;
        let own = |view: &&HoldView| view.hold == self.hold;
        let session = status.sessions.iter().find(|session| session.session == self.session)?;
        let view = session.holds.iter().find(own);
        Some(match view.map(|view| (view.state, view.valid_until_boottime_ns)) {
            Some((HoldState::Held | HoldState::Jeopardy, instant)) => Reading::Until(instant),
            _ => Reading::Ended,
        })
    }
}

fn open(registered: &Registered) -> Option<Page> {
    Page::open(registered.page.as_ref(), registered.session, registered.boot_id).ok()
}
