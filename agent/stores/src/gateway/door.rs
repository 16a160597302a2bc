//! One gateway: getting in, and what it says of itself.

use std::sync::Arc;
use std::time::Duration;

use hyper::{StatusCode, header};
use tenure_wire::Diagnosis;

use super::address::{Connection, Face, Shared};
use super::behind::{StoreInfo, StoreState};
use super::feed;
use super::http::{Answered, CallError, Http, Turn};
use super::join::OwnKey;
use super::local_key::local_key;
use super::session_plane;
use super::wire::{EXAMINE, HELLO, Hello, JOIN, PROTOCOL, Welcome};
use crate::remote::stream::{self, Tls};
use crate::remote::{
    ConnectError, ConnectionHints, Dialed, Endpoint, Peer, Pump, Purpose, Server, TlsFault,
};
use crate::settings::secret::Secret;

/// A gateway, and what its connections share with those to others.
#[derive(Clone, Copy)]
pub(super) struct Door<'a> {
    pub(super) shared: &'a Shared,
    pub(super) endpoint: &'a Endpoint,
    pub(super) peer: &'a Peer,
}

/// A gateway's word of itself.
pub(super) struct Offer {
    pub(super) face: Face,
    /// Its version, for people.
    pub(super) version: String,
    /// `None` of a session plane.
    pub(super) store: Option<StoreInfo>,
    pub(super) state: StoreState,
}

impl Offer {
    pub(super) fn of(welcome: Welcome) -> Offer {
        let Welcome { version, store, state, mark, .. } = welcome;
        Offer { face: Face::Agents(mark), version, store: Some(store), state }
    }

    fn of_session_plane() -> Offer {
        let (face, version) = (Face::SessionPlane, String::new());
        Offer { face, version, store: None, state: StoreState::default() }
    }
}

