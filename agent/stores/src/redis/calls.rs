//! Calls that are on their way, each with a deadline of its own.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, Stream};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tenure_core::model::Failure;
use tenure_core::time::Boottime;
use tenure_host::clock;

use super::exchange::Invocation;
use super::link::{Connected, Link, LinkState, is_suspicious};

/// A call that waits longer than this tells that its connection hangs; shorter deadlines are those of
/// short-lived holds.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// A call's number.
type Number = u64;

/// The progress of a call while it runs.
#[derive(Debug, Default)]
struct Progress {
    /// The instant just before it was sent first, and on which connection.
    sent: Cell<Option<(Boottime, u64)>>,
}

#[derive(Debug)]
struct Running<P> {
    purpose: P,
    link: Link,
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

/// Calls that are on their way. `P` says what a call is for, `R` is what comes back.
///
/// Bounded by whoever starts them.
pub(super) struct Calls<P, R> {
    next: Number,
    running: HashMap<Number, Running<P>>,
    deadlines: BTreeSet<(Boottime, Number)>,
    work: FuturesUnordered<Abortable<Work<R>>>,
}

/// A connection that a call can be sent on, as one call sees it.
pub(super) struct Line {
    link: Link,
    progress: Rc<Progress>,
}

impl<P, R: 'static> Calls<P, R> {
    pub(super) fn new() -> Calls<P, R> {
        Calls {
            next: 0,
            running: HashMap::new(),
            deadlines: BTreeSet::new(),
            work: FuturesUnordered::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts a call.
    pub(super) fn start<F>(
        &mut self,
        now: Boottime,
        within: Duration,
        link: &Link,
        purpose: P,
        call: impl FnOnce(Line) -> F,
    ) where
        F: Future<Output = Result<R, Failure>> + 'static,
    {
        let number = self.next;
        self.next += 1;
        let progress = Rc::new(Progress::default());
        let future = call(Line { link: link.clone(), progress: Rc::clone(&progress) });
        let work: Work<R> = Box::pin(async move { (number, future.await) });
        let (abort, registration) = AbortHandle::new_pair();
        self.work.push(Abortable::new(work, registration));
        let (link, deadline) = (link.clone(), now + within);
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
        let failure = match running.progress.sent.get() {
            Some((_, connection)) => {
                if waited >= HANGS_AFTER {
                    running.link.timed_out(connection);
                }
                Failure::Unknown(format!("Redis gave no answer within {} ms", waited.as_millis()))
            }
            None => Failure::Unavailable(why_not(&running.link, waited)),
        };
        Some(running.done(Err(failure)))
    }
}

impl<P> Running<P> {
    fn done<R>(self, result: Result<R, Failure>) -> Done<P, R> {
        let sent = self.progress.sent.get();
        let sent_at = sent.map_or(self.started_at, |(sent_at, _)| sent_at);
        Done { purpose: self.purpose, sent_at, result }
    }
}

impl Line {
    /// Waits until the connection is up.
    ///
    /// # Errors
    ///
    /// When it is not, and will not be within moments.
    pub(super) async fn connect(&self) -> Result<Connected, Failure> {
        self.link.ready().await
    }

    /// True if the connection is gone, so that an error was no refusal of the server.
    pub(super) fn is_broken(&self, connected: &Connected) -> bool {
        self.link.state() != LinkState::Up || self.link.is_suspected(connected.generation)
    }

    /// Runs a script, and makes the server know it first if it must.
    ///
    /// # Errors
    ///
    /// When it was not run, or nothing is known of it.
    pub(super) async fn run(
        &self,
        connected: &mut Connected,
        invocation: &Invocation,
    ) -> Result<Value, Failure> {
        const UNKNOWN_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
        let call = invocation.command();
        let _place = self.link.place().await;
        match self.ask(connected, &call).await {
            Err(error) if error.kind() == UNKNOWN_SCRIPT => {
                // It did not run: its instant does not count.
                self.progress.sent.set(None);
                self.send(connected, &invocation.script.load()).await?;
                self.progress.sent.set(None);
                self.send(connected, &call).await
            }
            reply => reply.map_err(|error| self.failed(connected, &error)),
        }
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// When it was refused, or nothing is known of it.
    pub(super) async fn send(
        &self,
        connected: &mut Connected,
        command: &redis::Cmd,
    ) -> Result<Value, Failure> {
        self.ask(connected, command).await.map_err(|error| self.failed(connected, &error))
    }

    async fn ask(
        &self,
        connected: &mut Connected,
        command: &redis::Cmd,
    ) -> Result<Value, RedisError> {
        // From here on nothing is known until an answer comes. The first instant counts: an answer in
        // several steps tells only of what was there since.
        if self.progress.sent.get().is_none() {
            self.progress.sent.set(Some((clock::now(), connected.generation)));
        }
        connected.connection.send_packed_command(command).await.and_then(Value::extract_error)
    }

    fn failed(&self, connected: &Connected, error: &RedisError) -> Failure {
        let text = tell(error);
        let suspicious = is_suspicious(error);
        if suspicious {
            self.link.suspect(connected.generation);
        }
        match error.kind() {
            // It refuses before it runs anything, and another server may be the master now.
            ErrorKind::Server(_) if suspicious => Failure::Unavailable(text),
            // A script that was refused halfway may leave something behind.
            _ => Failure::Unknown(text),
        }
    }
}

/// Why a call could not be sent.
fn why_not(link: &Link, waited: Duration) -> String {
    match link.state() {
        LinkState::Down { error } => error,
        LinkState::Connecting | LinkState::Up => {
            format!("there was no connection to Redis within {} ms", waited.as_millis())
        }
    }
}

/// An error for people: what the server said, or what happened to the connection.
fn tell(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("Redis refused: {code} {detail}"),
        (Some(code), None) => format!("Redis refused: {code}"),
        _ => format!("the connection to Redis failed: {error}"),
    }
}
