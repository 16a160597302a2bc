//! Connections to the gateway in use.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hyper::StatusCode;
use tenure_core::time::Boottime;
use tenure_wire::{Check, Diagnosis, GatewayStatus};

use super::behind::BehindGateway;
use super::door::{Offer, refused};
use super::gateways::Gateways;
use super::http::Http;
use super::join::OwnKey;
use super::key::Shown;
use super::proxy::Proxies;
use super::scope::{Mark, Scope};
use super::session_plane::{self, Plane};
use crate::remote::{
    Behind, ConnectError, ConnectionHints, Connector, Dialed, Endpoint, HANGS_AFTER, Pump, Purpose,
    Server,
};
use crate::settings::secret::{Secret, SecretSource};
use crate::settings::tls::Trust;

/// A gateway that leaves a call unanswered for longer has to answer a probe, or the agent takes another gateway.
const HANGS_AFTER_OF_SEVERAL: Duration = Duration::from_millis(250);
/// The name of a gateway, for people.
pub(super) const GATEWAY: &str = "the gateway";

/// Everything that it takes to get in.
#[derive(Debug, Clone)]
pub struct GatewayAccess {
    /// Names or IP addresses, each with a port: at least one.
    pub endpoints: Vec<Endpoint>,
    /// Settings of TLS; `None` for plain HTTP.
    pub tls: Option<Trust>,
    /// Proxies before gateways that speak TLS.
    pub proxies: Arc<Proxies>,
    /// The agent's key; `None` for a gateway that asks for none.
    pub key: Option<SecretSource>,
    /// The agent's own, where the other is a join key.
    pub own_key: Option<OwnKey>,
    /// From the wish to connect to a gateway that has let us in.
    pub connect_timeout: Duration,
    /// From a call to its answer.
    pub timeout: Duration,
}

/// The gateways, and which of them is in use.
#[derive(Debug)]
pub struct Address(Arc<Gateways>);

/// What all connections share, whichever gateway they lead to.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) access: GatewayAccess,
    pub(super) scope: Arc<Scope>,
    pub(super) plane: Arc<Plane>,
    pub(super) behind: Arc<BehindGateway>,
    /// What the gateway calls this agent.
    pub(super) agent: String,
    pub(super) host: Option<String>,
}

/// A connection to a gateway.
#[derive(Debug, Clone)]
pub struct Connection {
    /// None for work that a gateway does itself, and for the stream, behind which a call would wait for
    /// ever.
    pub(super) http: Option<Http>,
    pub(super) face: Face,
    /// True once this gateway has said that it keeps no history: it is of an earlier version.
    pub(super) forgets: Arc<AtomicBool>,
}

/// The other end's offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Face {
    /// Everything, to the caller of this mark, by the gateway's word.
    Agents(Mark),
    /// Sessions and masters.
    SessionPlane,
}

impl GatewayAccess {
    /// The key to show on a new connection, and the join key that it is to be exchanged for if it is not known.
    pub(super) fn keys(&self) -> (Option<Secret>, Option<(Secret, &OwnKey)>) {
        let key = self.key.as_ref().map(SecretSource::read);
        let join = key.as_ref().and_then(|key| Shown::parse_join(key.expose()));
        let own = self.own_key.as_ref().zip(join);
        match own.filter(|(own, join)| own.made_for == join.id.to_string()).map(|(own, _)| own) {
            Some(own) => (Some(own.text.clone()), key.map(|join| (join, own))),
            None => (key, None),
        }
    }
}

impl Shared {
    fn new(access: GatewayAccess) -> Shared {
        // Agents that are called the same are taken for one by people, and by nobody else.
        let agent = format!("{:016x}", getrandom::u64().unwrap_or(0));
        let host = tenure_host::machine::host_name().ok();
        let (scope, plane, behind) = (Arc::default(), Arc::default(), Arc::default());
        Shared { access, scope, plane, behind, agent, host }
    }
}

impl Address {
    pub(super) fn new(access: GatewayAccess) -> Address {
        Address(Arc::new(Gateways::new(Shared::new(access))))
    }

    fn shared(&self) -> &Shared {
        self.0.shared()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.shared().access.timeout
    }

