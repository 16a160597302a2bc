//! Connections to a Postgres: dialing, signing in, and whether the server is fit.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::InvalidDnsNameError;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::Check;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};
use tokio_postgres_rustls_improved::MakeRustlsConnect;
use tracing::info;

use super::connection::{Clock, Connection, words};
use super::durability::Durability;
use super::pooler::MARK;
use super::schema::SEARCH_PATH;
use super::settings::{PostgresAccess, PostgresServer};
use super::way_out::way_out;
use super::wire::Wire;
use super::{examine, feed, schema};
use crate::remote::stream;
use crate::remote::{
    ConnectError, ConnectionHints, Connector, Dialed, Endpoint, Hint, Peer, Pump, Purpose, Server,
    SharedEpoch, TlsFault, WriteError,
};
use crate::settings::secret::SecretSource;
use crate::settings::tls::Trust;

/// The name of the server, for people.
pub(super) const POSTGRES: &str = "Postgres";
/// The oldest version that the corpus was run on, as `server_version_num` has it.
const VERSION_MIN: i32 = 150_000;
/// A statement that takes so many times a call's deadline is ended by the server: nobody waits for it.
const STATEMENT_TIMES: u32 = 4;

/// The address of a Postgres, and the credentials for it.
#[derive(Debug)]
pub struct Address {
    access: PostgresAccess,
    /// By the latest look at the server.
    durability: Mutex<Option<Durability>>,
    /// Once it is known.
    id: Mutex<Option<Arc<str>>>,
    pub(super) epoch: SharedEpoch,
    /// What concerns principals is passed on to them.
    serves_principals: Arc<AtomicBool>,
    /// Two connections have met without a pooler between them.
    pub(super) is_unpooled: AtomicBool,
}

impl Address {
    pub fn new(access: PostgresAccess) -> Address {
        let (durability, id) = (Mutex::default(), Mutex::default());
        let is_unpooled = AtomicBool::default();
        let (serves_principals, epoch) = (Arc::default(), SharedEpoch::default());
        Address { access, durability, id, epoch, serves_principals, is_unpooled }
    }

    /// See [`Backend::serve_principals`](crate::remote::Backend::serve_principals).
    pub(super) fn serve_principals(&self) {
        self.serves_principals.store(true, Ordering::Relaxed);
    }

    fn place(&self) -> Endpoint {
        match &self.access.server {
            PostgresServer::Tcp { host, port } => Endpoint::Tcp(host.clone(), *port),
            PostgresServer::Unix { directory, port } => {
                Endpoint::Unix(directory.join(format!(".s.PGSQL.{port}")))
            }
        }
    }

    fn config(&self, purpose: Purpose) -> Config {
        let PostgresAccess { user, password, database, .. } = &self.access;
        let mut config = Config::new();
        config.user(user).dbname(database);
        config.application_name(format!("tenure {}", purpose.name()));
        if let Some(password) = password {
            config.password(password.read().expose());
        }
        config
    }

    /// A connection to a server that was found fit.
    async fn sign_in(
        &self,
        peer: &Peer,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let clock = Clock::default();
        let listener = hints.map(|hints| Listener {
            hints,
            clock: Arc::clone(&clock),
            serves_principals: Arc::clone(&self.serves_principals),
        });
        let (client, mut pump) = self.open(peer, purpose, listener).await?;
        let (connection, server) = {
            let mut look = pin!(self.look(peer, client, clock));
            tokio::select! {
                found = &mut look => found?,
                lost = &mut pump => return Err(lost),
            }
        };
        Ok(Dialed { connection, server, pump })
    }

    /// A connection that is signed in.
    pub(super) async fn open(
        &self,
        peer: &Peer,
        purpose: Purpose,
        listener: Option<Listener>,
    ) -> Result<(Client, Pump), ConnectError> {
        let mut config = self.config(purpose);
        let endpoint = self.place();
        let timeout = self.access.connect_timeout;
        let stream = Wire(stream::connect(peer, &endpoint, None, timeout).await?);
        match (&self.access.tls, &self.access.server) {
            (Some(trust), PostgresServer::Tcp { host, .. }) => {
                config.ssl_mode(SslMode::Require);
                let tls = secured(trust, host)
                    .await
                    .map_err(|error| self.unfit(peer, format!("has no name for TLS: {error}")))?;
                dial(config, stream, tls, peer.clone(), listener).await
            }
            _ => dial(config, stream, NoTls, peer.clone(), listener).await,
        }
        .map_err(|error| self.refused(peer, &error))
    }

