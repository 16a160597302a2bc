//! One connection, kept up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::model::Failure;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Check, GatewayStatus};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::connect_error::ConnectError;
use super::hints::{ConnectionHints, HintSink};
use super::purpose::Purpose;
use super::reach::{Behind, Reach, ReachOfBoth};
use super::reconnect::Reconnect;
use super::stream::Endpoint;
use super::suspicion::Suspicion;
use super::writes::WriteError;

/// Calls of beats on their way at once. The server runs what it finds on a connection in one go: more
/// would keep others waiting longer, and fewer would let a far server stand idle.
const BEATS_AT_ONCE: usize = 2;
/// A call that waits longer than this tells that its connection hangs; shorter deadlines are those of
/// short-lived holds.
pub const HANGS_AFTER: Duration = Duration::from_secs(1);
/// Different errors that are logged between two successes, at most.
const LOGGED_MAX: usize = 16;

/// The part of a store that makes connections, on any thread.
pub trait Connector: Send + Sync + 'static {
    /// A connection that several calls can use at once. It knows no deadline of its own and repeats
    /// nothing; the driver does both.
    type Connection: Clone + Send + Sync + 'static;

    /// The store's name, for people.
    const STORE: &'static str;
    /// The store's kind as the settings have it; names of checks start with it.
    const KIND: &'static str;
    /// The longest time of an examination, so that its findings until then are told: somebody waits.
    const LOOK_MAX: Duration = Duration::from_millis(2000);
    /// False if nothing can be asked over its [`Purpose::Background`].
    const HAS_BACKGROUND: bool = true;

    /// False if the store has no [`Connector::try_write`].
    const TRIES_WRITES: bool = false;

    /// Dials, signs in, and refuses a server that is unfit.
    ///
    /// To ensure correctness:
    /// - it takes no effect on what the store holds;
    /// - it ends within a deadline of its own;
    /// - its errors name the server, the cause and the way out, and no password.
    ///
    /// `hints` is there for [`Purpose::Feed`] alone.
    fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> impl Future<Output = Result<Dialed<Self::Connection>, ConnectError>> + Send;

    /// The guarantee of the server as it was found last, where that depends on its settings.
    fn guarantee(&self) -> Option<&'static str> {
        None
    }

    /// The id of the store, once it is known: whoever shares the store knows the same one.
    fn store_id(&self) -> Option<Arc<str>> {
        None
    }

    /// The place that the settings name, if that alone says where the server is: its name may come to lead elsewhere while the
    /// server stays up, and others would be at the new one.
    fn endpoint(&self) -> Option<Endpoint> {
        None
    }

    /// The expected end of the store's quarantine, if the store lost data.
    fn grants_at(&self, _now: Boottime) -> Option<Boottime> {
        None
    }

    /// The gateways, if there are several to choose from.
    fn gateways(&self) -> Vec<GatewayStatus> {
        Vec::new()
    }

    /// A connection to this server has ended so. True if the next one is to another.
    fn ended(&self, _server: &Server, _error: &ConnectError) -> bool {
        false
    }

    /// How long a call waits until its connection is known to hang.
    fn hangs_after(&self) -> Duration {
        HANGS_AFTER
    }

    /// Has what was sent over a connection leave at once, as far as that can be done without waiting.
    fn flush(_connection: &Self::Connection) {}

    /// Looks whether the server is there, and is still the one to use. Within a deadline of its own:
    /// that it does not answer is an error.
    fn check(
        &self,
        connection: &Self::Connection,
        server: &Server,
    ) -> impl Future<Output = Result<(), ConnectError>> + Send;

    /// A thorough look at the store and its settings, over a connection of [`Purpose::Examination`]. Adds
    /// to `checks` as it goes, in the order in which they are worth reading.
    ///
    /// To ensure correctness:
    /// - it changes nothing in the store;
    /// - it may be dropped at any await, when its deadline has passed.
    fn examine(
        &self,
        _connection: Self::Connection,
        _checks: &mut Vec<Check>,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Writes as a claim would, so that the store refuses this write for the same reasons. `why` is the error of the
    /// call before, if there is one.
    ///
    /// To ensure correctness:
    /// - the write has no effect on a claim, session or resource, and leaves nothing for longer than a minute;
    /// - an answer that is missing, or may be about this call alone, is [`WriteError::Silent`].
    fn try_write(
        &self,
        _connection: &Self::Connection,
        _why: Option<&str>,
    ) -> impl Future<Output = Result<(), WriteError>> + Send {
        async { Ok(()) }
    }

    /// The store behind the one that it connects to, as that one has told of it; `None` if there is none or
    /// nothing was told.
    fn behind(&self) -> Option<Behind> {
        None
    }
}

