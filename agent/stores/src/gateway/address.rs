//! Connections to a gateway.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hyper::{StatusCode, header};
use tenure_wire::{Check, Diagnosis};

use super::behind::BehindGateway;
use super::feed;
use super::http::{Answered, CallError, Http, Turn};
use super::join::OwnKey;
use super::key::Shown;
use super::scope::{Mark, Scope};
use super::session_plane::{self, Plane};
use super::wire::{EXAMINE, HELLO, Hello, JOIN, PROTOCOL, Welcome};
use crate::remote::stream::{self, Tls};
use crate::remote::{
    Behind, ConnectError, ConnectionHints, Connector, Dialed, Endpoint, Peer, Pump, Purpose,
    Server, TlsFault,
};
use crate::settings::secret::{self, Credentials, Secret};
use crate::settings::tls::Trust;

/// The name of a gateway, for people.
const GATEWAY: &str = "the gateway";

/// Everything that it takes to get in.
#[derive(Debug, Clone)]
pub struct GatewayAccess {
    /// A name or an IP address, and a port.
    pub endpoint: Endpoint,
    /// Settings of TLS; `None` for plain HTTP.
    pub tls: Option<Trust>,
    /// The agent's key; `None` for a gateway that asks for none.
    pub key: Option<Secret>,
    /// The file it came from, which each connection reads again: a key can be changed while its agent runs.
    pub key_file: Option<(PathBuf, Credentials)>,
    /// The agent's own, where the other is a join key.
    pub own_key: Option<OwnKey>,
    /// From the wish to connect to a gateway that has let us in.
    pub connect_timeout: Duration,
    /// From a call to its answer.
    pub timeout: Duration,
}

/// The address of a gateway, and what its connections share.
#[derive(Debug)]
pub struct Address {
    access: GatewayAccess,
    peer: Peer,
    scope: Arc<Scope>,
    plane: Arc<Plane>,
    behind: Arc<BehindGateway>,
    /// What the gateway calls this agent.
    agent: String,
    host: Option<String>,
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
    /// The key that is in the file now; the one from the start if it cannot be read.
    fn current_key(&self) -> Option<Secret> {
        let read =
            |(path, credentials): &(PathBuf, Credentials)| secret::read(path, credentials).ok();
        self.key_file.as_ref().and_then(read).or_else(|| self.key.clone())
    }

    /// The key to show, and the join key that it is to be exchanged for if it is not known.
    fn keys(&self) -> (Option<Secret>, Option<(Secret, &OwnKey)>) {
        let key = self.current_key();
        let join = key.as_ref().and_then(|key| Shown::parse_join(key.expose()));
        let own = self.own_key.as_ref().zip(join);
        match own.filter(|(own, join)| own.made_for == join.id.to_string()).map(|(own, _)| own) {
            Some(own) => (Some(own.text.clone()), key.map(|join| (join, own))),
            None => (key, None),
        }
    }
}

