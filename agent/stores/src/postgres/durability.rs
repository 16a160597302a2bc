//! How much a grant outlives, by the settings of the server.

use tokio_postgres::{Client, Error};

/// The fate of a commit that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// It is on a standby, too.
    Standby,
    /// It is on the disk of the server alone.
    Disk,
    /// It may be in the memory of the server's host alone.
    Memory,
}

impl Durability {
    /// Looks at the settings that are in effect for the role of that connection.
    pub(super) async fn look(client: &Client) -> Result<Durability, Error> {
        let settings = "select current_setting('fsync'), current_setting('synchronous_commit'), \
                        current_setting('synchronous_standby_names')";
        let row = client.query_one(settings, &[]).await?;
        Ok(Durability::of(row.get(0), row.get(1), row.get(2)))
    }

    /// The same of values as the server says them.
    pub(super) fn of(fsync: &str, commit: &str, standbys: &str) -> Durability {
        match (fsync, commit) {
            ("off", _) | (_, "off") => Durability::Memory,
            (_, "local") => Durability::Disk,
            _ if standbys.trim().is_empty() => Durability::Disk,
            _ => Durability::Standby,
        }
    }

    pub(super) fn guarantee(self) -> &'static str {
        match self {
            Durability::Standby => {
                "one Postgres; a grant survives a failover to a synchronous standby"
            }
            Durability::Disk => "one Postgres; an asynchronous failover can lose a grant",
            Durability::Memory => {
                "one Postgres without synchronous commits; a crash of its host can lose a grant"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_survives_depends_on_three_settings() {
        for (fsync, commit, standbys, expected) in [
            ("on", "on", "", Durability::Disk),
            ("on", "on", "*", Durability::Standby),
            ("on", "remote_apply", "ANY 1 (a, b)", Durability::Standby),
            ("on", "remote_write", "a", Durability::Standby),
            ("on", "local", "a", Durability::Disk),
            ("on", "off", "a", Durability::Memory),
            ("off", "on", "a", Durability::Memory),
        ] {
            let found = Durability::of(fsync, commit, standbys);
            assert_eq!(found, expected, "{fsync} {commit} {standbys}");
        }
    }
}
