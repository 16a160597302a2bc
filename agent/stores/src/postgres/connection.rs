//! One connection, which several calls use at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tenure_core::model::{Denial, DenialRule, Failure};
use tenure_host::clock;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::statements::{Operation, Statements};
use super::way_out::way_out;
use crate::remote::{self, StoreClock};

pub(super) type Line = remote::LineOf<super::store::Postgres>;
/// What a connection has learnt of its server's clock.
pub(super) type Clock = Arc<Mutex<StoreClock>>;
pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection to a server that was found fit. Calls on it are sent at once, and answered in their order.
#[derive(Clone)]
pub struct Connection {
    pub(super) client: Arc<Client>,
    statements: Arc<Statements>,
    /// The value of a setting that this connection alone has.
    pub(super) marker: Arc<str>,
    clock: Clock,
}

impl Connection {
    pub(super) async fn new(
        client: Client,
        marker: String,
        clock: Clock,
    ) -> Result<Connection, Error> {
        let statements = Arc::new(Statements::prepare(&client).await?);
        Ok(Connection { client: Arc::new(client), statements, marker: marker.into(), clock })
    }

    /// Asks for the server's time, by which grants are told.
    pub(super) async fn see_clock(&self) -> Result<(), Error> {
        let sent_at = clock::now();
        let row = self.client.query_one(self.statements.of(Operation::Clock), &[]).await?;
        let us = row.get::<_, i64>(0).unsigned_abs();
        let mut known = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        known.answered(sent_at, Duration::from_micros(us));
        Ok(())
    }

    async fn query(
        &self,
        operation: Operation,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.client.query(self.statements.of(operation), parameters).await
    }
}

/// Performs an operation. Each is one transaction.
pub(super) async fn rows(
    line: &mut Line,
    operation: Operation,
    parameters: Parameters<'_>,
) -> Result<Vec<Row>, Failure> {
    line.sending();
    let answered = line.connection().query(operation, parameters).await;
    answered.map_err(|error| failure(&error))
}

/// The same where the answer is one value.
pub(super) async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(
    line: &mut Line,
    operation: Operation,
    parameters: Parameters<'_>,
) -> Result<T, Failure> {
    let rows = rows(line, operation, parameters).await?;
    let row = rows.first().ok_or_else(|| Failure::Unknown("an empty answer".to_owned()))?;
    row.try_get(0).map_err(|error| Failure::Unknown(error.to_string()))
}

/// The same where that value is JSON.
pub(super) async fn json<T: DeserializeOwned>(
    line: &mut Line,
    operation: Operation,
    parameters: Parameters<'_>,
) -> Result<T, Failure> {
    read(&value::<String>(line, operation, parameters).await?)
}

pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Unknown(error.to_string()))
}

/// The meaning of an error for a call. An operation that the server refused was rolled back. All else is unknown:
/// a connection that ends, or a server that shuts down, may do so between a commit and its answer.
pub(super) fn failure(error: &Error) -> Failure {
    let Some(refusal) = error.as_db_error() else { return Failure::Unknown(words(error)) };
    // Operator intervention, an internal error, a connection's exception: the commit may have come before.
    const UNCERTAIN: [&str; 4] = ["57", "58", "XX", "08"];
    let (message, code) = (refusal.message(), refusal.code().code());
    if UNCERTAIN.iter().any(|class| code.starts_with(class)) {
        return Failure::Unknown(format!("Postgres: {message} ({code})"));
    }
    let cause = format!("Postgres refused: {message} ({code}){}", way_out(refusal));
    if *refusal.code() == SqlState::INSUFFICIENT_PRIVILEGE {
        let detail = format!("{cause}; give the role of upstream its rights, see docs/postgres.md");
        return Failure::Denied(Denial { rule: DenialRule::Forbidden, detail });
    }
    Failure::Unavailable(cause)
}

/// An error with its causes.
pub(super) fn words(error: &Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