impl Door<'_> {
    /// A connection to the gateway, and what that says of itself.
    pub(super) async fn dial(
        self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
        timeout: Duration,
    ) -> Result<(Dialed<Connection>, Offer), ConnectError> {
        let Door { shared, endpoint, peer } = self;
        let Shared { access, agent, .. } = shared;
        let tls = access.tls.as_ref().map(|trust| Tls { trust, way_out: tls_way_out });
        let stream = match (tls, access.proxies.before(endpoint), endpoint) {
            (Some(tls), Some(proxy), Endpoint::Tcp(host, _)) => {
                // Half of the time, so that a proxy that does not answer is told from such a gateway.
                let (first, rest) = (timeout / 2, timeout / 2);
                let through = proxy.connect(endpoint, first).await?;
                stream::secure(peer, host, tls, through, rest).await?
            }
            _ => stream::connect(peer, endpoint, tls, timeout).await?,
        };
        let (key, join) = access.keys();
        // By TLS it would go to whoever has a certificate for the name of this host.
        let key = key.or_else(|| access.tls.is_none().then(|| local_key(endpoint))?);
        let own = join.as_ref().map(|(_, own)| *own);
        let (http, pump) = Http::over(stream, endpoint, key.as_ref(), peer, agent).await?;
        let opening = self.open(&http, join, purpose, hints);
        let (offer, feed, pump) = pumped(opening, pump).await?;
        let Offer { face, .. } = offer;
        if let (Some(own), Face::Agents(_)) = (own, face) {
            own.keep();
        }
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
        let server = Server { place: peer.place.clone(), version: offer.version.clone() };
        let connection = Connection { http, face, forgets: Arc::default() };
        Ok((Dialed { connection, server, pump }, offer))
    }

    /// Finds the face that a new connection leads to and its version; opens the feed if that is its purpose.
    async fn open(
        self,
        http: &Http,
        join: Option<(Secret, &OwnKey)>,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<(Offer, Option<Pump>), ConnectError> {
        let only_looks = purpose == Purpose::Examination;
        let mut answered = self.say_hello(http.turn().await, only_looks).await?;
        if answered.status == StatusCode::UNAUTHORIZED
            && let Some((join, own)) = join
        {
            self.join(http, &join, own).await?;
            own.keep();
            answered = self.say_hello(http.turn().await, only_looks).await?;
            if answered.status == StatusCode::UNAUTHORIZED {
                let cause = "it does not know this agent's new key yet".to_owned();
                return Err(ConnectError::NotReady { peer: self.peer.clone(), cause });
            }
        }
        let hints = hints.filter(|_| purpose == Purpose::Feed);
        // One without the face for agents, or no gateway at all.
        if answered.status == StatusCode::NOT_FOUND && self.has_session_plane(http).await? {
            let looking = hints.map(|hints| self.look_on(http, hints));
            return Ok((Offer::of_session_plane(), looking));
        }
        let welcome = self.welcomed(&answered)?;
        let feed = match hints {
            None => None,
            Some(hints) => {
                let response = http.turn().await.map_err(|error| self.lost(&error))?;
                let (scope, mark) = (Arc::clone(&self.shared.scope), welcome.mark);
                let scope = feed::Scoped { scope, mark };
                let behind = (welcome.store.kind.clone(), Arc::clone(&self.shared.behind));
                Some(feed::open(response, self.peer, scope, behind, hints).await?)
            }
        };
        Ok((Offer::of(welcome), feed))
    }

    /// Exchanges the join key. Whoever repeats that gets the same answer.
    async fn join(self, http: &Http, join: &Secret, own: &OwnKey) -> Result<(), ConnectError> {
        let key = Http::authorization(join, self.peer)?;
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
            _ => Err(refused(self.peer, &answered)),
        }
    }

    /// True if programs can register there.
    async fn has_session_plane(self, http: &Http) -> Result<bool, ConnectError> {
        let turn = http.turn().await.map_err(|error| self.lost(&error))?;
        let answered = session_plane::probe(turn).await.map_err(|error| self.lost(&error))?;
        match answered.status {
            status if status.is_success() => Ok(session_plane::is_status(&answered.body)),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(refused(self.peer, &answered)),
        }
    }

    /// Uses a connection now and then, as a session plane may hang up on one that is idle. Ends with the
    /// connection's last user.
    fn keep_up(self, http: Http, pump: Pump) -> Pump {
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
    fn look_on(self, http: &Http, hints: ConnectionHints) -> Pump {
        let (plane, http, peer) = (Arc::clone(&self.shared.plane), http.clone(), self.peer.clone());
        Box::pin(async move {
            let cause = session_plane::look_on(&plane, &http, &hints).await;
            ConnectError::lost(&peer, &cause)
        })
    }

    /// Says the first words.
    pub(super) async fn say_hello(
        self,
        turn: Result<Turn<'_>, CallError>,
        only_looks: bool,
    ) -> Result<Answered, ConnectError> {
        let lost = |error| self.lost(&error);
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), self.shared.host.clone());
        let hello = Hello { protocol: PROTOCOL, version, host, only_looks };
        let body = serde_json::to_vec(&hello).unwrap_or_default();
        turn.map_err(lost)?.post(HELLO, body).await.map_err(lost)
    }

    /// The gateway's answer to the first words.
    pub(super) fn welcomed(self, answered: &Answered) -> Result<Welcome, ConnectError> {
        if answered.status != StatusCode::OK {
            return Err(refused(self.peer, answered));
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

    pub(super) fn lost(self, error: &CallError) -> ConnectError {
        let way_out = error.tls_fault().map(tls_way_out).unwrap_or_default();
        ConnectError::lost(self.peer, &format!("{error}{way_out}"))
    }

    /// The gateway's examination of its store.
    pub(super) async fn examined(self, connection: &Connection) -> Result<Diagnosis, String> {
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

/// The first words of a gateway that was shown no key.
const NO_KEY: &str = "a key is needed";

/// The meaning of an answer that lets nobody in.
pub(super) fn refused(peer: &Peer, answered: &Answered) -> ConnectError {
    let (peer, cause) = (peer.clone(), answered.words());
    let way_out = match answered.status {
        StatusCode::UNAUTHORIZED => {
            let way_out = if cause.starts_with(NO_KEY) {
                "; have one made there (tenured-gateway keys add), and name a file with it in upstream_secret_file"
            } else {
                "; check the key in upstream_secret_file, which is read at each sign-in"
            };
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
            "; it wants a certificate of its clients that it trusts: gateway.tls_cert_file and gateway.tls_key_file"
        }
    }
}
