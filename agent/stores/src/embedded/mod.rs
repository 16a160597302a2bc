//! The upstream of an agent that is alone: the engine on the heart's own thread.

mod examine;
mod settings;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use settings::settings;
pub use tenure_core::engine::EngineSettings;
use tenure_core::engine::{self, Effect, Engine};
use tenure_core::model::{CallId, Change, Claim, Failure, Request};
use tenure_core::time::Boottime;
use tenure_wire::UpstreamState;
use uuid::Uuid;

use super::{Examination, Health, Report, Upstream};
use crate::journal::{self, Ahead, Disk, Journal, Ledger, Scribe, Start};
use crate::settings::OpenError;

/// The guarantee of the embedded store.
pub const GUARANTEE: &str = "one host";

/// How long a claim waits for the ledger before it is refused.
const LEDGER_WAIT_MAX: Duration = Duration::from_secs(1);
/// Claims that wait for the ledger; more are refused.
const PARKED_MAX: usize = 4096;

/// The embedded store.
///
/// Calls are answered at once, and the answers queued. What it writes to the journal is secured
/// by whoever shares it, before any of the queued reports is acted on for the world to see. Only a claim
/// for which the ledger must say more first is answered later.
///
/// Closing it with nothing granted tells the ledger so; whatever is granted
/// then is taken up from the journal by the next one.
#[derive(Debug)]
pub struct Embedded {
    engine: Engine,
    journal: Rc<RefCell<Journal>>,
    ledger: Ledger,
    /// Claims that wait for the ledger, in the order in which they came.
    parked: VecDeque<Parked>,
    /// Bounded by its user, who takes reports out after every call.
    reports: VecDeque<Report>,
    waker: Option<Waker>,
    /// The latest instant of any call.
    latest: Boottime,
    is_suspended: bool,
    is_closed: bool,
}

/// A claim that waits for the ledger.
#[derive(Debug)]
struct Parked {
    call: CallId,
    sent_at: Boottime,
    claim: Claim,
}

/// An opened store, and what it shares with its agent.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Embedded,
    /// The journal that it shares.
    pub journal: Rc<RefCell<Journal>>,
    /// The rows that the keeper takes up.
    pub saved: journal::SavedKeeper,
}

/// The circumstances in which a store is opened.
#[derive(Debug, Clone)]
pub struct Place {
    /// The boot.
    pub boot_id: Uuid,
    /// The instant.
    pub now: Boottime,
    /// Tokens start here at least.
    pub wall_clock_us: u64,
    /// How much is kept ahead.
    pub ahead: Ahead,
    /// The engine's limits.
    pub engine: EngineSettings,
}

/// Opens journal and ledger, and the store that they hold. Waits for the disk. `catch_up` adds what the keeper
/// has from elsewhere.
///
/// # Errors
///
/// When one of them cannot be used.
pub fn open(
    runtime_dir: Box<dyn Disk>,
    mut state_dir: Box<dyn Disk + Send>,
    place: Place,
    catch_up: impl FnOnce(&mut journal::SavedKeeper),
    scribe: impl FnOnce(Box<dyn Disk + Send>) -> io::Result<Box<dyn Scribe>>,
) -> Result<Opened, OpenError> {
    let Place { boot_id, now, wall_clock_us, ahead, engine } = place;
    let start = Start::read(&mut *state_dir)?;
    let (journal, mut found) =
        Journal::open(runtime_dir, boot_id, start.generation(boot_id), ahead)?;
    catch_up(&mut found.keeper);
    let opened = journal::Opened {
        boot_id,
        now,
        wall_clock_us,
        token_max: found.engine.token_max(),
        longest_ttl: found.engine.longest_ttl(),
        generation: journal.generation(),
        is_known: journal.fresh().is_none(),
        ahead,
    };
    let (ledger, tokens) = Ledger::open(state_dir, start, opened, scribe)?;
    let journal = Rc::new(RefCell::new(journal));
    let ended = found.keeper.ended(now);
    // Nothing is granted as long as grants of an earlier agent may live that nobody knows.
    let mut engine = Engine::restore(engine, tokens, found.engine, &ended, now);
    engine.quarantine(ledger.quarantined_until());
    let store = Embedded::new(Rc::clone(&journal), engine, ledger, now);
    Ok(Opened { store, journal, saved: found.keeper })
}

