//! The way to the hold: register, attach, ask, and ask again when the agent was restarted.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tenure::client::{AcquireReply, CallError, Client};
use tenure::page::boottime_ns;
use tenure::wire::{self, Acquire, Acquired, Code, Problem, Register, Wait};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use uuid::Uuid;

use super::tether::{Tether, attach_again};
use super::waiting::Place;
use crate::ANSWER_MAX;
use crate::args::duration::millis;
use crate::output::say;

/// How long an agent may stay away while a command waits for a hold; then nothing is going to restart
/// it.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// Least time for an agent to answer, however short the user's patience is: how long it may be late
/// with what it promised to say at the end of a wait.
const ANSWER_MIN: Duration = Duration::from_secs(1);
/// First pause before an agent that restarts is tried again; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// How long giving up may take where the end of this process says the same.
const ABANDON_MAX: Duration = Duration::from_millis(500);

/// The answer, and when it was asked for: just before, ns of the clock of valid-until.
type Answer = (Result<AcquireReply, CallError>, u64);
type Asking = Pin<Box<dyn Future<Output = Answer>>>;

/// An acquire on its way.
pub(super) struct Campaign {
    client: Client,
    register: Register,
    acquire: Acquire,
    /// When the user's patience ends.
    until: Option<Instant>,
    /// How long an agent may be away before it has answered for the first time.
    begin_by: Instant,
    /// With `Wait::None`: how long the acquire is repeated after the store's first refusal.
    store_wait: Duration,
    /// That refusal, and the end of the wait.
    away: Option<(CallError, Instant)>,
    place: Rc<Place>,
}

/// A grant, and the tether of its session.
pub(super) struct Granted {
    pub(super) tether: Tether,
    pub(super) acquired: Acquired,
    /// Just before the request that was granted, ns of the clock of valid-until.
    pub(super) asked_at: u64,
}

impl Campaign {
    /// For a resource. `acquire.session` is set here; the request keeps its id until the agent has refused it.
    pub(super) fn new(
        client: Client,
        register: Register,
        acquire: Acquire,
        store_wait: Duration,
    ) -> Campaign {
        let now = Instant::now();
        let patience = acquire.timeout_ms.map(Duration::from_millis);
        let begin = patience.map_or(ANSWER_MAX, |patience| patience.clamp(ANSWER_MIN, AWAY_MAX));
        let (until, begin_by) = (patience.map(|patience| now + patience), now + begin);
        let place = Rc::default();
        Campaign { client, register, acquire, until, begin_by, store_wait, away: None, place }
    }

    /// The place in the queue, as far as it is known by now.
    pub(super) fn place(&self) -> Rc<Place> {
        Rc::clone(&self.place)
    }

    /// Returns when granted. Dropping the future cancels; [`Campaign::abandon`] makes sure.
    ///
    /// # Errors
    ///
    /// The agent's refusal, or that it is away.
    pub(super) async fn run(&mut self) -> Result<Granted, CallError> {
        let mut pause = PAUSE_MIN;
        let (mut tether, mut asking, mut reply) = loop {
            match self.begin().await {
                // On a busy machine the stream was opened too late, and the session had ended.
                Err(error) if error.is_session_gone() && Instant::now() + pause < self.begin_by => {
                }
                begun => break begun?,
            }
            pause_for(&mut pause).await;
        };
        let (mut began, mut answer_by) = (Instant::now(), self.answer_by());
        let mut pause = PAUSE_MIN;
        loop {
            if let Some((reply, asked_at)) = reply.take() {
                match reply {
                    Ok(AcquireReply::Acquired(acquired)) => {
                        return Ok(Granted { tether, acquired, asked_at });
                    }
                    Err(error) if self.is_worth_a_repeat(&error) => {
                        tether = self.attach(tether).await?;
                        asking = self.ask(tether.registered.session, Duration::ZERO);
                    }
                    Err(error) => {
                        self.wait_for_store(error, pause)?;
                        // The agent remembers under its id what became of a request.
                        self.acquire.request = Some(Uuid::new_v4().to_string());
                        asking = self.ask(tether.registered.session, pause);
                        began = Instant::now() + pause;
                        answer_by = Some(began + ANSWER_MAX);
                        pause = PAUSE_MAX.min(pause * 2);
                    }
                    Ok(AcquireReply::Waiting(_)) => return Err(not_asked_for()),
                }
            }
            tokio::select! {
                biased;
                answer = &mut asking => reply = Some(answer),
                // Read so that the agent does not cut off a slow reader; the answer is enough.
                event = tether.stream.next() => if let Some(Ok(received)) = event {
                    self.place.heard(&received.event);
                } else {
                    let before = tether.registered.session;
                    tether = self.attach(tether).await?;
                    if tether.registered.session != before {
                        asking = self.ask(tether.registered.session, Duration::ZERO);
                        (began, answer_by) = (Instant::now(), self.answer_by());
                    }
                },
                () = at(answer_by) => return Err(self.no_answer(began)),
            }
        }
    }

