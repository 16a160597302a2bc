//! The first words on a connection, and whether the server is one that the agent can use.

use std::collections::HashMap;
use std::time::Duration;

use redis::{RedisError, Value, cmd, from_redis_value_ref, pipe};
use tenure_host::clock;

use super::address::Address;
use super::connect_error::{self, is_not_ready};
use super::connection::Connection;
use super::examine::Info;
use crate::remote::{ConnectError, Endpoint, Peer, Server};
use crate::settings::secret::SecretSource;

/// Oldest server: older ones lack commands that the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);

/// Says who we are, and that this is RESP3; RESP2 if the server, or a proxy before it, knows no other.
pub(super) async fn sign_in(
    address: &Address,
    connection: &mut Connection,
    peer: &Peer,
    endpoint: &Endpoint,
) -> Result<(), ConnectError> {
    let login = address.login();
    let password = login.password.as_ref().map(SecretSource::read);
    let mut hello = cmd("HELLO");
    hello.arg(3);
    if let Some(password) = &password {
        hello.arg("AUTH").arg(login.user.as_deref().unwrap_or("default")).arg(password.expose());
    }
    let plain = address.tls().is_none() && matches!(endpoint, Endpoint::Tcp(..));
    // One command and no more: a server that refuses and hangs up answers once.
    let mut answer = hello.exec_async(connection).await;
    if answer.as_ref().is_err_and(is_unknown_command) {
        connection.speak_resp2();
        answer = match &password {
            None => Ok(()),
            Some(password) => {
                let mut auth = cmd("AUTH");
                auth.arg(login.user.as_deref()).arg(password.expose());
                auth.exec_async(connection).await
            }
        };
    }
    answer.map_err(|error| connect_error::at_first(peer, plain, login, password.as_ref(), &error))
}

/// True if whoever answered does not know the command, or not that protocol. Proxies say so in words of
/// their own.
fn is_unknown_command(error: &RedisError) -> bool {
    if error.code() == Some("NOPROTO") {
        return true;
    }
    let said = error.detail().unwrap_or_default().to_ascii_lowercase();
    error.code() == Some("ERR")
        && ["unknown", "support", "invalid request", "disabled"].iter().any(|it| said.contains(it))
}

/// Chooses the database, and says who we are, for whoever looks at CLIENT LIST.
pub(super) async fn introduce(
    address: &Address,
    connection: &mut Connection,
    peer: &Peer,
    purpose: &str,
) -> Result<(), ConnectError> {
    let meaning = |error| connect_error::later(peer, address.login(), &error);
    if address.db() != 0 {
        cmd("SELECT").arg(address.db()).exec_async(connection).await.map_err(meaning)?;
    }
    let set_info = |key: &'static str, value: &'static str| {
        cmd("CLIENT").arg("SETINFO").arg(key).arg(value).take()
    };
    // Old servers do not know all of it, and not every user may; nobody needs it.
    let _: Vec<Result<Value, RedisError>> = pipe()
        .add_command(cmd("CLIENT").arg("SETNAME").arg(format!("tenured-{purpose}")).take())
        .add_command(set_info("LIB-NAME", "tenured"))
        .add_command(set_info("LIB-VER", env!("CARGO_PKG_VERSION")))
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(meaning)?;
    Ok(())
}

/// Asks the server what it is, whether it is a master that serves, and what time it has. HELLO says the first two
/// without any right that an ACL could withhold.
pub(super) async fn look(
    address: &Address,
    connection: &mut Connection,
    peer: &Peer,
) -> Result<Server, ConnectError> {
    let meaning = |error| connect_error::later(peer, address.login(), &error);
    if connection.speaks_resp2() {
        return look_by_info(address, connection, peer).await;
    }
    let sent_at = clock::now();
    let answers: Vec<Result<Value, RedisError>> = pipe()
        .cmd("HELLO")
        .cmd("PING")
        .cmd("TIME")
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(meaning)?;
    let mut answers = answers.into_iter();
    let hello = answers.next().unwrap_or(Ok(Value::Nil)).map_err(meaning)?;
    let hello: HashMap<String, Value> =
        from_redis_value_ref(&hello).map_err(|error| meaning(error.into()))?;
    let said = |key: &str| match hello.get(key) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    };
    let server = Server { place: peer.place.clone(), version: said("version") };
    judge(address, &server, &said("mode"), &said("role")).map_err(|what| unfit(peer, what))?;
    match answers.next() {
        Some(Err(error)) if is_not_ready(&error) => return Err(meaning(error)),
        // A server that is busy with a script, or does not let this user ping, is there.
        _ => {}
    }
    if let Some(Ok(time)) = answers.next()
        && let Ok((seconds, us)) = from_redis_value_ref::<(u64, u64)>(&time)
    {
        let time = Duration::from_secs(seconds) + Duration::from_micros(us);
        connection.told_time(sent_at, time);
    }
    Ok(server)
}

/// The same of a server without HELLO. Proxies may not tell; then the scripts find out.
async fn look_by_info(
    address: &Address,
    connection: &mut Connection,
    peer: &Peer,
) -> Result<Server, ConnectError> {
    let meaning = |error| connect_error::later(peer, address.login(), &error);
    let mut server = Server { place: peer.place.clone(), version: String::new() };
    let mut questions = pipe();
    questions.cmd("PING");
    // A connection that listens may only ping.
    if !connection.subscribes() {
        questions.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    }
    let answers: Vec<Result<Value, RedisError>> =
        questions.ignore_errors().query_async(connection).await.map_err(meaning)?;
    let mut told = String::new();
    for answer in answers {
        match answer {
            Ok(Value::BulkString(text)) => told += &String::from_utf8_lossy(&text),
            Err(error) if !is_unknown_command(&error) && error.code() != Some("NOPERM") => {
                return Err(meaning(error));
            }
            Ok(_) | Err(_) => {}
        }
    }
    let info = Info::parse(&told);
    let said = |name| info.text(name).unwrap_or_default();
    said("redis_version").clone_into(&mut server.version);
    judge(address, &server, said("redis_mode"), said("role")).map_err(|what| unfit(peer, what))?;
    Ok(server)
}

fn unfit(peer: &Peer, what: String) -> ConnectError {
    ConnectError::Unfit { peer: peer.clone(), what }
}

/// Why a server of that mode and role will not do. What it does not tell is not held against it.
fn judge(address: &Address, server: &Server, mode: &str, role: &str) -> Result<(), String> {
    let what = match mode {
        "cluster" => {
            "is part of a Cluster, which is not supported; use a single Redis, or one with replicas and \
             Sentinels (redis+sentinel://)"
        }
        "sentinel" => "is a Sentinel; write the upstream as redis+sentinel://HOST:PORT/MASTER-NAME",
        _ if version(&server.version).is_some_and(|version| version < VERSION_MIN) => {
            let (major, minor) = VERSION_MIN;
            let version = &server.version;
            return Err(format!(
                "has version {version}, and must have {major}.{minor} or later; upgrade it"
            ));
        }
        _ if role.is_empty() || role == "master" => return Ok(()),
        _ if address.moves() => {
            "is a read-only replica, although a Sentinel calls it the master; asking again"
        }
        _ => {
            "is a read-only replica; name its master in upstream, or its Sentinels (redis+sentinel://)"
        }
    };
    Err(what.to_owned())
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("7.0.15", Some((7, 0))),
            ("6.2.0-rc1", Some((6, 2))),
            ("255.255.255", Some((255, 255))),
            ("8.0", Some((8, 0))),
            ("unstable", None),
            ("", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!((6, 0) < VERSION_MIN && (10, 0) > VERSION_MIN);
    }
}