impl Embedded {
    fn new(
        journal: Rc<RefCell<Journal>>,
        engine: Engine,
        ledger: Ledger,
        now: Boottime,
    ) -> Embedded {
        Embedded {
            engine,
            journal,
            ledger,
            parked: VecDeque::new(),
            reports: VecDeque::new(),
            waker: None,
            latest: now,
            is_suspended: false,
            is_closed: false,
        }
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// True if a claim must wait until the ledger says more.
    fn must_wait(&self, claim: &Claim) -> bool {
        // Whoever queues is granted once there are some.
        let lacks_tokens = self.engine.tokens_left() == 0 && !claim.enqueue;
        lacks_tokens || !self.ledger.covers(claim.ttl)
    }

    fn claim(&mut self, now: Boottime, call: CallId, claim: Claim) {
        let refusal = self.journal.borrow().refusal().map(|cause| cause.to_string());
        let refusal = match refusal {
            _ if self.is_closed => Some("the embedded store is closed".to_owned()),
            Some(cause) => Some(cause),
            // It is not granted, and so needs nothing.
            None if !claim.enqueue && self.engine.quarantined_until(now).is_some() => None,
            None if self.must_wait(&claim) => return self.park(now, call, claim),
            None => None,
        };
        let result = match refusal {
            Some(cause) => Err(Failure::Unavailable(cause)),
            None => Ok(self.engine.handle(now, Request::Claim(claim))),
        };
        self.answer(call, now, result);
    }

    fn park(&mut self, now: Boottime, call: CallId, claim: Claim) {
        if !self.ledger.covers(claim.ttl) {
            self.ledger.cover(now, claim.ttl);
        }
        let refusal = match self.ledger.failure() {
            Some(cause) => cause.to_owned(),
            None if self.parked.len() >= PARKED_MAX => {
                format!("{PARKED_MAX} claims wait for the ledger in state_dir")
            }
            None => return self.parked.push_back(Parked { call, sent_at: now, claim }),
        };
        self.answer(call, now, Err(Failure::Unavailable(refusal)));
    }

    fn answer(
        &mut self,
        call: CallId,
        sent_at: Boottime,
        result: Result<tenure_core::model::Answer, Failure>,
    ) {
        self.do_effects();
        self.reports.push_back(Report::Answer { call, sent_at, result });
    }

    /// Looks again at what waits for the ledger. `failure` says that there is no use in waiting.
    fn serve_parked(&mut self, failure: Option<&str>) {
        let now = self.latest;
        for Parked { call, sent_at, claim } in std::mem::take(&mut self.parked) {
            if !self.must_wait(&claim) {
                // Valid from the instant at which it was sent.
                let result = Ok(self.engine.handle(now, Request::Claim(claim)));
                self.answer(call, sent_at, result);
                continue;
            }
            let slow = "the ledger in state_dir waits for its disk";
            let is_over = now.since(sent_at) >= LEDGER_WAIT_MAX;
            match failure.or(is_over.then_some(slow)) {
                Some(cause) => {
                    self.answer(call, sent_at, Err(Failure::Unavailable(cause.to_owned())));
                }
                None => self.parked.push_back(Parked { call, sent_at, claim }),
            }
        }
    }

    fn do_effects(&mut self) {
        let mut journal = self.journal.borrow_mut();
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Change(Change::Lost { claim, resource }) => {
                    self.reports.push_back(match self.engine.why_gone(claim) {
                        Some(reason) => {
                            let revocation = self.engine.revocation(claim);
                            Report::Lost { claim, reason, revocation }
                        }
                        None => Report::Change(Change::Lost { claim, resource }),
                    });
                }
                Effect::Change(mut change) => {
                    if let Change::Granted { grant, .. } = &mut change {
                        // The keeper asks and is answered within this turn, and has a whole ttl at once.
                        *grant = None;
                    }
                    self.reports.push_back(Report::Change(change));
                }
                Effect::Persist(entry) => journal.write_engine(entry),
                Effect::ReserveTokens => self.ledger.ask_tokens(),
            }
        }
    }

    /// Takes what has become durable.
    fn hear_ledger(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(answer) = self.ledger.poll(self.latest, context) {
            match answer {
                Ok(upto) => {
                    self.engine.extend_tokens(upto);
                    // Waiters may have waited for tokens.
                    self.engine.handle_timeout(self.latest);
                    self.do_effects();
                    self.serve_parked(None);
                }
                Err(cause) => self.serve_parked(Some(&cause)),
            }
        }
    }

    /// Follows what became of the journal.
    fn follow_journal(&mut self) {
        let (generation, refused) = {
            let journal = self.journal.borrow();
            (journal.generation(), journal.refusal().is_some())
        };
        self.ledger.follow(generation);
        if self.is_suspended != refused {
            self.is_suspended = refused;
            self.engine.suspend(refused);
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Why nothing can be granted now.
    fn grants_nothing(&self) -> Option<String> {
        if let Some(until) = self.engine.quarantined_until(self.latest) {
            let left = until.since(self.latest).as_secs() + 1;
            return Some(format!(
                "quarantine: the journal of an earlier agent is lost, and what it granted may be valid for \
                 another {left} s; `tenured quarantine end` ends it at once"
            ));
        }
        if let Some(cause) = self.journal.borrow().refusal() {
            return Some(cause.to_string());
        }
        if self.engine.tokens_left() > 0 {
            return None;
        }
        let cause = self.ledger.failure().unwrap_or("the ledger in state_dir waits for its disk");
        Some(format!("no fencing tokens: {cause}"))
    }
}

impl Upstream for Embedded {
    fn health(&self) -> Health {
        let state = match self.engine.quarantined_until(self.latest) {
            Some(_) => UpstreamState::Quarantined,
            None => UpstreamState::Up,
        };
        let grants_nothing = self.grants_nothing();
        let last_error =
            grants_nothing.clone().or_else(|| self.ledger.failure().map(str::to_owned));
        Health { last_error, grants_nothing, ..Health::of(state) }
    }

    fn examine(&self) -> Examination {
        self.examination()
    }

    fn shares_journal(&self) -> bool {
        true
    }

    fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        self.latest = self.latest.max(now);
        self.follow_journal();
        match request.check().map(|()| request) {
            Err(invalid) => self.answer(call, now, Err(Failure::invalid(&invalid))),
            Ok(Request::Claim(claim)) => self.claim(now, call, claim),
            Ok(other) => {
                let answer = self.engine.handle(now, other);
                self.answer(call, now, Ok(answer));
            }
        }
        self.ledger.look_at(now, self.engine.longest_ttl());
        self.wake();
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        self.hear_ledger(context);
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
        let parked = self.parked.front().map(|parked| parked.sent_at + LEDGER_WAIT_MAX);
        let goes_on = self.is_suspended && self.journal.borrow().refusal().is_none();
        let goes_on = goes_on.then_some(self.latest);
        let own = [self.engine.poll_timeout(), self.ledger.poll_timeout()];
        own.into_iter().chain([quarantine, parked, goes_on]).flatten().min()
    }

    fn handle_timeout(&mut self, now: Boottime) {
        self.latest = self.latest.max(now);
        self.follow_journal();
        self.engine.handle_timeout(now);
        self.ledger.handle_timeout(now, self.engine.longest_ttl());
        self.do_effects();
        self.serve_parked(None);
        if !self.reports.is_empty() {
            self.wake();
        }
    }

    fn end_quarantine(&mut self, now: Boottime) -> Option<Duration> {
        self.latest = self.latest.max(now);
        let until = self.engine.quarantined_until(self.latest)?;
        self.engine.end_quarantine();
        self.ledger.end_quarantine();
        self.engine.handle_timeout(self.latest);
        self.do_effects();
        self.wake();
        Some(until.since(self.latest))
    }

    fn rows(&self) -> Vec<engine::journal::Key> {
        self.engine.rows()
    }

    fn row(&self, key: &engine::journal::Key) -> Option<engine::journal::Entry> {
        self.engine.row(key)
    }

    fn rows_count(&self) -> usize {
        self.engine.rows_count()
    }

    fn close(&mut self) {
        self.is_closed = true;
        if !self.engine.has_grants() {
            self.ledger.close();
        }
    }
}