impl Address {
    pub(super) fn new(access: GatewayAccess) -> Address {
        let peer = Peer { what: GATEWAY, place: access.endpoint.to_string() };
        // Agents that are called the same are taken for one by people, and by nobody else.
        let agent = format!("{:016x}", getrandom::u64().unwrap_or(0));
        let host = tenure_host::machine::host_name().ok();
        let (scope, plane, behind) = (Arc::default(), Arc::default(), Arc::default());
        Address { access, peer, scope, plane, behind, agent, host }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.access.timeout
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn plane(&self) -> &Plane {
        &self.plane
    }

    async fn dial(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let Address { access, peer, agent, .. } = self;
        let tls = access.tls.as_ref().map(|trust| Tls { trust, way_out: tls_way_out });
        let timeout = access.connect_timeout;
        let stream = stream::connect(peer, &access.endpoint, tls, timeout).await?;
        let (key, join) = access.keys();
        let own = join.as_ref().map(|(_, own)| *own);
        let (http, pump) = Http::over(stream, &access.endpoint, key.as_ref(), peer, agent).await?;
        let opening = self.open(&http, join, purpose, hints);
        let ((face, version), feed, pump) = pumped(opening, pump).await?;
        if let (Some(own), Face::Agents(_)) = (own, face) {
            own.keep();
        }
        self.plane.found(face);
        let (http, pump): (_, Pump) = match feed {
            None if face == Face::SessionPlane => (Some(http.clone()), self.keep_up(http, pump)),
            None => (Some(http), pump),
            Some(feed) => {
                let pump = Box::pin(async move {
                    // A connection ends with its last user, and nobody else may use this one.
                    let _http = http;
                    tokio::select! {
                        error = feed => error,
                        error = pump => error,
                    }
                });
                (None, pump)
            }
        };
        let server = Server { place: peer.place.clone(), version };
        Ok(Dialed { connection: Connection { http, face, forgets: Arc::default() }, server, pump })
    }

    /// Finds the face that a new connection leads to and its version; opens the feed if that is its purpose.
    async fn open(
        &self,
        http: &Http,
        join: Option<(Secret, &OwnKey)>,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<((Face, String), Option<Pump>), ConnectError> {
        let mut answered = self.say_hello(http.turn().await).await?;
        if answered.status == StatusCode::UNAUTHORIZED
            && let Some((join, own)) = join
        {
            self.join(http, &join, own).await?;
            own.keep();
            answered = self.say_hello(http.turn().await).await?;
            if answered.status == StatusCode::UNAUTHORIZED {
                let cause = "it does not know this agent's new key yet".to_owned();
                return Err(ConnectError::NotReady { peer: self.peer.clone(), cause });
            }
        }
        let hints = hints.filter(|_| purpose == Purpose::Feed);
        // One without the face for agents, or no gateway at all.
        if answered.status == StatusCode::NOT_FOUND && self.has_session_plane(http).await? {
            let looking = hints.map(|hints| self.look_on(http, hints));
            return Ok(((Face::SessionPlane, String::new()), looking));
        }
        let Welcome { version, mark, store, .. } = self.welcomed(&answered)?;
        let feed = match hints {
            None => None,
            Some(hints) => {
                let response = http.turn().await.map_err(|error| self.lost(&error))?;
                let scope = feed::Scoped { scope: Arc::clone(&self.scope), mark };
                let behind = (store.kind, Arc::clone(&self.behind));
                Some(feed::open(response, &self.peer, scope, behind, hints).await?)
            }
        };
        Ok(((Face::Agents(mark), version), feed))
    }

    /// Exchanges the join key. Whoever repeats that gets the same answer.
    async fn join(&self, http: &Http, join: &Secret, own: &OwnKey) -> Result<(), ConnectError> {
        let key = Http::authorization(join, &self.peer)?;
        let body = serde_json::to_vec(&own.join).unwrap_or_default();
        let turn = http.turn().await.map_err(|error| self.lost(&error))?;
        let answered = turn.post_with((header::AUTHORIZATION, key), JOIN, body).await;
        let answered = answered.map_err(|error| self.lost(&error))?;
        match answered.status {
            StatusCode::OK => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let (peer, cause) = (self.peer.clone(), answered.words());
                let way_out =
                    "; upstream_secret_file has a join key: put a new one, or a key, there";
                Err(ConnectError::NotLetIn { peer, cause, way_out })
            }
            _ => Err(refused(&self.peer, &answered)),
        }
    }

    /// True if programs can register there.
    async fn has_session_plane(&self, http: &Http) -> Result<bool, ConnectError> {
        let turn = http.turn().await.map_err(|error| self.lost(&error))?;
        let answered = session_plane::probe(turn).await.map_err(|error| self.lost(&error))?;
        match answered.status {
            status if status.is_success() => Ok(session_plane::is_status(&answered.body)),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(refused(&self.peer, &answered)),
        }
    }

    /// Uses a connection now and then, as a session plane may hang up on one that is idle. Ends with the
    /// connection's last user.
    fn keep_up(&self, http: Http, pump: Pump) -> Pump {
        let peer = self.peer.clone();
        Box::pin(async move {
            let lost = async { ConnectError::lost(&peer, &session_plane::keep_up(&http).await) };
            tokio::select! {
                error = pump => error,
                error = lost => error,
            }
        })
    }

    /// Looks on at projects, as nobody tells of their changes.
    fn look_on(&self, http: &Http, hints: ConnectionHints) -> Pump {
        let (plane, http, peer) = (Arc::clone(&self.plane), http.clone(), self.peer.clone());
        Box::pin(async move {
            let cause = session_plane::look_on(&plane, &http, &hints).await;
            ConnectError::lost(&peer, &cause)
        })
    }

    /// Says the first words.
    async fn say_hello(&self, turn: Result<Turn<'_>, CallError>) -> Result<Answered, ConnectError> {
        let lost = |error| self.lost(&error);
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), self.host.clone());
        let hello = Hello { protocol: PROTOCOL, version, host };
        let body = serde_json::to_vec(&hello).unwrap_or_default();
        turn.map_err(lost)?.post(HELLO, body).await.map_err(lost)
    }

    /// The gateway's answer to the first words.
    fn welcomed(&self, answered: &Answered) -> Result<Welcome, ConnectError> {
        if answered.status != StatusCode::OK {
            return Err(refused(&self.peer, answered));
        }
        let unfit = |what: &str| ConnectError::Unfit { peer: self.peer.clone(), what: what.into() };
        let welcome: Welcome = serde_json::from_slice(&answered.body).map_err(|_| {
            unfit("does not speak as a gateway does; check host and port of upstream")
        })?;
        match welcome.protocol {
            0 => Err(unfit("speaks a protocol that this agent does not know; upgrade one of both")),
            _ => Ok(welcome),
        }
    }

    fn lost(&self, error: &CallError) -> ConnectError {
        let way_out = error.tls_fault().map(tls_way_out).unwrap_or_default();
        ConnectError::lost(&self.peer, &format!("{error}{way_out}"))
    }

    /// The gateway's examination of its store.
    async fn examined(&self, connection: &Connection) -> Result<Diagnosis, String> {
        let Some(http) = &connection.http else {
            return Err("there is no connection for questions".to_owned());
        };
        let turn = http.turn().await.map_err(|error| error.to_string())?;
        let answered = turn.post(EXAMINE, Vec::new()).await.map_err(|error| error.to_string())?;
        match answered.status {
            StatusCode::OK => serde_json::from_slice(&answered.body)
                .map_err(|_| "the gateway's answer is no diagnosis".to_owned()),
            // One of an earlier version.
            StatusCode::NOT_FOUND => Err("this gateway does not examine its store".to_owned()),
            _ => Err(answered.words()),
        }
    }

    /// Work that needs no connection: a gateway looks after its store itself.
    fn idle(&self) -> Dialed<Connection> {
        let server = Server { place: self.peer.place.clone(), version: String::new() };
        let connection =
            Connection { http: None, face: Face::Agents(Mark::of("")), forgets: Arc::default() };
        Dialed { connection, server, pump: Box::pin(std::future::pending()) }
    }
}