    /// How often a call may be sent again, to another gateway.
    pub(super) fn others_count(&self) -> usize {
        self.0.others_count()
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.shared().scope
    }

    pub(super) fn plane(&self) -> &Plane {
        &self.shared().plane
    }

    /// Work that needs no connection: a gateway looks after its store itself, and the agent after other gateways.
    fn idle(&self) -> Dialed<Connection> {
        let server = Server { place: self.0.place(), version: String::new() };
        let connection =
            Connection { http: None, face: Face::Agents(Mark::of("")), forgets: Arc::default() };
        let gateways = Arc::clone(&self.0);
        let pump: Pump = match gateways.are_several() {
            true => Box::pin(async move { gateways.look_around().await }),
            false => Box::pin(std::future::pending()),
        };
        Dialed { connection, server, pump }
    }
}

impl Connector for Address {
    type Connection = Connection;

    const STORE: &'static str = GATEWAY;
    const KIND: &'static str = "gateway";
    // The gateway's own examination of a store that is away has to end before.
    const LOOK_MAX: Duration = Duration::from_millis(4000);
    const HAS_BACKGROUND: bool = false;

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        if purpose == Purpose::Background {
            return Ok(self.idle());
        }
        self.0.connect(purpose, hints).await
    }

    fn ended(&self, server: &Server, error: &ConnectError) -> bool {
        self.0.ended(server, error)
    }

    fn gateways(&self) -> Vec<GatewayStatus> {
        self.0.statuses()
    }

    fn hangs_after(&self) -> Duration {
        // To move to another one costs little.
        if self.0.are_several() { HANGS_AFTER_OF_SEVERAL } else { HANGS_AFTER }
    }

    async fn check(&self, connection: &Connection, server: &Server) -> Result<(), ConnectError> {
        // A stream has signs of life of its own, and a call its deadline.
        let Some(turn) = connection.http.as_ref().and_then(Http::idle) else { return Ok(()) };
        let Some((number, door)) = self.0.at(server) else { return Ok(()) };
        let (timeout, peer) = (self.0.patience().min(self.timeout()), door.peer);
        let doing = "looking whether it is there";
        let Face::Agents(mark) = connection.face else {
            let looking = async { session_plane::probe(turn).await.map_err(|it| door.lost(&it)) };
            let answered = ConnectError::within(timeout, peer, doing, looking).await?;
            // A store that is away, or a rate that is used up, is no reason to come back.
            return match answered.status {
                StatusCode::UNAUTHORIZED => Err(refused(peer, &answered)),
                _ => Ok(()),
            };
        };
        let looking = door.say_hello(Ok(turn), false);
        let answered = ConnectError::within(timeout, peer, doing, looking).await?;
        if answered.status == StatusCode::TOO_MANY_REQUESTS {
            // Other calls of this key take up its rate: it is there, and goes on.
            return Ok(());
        }
        let welcome = door.welcomed(&answered)?;
        if welcome.mark != mark {
            let cause = "this agent's key belongs to another principal now";
            return Err(ConnectError::lost(peer, cause));
        }
        if welcome.store.id.is_some() {
            self.0.admit(number, &Offer::of(welcome))?;
        }
        Ok(())
    }

    fn behind(&self) -> Option<Behind> {
        self.shared().behind.get()
    }

    fn grants_at(&self, now: Boottime) -> Option<Boottime> {
        self.behind()?.grants_at.filter(|at| now < *at)
    }

    async fn examine(&self, connection: Connection, checks: &mut Vec<Check>) {
        let Some(door) = self.0.door_in_use() else { return };
        if let Some(proxy) = self.shared().access.proxies.before(door.endpoint) {
            let detail = format!("the way leads through {}", proxy.peer());
            checks.push(Check::ok("gateway.proxy", detail));
        }
        if connection.face == Face::SessionPlane {
            return checks.push(session_plane::check(door.peer));
        }
        if self.0.are_several() {
            checks.push(self.0.others().await);
        }
        match door.examined(&connection).await {
            Ok(Diagnosis { checks: of_store }) => checks.extend(of_store),
            Err(cause) => {
                let way_out = "see the gateway's log, and its /healthz";
                checks.push(Check::unknown("gateway.store", cause, way_out));
            }
        }
    }
}
