//! The upstream of an agent that is alone: the engine on the heart's own thread.

mod examine;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::wire::UpstreamState;

use super::{Examination, Health, Report, Upstream};
use crate::engine::{Effect, Engine, EngineSettings};
use crate::host::clock::Boottime;
use crate::journal::{Database, LedgerError, TokenLedger};
use crate::model::{CallId, Failure, Request};

/// What the embedded store can promise.
pub const GUARANTEE: &str = "one host";

/// How long after a failure the ledger is asked again for tokens.
const RETRY: Duration = Duration::from_secs(1);

/// The embedded store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its tokens.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The embedded store.
///
/// Calls are answered at once, and the answers queued. What it writes to the database is committed
/// by whoever shares it, before any of the queued reports is acted on for the world to see.
///
/// Closing it with nothing granted tells the ledger that this agent ended clean; whatever is granted
/// then is taken up from the database by the next one.
#[derive(Debug)]
pub struct Embedded {
    engine: Engine,
    database: Rc<RefCell<Database>>,
    ledger: TokenLedger,
    /// Bounded by its user, who takes reports out after every call.
    reports: VecDeque<Report>,
    waker: Option<Waker>,
    /// The latest instant of any call.
    latest: Boottime,
    retry_at: Option<Boottime>,
    last_error: Option<String>,
    /// The ledger may say that nothing is granted: nothing is granted any more.
    is_closed: bool,
}

impl Embedded {
    /// Takes up what the database holds, with tokens greater than any before.
    ///
    /// If the database is new, although an agent of the same boot did not end clean, nothing is
    /// granted until the longest ttl it granted has passed.
    ///
    /// # Errors
    ///
    /// When the token ledger cannot be used.
    pub fn open(
        database: Rc<RefCell<Database>>,
        state_dir: &Path,
        now: Boottime,
        wall_clock_us: u64,
    ) -> Result<Embedded, OpenError> {
        let mut shared = database.borrow_mut();
        let saved = shared.load_engine();
        let opened =
            TokenLedger::open(state_dir, shared.boot_id(), wall_clock_us, saved.token_max())?;
        let mut engine = Engine::restore(EngineSettings::default(), opened.tokens, saved, now);
        let until = match (shared.quarantined_until(), opened.unclean) {
            (Some(until), _) => until,
            (None, Some(longest_ttl)) => now + longest_ttl,
            (None, None) => Boottime::ZERO,
        };
        engine.quarantine(until);
        if shared.quarantined_until().is_none() {
            shared.set_quarantined_until(until);
        }
        drop(shared);
        Ok(Embedded {
            engine,
            database,
            ledger: opened.ledger,
            reports: VecDeque::new(),
            waker: None,
            latest: now,
            retry_at: None,
            last_error: None,
            is_closed: false,
        })
    }

    /// Makes durable what must be before the request may be granted.
    fn prepare(&mut self, request: &Request) -> Result<(), Failure> {
        let ttl = match request {
            Request::Claim(_) if self.is_closed => {
                return Err(Failure::Unavailable("the embedded store is closed".to_owned()));
            }
            Request::Claim(claim) => {
                // Whoever queues is granted once there are some.
                if self.engine.tokens_left() == 0 && !claim.enqueue {
                    let cause = self.last_error.as_deref().unwrap_or("they are being made durable");
                    return Err(Failure::Unavailable(format!("no fencing tokens: {cause}")));
                }
                claim.ttl
            }
            Request::Renew(beats) => {
                beats.iter().map(|beat| beat.ttl).max().unwrap_or(Duration::ZERO)
            }
            _ => return Ok(()),
        };
        self.ledger.note_ttl(ttl).map_err(|error| {
            self.last_error = Some(error.to_string());
            Failure::Unavailable(error.to_string())
        })
    }

    fn do_effects(&mut self) {
        let mut database = self.database.borrow_mut();
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Change(change) => self.reports.push_back(Report::Change(change)),
                Effect::Persist(entry) => database.write_engine(entry),
                Effect::ReserveTokens => self.ledger.ask_tokens(),
            }
        }
    }

    /// Takes tokens that have become durable.
    fn take_tokens(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(answer) = self.ledger.poll_tokens(context) {
            match answer {
                Ok(upto) => {
                    self.engine.extend_tokens(upto);
                    self.last_error = None;
                    // Waiters may have waited for tokens.
                    self.engine.handle_timeout(self.latest);
                    self.do_effects();
                }
                Err(error) => {
                    self.last_error = Some(error.to_string());
                    self.retry_at = Some(self.latest + RETRY);
                    return;
                }
            }
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Upstream for Embedded {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn guarantee(&self) -> &'static str {
        GUARANTEE
    }

    fn health(&self) -> Health {
        let state = match self.engine.quarantined_until(self.latest) {
            Some(_) => UpstreamState::Quarantined,
            None => UpstreamState::Up,
        };
        let journal = self.database.borrow().failure().map(str::to_owned);
        Health { state, last_error: journal.or_else(|| self.last_error.clone()) }
    }

    fn examine(&self) -> Examination {
        self.examination()
    }

    fn shares_journal(&self) -> bool {
        true
    }

    fn is_calling(&self) -> bool {
        false
    }

    fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        self.latest = self.latest.max(now);
        let result = self.prepare(&request).map(|()| self.engine.handle(now, request));
        self.do_effects();
        self.reports.push_back(Report::Answer { call, sent_at: now, result });
        self.wake();
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        self.take_tokens(context);
        match self.reports.pop_front() {
            Some(report) => Poll::Ready(report),
            None => {
                self.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        // At its end the state that people see changes, also if nobody waits for it.
        let quarantine = self.engine.quarantined_until(self.latest);
        [self.engine.poll_timeout(), self.retry_at, quarantine].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Boottime) {
        self.latest = self.latest.max(now);
        self.engine.handle_timeout(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.ledger.ask_tokens();
        }
        self.do_effects();
        if !self.reports.is_empty() {
            self.wake();
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        if self.engine.has_grants() {
            return;
        }
        // If it cannot be noted, the next start is as careful as after a crash.
        if let Err(error) = self.ledger.note_clean() {
            self.last_error = Some(error.to_string());
        }
    }
}
