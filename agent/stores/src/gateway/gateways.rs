//! The gateways that an agent may use: connecting to one of them, moving to another, and looking at the rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Check, GatewayStatus};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::address::{Connection, Face, GATEWAY, Shared};
use super::choice::{Choice, Identity};
use super::door::{Door, Offer};
use super::http::Http;
use super::lateness::Lateness;
use crate::remote::{ConnectError, ConnectionHints, Dialed, Endpoint, Peer, Pump, Purpose, Server};

/// One of several has this much of the time to connect at least: TLS over a long way takes that.
const CONNECT_MIN: Duration = Duration::from_secs(1);
/// How long a call may stay under way at a gateway that the agent leaves.
const LAST_ANSWER: Duration = Duration::from_millis(250);
/// Between two looks at the gateways that are not in use, at most.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The same while the store of the one in use is away: the first wait, which doubles up to the last.
const SEARCH_MIN: Duration = Duration::from_millis(200);
const SEARCH_MAX: Duration = Duration::from_secs(2);
/// The rule, and the way out, where gateways keep different things.
const ONE_STORE: &str = "the gateways that upstream names must share one Redis, one Postgres or one cluster: name \
                         those alone that do";

/// The gateways, and the one that is in use.
#[derive(Debug)]
pub(super) struct Gateways {
    shared: Shared,
    all: Vec<(Endpoint, Peer)>,
    choice: Mutex<Choice>,
    lateness: Mutex<Lateness>,
    /// The number of the one in use, for connections that have to move.
    used: watch::Sender<usize>,
}

/// Gateways that were tried in vain, and why.
#[derive(Default)]
struct Tried {
    numbers: Vec<usize>,
    errors: Vec<ConnectError>,
}

impl Gateways {
    pub(super) fn new(shared: Shared) -> Gateways {
        let named = shared.access.endpoints.iter();
        let peer = |it: &Endpoint| Peer { what: GATEWAY, place: it.to_string() };
        let all: Vec<_> = named.map(|endpoint| (endpoint.clone(), peer(endpoint))).collect();
        let choice = Choice::new(all.len(), chance());
        let used = watch::Sender::new(choice.used());
        Gateways { shared, all, choice: Mutex::new(choice), lateness: Mutex::default(), used }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// How often a call may be sent again, to another one.
    pub(super) fn others_count(&self) -> usize {
        self.all.len().saturating_sub(1)
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lateness(&self) -> MutexGuard<'_, Lateness> {
        self.lateness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self, number: usize) -> Option<Door<'_>> {
        let (endpoint, peer) = self.all.get(number)?;
        Some(Door { shared: &self.shared, endpoint, peer })
    }

    /// The gateway that a connection leads to, and its number.
    pub(super) fn at(&self, server: &Server) -> Option<(usize, Door<'_>)> {
        let number = self.all.iter().position(|(_, peer)| peer.place == server.place)?;
        Some((number, self.door(number)?))
    }

