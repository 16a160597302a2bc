//! The store, on a thread of its own, and everybody's way to it.

mod addressees;
mod known;
mod news;
mod once;
mod run;
mod shares;
mod streams;
#[cfg(test)]
pub(crate) mod tests;
mod turns;

pub use self::known::Seen;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::model::{Answer, ClaimId, Failure, GoneReason, Request, Resource, SessionId};
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::settings::Opened;
use tenure_stores::{Examination, Health};
use tokio::sync::{broadcast, mpsc, oneshot};

use self::known::Known;

/// Requests that wait for the thread; more are refused.
const WAITING_MAX: usize = 4096;

/// The instant, by the clock of the store.
pub type Clock = Arc<dyn Fn() -> Boottime + Send + Sync>;

/// The way to the store. Cheap to clone; the store ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Store {
    messages: mpsc::Sender<Message>,
    known: Arc<Known>,
}

/// The store's thread.
#[derive(Debug)]
pub struct Thread {
    ended: oneshot::Receiver<()>,
}

/// News for a principal from now on.
#[derive(Debug)]
pub struct Listener {
    /// The last word to everybody else.
    first: Option<Bytes>,
    rest: broadcast::Receiver<Bytes>,
}

/// A request to the store's thread.
#[derive(Debug)]
enum Message {
    Request {
        mark: Mark,
        request: Box<Request>,
        reply: Reply,
    },
    /// A read that nobody is to be told of.
    Look {
        request: Box<Request>,
        reply: Reply,
    },
    Listen(Mark, oneshot::Sender<Listener>),
    Health(oneshot::Sender<Health>),
    Examine(oneshot::Sender<Sent<Examination>>),
    Observe(Sent<Box<dyn Observer>>),
    /// Answer what was asked, and end.
    Stop,
}

/// A use of an answer before anybody is told, on the store's thread.
pub type Then = Box<dyn FnOnce(&Result<Answer, Failure>) + Send>;

/// A listener to news that nobody asked for, on the store's thread.
pub trait Observer: Send {
    /// A claim has ended.
    fn lost(&self, claim: ClaimId, reason: GoneReason);

    /// A claim may have ended: a store that others share says no more.
    fn may_be_lost(&self, claim: ClaimId, resource: &Resource);

    /// A session may be master no more: it alone was told that another one is.
    fn may_be_preempted(&self, session: SessionId);

    /// Something may have become of a resource.
    fn changed(&self, resource: &Resource);
}

/// The waiter for an answer.
struct Reply {
    then: Option<Then>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl Reply {
    fn give(self, result: Result<Answer, Failure>) {
        if let Some(then) = self.then {
            then(&result);
        }
        // Its caller may have gone, and asks again.
        let _ = self.answer.send(result);
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// Something that says nothing of itself.
struct Sent<T>(T);

impl<T> std::fmt::Debug for Sent<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sent")
    }
}

/// The store's thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway is stopping")]
pub struct Gone;

/// Opens a store on a thread of its own, which some of its parts must never leave.
///
/// # Errors
///
/// When the thread cannot be started, or the store not be opened.
pub fn spawn<E>(
    clock: Clock,
    open: impl FnOnce() -> Result<Opened, E> + Send + 'static,
) -> Result<(Store, Thread), E>
where
    E: From<io::Error> + Send + 'static,
{
    let (messages, inbox) = mpsc::channel(WAITING_MAX);
    let (opened, is_open) = std::sync::mpsc::sync_channel(1);
    let (ended_in, ended) = oneshot::channel();
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        let done = |outcome: Result<(), E>| {
            // Whoever started the thread waits for this.
            let _ = opened.send(outcome);
        };
        // The store has a timer of its own; tokio's are for its connections.
        let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = match built {
            Ok(runtime) => runtime,
            Err(error) => return done(Err(error.into())),
        };
        runtime.block_on(async move {
            let run = open().and_then(|it| Ok(run::Run::new(it, clock, inbox)?));
            match run {
                Err(error) => done(Err(error)),
                Ok(run) => {
                    done(Ok(()));
                    run.run().await;
                }
            }
        });
        // Nobody may be left to hear of it.
        let _ = ended_in.send(());
    })?;
    match is_open.recv() {
        Ok(outcome) => {
            outcome.map(|()| (Store { messages, known: Arc::default() }, Thread { ended }))
        }
        Err(_) => Err(io::Error::other("the store's thread ended while it started").into()),
    }
}

