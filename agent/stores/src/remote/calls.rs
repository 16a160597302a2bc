//! Calls that are on their way, each with a deadline of its own.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, Stream};
use tenure_core::model::Failure;
use tenure_core::time::Boottime;
use tokio::sync::OwnedSemaphorePermit;

use super::link::{Connected, Link, LinkState};

/// A call's number.
type Number = u64;

/// The progress of a call while it runs.
#[derive(Debug, Default)]
struct Progress {
    /// The instant just before it was sent first, and on which connection.
    sent: Cell<Option<(Boottime, u64)>>,
}

#[derive(Debug)]
struct Running<P, C> {
    purpose: P,
    link: Link<C>,
    progress: Rc<Progress>,
    abort: AbortHandle,
    started_at: Boottime,
    deadline: Boottime,
}

/// A call that is over.
#[derive(Debug)]
pub(super) struct Done<P, R> {
    pub(super) purpose: P,
    /// The instant just before it was sent; before it was given up, if it never was.
    pub(super) sent_at: Boottime,
    pub(super) result: Result<R, Failure>,
}

type Work<R> = Pin<Box<dyn Future<Output = (Number, Result<R, Failure>)>>>;

/// Calls that are on their way over connections `C`. `P` says what a call is for, `R` is what comes back.
///
/// Invariant: each call is reported exactly once, by [`Calls::poll_done`] or by [`Calls::give_up`].
///
/// Bounded by whoever starts them.
pub(super) struct Calls<P, R, C> {
    next: Number,
    running: HashMap<Number, Running<P, C>>,
    deadlines: BTreeSet<(Boottime, Number)>,
    work: FuturesUnordered<Abortable<Work<R>>>,
}

/// A connection, as one call sees it.
pub struct Line<C> {
    link: Link<C>,
    connected: Connected<C>,
    progress: Rc<Progress>,
}

impl<P, R: 'static, C: Clone + Send + Sync + 'static> Calls<P, R, C> {
    pub(super) fn new() -> Calls<P, R, C> {
        Calls {
            next: 0,
            running: HashMap::new(),
            deadlines: BTreeSet::new(),
            work: FuturesUnordered::new(),
        }
    }

    /// Starts a call, which is made as soon as the connection is up.
    pub(super) fn start<F>(
        &mut self,
        now: Boottime,
        within: Duration,
        link: &Link<C>,
        purpose: P,
        call: impl FnOnce(Line<C>) -> F + 'static,
    ) where
        F: Future<Output = Result<R, Failure>> + 'static,
    {
        let number = self.next;
        self.next += 1;
        let progress = Rc::new(Progress::default());
        let line = (link.clone(), Rc::clone(&progress));
        let work: Work<R> = Box::pin(async move {
            let (link, progress) = line;
            let result = match link.ready().await {
                Ok(connected) => call(Line { link, connected, progress }).await,
                Err(failure) => Err(failure),
            };
            (number, result)
        });
        let (abort, registration) = AbortHandle::new_pair();
        self.work.push(Abortable::new(work, registration));
        let link = link.clone();
        let deadline = now + within;
        self.deadlines.insert((deadline, number));
        let running = Running { purpose, link, progress, abort, started_at: now, deadline };
        self.running.insert(number, running);
    }

    /// The next call that was answered, or failed.
    pub(super) fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<Done<P, R>> {
        while let Poll::Ready(Some(finished)) = pin!(&mut self.work).poll_next(context) {
            // One that was given up has been reported already.
            let Ok((number, result)) = finished else { continue };
            let Some(running) = self.running.remove(&number) else { continue };
            self.deadlines.remove(&(running.deadline, number));
            return Poll::Ready(running.done(result));
        }
        Poll::Pending
    }

    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Gives up the next call whose deadline has passed.
    pub(super) fn give_up(&mut self, now: Boottime) -> Option<Done<P, R>> {
        let (deadline, number) = self.deadlines.first().copied().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(deadline, number));
        let running = self.running.remove(&number)?;
        running.abort.abort();
        let waited = deadline.since(running.started_at);
        let (store, ms) = (running.link.store(), waited.as_millis());
        let failure = match running.progress.sent.get() {
            Some((_, connection)) => {
                if waited >= running.link.hangs_after() {
                    running.link.timed_out(connection);
                }
                Failure::Unknown(format!("{store} gave no answer within {ms} ms"))
            }
            None => Failure::Unavailable(match running.link.state() {
                LinkState::Down { error } => error,
                LinkState::Connecting | LinkState::Up => {
                    format!("there was no connection to {store} within {ms} ms")
                }
            }),
        };
        Some(running.done(Err(failure)))
    }
}

impl<P, C> Running<P, C> {
    fn done<R>(self, result: Result<R, Failure>) -> Done<P, R> {
        let sent = self.progress.sent.get();
        let sent_at = sent.map_or(self.started_at, |(sent_at, _)| sent_at);
        Done { purpose: self.purpose, sent_at, result }
    }
}

impl<C: Clone + Send + Sync + 'static> Line<C> {
    /// A connection of another link, for a step that this call needs first.
    pub(super) async fn on(&self, link: &Link<C>) -> Result<Line<C>, Failure> {
        let connected = link.ready().await?;
        Ok(Line { link: link.clone(), connected, progress: Rc::default() })
    }

    /// Goes on with the connection after this one, which is lost.
    pub(crate) async fn go_on(&mut self) -> Result<(), Failure> {
        self.connected = self.link.after(self.connected.generation).await?;
        Ok(())
    }

    pub fn connection(&mut self) -> &mut C {
        &mut self.connected.connection
    }

    /// The number of the connection among those of its link.
    pub fn generation(&self) -> u64 {
        self.connected.generation
    }

    /// Waits for its turn to send, where only some calls may be on their way at once; the turn is over
    /// when what is returned is dropped.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.link.place().await
    }

    /// Says that the call leaves now. From here on it is *unknown* until an answer comes. The first
    /// instant counts: an answer in several steps tells only of what was there since.
    pub fn sending(&self) {
        if self.progress.sent.get().is_none() {
            self.progress.sent.set(Some((self.link.now(), self.generation())));
        }
    }

    /// Says that what was sent did not run, by the server's word: its instant does not count.
    pub fn did_not_run(&self) {
        self.progress.sent.set(None);
    }

    /// Says that the connection is not to be trusted; see [`Link::suspect`].
    pub fn suspect(&self) {
        self.link.suspect(self.generation());
    }

    /// True if the connection is gone, so that an error was no refusal of the server.
    pub fn is_broken(&self) -> bool {
        self.link.state() != LinkState::Up || self.link.is_suspected(self.generation())
    }
}
