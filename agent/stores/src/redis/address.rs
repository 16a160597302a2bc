//! Connections to a Redis: the place of the server now, and signing in.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{PushInfo, RedisError, Value, pipe};
use tenure_core::time::Boottime;
use tenure_wire::{Check, DEFAULT_TENANT};

use super::connect_error::{self, REDIS};
use super::connection::Connection;
use super::exchange::{Invocation, epoch};
use super::layout::Layout;
use super::settings::{Login, Place, RedisAccess, RedisServer};
use super::{commands, examine, feed, sentinel, sign_in, write};
use crate::remote::{
    ConnectError, ConnectionHints, Connector, Dialed, Endpoint, Peer, Pump, Purpose, Server,
    SharedEpoch, StoreClock, Tls, WriteError, stream,
};

/// The address of a Redis, the credentials for it, and how long to try.
#[derive(Debug)]
pub struct Address {
    access: RedisAccess,
    layout: Arc<Layout>,
    /// The Sentinel that is asked first: the last one that knew.
    informant: AtomicUsize,
    /// Several gateways may share it, so that it has an id.
    is_behind_gateway: AtomicBool,
    /// Once it is known.
    id: Mutex<Option<Arc<str>>>,
    epoch: SharedEpoch,
}

impl Address {
    /// The address as it was configured.
    pub fn new(access: RedisAccess, layout: Layout) -> Address {
        Address {
            access,
            layout: Arc::new(layout),
            informant: AtomicUsize::new(0),
            is_behind_gateway: AtomicBool::new(false),
            id: Mutex::default(),
            epoch: SharedEpoch::default(),
        }
    }

    /// From now on whoever asks can be told the id of this store.
    pub(super) fn serve_principals(&self) {
        self.is_behind_gateway.store(true, Ordering::Relaxed);
    }

    /// Reads the id of the store, and gives it one if it has none.
    async fn see_id(&self, connection: &mut Connection) {
        let key = self.layout.tenure(DEFAULT_TENANT, "store");
        let Ok([high, low]) = getrandom::u64().and_then(|it| Ok([it, getrandom::u64()?])) else {
            return;
        };
        let answered: Result<(Value, String), RedisError> = pipe()
            .cmd("SET")
            .arg(&key)
            .arg(format!("{high:016x}{low:016x}"))
            .arg("NX")
            .cmd("GET")
            .arg(&key)
            .query_async(connection)
            .await;
        // A server that refuses can be behind a single gateway.
        if let Ok((_, id)) = answered {
            *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.into());
        }
    }

    /// The knowledge of the store, which all connections share.
    pub(super) fn epoch(&self) -> &SharedEpoch {
        &self.epoch
    }

    /// Checks whether the store has lost data: an agent without claims would not notice.
    async fn see_epoch(&self, connection: &mut Connection) {
        let look = Invocation::look_epoch();
        let view = self.epoch.ask(Duration::ZERO);
        let call = look.judged(&self.layout, &view);
        let mut answered: Result<Value, RedisError> = call.query_async(connection).await;
        if answered.as_ref().is_err_and(commands::is_unknown_script)
            && look.script.load().exec_async(connection).await.is_ok()
        {
            answered = call.query_async(connection).await;
        }
        // If the server refuses the check, the first granting call finds out.
        if let Ok(reply) = answered
            && let Ok((Some(report), _)) = epoch::read(&view, reply)
        {
            self.epoch.hear(&view, report);
        }
    }

    /// The number of the database.
    pub(super) fn db(&self) -> u32 {
        self.access.db
    }

    /// How long a call may take; its caller's to keep.
    pub fn timeout(&self) -> Duration {
        self.access.timeout
    }

    pub(super) fn login(&self) -> &Login {
        &self.access.login
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(super) fn tls(&self) -> Option<Tls<'_>> {
        let trust = self.access.tls.as_ref()?;
        Some(Tls { trust, way_out: connect_error::tls_way_out })
    }

    /// True if Sentinels say where the master is.
    pub(super) fn moves(&self) -> bool {
        matches!(self.access.server, RedisServer::Sentinel { .. })
    }

    /// The place of the master now. Asks Sentinels, if there are any, for no longer than it may
    /// take to connect.
    async fn locate(&self) -> Result<Endpoint, ConnectError> {
        let (sentinels, master, login) = match &self.access.server {
            RedisServer::Tcp(Place { host, port }) => {
                return Ok(Endpoint::Tcp(host.clone(), *port));
            }
            RedisServer::Unix(path) => return Ok(Endpoint::Unix(path.clone())),
            RedisServer::Sentinel { sentinels, master, login } => (sentinels, master, login),
        };
        let first = self.informant.load(Ordering::Relaxed) % sentinels.len().max(1);
        let (later, sooner) = sentinels.split_at(first);
        let asked: Vec<&Place> = sooner.iter().chain(later).collect();
        let query = sentinel::Query { master, login, tls: self.tls() };
        let (answered, endpoint) = query.ask(&asked, self.access.connect_timeout).await?;
        self.informant.store(first + answered, Ordering::Relaxed);
        Ok(endpoint)
    }

    /// A connection to a server that was found fit.
    async fn sign_in(
        &self,
        peer: &Peer,
        endpoint: &Endpoint,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let layout = Arc::clone(&self.layout);
        let pushed = move |push: PushInfo, clock: &StoreClock| {
            if let Some(hints) = &hints {
                feed::hints(&layout, clock, push, |hint| hints.push(hint));
            }
        };
        let timeout = self.access.connect_timeout;
        let stream = stream::connect(peer, endpoint, self.tls(), timeout).await?;
        let (mut connection, pump) = Connection::new(stream, pushed);
        let lost = ConnectError::lost(peer, "it hung up");
        let mut pump: Pump = Box::pin(async move {
            pump.await;
            lost
        });
        let server = {
            let mut check = pin!(async {
                sign_in::sign_in(self, &mut connection, peer, endpoint).await?;
                sign_in::introduce(self, &mut connection, peer, purpose.name()).await?;
                let server = sign_in::look(self, &mut connection, peer).await?;
                if purpose == Purpose::Commands {
                    self.see_epoch(&mut connection).await;
                }
                if purpose == Purpose::Commands && self.is_behind_gateway.load(Ordering::Relaxed) {
                    self.see_id(&mut connection).await;
                }
                Ok(server)
            });
            tokio::select! {
                server = &mut check => server?,
                lost = &mut pump => {
                    // It may have said why before.
                    drop(pump);
                    return Err(check.await.err().unwrap_or(lost));
                }
            }
        };
        Ok(Dialed { connection, server, pump })
    }
}