    pub(super) fn door_in_use(&self) -> Option<Door<'_>> {
        self.door(self.choice().used())
    }

    /// The place of the one in use.
    pub(super) fn place(&self) -> String {
        let used = self.choice().used();
        self.all.get(used).map(|(_, peer)| peer.place.clone()).unwrap_or_default()
    }

    /// How long one of them may take to let the agent in.
    pub(super) fn patience(&self) -> Duration {
        let whole = self.shared.access.connect_timeout;
        let share = whole / u32::try_from(self.all.len().max(1)).unwrap_or(u32::MAX);
        share.max(CONNECT_MIN).min(whole)
    }

    /// A connection to the gateway in use, or to another one if that fails: each is tried once.
    pub(super) async fn connect(
        self: &Arc<Self>,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        if self.are_several() && self.choice().is_first() {
            // They must agree before any of them is used.
            self.look(|_| true).await;
        }
        let mut tried = Tried::default();
        loop {
            let next = self.choice().next(&tried.numbers, chance());
            let Some((number, door)) = next.and_then(|it| Some((it, self.door(it)?))) else {
                return Err(tried.error());
            };
            let patience = self.lateness().patience(number, self.patience());
            let began = Instant::now();
            let dialed = self.dial(door, purpose, hints.clone(), patience).await;
            self.lateness().answered(number, dialed.is_ok().then(|| began.elapsed()));
            let admitted = dialed.and_then(|(dialed, offer)| {
                self.admit(number, &offer)?;
                self.shared.plane.found(offer.face);
                Ok(dialed)
            });
            match admitted {
                Ok(dialed) => return Ok(self.until_moved(number, dialed)),
                Err(error) => {
                    self.failed(number, &error);
                    tried.numbers.push(number);
                    tried.errors.push(error);
                }
            }
        }
    }

    async fn dial(
        &self,
        door: Door<'_>,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
        patience: Duration,
    ) -> Result<(Dialed<Connection>, Offer), ConnectError> {
        let dialing = door.dial(purpose, hints, patience);
        ConnectError::within(patience, door.peer, "connecting", dialing).await
    }

    /// Refuses a gateway that keeps something else than those that were used.
    pub(super) fn admit(&self, number: usize, offer: &Offer) -> Result<(), ConnectError> {
        let Some((_, peer)) = self.all.get(number) else { return Ok(()) };
        if !self.are_several() {
            return Ok(());
        }
        let identity = identity(peer, offer)?;
        let mut choice = self.choice();
        let Err(differs) = choice.met(number, identity) else {
            if choice.used() == number || choice.away(choice.used()).is_some() {
                self.take(&mut choice, number);
            }
            return Ok(());
        };
        let other = self.all.get(differs.from).map(|(_, peer)| peer.place.as_str());
        let other = other.unwrap_or_default();
        let what = if differs.is_principal {
            format!(
                "knows this agent's key as that of another principal than the gateway at {other} does; give both the same \
                 keys, as keys_in_store does"
            )
        } else {
            format!(
                "keeps another store ({}) than the gateway at {other} ({}): {ONE_STORE}; if the store was replaced, \
                 restart the agent",
                choice.store(number),
                choice.store(differs.from)
            )
        };
        Err(ConnectError::Unfit { peer: peer.clone(), what })
    }

    fn failed(&self, number: usize, error: &ConnectError) {
        let mut choice = self.choice();
        choice.failed(number, clock::now(), &error.with_causes(), chance());
        let used = choice.used();
        self.take(&mut choice, used);
    }

    /// Uses a gateway from now on: connections to others end.
    fn take(&self, choice: &mut Choice, number: usize) {
        choice.take(number);
        self.used.send_if_modified(|used| std::mem::replace(used, number) != number);
    }

    /// A connection has ended. That to another gateway than the one in use was left. True if another one is in
    /// use now.
    pub(super) fn ended(&self, server: &Server, error: &ConnectError) -> bool {
        let Some((number, _)) = self.at(server).filter(|_| self.are_several()) else {
            return false;
        };
        let is_used = number == self.choice().used();
        let is_late = matches!(error, ConnectError::Late { .. });
        if is_used && (!is_late || self.lateness().is_too_often(clock::now(), number)) {
            self.failed(number, error);
        }
        self.choice().used() != number
    }

    /// The same connection, which ends as well when another gateway is to be used.
    fn until_moved(&self, number: usize, dialed: Dialed<Connection>) -> Dialed<Connection> {
        if !self.are_several() {
            return dialed;
        }
        let Dialed { connection, server, pump } = dialed;
        let left = Peer { what: GATEWAY, place: server.place.clone() };
        let (mut used, http) = (self.used.subscribe(), connection.http.clone());
        let pump: Pump = Box::pin(async move {
            let moved = async {
                if used.wait_for(|used| *used != number).await.is_err() {
                    std::future::pending::<()>().await;
                }
                // A call that is on its way may be answered still.
                if let Some(http) = http.as_ref().map(Http::turn) {
                    let _ = timeout(LAST_ANSWER, http).await;
                }
            };
            tokio::select! {
                error = pump => error,
                () = moved => ConnectError::lost(&left, "the agent uses another gateway now"),
            }
        });
        Dialed { connection, server, pump }
    }

    /// Looks at some of the gateways, all at once. Those that could be used now.
    async fn look(&self, which: impl Fn(usize) -> bool) -> Vec<usize> {
        let looks = (0..self.all.len()).filter(|number| which(*number)).map(async |number| {
            let door = self.door(number)?;
            let looked = self.dial(door, Purpose::Examination, None, self.patience()).await;
            let error = match looked.and_then(|(_, offer)| self.judge(number, &offer)) {
                Ok(()) => return Some(number),
                Err(error) => error,
            };
            let (why, mut choice) = (error.with_causes(), self.choice());
            let is_news = choice.away(number).is_none_or(|away| *away.why != why);
            if is_news && matches!(error, ConnectError::Unfit { .. }) {
                warn!("one of several gateways is of no use: {why}");
            }
            choice.failed(number, clock::now(), &why, chance());
            None
        });
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Judges a gateway that was looked at.
    fn judge(&self, number: usize, offer: &Offer) -> Result<(), ConnectError> {
        let Some((_, peer)) = self.all.get(number) else { return Ok(()) };
        if self.choice().is_first() {
            let identity = identity(peer, offer)?;
            self.choice().looked_at(number, identity);
        } else {
            self.admit(number, offer)?;
        }
        match offer.state.is_down {
            true => Err(not_ready(peer, offer)),
            false => Ok(()),
        }
    }

    /// Looks now and then at the gateways that are not in use, and moves to one whose store is there while that of the
    /// one in use is away. Never ends.
    pub(super) async fn look_around(&self) -> ConnectError {
        let mut wait = LOOK_EVERY;
        loop {
            let behind = &self.shared.behind;
            tokio::select! {
                () = rest(wait) => {}
                () = behind.went_down(), if !behind.is_down() => wait = SEARCH_MIN,
            }
            let used = self.choice().used();
            let found = self.look(|number| number != used).await;
            if !behind.is_down() {
                wait = LOOK_EVERY;
                continue;
            }
            let mut choice = self.choice();
            if let Some(better) = found.get(chance_below(found.len()))
                && choice.used() == used
            {
                choice.failed(used, clock::now(), "its store is away", 0);
                self.take(&mut choice, *better);
            }
            drop(choice);
            wait = (wait * 2).clamp(SEARCH_MIN, SEARCH_MAX);
        }
    }

    /// All of them, as far as it is known.
    pub(super) fn statuses(&self) -> Vec<GatewayStatus> {
        if !self.are_several() {
            return Vec::new();
        }
        let (choice, now) = (self.choice(), clock::now());
        let named = self.all.iter().enumerate();
        named
            .map(|(number, (_, peer))| {
                let away = choice.away(number);
                GatewayStatus {
                    address: peer.place.clone(),
                    in_use: number == choice.used(),
                    away: away.map(|away| away.why.to_string()),
                    away_ms: away.map(|away| ms_since(now, away.since)),
                }
            })
            .collect()
    }

    /// A look at those that are not in use, for people.
    pub(super) async fn others(&self) -> Check {
        let used = self.choice().used();
        self.look(|number| number != used).await;
        let (good, bad): (Vec<_>, Vec<_>) =
            self.statuses().into_iter().filter(|it| !it.in_use).partition(|it| it.away.is_none());
        let good: Vec<_> = good.into_iter().map(|it| it.address).collect();
        let good = match good.is_empty() {
            true => "the agent could move to no other gateway".to_owned(),
            false => format!("the agent can move to {}", good.join(", ")),
        };
        if bad.is_empty() {
            return Check::ok("gateway.others", good);
        }
        let bad: Vec<_> = bad.into_iter().filter_map(|it| it.away).collect();
        let way_out = "have those gateways run, or take them out of upstream";
        Check::warning("gateway.others", format!("{good}; {}", bad.join("; ")), way_out)
    }
}