/// The server's facts about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub place: String,
    /// Its version as it says it.
    pub version: String,
}

/// A new connection.
pub struct Dialed<C> {
    pub connection: C,
    pub server: Server,
    pub pump: Pump,
}

/// The future that must be polled for anything to happen on a connection. Ends when the connection
/// does, and ends the connection when it is dropped.
pub type Pump = Pin<Box<dyn Future<Output = ConnectError> + Send>>;

/// A connector, and what the links of one store share.
#[derive(Debug)]
pub struct Dialer<D> {
    connector: D,
    clock: fn() -> Boottime,
    /// Errors that have been logged since a link was last up: all links meet the same ones.
    logged: Mutex<Vec<String>>,
    /// Wakes links that wait for their next attempt, when another one is up.
    recovered: Notify,
    /// By the connections for beats and for commands.
    reach: Mutex<ReachOfBoth>,
}

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// For the first time, or right after a loss.
    Connecting,
    Up,
    /// It is tried again and again; `error` is why the last attempt failed.
    Down {
        error: String,
    },
}

impl LinkState {
    /// The cause, if the last attempt failed.
    pub(super) fn error(&self) -> Option<&String> {
        match self {
            LinkState::Down { error } => Some(error),
            LinkState::Connecting | LinkState::Up => None,
        }
    }
}

/// A connection that calls can be made on.
#[derive(Debug, Clone)]
pub struct Connected<C> {
    pub connection: C,
    /// The number of this connection of the link, counted from 1.
    pub generation: u64,
    pub server: Arc<Server>,
}

/// The state of a link with what belongs to it.
#[derive(Debug, Clone)]
pub(super) enum Phase<C> {
    Connecting,
    Up(Connected<C>),
    Down(Arc<ConnectError>),
}

/// A connection that is kept up. Cheap to clone; when the last one is dropped, the connection ends.
#[derive(Debug, Clone)]
pub struct Link<C> {
    clock: fn() -> Boottime,
    phase: watch::Receiver<Phase<C>>,
    suspicion: Arc<Suspicion>,
    purpose: Purpose,
    store: &'static str,
    hangs_after: Duration,
    /// Places for calls that are on their way, if there is a bound to them.
    places: Option<Arc<Semaphore>>,
    flush: fn(&C),
}

impl<D> Dialer<D> {
    pub fn new(connector: D) -> Dialer<D> {
        Dialer::with_clock(connector, clock::now)
    }

    /// A dialer whose store goes by another clock than the machine's.
    pub fn with_clock(connector: D, clock: fn() -> Boottime) -> Dialer<D> {
        let reach = Mutex::new(ReachOfBoth::new(clock()));
        Dialer { connector, clock, logged: Mutex::default(), recovered: Notify::new(), reach }
    }

    pub(super) fn now(&self) -> Boottime {
        (self.clock)()
    }

    pub fn connector(&self) -> &D {
        &self.connector
    }

    /// True if nobody has logged this error yet; then the caller does.
    pub(super) fn is_news(&self, error: &str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= LOGGED_MAX || logged.iter().any(|other| other == error) {
            return false;
        }
        logged.push(error.to_owned());
        true
    }

    /// Says that a link is up.
    pub(super) fn succeeded(&self) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.recovered.notify_waiters();
    }

    /// A connection is up, or is not any more.
    pub(super) fn changed(&self, purpose: Purpose, is_up: bool) {
        let which = match purpose {
            Purpose::Beats => 0,
            Purpose::Commands => 1,
            Purpose::Background | Purpose::Feed | Purpose::Examination => return,
        };
        let mut reach = self.reach.lock().unwrap_or_else(PoisonError::into_inner);
        reach.change((self.clock)(), which, is_up);
    }

    /// Since when the store is reached, or not.
    pub(super) fn reach(&self) -> Reach {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).get()
    }

    /// Waits until another link is up.
    pub(super) async fn recovered(&self) {
        self.recovered.notified().await;
    }
}