fn at(place: String) -> Peer {
    Peer { what: REDIS, place }
}

impl Connector for Address {
    /// Speaks RESP3, or RESP2 if it must.
    type Connection = Connection;

    const STORE: &'static str = REDIS;
    const KIND: &'static str = "redis";
    const TRIES_WRITES: bool = true;

    fn store_id(&self) -> Option<Arc<str>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        match &self.access.server {
            RedisServer::Tcp(Place { host, port }) => Some(Endpoint::Tcp(host.clone(), *port)),
            RedisServer::Unix(_) | RedisServer::Sentinel { .. } => None,
        }
    }

    fn grants_at(&self, now: Boottime) -> Option<Boottime> {
        self.epoch.grants_at(now)
    }

    fn flush(connection: &Connection) {
        connection.flush();
    }

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let endpoint = self.locate().await?;
        let peer = at(endpoint.to_string());
        let signing_in = self.sign_in(&peer, &endpoint, purpose, hints);
        let timeout = self.access.connect_timeout;
        let signed_in = ConnectError::within(timeout, &peer, "connecting", signing_in).await;
        if signed_in.is_err() {
            // The Sentinel's answer was of no use: next time another one is asked first.
            self.informant.fetch_add(1, Ordering::Relaxed);
        }
        signed_in
    }

    async fn check(&self, connection: &Connection, server: &Server) -> Result<(), ConnectError> {
        let peer = at(server.place.clone());
        let mut connection = connection.clone();
        let look = async {
            sign_in::look(self, &mut connection, &peer).await?;
            if !connection.subscribes() {
                self.see_epoch(&mut connection).await;
            }
            Ok(())
        };
        let timeout = self.timeout();
        ConnectError::within(timeout, &peer, "looking whether it is there", look).await?;
        // An old master that was cut off from the others believes in itself. That no Sentinel answers
        // says nothing against it.
        if self.moves()
            && let Ok(endpoint) = self.locate().await
            && endpoint.to_string() != server.place
        {
            let cause = format!("Sentinel names {endpoint} as the master now");
            return Err(ConnectError::lost(&peer, &cause));
        }
        Ok(())
    }

    async fn examine(&self, connection: Connection, checks: &mut Vec<Check>) {
        examine::look(connection, &self.layout, checks).await;
    }

    async fn try_write(
        &self,
        connection: &Connection,
        why: Option<&str>,
    ) -> Result<(), WriteError> {
        write::attempt(connection, &self.layout, why).await
    }
}
