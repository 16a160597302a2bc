//! How far fencing tokens may have been used, across everything that can happen to the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::reserve::Reserve;
use super::{signed, unsigned};
use crate::engine::TokenRange;

const FILE_NAME: &str = "tokens.db";
/// Tokens made durable at a time. Half of them last 4 s at 30 000 grants a second, within which the
/// disk must answer.
pub const TOKENS_PER_RANGE: u64 = 1 << 18;

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS ledger (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    high_water     INTEGER NOT NULL,
    boot_id        TEXT NOT NULL,
    clean          INTEGER NOT NULL,
    longest_ttl_ns INTEGER NOT NULL
)";

/// `tokens.db` in the state directory.
///
/// SQLite with fsync at every commit, on a thread of its own. Asking for tokens does not wait for
/// that thread; the rare notes that must be durable before a grant do.
#[derive(Debug)]
pub struct TokenLedger {
    reserve: Reserve,
    high_water: u64,
    longest_ttl: Duration,
    is_asking: bool,
}

/// What a start finds in the ledger.
#[derive(Debug)]
pub struct Opened {
    /// The ledger.
    pub ledger: TokenLedger,
    /// Tokens that may be granted.
    pub tokens: TokenRange,
    /// An earlier agent of this boot did not end clean: this is the longest ttl it granted, so its
    /// grants may be valid that long from now on.
    pub unclean: Option<Duration>,
}

/// The ledger cannot be opened or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The file, its directory or its contents.
    #[error(
        "the token ledger {path} cannot be opened ({cause}): check that its directory is writable; \
         if the file is damaged, move it away, and tokens go on from the clock"
    )]
    Open {
        /// Which file.
        path: PathBuf,
        /// What SQLite or the system said.
        cause: String,
    },
    /// A write.
    #[error("the token ledger {path} cannot be written ({cause}): check its file system for space")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        cause: String,
    },
}

/// The ledger's one row.
struct Row {
    high_water: u64,
    boot_id: String,
    clean: bool,
    longest_ttl: Duration,
}

impl TokenLedger {
    /// Opens the ledger and makes a first range durable. Waits for the disk.
    ///
    /// Tokens go on after the greatest of the ledger's last one, `wall_clock_us` and `floor`; the
    /// clock stands in for a ledger that was deleted.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(
        state_dir: &Path,
        boot_id: Uuid,
        wall_clock_us: u64,
        floor: u64,
    ) -> Result<Opened, LedgerError> {
        let path = state_dir.join(FILE_NAME);
        let open = |cause: String| LedgerError::Open { path: path.clone(), cause };
        create(&path).map_err(|error| open(error.to_string()))?;
        let (connection, before) = connect(&path).map_err(|error| open(error.to_string()))?;

        let last = before.as_ref().map_or(0, |row| row.high_water);
        let first = (last + 1).max(wall_clock_us).max(floor + 1);
        let high_water = first + TOKENS_PER_RANGE - 1;
        let unclean = before
            .filter(|row| !row.clean && row.boot_id == boot_id.to_string())
            .map(|row| row.longest_ttl);
        let longest_ttl = unclean.unwrap_or_default();
        connection
            .execute(
                "INSERT OR REPLACE INTO ledger VALUES (1, ?1, ?2, 0, ?3)",
                (signed(high_water), boot_id.to_string(), nanos(longest_ttl)),
            )
            .map_err(|error| open(error.to_string()))?;

        let reserve =
            Reserve::start(connection, path.clone()).map_err(|error| open(error.to_string()))?;
        let ledger = TokenLedger { reserve, high_water, longest_ttl, is_asking: false };
        Ok(Opened { ledger, tokens: TokenRange { first, last: high_water }, unclean })
    }

    /// Starts to make another range durable, unless that is under way. The answer comes out of
    /// [`TokenLedger::poll_tokens`].
    pub fn ask_tokens(&mut self) {
        if !self.is_asking {
            self.is_asking = true;
            self.reserve.ask(self.high_water + TOKENS_PER_RANGE);
        }
    }

    /// Whether more tokens are durable: the last of them, or why not.
    pub fn poll_tokens(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, LedgerError>> {
        let answer = std::task::ready!(self.reserve.poll(context));
        self.is_asking = false;
        if let Ok(upto) = &answer {
            self.high_water = *upto;
        }
        Poll::Ready(answer)
    }

    /// Makes durable that grants live this long, if none did before. Waits for the disk then, which
    /// happens a few dozen times at most in a boot: what is noted is rounded up.
    ///
    /// # Errors
    ///
    /// When it cannot be written; such a grant must not be made.
    pub fn note_ttl(&mut self, ttl: Duration) -> Result<(), LedgerError> {
        if ttl <= self.longest_ttl {
            return Ok(());
        }
        let rounded = round_up(ttl);
        self.reserve.note_ttl(nanos(rounded))?;
        self.longest_ttl = rounded;
        Ok(())
    }

    /// Makes durable that nothing granted is left. Waits for the disk.
    ///
    /// # Errors
    ///
    /// When it cannot be written; the next start is then as careful as after a crash.
    pub fn note_clean(&mut self) -> Result<(), LedgerError> {
        self.reserve.note_clean()
    }
}

/// To the next number of ns with only three leading bits set: at most a quarter more.
fn round_up(ttl: Duration) -> Duration {
    let ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX / 2);
    let step = 1_u64 << ns.checked_ilog2().unwrap_or(0).saturating_sub(2);
    Duration::from_nanos(ns.div_ceil(step).saturating_mul(step))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn create(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

fn connect(path: &Path) -> rusqlite::Result<(Connection, Option<Row>)> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(TABLE)?;
    let row = connection
        .query_row("SELECT high_water, boot_id, clean, longest_ttl_ns FROM ledger", [], |row| {
            Ok(Row {
                high_water: unsigned(row.get(0)?),
                boot_id: row.get(1)?,
                clean: row.get(2)?,
                longest_ttl: Duration::from_nanos(unsigned(row.get(3)?)),
            })
        })
        .optional()?;
    Ok((connection, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_adds_at_most_a_quarter() {
        for ms in [1_u64, 300, 999, 1_000, 30_000, 90_000, 300_000, 86_400_000] {
            let ttl = Duration::from_millis(ms);
            let rounded = round_up(ttl);
            assert!(rounded >= ttl && rounded <= ttl + ttl / 4, "{ttl:?} to {rounded:?}");
            assert_eq!(round_up(rounded), rounded);
        }
        assert_eq!(round_up(Duration::ZERO), Duration::ZERO);
        assert_eq!(round_up(Duration::from_nanos(9)), Duration::from_nanos(10));
    }
}