impl<C: Clone + Send + Sync + 'static> Link<C> {
    /// Starts to connect, on a task of the current runtime, which needs I/O and time.
    pub fn open<D: Connector<Connection = C>>(dialer: Arc<Dialer<D>>, purpose: Purpose) -> Link<C> {
        Link::start(dialer, purpose, None)
    }

    /// The same for the change feed, whose hints go into `sink`.
    pub fn open_feed<D: Connector<Connection = C>>(
        dialer: Arc<Dialer<D>>,
        sink: HintSink,
    ) -> Link<C> {
        Link::start(dialer, Purpose::Feed, Some(sink))
    }

    fn start<D: Connector<Connection = C>>(
        dialer: Arc<Dialer<D>>,
        purpose: Purpose,
        sink: Option<HintSink>,
    ) -> Link<C> {
        let (phase, phase_out) = watch::channel(Phase::Connecting);
        let suspicion = Arc::new(Suspicion::default());
        let is_bounded = purpose == Purpose::Beats;
        let places = is_bounded.then(|| Arc::new(Semaphore::new(BEATS_AT_ONCE)));
        let (clock, hangs_after) = (dialer.clock, dialer.connector.hangs_after());
        let reconnect = Reconnect::new(dialer, purpose, sink, phase, Arc::clone(&suspicion));
        tokio::spawn(reconnect.keep_up());
        let flush = D::flush;
        let store = D::STORE;
        Link { clock, phase: phase_out, suspicion, purpose, store, hangs_after, places, flush }
    }

    pub(super) fn now(&self) -> Boottime {
        (self.clock)()
    }

    pub fn state(&self) -> LinkState {
        match &*self.phase.borrow() {
            Phase::Connecting => LinkState::Connecting,
            Phase::Up(_) => LinkState::Up,
            Phase::Down(error) => LinkState::Down { error: error.with_causes() },
        }
    }

    /// The connection. Waits while one is made for the first time or right after a loss, which is no
    /// longer than the connector's deadline.
    ///
    /// # Errors
    ///
    /// At once, while the last attempt has failed: [`Failure::Denied`] if the store does not let the agent
    /// in, and [`Failure::Unavailable`] otherwise.
    pub async fn ready(&self) -> Result<Connected<C>, Failure> {
        let mut phase = self.phase.clone();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Connecting)).await;
        match settled.as_deref() {
            Ok(Phase::Up(connected)) => Ok(connected.clone()),
            Ok(Phase::Down(error)) => Err(error.failure()),
            Ok(Phase::Connecting) | Err(_) => {
                Err(Failure::Unavailable("the agent stops".to_owned()))
            }
        }
    }

    /// The connection after this one, which is lost.
    ///
    /// # Errors
    ///
    /// As [`Link::ready`].
    pub(super) async fn after(&self, generation: u64) -> Result<Connected<C>, Failure> {
        let is_lost =
            |phase: &Phase<C>| !matches!(phase, Phase::Up(it) if it.generation <= generation);
        let mut phase = self.phase.clone();
        // It never changes again if the agent stops, and then nobody is ready.
        let _ = phase.wait_for(is_lost).await;
        self.ready().await
    }

    /// The connection, however long it takes. `None` when the runtime ends.
    pub async fn up(&self) -> Option<Connected<C>> {
        let mut phase = self.phase.clone();
        let up = phase.wait_for(|phase| matches!(phase, Phase::Up(_))).await;
        match up.as_deref() {
            Ok(Phase::Up(connected)) => Some(connected.clone()),
            _ => None,
        }
    }

    /// Has what was sent leave at once; see [`Connector::flush`].
    pub(super) fn flush(&self) {
        if let Phase::Up(connected) = &*self.phase.borrow() {
            (self.flush)(&connected.connection);
        }
    }

    /// Waits for its turn to make a call, in the order of asking; the call is over when what is returned
    /// is dropped.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(self.places.as_ref()?).acquire_owned().await.ok()
    }

    /// Says that a connection is not to be trusted: a call did not come back in time, or the server
    /// answered that it cannot serve. It is dropped, and whatever else waits on it ends as *unknown*.
    /// Does nothing when that connection is gone already.
    pub fn suspect(&self, generation: u64) {
        self.suspicion.raise(generation);
    }

    /// Says that a call did not come back in time.
    pub(super) fn timed_out(&self, generation: u64) {
        // Nobody waits for the answers of background work: one that is late is no reason to load the
        // server with another connection.
        if self.purpose != Purpose::Background {
            self.suspicion.raise_late(generation);
        }
    }

    /// True if somebody suspects this connection, or a later one.
    pub(super) fn is_suspected(&self, generation: u64) -> bool {
        self.suspicion.is_of(generation)
    }

    pub(super) fn hangs_after(&self) -> Duration {
        self.hangs_after
    }

    /// The store's name, for people.
    pub(super) fn store(&self) -> &'static str {
        self.store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_news_once_until_a_link_is_up() {
        let dialer = Dialer::new(());
        assert!(dialer.is_news("a") && dialer.is_news("b"));
        assert!(!dialer.is_news("a") && !dialer.is_news("b"));
        let logged = (0..100).filter(|number| dialer.is_news(&number.to_string())).count();
        assert_eq!(logged, LOGGED_MAX - 2);
        dialer.succeeded();
        assert!(dialer.is_news("a"));
    }
}
