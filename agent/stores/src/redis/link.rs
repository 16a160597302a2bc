//! One connection, kept up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use tenure_core::model::Failure;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};

use super::address::Address;
use super::pushes::PushSink;
use super::sign_in::Server;
use super::trouble::Trouble;
use super::upkeep::Upkeep;

/// Calls of beats on their way at once. The server runs what it finds on a connection in one go: more
/// would keep others waiting longer, and fewer would let a far server stand idle.
const BEATS_AT_ONCE: usize = 2;

/// The purpose of a connection.
#[derive(Debug, Clone)]
pub enum Purpose {
    /// Renewals, which nothing else may delay.
    Beats,
    /// Everything else that is asked.
    Commands,
    /// Work that no client waits for: care of semaphores, and looks at what changed.
    Care,
    /// Messages that the server sends unasked; they go in here.
    Pushes(PushSink),
    /// A look at the server, for a moment.
    Examination,
}

impl Purpose {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Purpose::Beats => "beats",
            Purpose::Commands => "commands",
            Purpose::Care => "care",
            Purpose::Pushes(_) => "pushes",
            Purpose::Examination => "examination",
        }
    }

    pub(super) fn sink(&self) -> Option<&PushSink> {
        match self {
            Purpose::Pushes(sink) => Some(sink),
            Purpose::Beats | Purpose::Commands | Purpose::Care | Purpose::Examination => None,
        }
    }
}

/// How a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// For the first time, or right after a loss.
    Connecting,
    /// Calls can be made.
    Up,
    /// It is tried again and again.
    Down {
        /// Why the last attempt failed.
        error: String,
    },
}

/// A connection that calls can be made on.
#[derive(Debug, Clone)]
pub struct Connected {
    /// Speaks RESP3, knows no deadline of its own, tries nothing twice.
    pub connection: MultiplexedConnection,
    /// The number of this connection of the link, counted from 1.
    pub generation: u64,
    pub server: Arc<Server>,
}

/// The same with everything that belongs to it.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Connecting,
    Up(Connected),
    Down(Arc<Trouble>),
}

/// A connection that is kept up. Cheap to clone; when the last one is dropped, the connection ends.
#[derive(Debug, Clone)]
pub struct Link {
    phase: watch::Receiver<Phase>,
    suspicion: Arc<Suspicion>,
    /// Nobody waits for its answers: one that is late is no reason to load the server with another
    /// connection.
    is_patient: bool,
    /// Places for calls that are on their way, if there is a bound to them.
    places: Option<Arc<Semaphore>>,
}

/// The doubts of callers.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// The latest connection that somebody suspects.
    generation: AtomicU64,
    raised: Notify,
}

impl Link {
    /// Starts to connect, on a task of the current runtime, which needs I/O and time.
    pub fn open(address: Arc<Address>, purpose: Purpose) -> Link {
        let (phase, phase_out) = watch::channel(Phase::Connecting);
        let suspicion = Arc::new(Suspicion::default());
        let is_patient = matches!(purpose, Purpose::Care);
        let bounded = matches!(purpose, Purpose::Beats);
        let places = bounded.then(|| Arc::new(Semaphore::new(BEATS_AT_ONCE)));
        let upkeep = Upkeep::new(address, purpose, phase, Arc::clone(&suspicion));
        tokio::spawn(upkeep.keep_up());
        Link { phase: phase_out, suspicion, is_patient, places }
    }

    /// How it is now.
    pub fn state(&self) -> LinkState {
        match &*self.phase.borrow() {
            Phase::Connecting => LinkState::Connecting,
            Phase::Up(_) => LinkState::Up,
            Phase::Down(trouble) => LinkState::Down { error: trouble.told() },
        }
    }

    /// The connection. Waits while one is made for the first time or right after a loss, which is no
    /// longer than it takes to connect, twice with Sentinel.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`], at once, while the last attempt has failed.
    pub async fn ready(&self) -> Result<Connected, Failure> {
        let mut phase = self.phase.clone();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Connecting)).await;
        match settled.as_deref() {
            Ok(Phase::Up(connected)) => Ok(connected.clone()),
            Ok(Phase::Down(trouble)) => Err(Failure::Unavailable(trouble.told())),
            Ok(Phase::Connecting) | Err(_) => {
                Err(Failure::Unavailable("the agent stops".to_owned()))
            }
        }
    }

    /// The connection, however long it takes. `None` when the runtime ends.
    pub async fn up(&self) -> Option<Connected> {
        let mut phase = self.phase.clone();
        let up = phase.wait_for(|phase| matches!(phase, Phase::Up(_))).await;
        match up.as_deref() {
            Ok(Phase::Up(connected)) => Some(connected.clone()),
            _ => None,
        }
    }

    /// Waits for its turn to make a call, in the order of asking; the call is over when what is returned
    /// is dropped.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.places.as_ref()?.acquire().await.ok()
    }

    /// Says that a connection is not to be trusted: a call did not come back in time, or the server
    /// answered that it cannot serve (see [`is_suspicious`]). It is dropped, and whatever else waits
    /// on it ends as *unknown*. Does nothing when that connection is gone already.
    pub fn suspect(&self, generation: u64) {
        self.suspicion.generation.fetch_max(generation, Ordering::Relaxed);
        self.suspicion.raised.notify_one();
    }

    /// Says that a call did not come back in time.
    pub(super) fn timed_out(&self, generation: u64) {
        if !self.is_patient {
            self.suspect(generation);
        }
    }

    /// True if somebody suspects this connection, or a later one.
    pub(super) fn is_suspected(&self, generation: u64) -> bool {
        self.suspicion.generation.load(Ordering::Relaxed) >= generation
    }
}

/// True if a server's error means that it is not, or not any more, a master that serves.
pub fn is_suspicious(error: &redis::RedisError) -> bool {
    use redis::{ErrorKind, ServerErrorKind as Kind};
    // Redis 6.2 wraps what a script met: "ERR Error running script (…): … -READONLY …".
    let is_wrapped = |detail: &str| {
        let met = detail.strip_prefix("Error running script");
        met.is_some_and(|met| met.contains("-READONLY ") || met.contains("-MASTERDOWN "))
    };
    if error.detail().is_some_and(is_wrapped) {
        return true;
    }
    matches!(
        error.kind(),
        ErrorKind::Server(
            Kind::ReadOnly | Kind::MasterDown | Kind::BusyLoading | Kind::Moved | Kind::ClusterDown
        )
    ) || error.is_unrecoverable_error()
}

impl Suspicion {
    /// Waits until somebody suspects this connection.
    pub(super) async fn of(&self, generation: u64) {
        while self.generation.load(Ordering::Relaxed) < generation {
            self.raised.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_met_a_replica_is_suspicious_however_the_server_says_so() {
        let error = |reply: &[u8]| {
            let value = redis::parse_redis_value(reply).and_then(redis::Value::extract_error);
            value.unwrap_err()
        };
        assert!(is_suspicious(&error(
            b"-READONLY You can't write against a read only replica.\r\n"
        )));
        assert!(is_suspicious(&error(
            b"-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: -READONLY \
              You can't write against a read only replica.\r\n"
        )));
        assert!(!is_suspicious(&error(
            b"-ERR Error running script (call to f_0123): @user_script:7: WRONGTYPE -READ\r\n"
        )));
        assert!(!is_suspicious(&error(b"-ERR wrong number of arguments\r\n")));
    }
}