impl Store {
    /// A store whose reads this function answers. Ends with the runtime that it is made in.
    #[cfg(test)]
    pub(crate) fn scripted(mut answer: impl FnMut(Request) -> Answer + Send + 'static) -> Store {
        let (messages, mut inbox) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(message) = inbox.recv().await {
                let Message::Look { request, reply } = message else { panic!("{message:?}") };
                reply.give(Ok(answer(*request)));
            }
        });
        Store { messages, known: Arc::default() }
    }

    /// The answer to a request of the principal with this mark, which is carried out even if nobody waits for it any more: whoever repeats
    /// it is answered by what became of it.
    ///
    /// # Errors
    ///
    /// As the store fails. [`Failure::Unavailable`] also when too many requests wait.
    pub async fn ask(&self, mark: Mark, request: Request) -> Result<Answer, Failure> {
        self.send(mark, request, None).await
    }

    /// The same, with something that is done with the answer, even if nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// As [`Store::ask`].
    pub async fn ask_then(
        &self,
        mark: Mark,
        request: Request,
        then: Then,
    ) -> Result<Answer, Failure> {
        self.send(mark, request, Some(then)).await
    }

    /// Has an observer told from now on, before anybody else is told of what follows.
    ///
    /// # Errors
    ///
    /// When its thread has ended.
    pub async fn observe(&self, observer: Box<dyn Observer>) -> Result<(), Gone> {
        self.messages.send(Message::Observe(Sent(observer))).await.map_err(|_| Gone)
    }

    /// The answer to a read. Unlike [`Store::ask`] it makes nobody be told of what changes later.
    ///
    /// # Errors
    ///
    /// As [`Store::ask`].
    pub async fn look(&self, request: Request) -> Result<Answer, Failure> {
        let request = Box::new(request);
        self.send_by(None, |reply| Message::Look { request, reply }).await
    }

    async fn send(
        &self,
        mark: Mark,
        request: Request,
        then: Option<Then>,
    ) -> Result<Answer, Failure> {
        let request = Box::new(request);
        self.send_by(then, |reply| Message::Request { mark, request, reply }).await
    }

    async fn send_by(
        &self,
        then: Option<Then>,
        message: impl FnOnce(Reply) -> Message,
    ) -> Result<Answer, Failure> {
        let (sender, answer) = oneshot::channel();
        let message = message(Reply { then, answer: sender });
        if let Err(error) = self.messages.try_send(message) {
            let (message, cause) = match error {
                mpsc::error::TrySendError::Full(message) => {
                    (message, format!("{WAITING_MAX} requests wait for the store"))
                }
                mpsc::error::TrySendError::Closed(message) => (message, Gone.to_string()),
            };
            if let Message::Request { reply, .. } | Message::Look { reply, .. } = message {
                reply.give(Err(Failure::Unavailable(cause)));
            }
        }
        answer.await.unwrap_or_else(|_| Err(Failure::Unknown(Gone.to_string())))
    }

    /// The health of the store.
    ///
    /// # Errors
    ///
    /// When its thread has ended.
    pub async fn health(&self) -> Result<Health, Gone> {
        let (reply, health) = oneshot::channel();
        self.messages.send(Message::Health(reply)).await.map_err(|_| Gone)?;
        health.await.map_err(|_| Gone)
    }

    /// An examination of the store, to be run by the caller.
    ///
    /// # Errors
    ///
    /// When its thread has ended.
    pub async fn examine(&self) -> Result<Examination, Gone> {
        let (reply, examination) = oneshot::channel();
        self.messages.send(Message::Examine(reply)).await.map_err(|_| Gone)?;
        examination.await.map(|Sent(examination)| examination).map_err(|_| Gone)
    }

    /// Listens to news for the principal with this mark, whichever gateway its calls go through. Nothing that
    /// happens after the answer is missed.
    ///
    /// # Errors
    ///
    /// When the store's thread has ended.
    pub async fn listen(&self, mark: Mark) -> Result<Listener, Gone> {
        let (reply, listener) = oneshot::channel();
        self.messages.send(Message::Listen(mark, reply)).await.map_err(|_| Gone)?;
        listener.await.map_err(|_| Gone)
    }

    /// Has the thread answer what it was asked before, and end.
    pub async fn stop(&self) {
        // One that has ended needs no order.
        let _ = self.messages.send(Message::Stop).await;
    }
}

impl Listener {
    /// The line of the next news; `None` when the store has ended. Can be dropped and called again.
    ///
    /// # Errors
    ///
    /// When some were missed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Missed> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match self.rest.recv().await {
            Ok(line) => Ok(Some(line)),
            Err(broadcast::error::RecvError::Lagged(_)) => Err(Missed),
            Err(broadcast::error::RecvError::Closed) => Ok(None),
        }
    }
}

/// Some news were thrown away before this listener took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed;

impl Thread {
    /// Waits until the thread has ended.
    pub async fn ended(self) {
        // A dropped sender means the same.
        let _ = self.ended.await;
    }
}
