use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use uuid::Uuid;

use super::samples::BOOT;
use crate::journal::{LedgerError, Opened, TOKENS_PER_RANGE, TokenLedger};

fn open(directory: &Path, wall_clock_us: u64) -> Opened {
    TokenLedger::open(directory, BOOT, wall_clock_us, 0).unwrap()
}

fn next_tokens(ledger: &mut TokenLedger) -> Result<u64, LedgerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let answer = std::future::poll_fn(|context| ledger.poll_tokens(context));
    let deadline = Duration::from_secs(30);
    runtime.block_on(async { tokio::time::timeout(deadline, answer).await.unwrap() })
}

#[test]
fn tokens_only_grow() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), 5_000).tokens;
    assert_eq!(first.first, 5_000);
    assert_eq!(first.last, 4_999 + TOKENS_PER_RANGE);
    // The clock went back, and the agent was not stopped.
    let second = open(directory.path(), 10).tokens;
    assert_eq!(second.first, first.last + 1);
    // The clock went on.
    let third = open(directory.path(), 9_000_000_000).tokens;
    assert_eq!(third.first, 9_000_000_000);
    // The ledger was lost, but not what was granted.
    let elsewhere = tempfile::tempdir().unwrap();
    let opened = TokenLedger::open(elsewhere.path(), BOOT, 10, third.last).unwrap();
    assert_eq!(opened.tokens.first, third.last + 1);
}

#[test]
fn more_tokens_are_durable_before_they_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { mut ledger, tokens, .. } = open(directory.path(), 5_000);
    assert!(
        ledger
            .poll_tokens(&mut std::task::Context::from_waker(std::task::Waker::noop()))
            .is_pending()
    );
    for range in 1..4 {
        ledger.ask_tokens();
        // Asking twice is asking once.
        ledger.ask_tokens();
        let upto = next_tokens(&mut ledger).unwrap();
        assert_eq!(upto, tokens.last + range * TOKENS_PER_RANGE);
        let other = rusqlite::Connection::open(directory.path().join("tokens.db")).unwrap();
        let durable: i64 =
            other.query_row("SELECT high_water FROM ledger", [], |row| row.get(0)).unwrap();
        assert_eq!(u64::try_from(durable).unwrap(), upto);
    }
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(ledger.poll_tokens(&mut context), Poll::Pending));
}

#[test]
fn an_unclean_end_tells_the_longest_ttl() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = open(directory.path(), 1);
    assert_eq!(opened.unclean, None);
    opened.ledger.note_ttl(Duration::from_secs(300)).unwrap();
    opened.ledger.note_ttl(Duration::from_secs(30)).unwrap();
    drop(opened);
    let longest = open(directory.path(), 1).unclean.unwrap();
    assert!(longest >= Duration::from_secs(300) && longest <= Duration::from_secs(375));
    // Still so after a second unclean end.
    let mut opened = open(directory.path(), 1);
    assert_eq!(opened.unclean, Some(longest));
    opened.ledger.note_clean().unwrap();
    drop(opened);
    assert_eq!(open(directory.path(), 1).unclean, None);
    // The next agent has granted nothing yet.
    assert_eq!(open(directory.path(), 1).unclean, Some(Duration::ZERO));
}

#[test]
fn another_boot_ended_every_grant() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path(), 1).ledger.note_ttl(Duration::from_secs(30)).unwrap();
    let opened = TokenLedger::open(directory.path(), Uuid::from_u128(8), 1, 0).unwrap();
    assert_eq!(opened.unclean, None);
}

#[test]
fn a_file_that_is_no_ledger_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokens.db"), "not a database, by any means").unwrap();
    let error = TokenLedger::open(directory.path(), BOOT, 1, 0).unwrap_err();
    assert!(error.to_string().contains("tokens.db"), "{error}");
    assert!(error.to_string().contains("move it away"), "{error}");
    let missing = directory.path().join("missing");
    let error = TokenLedger::open(&missing, BOOT, 1, 0).unwrap_err();
    assert!(error.to_string().contains("directory is writable"), "{error}");
}

#[test]
fn nobody_else_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let _opened = open(directory.path(), 1);
    for name in ["tokens.db", "tokens.db-wal"] {
        let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