/// Does a step on a connection, which must be pumped meanwhile.
async fn pumped<T, F>(
    step: impl Future<Output = Result<(T, F), ConnectError>>,
    mut pump: Pump,
) -> Result<(T, F, Pump), ConnectError> {
    let mut step = std::pin::pin!(step);
    tokio::select! {
        // It may have said why before it hung up.
        biased;
        done = &mut step => done.map(|(welcome, feed)| (welcome, feed, pump)),
        lost = &mut pump => {
            drop(pump);
            Err(step.await.err().unwrap_or(lost))
        }
    }
}

/// The meaning of an answer that lets nobody in.
pub(super) fn refused(peer: &Peer, answered: &Answered) -> ConnectError {
    let (peer, cause) = (peer.clone(), answered.words());
    let way_out = match answered.status {
        StatusCode::UNAUTHORIZED => {
            let way_out = "; check the key in upstream_secret_file";
            return ConnectError::NotLetIn { peer, cause, way_out };
        }
        StatusCode::NOT_FOUND => "; check host and port of upstream: this may be no gateway",
        status if status.is_server_error() => return ConnectError::NotReady { peer, cause },
        _ => "",
    };
    ConnectError::Refused { peer, cause, way_out }
}

fn tls_way_out(fault: TlsFault) -> &'static str {
    match fault {
        TlsFault::WrongName => {
            "; its certificate is for another name: write that one in upstream, or have a certificate made \
             for this one"
        }
        TlsFault::UnknownIssuer => {
            "; the authority of its certificate is not trusted: name a file with it in gateway.tls_ca_file"
        }
        TlsFault::Expired => {
            "; its certificate is not valid at this time: have a new one made, or set the clock of this host"
        }
        TlsFault::NotTls => "; if it speaks no TLS on this port, write http:// in upstream",
        TlsFault::WantsCertificate => {
            "; it wants a certificate of its clients: gateway.tls_cert_file and gateway.tls_key_file"
        }
    }
}

impl Connector for Address {
    type Connection = Connection;

    const STORE: &'static str = GATEWAY;
    const KIND: &'static str = "gateway";
    // The gateway's own examination of a store that is away has to end before.
    const LOOK_MAX: Duration = Duration::from_millis(4000);

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        if purpose == Purpose::Background {
            return Ok(self.idle());
        }
        let dialing = self.dial(purpose, hints);
        ConnectError::within(self.access.connect_timeout, &self.peer, "connecting", dialing).await
    }

    async fn check(&self, connection: &Connection, _: &Server) -> Result<(), ConnectError> {
        // A stream has signs of life of its own, and a call its deadline.
        let Some(turn) = connection.http.as_ref().and_then(Http::idle) else { return Ok(()) };
        let timeout = self.access.timeout;
        let doing = "looking whether it is there";
        let Face::Agents(mark) = connection.face else {
            let looking = async { session_plane::probe(turn).await.map_err(|it| self.lost(&it)) };
            let answered = ConnectError::within(timeout, &self.peer, doing, looking).await?;
            // A store that is away, or a rate that is used up, is no reason to come back.
            return match answered.status {
                StatusCode::UNAUTHORIZED => Err(refused(&self.peer, &answered)),
                _ => Ok(()),
            };
        };
        let looking = self.say_hello(Ok(turn));
        let answered = ConnectError::within(timeout, &self.peer, doing, looking).await?;
        if answered.status == StatusCode::TOO_MANY_REQUESTS {
            // Other calls of this key take up its rate: it is there, and goes on.
            return Ok(());
        }
        let welcome = self.welcomed(&answered)?;
        if welcome.mark != mark {
            let cause = "this agent's key belongs to another principal now";
            return Err(ConnectError::lost(&self.peer, cause));
        }
        Ok(())
    }

    fn behind(&self) -> Option<Behind> {
        self.behind.get()
    }

    async fn examine(&self, connection: Connection, checks: &mut Vec<Check>) {
        if connection.face == Face::SessionPlane {
            return checks.push(session_plane::check(&self.peer));
        }
        match self.examined(&connection).await {
            Ok(Diagnosis { checks: of_store }) => checks.extend(of_store),
            Err(cause) => {
                let way_out = "see the gateway's log, and its /healthz";
                checks.push(Check::unknown("gateway.store", cause, way_out));
            }
        }
    }
}
