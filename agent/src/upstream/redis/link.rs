//! One connection, kept up.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::address::{Address, Spot};
use super::pushes::PushSink;
use super::sign_in::{self, Motor, Server};
use super::stream;
use super::trouble::{Trouble, Whom};
use crate::model::Failure;

/// First wait before connecting again; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait before connecting again.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// A connection that lasted this long was a good one. After a good one the next is made at once; after
/// another that was not, too, but only once.
const STEADY: Duration = Duration::from_secs(1);
/// Between two looks at a connection that may be dead, or lead to a server that is no master any more.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What a connection is for.
#[derive(Debug, Clone)]
pub enum Purpose {
    /// Renewals, which nothing else may delay.
    Beats,
    /// Everything else that is asked.
    Commands,
    /// What the server says unasked; it goes in here.
    Pushes(PushSink),
    /// A look at the server, for a moment.
    Examination,
}

impl Purpose {
    fn name(&self) -> &'static str {
        match self {
            Purpose::Beats => "beats",
            Purpose::Commands => "commands",
            Purpose::Pushes(_) => "pushes",
            Purpose::Examination => "examination",
        }
    }

    fn sink(&self) -> Option<&PushSink> {
        match self {
            Purpose::Pushes(sink) => Some(sink),
            Purpose::Beats | Purpose::Commands | Purpose::Examination => None,
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
    /// Which connection of this link it is, counted from 1.
    pub generation: u64,
    /// What the server says of itself.
    pub server: Arc<Server>,
}

#[derive(Debug, Clone)]
enum Phase {
    Connecting,
    Up(Connected),
    Down(Arc<Trouble>),
}

/// A connection that is kept up. Cheap to clone; when the last one is dropped, the connection ends.
#[derive(Debug, Clone)]
pub struct Link {
    phase: watch::Receiver<Phase>,
    suspicion: Arc<Suspicion>,
}

/// What callers found out.
#[derive(Debug, Default)]
struct Suspicion {
    /// The latest connection that somebody suspects.
    generation: AtomicU64,
    raised: Notify,
}

impl Link {
    /// Starts to connect, on a task of the current runtime, which needs I/O and time.
    pub fn open(address: Arc<Address>, purpose: Purpose) -> Link {
        let (phase, phase_out) = watch::channel(Phase::Connecting);
        let suspicion = Arc::new(Suspicion::default());
        let keeper = Keeper {
            address,
            purpose,
            phase,
            suspicion: Arc::clone(&suspicion),
            generation: 0,
            failed: 0,
            flighty: false,
        };
        tokio::spawn(keeper.keep_up());
        Link { phase: phase_out, suspicion }
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

    /// Says that a connection is not to be trusted: a call did not come back in time, or the server
    /// answered that it cannot serve (see [`is_suspicious`]). It is dropped, and whatever else waits
    /// on it ends as *unknown*. Does nothing when that connection is gone already.
    pub fn suspect(&self, generation: u64) {
        self.suspicion.generation.fetch_max(generation, Ordering::Relaxed);
        self.suspicion.raised.notify_one();
    }

    /// Whether somebody suspects this connection, or a later one.
    pub(super) fn is_suspected(&self, generation: u64) -> bool {
        self.suspicion.generation.load(Ordering::Relaxed) >= generation
    }
}

/// Whether a server's error means that it is not, or not any more, a master that serves.
pub fn is_suspicious(error: &redis::RedisError) -> bool {
    use redis::{ErrorKind, ServerErrorKind as Kind};
    matches!(
        error.kind(),
        ErrorKind::Server(
            Kind::ReadOnly | Kind::MasterDown | Kind::BusyLoading | Kind::Moved | Kind::ClusterDown
        )
    ) || error.is_unrecoverable_error()
}

/// The task behind a link. Takes suspicions; emits phases, and pushes; ends when nobody has the link
/// any more.
struct Keeper {
    address: Arc<Address>,
    purpose: Purpose,
    phase: watch::Sender<Phase>,
    suspicion: Arc<Suspicion>,
    generation: u64,
    /// Attempts in a row that came to nothing, or to a connection that did not last.
    failed: u32,
    /// The last connection did not last, and the next one was made at once all the same.
    flighty: bool,
}

impl Keeper {
    async fn keep_up(mut self) {
        let phase = self.phase.clone();
        loop {
            tokio::select! {
                biased;
                () = phase.closed() => return,
                () = self.once() => {}
            }
        }
    }

    /// One connection from beginning to end, or one attempt.
    async fn once(&mut self) {
        let trouble = match self.connect().await {
            Err(trouble) => trouble,
            Ok((connected, motor)) => {
                let since = Instant::now();
                let trouble = self.live(connected, motor).await;
                let steady = since.elapsed() >= STEADY;
                if steady || !self.flighty {
                    (self.failed, self.flighty) = (0, !steady);
                    return self.down(Phase::Connecting, &trouble);
                }
                trouble
            }
        };
        self.down(Phase::Down(Arc::new(trouble.clone())), &trouble);
        let wait = back_off(self.failed);
        self.failed = self.failed.saturating_add(1);
        rest(wait).await;
    }

    /// A connection to a server that was found fit.
    async fn connect(&mut self) -> Result<(Connected, Motor), Trouble> {
        let spot = self.address.locate().await?;
        let place = spot.to_string();
        let whom = Whom::Redis(place.clone());
        let patience = self.address.connect_timeout();
        let signed_in = timeout(patience, self.sign_in(&whom, &spot, &place)).await;
        let signed_in =
            signed_in.unwrap_or_else(|_| Err(Trouble::silent(&whom, "connecting", patience)));
        if signed_in.is_err() {
            self.address.misled();
        }
        signed_in
    }

    async fn sign_in(
        &mut self,
        whom: &Whom,
        spot: &Spot,
        place: &str,
    ) -> Result<(Connected, Motor), Trouble> {
        let (address, generation) = (&*self.address, self.generation + 1);
        let sink = self.purpose.sink().cloned();
        let heard = move |push| {
            if let Some(sink) = &sink {
                sink.push(generation, push);
            }
            Ok(())
        };
        let patience = address.connect_timeout();
        let stream = stream::connect(whom, spot, address.tls(), patience).await?;
        let (mut connection, mut motor) =
            sign_in::sign_in(address, whom, spot, stream, heard).await?;
        let purpose = self.purpose.name();
        let server = {
            let mut check = pin!(async {
                sign_in::introduce(address, &mut connection, whom, purpose).await?;
                sign_in::look(address, &mut connection, whom, place).await
            });
            tokio::select! {
                server = &mut check => server?,
                () = &mut motor => {
                    // It may have said why before.
                    drop(motor);
                    let said = check.await.err();
                    return Err(said.unwrap_or_else(|| Trouble::lost(whom, "it hung up")));
                }
            }
        };
        self.generation = generation;
        Ok((Connected { connection, generation, server: Arc::new(server) }, motor))
    }

    /// Stays with a connection until it ends, and says how it did.
    async fn live(&mut self, connected: Connected, mut motor: Motor) -> Trouble {
        let Connected { mut connection, generation, server } = connected.clone();
        let whom = Whom::Redis(server.place.clone());
        info!(
            place = server.place,
            version = server.version,
            purpose = self.purpose.name(),
            "upstream connected"
        );
        if let Some(sink) = self.purpose.sink() {
            sink.connected(generation);
        }
        self.phase.send_replace(Phase::Up(connected));
        let overflown = async {
            match self.purpose.sink() {
                Some(sink) => sink.overflown().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut motor => Trouble::lost(&whom, "it hung up"),
            trouble = self.watch(&mut connection, &whom, &server.place) => trouble,
            () = self.suspicion.of(generation) => {
                Trouble::lost(&whom, "a call failed or was not answered in time")
            }
            () = overflown => {
                Trouble::lost(&whom, "it told of more changes at once than the agent can take in")
            }
        }
    }

    /// Looks again and again whether the server is there, and is still the master.
    async fn watch(
        &self,
        connection: &mut MultiplexedConnection,
        whom: &Whom,
        place: &str,
    ) -> Trouble {
        let patience = self.address.timeout();
        loop {
            rest(LOOK_EVERY).await;
            let look = sign_in::look(&self.address, connection, whom, place);
            match timeout(patience, look).await {
                Ok(Ok(_)) => {}
                Ok(Err(trouble)) => return trouble,
                Err(_) => return Trouble::silent(whom, "looking whether it is there", patience),
            }
            // An old master that was cut off from the others believes in itself. That no Sentinel
            // answers says nothing against it.
            if self.address.moves()
                && let Ok(spot) = self.address.locate().await
                && spot.to_string() != place
            {
                return Trouble::lost(whom, &format!("Sentinel names {spot} as the master now"));
            }
        }
    }

    fn down(&self, phase: Phase, trouble: &Trouble) {
        let told = trouble.told();
        let is_news = match &*self.phase.borrow() {
            Phase::Down(before) => before.told() != told,
            Phase::Connecting | Phase::Up(_) => true,
        };
        if is_news {
            warn!(purpose = self.purpose.name(), "upstream not connected: {told}");
        }
        // First the phase: whoever hears of the loss must not meet the old connection.
        self.phase.send_replace(phase);
        if let Some(sink) = self.purpose.sink() {
            sink.disconnected();
        }
    }
}

impl Suspicion {
    /// Waits until somebody suspects this connection.
    async fn of(&self, generation: u64) {
        while self.generation.load(Ordering::Relaxed) < generation {
            self.raised.notified().await;
        }
    }
}

/// Doubled with every failure, and half of it by chance, so that agents that lost the same server do
/// not all come back at once.
fn back_off(failed: u32) -> Duration {
    let most = BACK_OFF_MIN.saturating_mul(1 << failed.min(16)).min(BACK_OFF_MAX);
    // Without chance there is none: they come back together.
    let chance = getrandom::u32().unwrap_or(u32::MAX);
    most / 2 + (most / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a machine that sleeps connects later; the deadlines of holds and calls are others' to keep"
)]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
