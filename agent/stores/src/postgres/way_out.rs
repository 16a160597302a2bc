//! What to do about what Postgres refuses.

use tokio_postgres::error::{DbError, SqlState};

/// Words for the end of an error, which begin with a semicolon; empty where nothing can be advised.
pub(super) fn way_out(refusal: &DbError) -> &'static str {
    match *refusal.code() {
        // The words are in the server's language, the routine is not.
        SqlState::TOO_MANY_CONNECTIONS => match refusal.routine() {
            Some("InitializeSessionUserId") => {
                "; raise the limit of the role (alter role … connection limit), or have hosts use a gateway: each agent \
                 has four connections"
            }
            Some("CheckMyDatabase") => {
                "; raise the limit of the database (alter database … connection limit), or have hosts use a gateway: \
                 each agent has four connections"
            }
            _ => {
                "; raise its max_connections, or have hosts use a gateway: each agent has four connections"
            }
        },
        SqlState::INVALID_CATALOG_NAME => "; create the database, or name another one in upstream",
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            "; it takes no writes: see default_transaction_read_only of the server, the database and the role, and whether \
             upstream names a standby"
        }
        _ => "",
    }
}
