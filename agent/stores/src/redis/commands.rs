//! Commands and scripts on a connection, and what their errors mean for a call.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tenure_core::model::Failure;

use super::connection::Connection;
use super::exchange::Invocation;
use crate::remote;

pub(super) type Line = remote::Line<Connection>;

impl Line {
    /// Runs a script, and makes the server know it first if it must.
    ///
    /// # Errors
    ///
    /// When it was not run, or nothing is known of it.
    pub(super) async fn run(&mut self, invocation: &Invocation) -> Result<Value, Failure> {
        const UNKNOWN_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
        let call = invocation.command();
        let _place = self.place().await;
        match self.ask(&call).await {
            Err(error) if error.kind() == UNKNOWN_SCRIPT => {
                self.did_not_run();
                self.send(&invocation.script.load()).await?;
                self.did_not_run();
                self.send(&call).await
            }
            reply => reply.map_err(|error| self.failed(&error)),
        }
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// When it was refused, or nothing is known of it.
    pub(super) async fn send(&mut self, command: &redis::Cmd) -> Result<Value, Failure> {
        self.ask(command).await.map_err(|error| self.failed(&error))
    }

    /// Sends commands together, of which none writes.
    ///
    /// # Errors
    ///
    /// When one was refused, or nothing is known of it.
    pub(super) async fn send_all(
        &mut self,
        commands: &[redis::Cmd],
    ) -> Result<Vec<Value>, Failure> {
        self.try_all(commands).await.into_iter().collect()
    }

    /// The same, with the outcome of each.
    pub(super) async fn try_all(&mut self, commands: &[redis::Cmd]) -> Vec<Result<Value, Failure>> {
        self.sending();
        let replies: Vec<_> = commands.iter().map(|it| self.connection().send(it)).collect();
        let replies = futures_util::future::join_all(replies).await.into_iter();
        let values = replies.map(|reply| reply.and_then(Value::extract_error));
        values.map(|value| value.map_err(|error| self.failed(&error))).collect()
    }

    async fn ask(&mut self, command: &redis::Cmd) -> Result<Value, RedisError> {
        self.sending();
        self.connection().send(command).await.and_then(Value::extract_error)
    }

    fn failed(&self, error: &RedisError) -> Failure {
        let text = text(error);
        let is_suspicious = is_suspicious(error);
        if is_suspicious {
            self.suspect();
        }
        match error.kind() {
            // It refuses before it runs anything, and another server may be the master now.
            ErrorKind::Server(_) if is_suspicious => Failure::Unavailable(text),
            // A script that fails midway may have written already.
            _ => Failure::Unknown(text),
        }
    }
}

/// True if a server's error means that it is not, or not any more, a master that serves.
pub(super) fn is_suspicious(error: &RedisError) -> bool {
    use ServerErrorKind as Kind;
    // Redis 6.2 wraps what a script met: "ERR Error running script (…): … -READONLY …".
    let is_wrapped = |detail: &str| {
        let met = detail.strip_prefix("Error running script");
        met.is_some_and(|met| met.contains("-READONLY ") || met.contains("-MASTERDOWN "))
    };
    if error.detail().is_some_and(is_wrapped) {
        return true;
    }
    matches!(
        error.kind(),
        ErrorKind::Server(
            Kind::ReadOnly | Kind::MasterDown | Kind::BusyLoading | Kind::Moved | Kind::ClusterDown
        )
    ) || error.is_unrecoverable_error()
}

/// An error for people: what the server said, or what happened to the connection.
pub(super) fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("Redis refused: {code} {detail}"),
        (Some(code), None) => format!("Redis refused: {code}"),
        _ => format!("the connection to Redis failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_met_a_replica_is_suspicious_however_the_server_says_so() {
        let error = |reply: &[u8]| {
            let value = redis::parse_redis_value(reply).and_then(redis::Value::extract_error);
            value.unwrap_err()
        };
        assert!(is_suspicious(&error(
            b"-READONLY You can't write against a read only replica.\r\n"
        )));
        assert!(is_suspicious(&error(
            b"-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: -READONLY \
              You can't write against a read only replica.\r\n"
        )));
        assert!(!is_suspicious(&error(
            b"-ERR Error running script (call to f_0123): @user_script:7: WRONGTYPE -READ\r\n"
        )));
        assert!(!is_suspicious(&error(b"-ERR wrong number of arguments\r\n")));
    }
}