    /// Looks whether the server is fit, and makes the schema if it is not there.
    async fn look(
        &self,
        peer: &Peer,
        mut client: Client,
        clock: Clock,
    ) -> Result<(Connection, Server), ConnectError> {
        let refused = |error: Error| self.refused(peer, &error);
        // The view is taken before the first query: other connections may learn of a later state meanwhile.
        let view = self.epoch.ask(Duration::ZERO);
        let marker = format!("{:016x}", getrandom::u64().unwrap_or(1));
        let row = client
            .query_one(
                "select pg_catalog.current_setting('server_version'), \
                 pg_catalog.current_setting('server_version_num')::integer, \
                 pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery(), \
                 pg_catalog.current_setting('tenure.connection', true), \
                 pg_catalog.set_config('tenure.connection', $1, false)",
                &[&marker],
            )
            .await
            .map_err(refused)?;
        let (version, number): (String, i32) = (row.get(0), row.get(1));
        let (encoding, is_standby): (String, bool) = (row.get(2), row.get(3));
        if number < VERSION_MIN {
            let needed = VERSION_MIN / 10_000;
            return Err(self.unfit(peer, format!("has version {version}; use {needed} or later")));
        }
        if encoding != "UTF8" {
            let what = format!("has a database in {encoding}; use one with encoding UTF8");
            return Err(self.unfit(peer, what));
        }
        if is_standby {
            let cause = "it is a standby, which takes no changes; name the primary".to_owned();
            return Err(ConnectError::NotReady { peer: peer.clone(), cause });
        }
        let found: Option<String> = row.get(4);
        if found.is_some_and(|found| !found.is_empty()) {
            return Err(self.pooled(peer));
        }
        self.look_for_pooler(peer, &client, &marker).await?;
        self.settle(&client).await.map_err(refused)?;
        self.check_marker(peer, &client, &marker).await?;
        // Taken before the check of the schema, which may write.
        let written = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        let written: i64 = client.query_one(written, &[]).await.map_err(refused)?.get(0);
        schema::prepare(peer, &mut client, &self.access.user).await?;
        let epoch = self.epoch.clone();
        let connection = Connection::new(client, marker, clock, epoch).await.map_err(refused)?;
        connection.judge_epoch(&view, Some(written)).await.map_err(refused)?;
        connection.see_clock().await.map_err(refused)?;
        self.see_durability(&connection).await.map_err(refused)?;
        self.see_id(&connection).await;
        Ok((connection, Server { place: peer.place.clone(), version }))
    }

    /// Looks how durable a commit is.
    async fn see_durability(&self, connection: &Connection) -> Result<(), Error> {
        let found = Durability::look(&connection.client).await?;
        let known = self.durability.lock().unwrap_or_else(PoisonError::into_inner).replace(found);
        if known != Some(found) {
            info!("guarantee: {}", found.guarantee());
        }
        Ok(())
    }

    /// Looks which database this is. It stays the same over failovers.
    async fn see_id(&self, connection: &Connection) {
        let question = "select system_identifier || '/' || (select oid from pg_database where datname = current_database()) \
                        from pg_control_system()";
        // A server that does not say it can be behind a single gateway.
        if let Ok(row) = connection.client.query_one(question, &[]).await {
            let id: String = row.get(0);
            *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.into());
        }
    }

    /// What an agent needs of a connection for as long as that lasts. Each statement of the schema finds its rows by
    /// an index, whatever its parameters: one plan serves, and never the one that suited a table while it was empty.
    async fn settle(&self, client: &Client) -> Result<(), Error> {
        let ms = (self.access.timeout * STATEMENT_TIMES).as_millis();
        client
            .batch_execute(&format!(
                "{SEARCH_PATH}; set statement_timeout = {ms}; set idle_in_transaction_session_timeout = {ms}; \
                 set lock_timeout = 0; set idle_session_timeout = 0; \
                 set default_transaction_isolation = 'read committed'; set jit = off; \
                 set plan_cache_mode = force_generic_plan; set enable_seqscan = off"
            ))
            .await
    }

    pub(super) fn unfit(&self, peer: &Peer, what: String) -> ConnectError {
        ConnectError::Unfit { peer: peer.clone(), what }
    }

    /// The meaning of an error while signing in.
    pub(super) fn refused(&self, peer: &Peer, error: &Error) -> ConnectError {
        let peer = peer.clone();
        let Some(refusal) = error.as_db_error() else {
            let way_out = match (tls_fault(error), &self.access.tls) {
                (Some(fault), _) => tls_way_out(fault),
                (None, Some(_)) => {
                    "; if it does not speak TLS, write ?sslmode=disable at the end of upstream"
                }
                (None, None) => "",
            };
            return ConnectError::Refused { peer, cause: words(error), way_out };
        };
        let cause = refusal.message().to_owned();
        let code = refusal.code();
        if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            let way_out = match self.access.password.as_ref().is_some_and(SecretSource::is_file) {
                true => {
                    "; check the user in upstream, the password in upstream_secret_file, which is read at each \
                     sign-in, and pg_hba.conf"
                }
                false => {
                    "; check user and password in upstream, or name a file in upstream_secret_file, which is read \
                     at each sign-in, and check pg_hba.conf"
                }
            };
            return ConnectError::NotLetIn { peer, cause, way_out };
        }
        // It was prepared on another connection, or by another agent on this one.
        if *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
        {
            return self.pooled(&peer);
        }
        if *code == SqlState::CANNOT_CONNECT_NOW {
            return ConnectError::NotReady { peer, cause };
        }
        ConnectError::Refused { peer, cause, way_out: way_out(refusal) }
    }
}

