//! Commands and scripts on a connection, and what their errors mean for a call.

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
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
    /// When the script was not run, or its outcome is unknown; [`Line::failed`] tells these apart.
    pub(super) async fn run(
        &mut self,
        invocation: &Invocation,
        call: impl FnOnce() -> Cmd,
    ) -> Result<Value, RedisError> {
        let _place = self.place().await;
        // A call carries the epoch that is known when the call leaves.
        let call = call();
        match self.ask(&call).await {
            Err(error) if is_unknown_script(&error) => {
                self.did_not_run();
                self.ask(&invocation.script.load()).await?;
                self.did_not_run();
                self.ask(&call).await
            }
            reply => reply,
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
        let replies = self.replies(commands).await.into_iter();
        replies.map(|reply| reply.map_err(|error| self.failed(&error))).collect()
    }

    /// The same, with the errors of the server or of the connection.
    pub(super) async fn replies(
        &mut self,
        commands: &[redis::Cmd],
    ) -> Vec<Result<Value, RedisError>> {
        self.sending();
        let replies: Vec<_> = commands.iter().map(|it| self.connection().send(it)).collect();
        let replies = futures_util::future::join_all(replies).await.into_iter();
        replies.map(|reply| reply.and_then(Value::extract_error)).collect()
    }

    async fn ask(&mut self, command: &redis::Cmd) -> Result<Value, RedisError> {
        self.sending();
        self.connection().send(command).await.and_then(Value::extract_error)
    }

    /// The meaning of an error for a call.
    pub(super) fn failed(&self, error: &RedisError) -> Failure {
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

/// True if the server does not know a script: nothing has run.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// True if a server's error means that it is not, or not any more, a master that serves.
pub(super) fn is_suspicious(error: &RedisError) -> bool {
    use ServerErrorKind as Kind;
    let is_met = |met: &str| met.contains("-READONLY ") || met.contains("-MASTERDOWN ");
    if wrapped(error).is_some_and(is_met) {
        return true;
    }
    matches!(
        error.kind(),
        ErrorKind::Server(
            Kind::ReadOnly | Kind::MasterDown | Kind::BusyLoading | Kind::Moved | Kind::ClusterDown
        )
    ) || error.is_unrecoverable_error()
}

/// True if a key has another type than its command is for.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
        || wrapped(error).is_some_and(|met| met.contains("WRONGTYPE Operation"))
}

/// The error that a script met, as Redis 6.2 says it: "ERR Error running script (…): … -READONLY …".
fn wrapped(error: &RedisError) -> Option<&str> {
    error.detail()?.strip_prefix("Error running script")
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

    fn error(reply: &[u8]) -> RedisError {
        redis::parse_redis_value(reply).and_then(redis::Value::extract_error).unwrap_err()
    }

    #[test]
    fn a_script_that_met_a_replica_is_suspicious_however_the_server_says_so() {
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

    #[test]
    fn a_key_of_another_type_is_one_however_the_server_says_so() {
        assert!(is_wrong_type(&error(
            b"-WRONGTYPE Operation against a key holding the wrong kind of value script: 0123, on \
              @user_script:7.\r\n"
        )));
        assert!(is_wrong_type(&error(
            b"-ERR Error running script (call to f_0123): @user_script:7: WRONGTYPE Operation against a key \
              holding the wrong kind of value\r\n"
        )));
        assert!(!is_wrong_type(&error(b"-ERR unknown command 'WRONGTYPE Operation'\r\n")));
    }
}
