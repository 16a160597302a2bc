//! openraft's own tests of a store, on files, and what they leave out.

use std::sync::Arc;

use openraft::alias::{EntryOf, LogIdOf};
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::testing::log_id;
use openraft::{RaftLogReader, StorageError};
use tempfile::TempDir;
use tenure_core::engine::Effect;

use super::{Images, Log};
use crate::machine::Machine;
use crate::raft::{Listener, StateMachine, Types};

struct Nobody;

impl Listener for Nobody {
    fn applied(&self, _: Vec<Effect>, _: &Machine) {}
    fn replaced(&self) {}
}

struct OnFiles;

impl StoreBuilder<Types, Log, StateMachine, TempDir> for OnFiles {
    async fn build(&self) -> Result<(TempDir, Log, StateMachine), StorageError<Types>> {
        let folder = TempDir::new().unwrap();
        let images = Images::open(folder.path()).unwrap();
        let machine =
            StateMachine::new(images, Arc::new(tenure_host::clock::now), Arc::new(Nobody));
        let log = Log::open(folder.path()).unwrap();
        Ok((folder, log, machine))
    }
}

#[test]
fn the_log_and_the_images_are_as_openraft_wants_them() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Suite::test_all(OnFiles)).unwrap();
}

fn id(index: u64) -> LogIdOf<Types> {
    log_id::<Types>(1, 1, index)
}

fn entries(range: std::ops::Range<u64>) -> Vec<EntryOf<Types>> {
    range.map(|index| EntryOf::<Types>::new_blank(id(index))).collect()
}

/// Indexes that are read.
async fn read(log: &mut Log, range: std::ops::Range<u64>) -> Vec<u64> {
    let entries = log.try_get_log_entries(range).await.unwrap();
    entries.iter().map(RaftEntry::index).collect()
}

#[tokio::test]
async fn entries_are_read_from_memory_and_from_the_file_alike() {
    let folder = TempDir::new().unwrap();
    let mut log = Log::open(folder.path()).unwrap();
    for begin in (0..5000).step_by(100) {
        log.blocking_append(entries(begin..begin + 100)).await.unwrap();
    }
    assert_eq!(read(&mut log, 0..5000).await, (0..5000).collect::<Vec<_>>());
    assert_eq!(read(&mut log, 10..20).await, (10..20).collect::<Vec<_>>());
    log.truncate_after(Some(id(2000))).await.unwrap();
    assert_eq!(read(&mut log, 1990..5000).await, (1990..2001).collect::<Vec<_>>());
    log.blocking_append(entries(2001..2010)).await.unwrap();
    log.purge(id(1999)).await.unwrap();
    assert_eq!(read(&mut log, 0..5000).await, (2000..2010).collect::<Vec<_>>());

    drop(log);
    let mut again = Log::open(folder.path()).unwrap();
    assert_eq!(read(&mut again, 0..5000).await, (2000..2010).collect::<Vec<_>>());
    let state = again.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(1999)), Some(id(2009))));
}
