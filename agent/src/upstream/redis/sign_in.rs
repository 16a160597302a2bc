//! The first words on a connection, and whether the server is one that the agent can use.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
    ServerErrorKind, Value, cmd, from_redis_value_ref, pipe,
};

use super::address::{Address, Stream};
use super::trouble::Trouble;

/// Oldest server: the first with `SET … KEEPTTL GET`, `ZRANGE … BYSCORE` and working RESP3 tracking.
const VERSION_MIN: (u32, u32) = (6, 2);

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub place: String,
    /// Its version as it says it; Valkey says which Redis it is compatible with.
    pub version: String,
}

/// What must be polled for anything to happen on a connection. Ends when the connection does, and
/// ends the connection when it is dropped.
pub(super) type Motor = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Signs in on a fresh stream. `heard` gets what the server says unasked.
pub(super) async fn sign_in(
    address: &Address,
    place: &str,
    stream: Box<dyn Stream>,
    heard: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
) -> Result<(MultiplexedConnection, Motor), Trouble> {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(address.db().into())
        .set_lib_name("tenured", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &address.login().user {
        info = info.set_username(user);
    }
    if let Some(password) = &address.login().password {
        info = info.set_password(password.expose());
    }
    // The deadline of a call is its caller's: a crate that gives up on an answer keeps the connection,
    // and what comes later is not missed by anybody.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_push_sender(heard);
    let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (connection, motor) = made.map_err(|error| refused(place, &error))?;
    Ok((connection, Box::pin(motor)))
}

/// Gives the connection a name, and checks that the server is a master that serves.
pub(super) async fn check(
    connection: &mut MultiplexedConnection,
    place: &str,
    name: &str,
) -> Result<Server, Trouble> {
    // Nobody needs the name: where the user may not set one, there is none.
    let named = cmd("CLIENT").arg("SETNAME").arg(name).query_async::<()>(connection).await;
    if let Err(error) = named
        && error.is_unrecoverable_error()
    {
        return Err(refused(place, &error));
    }
    look(connection, place).await
}

/// Asks the server what it is now. HELLO says it without any right that an ACL could withhold, and
/// PING says whether commands are served at all.
pub(super) async fn look(
    connection: &mut MultiplexedConnection,
    place: &str,
) -> Result<Server, Trouble> {
    let asked = pipe()
        .cmd("HELLO")
        .cmd("PING")
        .ignore_errors()
        .query_async::<Vec<Result<Value, RedisError>>>(connection)
        .await
        .map_err(|error| refused(place, &error))?;
    let mut answers = asked.into_iter();
    let hello = answers.next().unwrap_or(Ok(Value::Nil)).map_err(|error| refused(place, &error))?;
    let hello: HashMap<String, Value> =
        from_redis_value_ref(&hello).map_err(|error| refused(place, &error.into()))?;
    let said = |key: &str| match hello.get(key) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    };
    let server = Server { place: place.to_owned(), version: said("version") };
    let unfit = |what: String| Err(Trouble::Unfit { place: place.to_owned(), what });
    match said("mode").as_str() {
        "cluster" => {
            return unfit(
                "is part of a Cluster, which is not supported; use a single Redis, or \
                 redis+sentinel:// for one with replicas"
                    .to_owned(),
            );
        }
        "sentinel" => {
            return unfit(
                "is a Sentinel; write the upstream as redis+sentinel://host:port/master-name"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if version(&server.version).is_some_and(|version| version < VERSION_MIN) {
        let (major, minor) = VERSION_MIN;
        return unfit(format!(
            "has version {}; it must be {major}.{minor} or later: upgrade it",
            server.version
        ));
    }
    if said("role") != "master" {
        return unfit(
            "is a read-only replica; name its master, or use redis+sentinel:// to follow it"
                .to_owned(),
        );
    }
    match answers.next() {
        // A server that is busy with a script, or does not let this user ping, is there.
        Some(Err(error)) if is_not_ready(&error) => {
            Err(Trouble::NotReady { place: place.to_owned(), cause: words(&error) })
        }
        _ => Ok(server),
    }
}

fn is_not_ready(error: &RedisError) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Server(ServerErrorKind::BusyLoading)
        || kind == ErrorKind::Server(ServerErrorKind::MasterDown)
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// A server's error as the server worded it.
pub(super) fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

fn refused(place: &str, error: &RedisError) -> Trouble {
    let place = place.to_owned();
    if is_not_ready(error) {
        return Trouble::NotReady { place, cause: words(error) };
    }
    if error.is_io_error() {
        return Trouble::Lost { place, cause: error.to_string() };
    }
    Trouble::Refused { place, cause: words(error), way_out: "" }
}