    /// Registers, opens the stream of the session, and asks for the hold.
    async fn begin(&mut self) -> Result<(Tether, Asking, Option<Answer>), CallError> {
        let (client, register) = (self.client.clone(), self.register.clone());
        // A registration that a restart swallowed ends by its own tether, and holds nothing.
        let registered = self.patiently(|| client.register(&register)).await?;
        self.place.session_is(registered.session);
        let session = registered.session;
        let mut asking = self.ask(session, Duration::ZERO);
        // Both at once: the wait for the stream would be one round trip more.
        let opening = self.patiently(|| client.events(session, None));
        tokio::pin!(opening);
        let (stream, early) = tokio::select! {
            biased;
            answer = &mut asking => (opening.await?, Some(answer)),
            stream = &mut opening => (stream?, None),
        };
        Ok((Tether { registered, stream }, asking, early))
    }

    /// When the agent must have answered the request for the hold.
    fn answer_by(&self) -> Option<Instant> {
        match self.acquire.wait {
            Wait::None => Some(self.begin_by.max(Instant::now() + ANSWER_MIN)),
            _ => self.until.map(|until| until + ANSWER_MIN),
        }
    }

    /// The first answers of an agent: calls again while it restarts, or while its queue of connections
    /// is full.
    async fn patiently<T, F: Future<Output = Result<T, CallError>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, CallError> {
        let mut pause = PAUSE_MIN;
        loop {
            let asked_at = Instant::now();
            let error = match timeout_at(self.begin_by.min(asked_at + ANSWER_MAX), call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.no_answer(asked_at)),
            };
            if !is_restarting(&error) || self.begin_by <= Instant::now() + pause {
                return Err(error);
            }
            pause_for(&mut pause).await;
        }
    }

    fn no_answer(&self, since: Instant) -> CallError {
        let tenths = since.elapsed().as_millis() / 100;
        let after = Duration::from_millis(u64::try_from(tenths * 100).unwrap_or(u64::MAX));
        CallError::TimedOut { path: self.client.path().to_owned(), after }
    }

    /// Ends the session, so that neither waiter nor hold is left behind, unless it has `failed`
    /// because the agent hangs: that sees the end of this process as soon as it goes on.
    pub(super) async fn abandon(self, failed: Option<&CallError>) {
        let Some(session) = self.place.session() else { return };
        let ends_with_us = self.register.tether == Some(wire::Tether::Connection);
        let hangs = matches!(failed, Some(CallError::TimedOut { .. }));
        if ends_with_us && hangs {
            return;
        }
        let patience = if ends_with_us { ABANDON_MAX } else { ANSWER_MAX };
        let released = timeout(patience, self.client.release(session, None)).await;
        let is_gone = match released {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => error.is_session_gone(),
            Err(_) => false,
        };
        if !ends_with_us && !is_gone {
            say(&format!(
                "the agent does not answer: it may still acquire for session {session}, and keep that for as long as was asked; \
                 give it back with `tenure release --session {session}`"
            ));
        }
    }

    /// Asks for the hold, after a pause.
    fn ask(&self, session: Uuid, pause: Duration) -> Asking {
        let client = self.client.clone();
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up: not less than the user asked for.
        let timeout_ms = left.map(|left| millis(left) + 1);
        let acquire = Acquire { session, timeout_ms, ..self.acquire.clone() };
        Box::pin(async move {
            if !pause.is_zero() {
                #[expect(clippy::disallowed_methods, reason = "a pause before a repetition")]
                sleep(pause).await;
            }
            let asked_at = boottime_ns();
            (client.acquire(&acquire).await, asked_at)
        })
    }

    /// With `Wait::None`, says whether the acquire is to be repeated: the store did not answer, and may in a moment, as
    /// after an election or the restart of a gateway.
    ///
    /// # Errors
    ///
    /// The refusal, if that is final. After a refusal of the store, `contended` is no answer: an acquire whose reply was
    /// lost may be the holder until the agent has released its grant.
    fn wait_for_store(&mut self, error: CallError, pause: Duration) -> Result<(), CallError> {
        if self.acquire.wait != Wait::None {
            return Err(error);
        }
        let now = Instant::now();
        let (first, until) = match (self.away.take(), error.code()) {
            (None, Some(Code::UpstreamUnavailable)) => (error, now + self.store_wait),
            (Some(away), Some(Code::UpstreamUnavailable | Code::Contended)) => away,
            (_, _) => return Err(error),
        };
        if until <= now + pause {
            return Err(first);
        }
        self.away = Some((first, until));
        Ok(())
    }

    /// With `Wait::None`: the instant until which an agent that restarts is waited for.
    fn agent_by(&self) -> Instant {
        self.away.as_ref().map_or(self.begin_by, |(_, until)| self.begin_by.max(*until))
    }

    fn is_worth_a_repeat(&self, error: &CallError) -> bool {
        let gone = matches!(error, CallError::Unreachable { .. })
            || error.code() == Some(Code::Stopping)
            || error.is_session_gone();
        gone && (self.acquire.wait != Wait::None || Instant::now() < self.agent_by())
    }

    /// Attaches to the session again; one that the agent knows no more is replaced by a new one.
    async fn attach(&mut self, tether: Tether) -> Result<Tether, CallError> {
        let asked_at = Instant::now();
        let away_until = match (self.acquire.wait, self.until) {
            (Wait::None, _) => self.agent_by(),
            (_, Some(until)) => until.min(asked_at + AWAY_MAX),
            (_, None) => asked_at + AWAY_MAX,
        };
        match timeout_at(away_until, self.attach_or_replace(tether)).await {
            Ok(result) => result,
            Err(_) => Err(self.no_answer(asked_at)),
        }
    }

    async fn attach_or_replace(&mut self, tether: Tether) -> Result<Tether, CallError> {
        let Tether { registered, stream } = tether;
        drop(stream);
        match attach_again(self.client.clone(), registered, self.register.pid).await {
            Err(error) if error.is_session_gone() => {}
            result => return result,
        }
        let mut pause = PAUSE_MIN;
        loop {
            let registered = self.client.register(&self.register).await?;
            self.place.session_is(registered.session);
            match self.client.events(registered.session, None).await {
                // The stream was opened too late.
                Err(error) if error.is_session_gone() => {}
                stream => return Ok(Tether { registered, stream: stream? }),
            }
            pause_for(&mut pause).await;
        }
    }
}

/// True if there is an agent, which may answer a moment later. One that was stopped for good has
/// removed its socket.
fn is_restarting(error: &CallError) -> bool {
    match error {
        CallError::Unreachable { source, .. } => !matches!(
            source.kind(),
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::InvalidInput
        ),
        error => error.code() == Some(Code::Stopping),
    }
}

/// A pause before a repetition; the next one is longer.
async fn pause_for(pause: &mut Duration) {
    #[expect(clippy::disallowed_methods, reason = "a repetition is due after any time")]
    sleep(*pause).await;
    *pause = PAUSE_MAX.min(*pause * 2);
}

async fn at(instant: Option<Instant>) {
    match instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "how long a person or a script is kept waiting"
        )]
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn not_asked_for() -> CallError {
    let detail = "the agent queued a request that asked for an answer; is it of another version?";
    CallError::Refused(Box::new(Problem::new(Code::Invalid, detail)))
}
