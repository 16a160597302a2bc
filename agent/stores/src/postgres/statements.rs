//! The statements that a connection prepares. Each calls the function of one operation.

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Error, Statement};

/// An operation in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Clock,
    Claim,
    Renew,
    Beat,
    RenewSessions,
    Release,
    Revoke,
    Announce,
    EndSession,
    Members,
    EndOverdue,
    Inspect,
    Tend,
    Routes,
    Resources,
    Projects,
    Verify,
    Record,
    History,
    Upkeep,
    Relay,
    JudgeEpoch,
    EndQuarantine,
}

impl Operation {
    const ALL: [Operation; 23] = [
        Operation::Clock,
        Operation::Claim,
        Operation::Renew,
        Operation::Beat,
        Operation::RenewSessions,
        Operation::Release,
        Operation::Revoke,
        Operation::Announce,
        Operation::EndSession,
        Operation::Members,
        Operation::EndOverdue,
        Operation::Inspect,
        Operation::Tend,
        Operation::Routes,
        Operation::Resources,
        Operation::Projects,
        Operation::Verify,
        Operation::Record,
        Operation::History,
        Operation::Upkeep,
        Operation::Relay,
        Operation::JudgeEpoch,
        Operation::EndQuarantine,
    ];

    /// True if the second column of its rows is the count of writes.
    pub(super) fn tells_writes(self) -> bool {
        matches!(self, Operation::Claim | Operation::Renew)
    }

    /// Answers in JSON are read as text.
    fn sql(self) -> &'static str {
        match self {
            Operation::Clock => "select tenure.read_clock()",
            Operation::Claim => {
                "select tenure.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
                 $17)::pg_catalog.text, tenure.written()"
            }
            Operation::Renew => {
                "select answer::pg_catalog.text, tenure.written() from tenure.renew($1, $2, $3, $4, $5) order by number"
            }
            Operation::Beat => "select tenure.beat($1, $2, $3, $4, $5, $6, $7)::pg_catalog.text",
            Operation::RenewSessions => {
                "select answer::pg_catalog.text from tenure.renew_sessions($1, $2) order by number"
            }
            Operation::Release => "select tenure.release($1, $2, $3, $4, $5)",
            Operation::Revoke => {
                "select revoked, newest from tenure.revoke($1, $2, $3, $4, $5, $6, $7)"
            }
            Operation::Announce => "select tenure.announce($1, $2, $3, $4, $5, $6, $7)",
            Operation::EndSession => "select tenure.end_session($1, $2, $3)",
            Operation::Members => "select tenure.members($1, $2, $3, $4)::pg_catalog.text",
            Operation::EndOverdue => "select tenure.end_overdue($1, $2, $3, $4)",
            Operation::Inspect => "select tenure.standing($1, $2, $3, $4)::pg_catalog.text",
            Operation::Tend => "select tenure.tend($1, $2, $3, $4)",
            Operation::Routes => "select tenure.routes($1, $2, $3, $4)::pg_catalog.text",
            Operation::Resources => "select id, tenant, kind, name from tenure.resources($1, $2)",
            Operation::Projects => "select tenant, project from tenure.projects($1, $2, $3)",
            Operation::Verify => "select is_held from tenure.verify($1)",
            Operation::Record => "select tenure.record($1, $2, $3, $4, $5, $6, $7)",
            Operation::History => "select entry, ago from tenure.history($1, $2, $3)",
            Operation::Upkeep => "select tenure.upkeep($1)",
            Operation::Relay => "select tenure.relay($1, $2)",
            Operation::JudgeEpoch => {
                "select epoch, written, grants_in from tenure.judge_epoch($1, $2, coalesce($3, tenure.written()), $4)"
            }
            Operation::EndQuarantine => "select tenure.end_quarantine()",
        }
    }
}

/// The prepared statements of a connection.
pub(super) struct Statements(Vec<Statement>);

impl Statements {
    /// Prepares all of them, in one round trip.
    pub(super) async fn prepare(client: &Client) -> Result<Statements, Error> {
        let all = Operation::ALL.map(|operation| client.prepare(operation.sql()));
        try_join_all(all).await.map(Statements)
    }

    #[expect(clippy::indexing_slicing, reason = "there is one for each operation, in their order")]
    pub(super) fn of(&self, operation: Operation) -> &Statement {
        &self.0[operation as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operations_are_listed_in_their_order() {
        for (at, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, at);
        }
    }
}
