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
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::exchange::Invocation;
use super::link::{Connected, Link};
use crate::host::clock::{self, Boottime};
use crate::model::Failure;

/// A call that waits longer than this tells that its connection hangs; shorter deadlines are those of
/// short-lived holds.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// A call's number.
type Number = u64;

/// What is known of a call while it runs.
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
                    running.link.suspect(connection);
                }
                Failure::Unknown(format!("Redis gave no answer within {} ms", waited.as_millis()))
            }
            None => Failure::Unavailable(running.link.why_not()),
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

    /// Runs a script, by its hash if the server knows it.
    ///
    /// # Errors
    ///
    /// When it was not run, or nothing is known of it.
    pub(super) async fn run(
        &self,
        connected: &mut Connected,
        invocation: &Invocation,
    ) -> Result<Value, Failure> {
        self.sends(connected);
        let reply = send(&mut connected.connection, "EVALSHA", invocation.script.sha(), invocation);
        match reply.await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let source = invocation.script.source();
                let reply = send(&mut connected.connection, "EVAL", source, invocation);
                reply.await.map_err(|error| self.failed(connected, &error))
            }
            reply => reply.map_err(|error| self.failed(connected, &error)),
        }
    }

    /// Sends a plain command.
    ///
    /// # Errors
    ///
    /// When it was refused, or nothing is known of it.
    pub(super) async fn send(
        &self,
        connected: &mut Connected,
        command: &redis::Cmd,
    ) -> Result<Value, Failure> {
        self.sends(connected);
        let reply = connected.connection.send_packed_command(command).await;
        reply.and_then(Value::extract_error).map_err(|error| self.failed(connected, &error))
    }

    /// From here on nothing is known until an answer comes. The first instant counts: what was sent
    /// again may have taken effect the first time.
    fn sends(&self, connected: &Connected) {
        if self.progress.sent.get().is_none() {
            self.progress.sent.set(Some((clock::now(), connected.generation)));
        }
    }

    fn failed(&self, connected: &Connected, error: &RedisError) -> Failure {
        use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
        let text = tell(error);
        match error.kind() {
            // The server refuses before it runs anything, and another one may be the master now.
            ErrorKind::Server(BusyLoading | MasterDown | ReadOnly) => {
                self.link.suspect(connected.generation);
                Failure::Unavailable(text)
            }
            // Of a script that was refused halfway something may remain.
            ErrorKind::Server(_) | ErrorKind::Extension => Failure::Unknown(text),
            _ => {
                self.link.suspect(connected.generation);
                Failure::Unknown(text)
            }
        }
    }
}

async fn send(
    connection: &mut MultiplexedConnection,
    command: &str,
    script: &str,
    invocation: &Invocation,
) -> Result<Value, RedisError> {
    let mut command = redis::cmd(command);
    command.arg(script).arg(invocation.keys.len());
    for argument in invocation.keys.iter().chain(&invocation.args) {
        command.arg(argument.as_slice());
    }
    connection.send_packed_command(&command).await.and_then(Value::extract_error)
}

/// An error for people: what the server said, or what happened to the connection.
fn tell(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("Redis refused: {code} {detail}"),
        (Some(code), None) => format!("Redis refused: {code}"),
        _ => format!("the connection to Redis failed: {error}"),
    }
}