fn tls_fault(error: &Error) -> Option<TlsFault> {
    use std::error::Error as _;
    TlsFault::of(error.source()?.downcast_ref::<io::Error>()?)
}

fn tls_way_out(fault: TlsFault) -> &'static str {
    match fault {
        TlsFault::WrongName => {
            "; its certificate is for another name: write in upstream the one that it has"
        }
        TlsFault::UnknownIssuer => {
            "; its certificate is not trusted: put that of its authority into postgres.tls_ca_file"
        }
        TlsFault::Expired => {
            "; its certificate is not valid at this time: have a new one made, or set the clock of this host"
        }
        TlsFault::NotTls => {
            "; if it does not speak TLS, write ?sslmode=disable at the end of upstream"
        }
        TlsFault::WantsCertificate => {
            "; it wants a certificate of its clients that it trusts: postgres.tls_cert_file and postgres.tls_key_file"
        }
    }
}

type Secured = <MakeRustlsConnect as MakeTlsConnect<Wire>>::TlsConnect;

/// TLS with the certificate checked for that name.
async fn secured(trust: &Trust, host: &str) -> Result<Secured, InvalidDnsNameError> {
    let mut tls = MakeRustlsConnect::new((*trust.current().await).clone());
    MakeTlsConnect::<Wire>::make_tls_connect(&mut tls, host)
}

/// Where notifications of a connection go, and what is known of its server's clock then.
pub(super) struct Listener {
    hints: ConnectionHints,
    clock: Clock,
    serves_principals: Arc<AtomicBool>,
}

impl Listener {
    fn hear(&self, payload: &str) {
        let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let (hint, told) = feed::hints(clock::now(), payload, &clock);
        let told = told.filter(|_| self.serves_principals.load(Ordering::Relaxed));
        // The gateway passes it on first: its own waiters are told of the same once more.
        told.map(Hint::ToPrincipal).into_iter().chain(hint).for_each(|hint| self.hints.push(hint));
    }
}

type Dialing = Pin<Box<dyn Future<Output = Result<(Client, Pump), Error>> + Send>>;

/// Signs in over a stream. Boxed, which hides types that the compiler cannot follow.
fn dial<T>(config: Config, stream: Wire, tls: T, peer: Peer, listener: Option<Listener>) -> Dialing
where
    T: TlsConnect<Wire, Future: Send> + Send + 'static,
    T::Stream: Send + 'static,
{
    Box::pin(async move {
        let (client, connection) = config.connect_raw(stream, tls).await?;
        Ok((client, pump(peer, connection, listener)))
    })
}

/// Takes what comes over a connection until it ends.
fn pump<S, T>(
    peer: Peer,
    mut connection: tokio_postgres::Connection<S, T>,
    listener: Option<Listener>,
) -> Pump
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(told))) => {
                    if let Some(listener) = &listener {
                        listener.hear(told.payload());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return ConnectError::lost(&peer, &words(&error)),
                None => return ConnectError::lost(&peer, "it hung up"),
            }
        }
    })
}

impl Connector for Address {
    type Connection = Connection;

    const STORE: &'static str = POSTGRES;
    const KIND: &'static str = "postgres";
    const TRIES_WRITES: bool = true;

    fn guarantee(&self) -> Option<&'static str> {
        let found = *self.durability.lock().unwrap_or_else(PoisonError::into_inner);
        found.map(Durability::guarantee)
    }

    fn store_id(&self) -> Option<Arc<str>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(self.place())
    }

    fn grants_at(&self, now: Boottime) -> Option<Boottime> {
        self.epoch.grants_at(now)
    }

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let peer = Peer { what: POSTGRES, place: self.place().to_string() };
        let signing_in = self.sign_in(&peer, purpose, hints);
        let timeout = self.access.connect_timeout;
        ConnectError::within(timeout, &peer, "connecting", signing_in).await
    }

    async fn check(&self, connection: &Connection, server: &Server) -> Result<(), ConnectError> {
        let peer = Peer { what: POSTGRES, place: server.place.clone() };
        let look = async {
            let row = connection
                .client
                .query_one(&format!("select pg_is_in_recovery(), {MARK}"), &[])
                .await
                .map_err(|error| self.refused(&peer, &error))?;
            if row.get(0) {
                return Err(ConnectError::lost(&peer, "it has become a standby"));
            }
            if row.get::<_, &str>(1) != &*connection.marker {
                return Err(self.pooled(&peer));
            }
            connection.see_clock().await.map_err(|error| self.refused(&peer, &error))?;
            let view = self.epoch.ask(Duration::ZERO);
            connection
                .judge_epoch(&view, None)
                .await
                .map_err(|error| self.refused(&peer, &error))?;
            // An operator may have changed it meanwhile.
            self.see_durability(connection).await.map_err(|error| self.refused(&peer, &error))
        };
        ConnectError::within(self.access.timeout, &peer, "looking whether it is there", look).await
    }

    async fn examine(&self, connection: Connection, checks: &mut Vec<Check>) {
        examine::look(connection, checks).await;
    }

    async fn try_write(
        &self,
        connection: &Connection,
        _why: Option<&str>,
    ) -> Result<(), WriteError> {
        connection.try_write().await
    }
}
