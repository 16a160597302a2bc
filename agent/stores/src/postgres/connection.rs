//! One connection, which several calls use at once.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tenure_core::model::{Denial, DenialRule, Failure};
use tenure_host::clock;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::statements::{Operation, Statements};
use super::way_out::way_out;
use crate::remote::{
    self, EpochPosition, EpochReport, EpochView, SharedEpoch, StoreClock, WriteError,
};

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
    epoch: SharedEpoch,
    /// The id of the store when this connection was made.
    epoch_id: Arc<OnceLock<Arc<str>>>,
}

impl Connection {
    pub(super) async fn new(
        client: Client,
        marker: String,
        clock: Clock,
        epoch: SharedEpoch,
    ) -> Result<Connection, Error> {
        let statements = Arc::new(Statements::prepare(&client).await?);
        let (client, marker, epoch_id) = (Arc::new(client), marker.into(), Arc::default());
        Ok(Connection { client, statements, marker, clock, epoch, epoch_id })
    }

    /// Checks whether the store has lost data that was known when `view` was taken. `written` is how far the server had
    /// written right after that.
    pub(super) async fn judge_epoch(
        &self,
        view: &EpochView,
        written: Option<i64>,
    ) -> Result<(), Error> {
        let (id, writes) = view.known.as_ref().map_or(("", 0), |it| (&*it.id, it.writes));
        let writes = i64::try_from(writes).unwrap_or(i64::MAX);
        let longest = i64::try_from(view.longest.as_micros()).unwrap_or(i64::MAX / 2);
        let operation = self.statements.of(Operation::JudgeEpoch);
        let row = self.client.query_one(operation, &[&id, &writes, &written, &longest]).await?;
        let (id, writes, us): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let (id, writes): (Arc<str>, _) = (id.into(), writes.unsigned_abs());
        let _is_first = self.epoch_id.set(Arc::clone(&id));
        let grants_in = Duration::from_micros(us.unsigned_abs());
        let known = Some(EpochPosition { id, writes });
        self.epoch.hear(view, EpochReport::Whole { known, longest: Duration::ZERO, grants_in });
        Ok(())
    }

    /// Takes the count of writes from the rows of a committed operation.
    fn see_writes(&self, operation: Operation, rows: &[Row]) {
        if !operation.tells_writes() {
            return;
        }
        // An operation without an effect has written nothing, and its count may not be durable yet.
        let wrote = |row: &&Row| row.try_get::<_, Option<&str>>(0).is_ok_and(|it| it.is_some());
        if let (Some(row), Some(id)) = (rows.iter().find(wrote), self.epoch_id.get())
            && let Ok(writes) = row.try_get::<_, i64>(1)
        {
            self.epoch.saw_writes(id, writes.unsigned_abs());
        }
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

    /// See [`Connector::try_write`](remote::Connector::try_write).
    pub(super) async fn try_write(&self) -> Result<(), WriteError> {
        self.client.batch_execute(TRY_WRITE).await.map_err(|error| match failure(&error) {
            Failure::Unknown(cause) => WriteError::Silent(cause),
            Failure::Unavailable(cause) => WriteError::Refused(cause),
            Failure::Denied(denial) => WriteError::Refused(denial.detail),
        })
    }

    async fn query(
        &self,
        operation: Operation,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let rows = self.client.query(self.statements.of(operation), parameters).await?;
        self.see_writes(operation, &rows);
        Ok(rows)
    }
}

/// A claim that is rolled back tests locks and rights; then a row that upkeep removes tests the disk, and standbys that
/// a commit waits for. An error of the server before either concerns all writes. The error code is this block's own.
const TRY_WRITE: &str = "do $$ begin \
    begin \
        perform tenure.claim(gen_random_uuid(), '', 'leader', 'try ' || gen_random_uuid(), gen_random_uuid(), \
            '', '', 1, false, 0, null, false, 0, null, null, 0, 0); \
        raise exception using errcode = 'TNTRY'; \
    exception when sqlstate 'TNTRY' then null; \
    end; \
    insert into tenure.mark (claim, reason, words, until) values (gen_random_uuid(), 'Expired', null, 0); \
    end $$";

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
