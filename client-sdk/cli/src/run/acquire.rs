//! The way to the hold: register, attach, ask, and ask again when the agent was restarted.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tenure::client::{AcquireReply, CallError, Client};
use tenure::wire::{Acquire, Acquired, Code, Problem, Register, Wait};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::tether::{Tether, attach_again};
use crate::args::duration::millis;

/// How long an agent may stay away while somebody waits for a hold; then nobody is going to restart
/// it.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// How long giving up may take: the end of this process says the same.
const ABANDON_MAX: Duration = Duration::from_millis(500);

type Asking = Pin<Box<dyn Future<Output = Result<AcquireReply, CallError>>>>;

/// An acquire on its way.
pub(super) struct Campaign {
    client: Client,
    register: Register,
    acquire: Acquire,
    /// When the user's patience ends.
    until: Option<Instant>,
    session: Option<Uuid>,
}

/// What it came to.
pub(super) struct Granted {
    pub(super) tether: Tether,
    pub(super) acquired: Acquired,
}

impl Campaign {
    /// For a resource. `acquire.session` is set here; the request keeps its id over every repeat.
    pub(super) fn new(client: Client, register: Register, acquire: Acquire) -> Campaign {
        let until = acquire.timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        Campaign { client, register, acquire, until, session: None }
    }

    /// Returns when granted. Dropping the future cancels; [`Campaign::abandon`] makes sure.
    ///
    /// # Errors
    ///
    /// What the agent refused, or that it is away.
    pub(super) async fn run(&mut self) -> Result<Granted, CallError> {
        let registered = self.client.register(&self.register).await?;
        self.session = Some(registered.session);
        let mut asking = self.ask(registered.session);
        // Both at once: the wait for the stream would be one round trip more.
        let opening = self.client.events(registered.session, None);
        let (stream, early) = {
            tokio::pin!(opening);
            tokio::select! {
                biased;
                reply = &mut asking => (opening.await?, Some(reply)),
                stream = &mut opening => (stream?, None),
            }
        };
        let mut tether = Tether { registered, stream };
        let mut reply = early;
        loop {
            if let Some(reply) = reply.take() {
                match reply {
                    Ok(AcquireReply::Acquired(acquired)) => {
                        return Ok(Granted { tether, acquired });
                    }
                    Err(error) if self.is_worth_a_repeat(&error) => {
                        tether = self.attach(tether).await?;
                        asking = self.ask(tether.registered.session);
                    }
                    Err(error) => return Err(error),
                    Ok(AcquireReply::Waiting(_)) => return Err(not_asked_for()),
                }
            }
            tokio::select! {
                biased;
                answer = &mut asking => reply = Some(answer),
                // Read so that the agent does not cut off a slow reader; the answer is enough.
                event = tether.stream.next() => if !matches!(event, Some(Ok(_))) {
                    let before = tether.registered.session;
                    tether = self.attach(tether).await?;
                    if tether.registered.session != before {
                        asking = self.ask(tether.registered.session);
                    }
                },
            }
        }
    }

    /// Ends the session, whatever came of it, so that neither waiter nor hold is left behind.
    pub(super) async fn abandon(self) {
        if let Some(session) = self.session {
            // When the agent does not answer, it sees this process end.
            let _away = timeout(ABANDON_MAX, self.client.release(session, None)).await;
        }
    }

    fn ask(&self, session: Uuid) -> Asking {
        let client = self.client.clone();
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up: not less than the user asked for.
        let timeout_ms = left.map(|left| millis(left) + 1);
        let acquire = Acquire { session, timeout_ms, ..self.acquire.clone() };
        Box::pin(async move { client.acquire(&acquire).await })
    }

    /// Only somebody who is ready to wait waits for a restart as well.
    fn is_worth_a_repeat(&self, error: &CallError) -> bool {
        let gone = matches!(error, CallError::Unreachable { .. })
            || error.code() == Some(Code::Stopping)
            || error.is_session_gone();
        gone && self.acquire.wait != Wait::None
    }

    /// Attaches to the session again; one that the agent knows no more is replaced by a new one.
    async fn attach(&mut self, tether: Tether) -> Result<Tether, CallError> {
        let away_until = Instant::now() + AWAY_MAX;
        let away_until = self.until.map_or(away_until, |until| until.min(away_until));
        let asked_at = Instant::now();
        let again = attach_again(self.client.clone(), tether.registered);
        drop(tether.stream);
        let error = match timeout_at(away_until, again).await {
            Ok(Ok(tether)) => return Ok(tether),
            Ok(Err(error)) => error,
            Err(_) => {
                let path = self.client.path().to_owned();
                return Err(CallError::TimedOut { path, after: asked_at.elapsed() });
            }
        };
        if !error.is_session_gone() || self.acquire.wait == Wait::None {
            return Err(error);
        }
        let registered = self.client.register(&self.register).await?;
        self.session = Some(registered.session);
        let stream = self.client.events(registered.session, None).await?;
        Ok(Tether { registered, stream })
    }
}

fn not_asked_for() -> CallError {
    let detail = "the agent queued a request that asked for an answer; is it of another version?";
    CallError::Refused(Box::new(Problem::new(Code::Invalid, detail)))
}