/// The identity of a gateway; several must have the same one.
fn identity(peer: &Peer, offer: &Offer) -> Result<Identity, ConnectError> {
    let unfit = |what: String| Err(ConnectError::Unfit { peer: peer.clone(), what });
    let (Face::Agents(mark), Some(store)) = (offer.face, &offer.store) else {
        return unfit(
            "has the session plane alone, and cannot be one of several: name it alone".to_owned(),
        );
    };
    let kind = &store.kind;
    match &store.id {
        Some(id) => Ok(Identity { store: format!("{kind} {id}"), mark }),
        None if kind == "embedded" => {
            unfit(format!("keeps everything itself, and cannot be one of several: {ONE_STORE}"))
        }
        None if offer.state.is_down => {
            Err(not_ready(peer, offer))
        }
        None => unfit(
            "does not say which store it has: upgrade it, see its log, or name it alone in upstream"
                .to_owned(),
        ),
    }
}

/// The store of a gateway is away.
fn not_ready(peer: &Peer, offer: &Offer) -> ConnectError {
    let kind = offer.store.as_ref().map_or("", |store| &store.kind);
    let error = offer.state.error.as_deref().unwrap_or("it does not say why");
    let cause = format!("its store ({kind}) is away: {error}");
    ConnectError::NotReady { peer: peer.clone(), cause }
}

impl Tried {
    fn error(mut self) -> ConnectError {
        let is_shut_out = |error: &ConnectError| matches!(error, ConnectError::NotLetIn { .. });
        if self.errors.len() == 1 || self.errors.iter().all(is_shut_out) {
            let first = self.errors.drain(..).next();
            return first.unwrap_or(ConnectError::NotLocated("no gateway is named".to_owned()));
        }
        let each: Vec<_> = self.errors.iter().map(ConnectError::with_causes).collect();
        let text = format!("none of the {} gateways can be used: {}", each.len(), each.join("; "));
        ConnectError::NotLocated(text)
    }
}

fn ms_since(now: Boottime, since: Boottime) -> u64 {
    u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX)
}

/// Without it there is none: agents go to the same one.
fn chance() -> u32 {
    getrandom::u32().unwrap_or_default()
}

fn chance_below(count: usize) -> usize {
    usize::try_from(chance()).unwrap_or_default().checked_rem(count).unwrap_or_default()
}

/// Half of the time at least, and half of it by chance.
#[expect(clippy::disallowed_methods, reason = "a machine that sleeps looks later")]
async fn rest(time: Duration) {
    let part = f64::from(chance()) / f64::from(u32::MAX);
    tokio::time::sleep(time / 2 + (time / 2).mul_f64(part)).await;
}
