//! openraft's own tests of a store, on files, and what they leave out.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;

use openraft::alias::{EntryOf, LogIdOf};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::testing::log_id;
use openraft::{EntryPayload, RaftLogReader, StorageError};
use tempfile::TempDir;
use tenure_core::engine::Effect;
use tenure_core::model::{Request, Resource};
use tenure_wire::Kind;

use super::{COMMITTED, Disk, Done, Folder, ImageFile, Images, Log, LogFile, Place, Span, Write};
use crate::clock::ClusterTime;
use crate::machine::{Command, Machine, Operation};
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
        let opened = Folder::open(folder.path()).unwrap();
        let images = Images::open(&opened).unwrap();
        let machine = StateMachine::new(
            1,
            Machine::default(),
            images,
            Arc::new(tenure_host::clock::now),
            Arc::new(Nobody),
        );
        let log = Log::open(&opened).unwrap();
        Ok((folder, log, machine))
    }
}

#[test]
fn the_log_and_the_images_are_as_openraft_wants_them() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Suite::test_all(OnFiles)).unwrap();
}

#[test]
fn the_committed_entry_is_written_with_other_writes_and_at_the_end() {
    let path = TempDir::new().unwrap();
    let folder = Folder::open(path.path()).unwrap();
    let file = folder.log().unwrap();
    let write = |write| {
        let (done, is_done) = mpsc::channel();
        file.submit(write, Box::new(move |result| done.send(result).unwrap())).unwrap();
        is_done.recv().unwrap().unwrap();
    };
    write(Write::Committed(b"1".to_vec()));
    assert_eq!(file.kept(COMMITTED).unwrap(), None);
    write(Write::Keep { key: "vote", value: b"for 1".to_vec() });
    assert_eq!(file.kept(COMMITTED).unwrap().unwrap(), b"1");
    write(Write::Committed(b"2".to_vec()));
    assert_eq!(file.kept(COMMITTED).unwrap().unwrap(), b"1");
    drop((file, folder));
    // It waits for the thread that writes.
    let folder = Folder::open(path.path()).unwrap();
    assert_eq!(folder.log().unwrap().kept(COMMITTED).unwrap().unwrap(), b"2");
}

/// A disk that takes writes, and says nothing of them until it goes on.
#[derive(Clone, Default)]
struct Hung(Arc<Mutex<Vec<(usize, Done)>>>);

impl Hung {
    fn waiting(&self) -> usize {
        self.0.lock().unwrap().iter().map(|(bytes, _)| bytes).sum()
    }

    fn go_on(&self) {
        self.0.lock().unwrap().drain(..).for_each(|(_, done)| done(Ok(())));
    }
}

impl LogFile for Hung {
    fn submit(&self, write: Write, done: Done) -> io::Result<()> {
        let Write::Append(entries) = write else {
            done(Ok(()));
            return Ok(());
        };
        let bytes = entries.iter().map(|(_, entry)| entry.len()).sum();
        self.0.lock().unwrap().push((bytes, done));
        Ok(())
    }

    fn kept(&self, _: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn entries(&self, _: Range<u64>, _: usize) -> io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn span(&self, _: u64) -> io::Result<Option<Span>> {
        Ok(None)
    }

    fn name(&self) -> String {
        "hung".to_owned()
    }
}

impl Disk for Hung {
    fn id(&self) -> u64 {
        1
    }

    fn log(&self) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(self.clone()))
    }

    fn images(&self) -> io::Result<Arc<dyn ImageFile>> {
        Err(io::Error::other("nobody looks at them"))
    }

    fn place(&self) -> Box<dyn Place> {
        unreachable!("nobody leaves it")
    }
}

#[tokio::test]
async fn a_hung_disk_holds_up_its_node_before_what_waits_fills_the_memory() {
    const BYTES_MAX: usize = 64 << 20;
    const BATCH: u64 = 20;
    let disk = Hung::default();
    let mut log = Log::open(&disk).unwrap();
    let mut next = (0..).step_by(BATCH as usize);
    let mut batch = |kib: usize| {
        let from = next.next().expect("there is no end");
        (from..from + BATCH).map(|index| large_entry(index, kib)).collect::<Vec<_>>()
    };
    while poll_once(log.append(batch(100), IOFlushed::noop())).await.is_some() {
        assert!(disk.waiting() <= BYTES_MAX, "{}", disk.waiting());
    }
    assert!(disk.waiting() > BYTES_MAX / 2, "{}", disk.waiting());
    disk.go_on();
    assert!(poll_once(log.append(batch(100), IOFlushed::noop())).await.is_some());
    // One that is larger than all of the room has it for itself.
    assert!(poll_once(log.append(batch(4000), IOFlushed::noop())).await.is_none());
    disk.go_on();
    assert!(poll_once(log.append(batch(4000), IOFlushed::noop())).await.is_some());
}

#[tokio::test]
async fn entries_that_go_together_are_bounded_by_their_bytes() {
    let folder = TempDir::new().unwrap();
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    let small: Vec<_> = (0..2000).map(|index| large_entry(index, 1)).collect();
    log.blocking_append(small).await.unwrap();
    log.blocking_append(vec![large_entry(2000, 1000)]).await.unwrap();
    log.blocking_append(entries(2001..2010)).await.unwrap();
    // From the file, from both, from memory, and one that is larger than all that go together.
    let mut next = 0;
    let mut batches = Vec::new();
    while next < 2010 {
        let together = log.limited_get_log_entries(next, 2010).await.unwrap();
        let indexes: Vec<_> = together.iter().map(RaftEntry::index).collect();
        assert_eq!(indexes, (next..next + indexes.len() as u64).collect::<Vec<_>>());
        batches.push(indexes.len());
        next += indexes.len() as u64;
    }
    assert!(batches.len() >= 9 && batches.contains(&1), "{batches:?}");
}

#[tokio::test]
async fn large_entries_stay_in_memory_up_to_their_bytes() {
    let folder = TempDir::new().unwrap();
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    for index in 0..100 {
        log.blocking_append(vec![large_entry(index, 100)]).await.unwrap();
    }
    assert!((30..=41).contains(&log.in_memory()), "{}", log.in_memory());
    assert_eq!(read(&mut log, 0..100).await, (0..100).collect::<Vec<_>>());
    // Truncated entries free their bytes in memory.
    log.truncate_after(Some(id(80))).await.unwrap();
    assert_eq!(read(&mut log, 0..100).await, (0..81).collect::<Vec<_>>());
    for index in 81..101 {
        log.blocking_append(vec![large_entry(index, 100)]).await.unwrap();
    }
    assert!((30..=41).contains(&log.in_memory()), "{}", log.in_memory());
    log.purge(id(100)).await.unwrap();
    for index in 101..130 {
        log.blocking_append(vec![large_entry(index, 100)]).await.unwrap();
    }
    assert_eq!(log.in_memory(), 29);
}

#[tokio::test]
async fn purged_entries_go_piece_by_piece_and_are_not_read_meanwhile() {
    let folder = TempDir::new().unwrap();
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    log.blocking_append(entries(0..5000)).await.unwrap();
    log.purge(id(3999)).await.unwrap();
    assert_eq!(read(&mut log, 0..5000).await, (4000..5000).collect::<Vec<_>>());
    drop(log);
    let in_file = || {
        let file = rusqlite::Connection::open(folder.path().join("log.sqlite")).unwrap();
        file.query_row("SELECT count(*) FROM log", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    // A node that ended meanwhile goes on with them, and with others far above.
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    assert!((4000..5000).contains(&in_file()), "{}", in_file());
    log.purge(id(9999)).await.unwrap();
    log.blocking_append(entries(10_000..10_010)).await.unwrap();
    drop(log);
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    assert_eq!(read(&mut log, 0..20_000).await, (10_000..10_010).collect::<Vec<_>>());
    assert!(in_file() > 10, "none are left from before");
    for index in 10_010..10_110 {
        log.blocking_append(entries(index..index + 1)).await.unwrap();
    }
    assert_eq!(in_file(), 110);
}

#[tokio::test]
async fn what_is_written_gets_into_the_database_while_more_is_written() {
    let folder = TempDir::new().unwrap();
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    let length = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    let mut next = 0;
    // By itself SQLite would move it beyond 64 MiB alone, and overwrite it then.
    while length("log.sqlite") < 8 << 20 || next < 1300 {
        log.blocking_append(vec![large_entry(next, 100)]).await.unwrap();
        next += 1;
        assert!(length("log.sqlite-wal") < 60 << 20, "after {next} entries");
    }
    assert_eq!(read(&mut log, 0..next).await, (0..next).collect::<Vec<_>>());
}

/// The output of a future, if it has one at once.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn large_entry(index: u64, kib: usize) -> EntryOf<Types> {
    let name = "x".repeat(kib << 10);
    let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: name.into() };
    let operation = Operation::Request(Request::Inspect(resource));
    let command = Command { at: ClusterTime::default(), operation };
    EntryOf::<Types>::new(log_id::<Types>(1, 0, index), EntryPayload::Normal(command))
}

#[tokio::test]
async fn a_write_that_broke_off_is_left_out_and_damage_is_refused() {
    let folder = TempDir::new().unwrap();
    let opened = Folder::open(folder.path()).unwrap();
    let mut log = Log::open(&opened).unwrap();
    for index in 0..20 {
        log.blocking_append(entries(index..index + 1)).await.unwrap();
    }
    let database = fs::read(folder.path().join("log.sqlite")).unwrap();
    let wal = fs::read(folder.path().join("log.sqlite-wal")).unwrap();
    let image = fs::read(folder.path().join("image.sqlite")).unwrap();
    // The folder as it would be after a crash, with another log of writes.
    let crashed = |wal: &[u8]| {
        let copy = TempDir::new().unwrap();
        for (name, bytes) in
            [("log.sqlite", &database[..]), ("log.sqlite-wal", wal), ("image.sqlite", &image[..])]
        {
            fs::write(copy.path().join(name), bytes).unwrap();
        }
        copy
    };
    let whole = crashed(&wal);
    let mut again = Log::open(&Folder::open(whole.path()).unwrap()).unwrap();
    assert_eq!(read(&mut again, 0..50).await.len(), 20);

    let page = usize::from(u16::from_be_bytes([wal[10], wal[11]]));
    let frames = (wal.len() - 32) / (page + 24);
    assert!(frames >= 20, "{frames}");
    for number in 0..frames {
        let mut changed = wal.clone();
        changed[32 + number * (page + 24) + 24 + page / 2] ^= 1;
        let copy = crashed(&changed);
        let opened = Folder::open(copy.path());
        if number + 1 == frames {
            let mut log = Log::open(&opened.unwrap()).unwrap();
            assert_eq!(read(&mut log, 0..50).await, (0..19).collect::<Vec<_>>());
        } else {
            let refused = opened.expect_err("it is damaged").to_string();
            let at = format!("damaged at frame {}", number + 1);
            assert!(refused.contains(&at) && refused.contains("wipe the folder"), "{refused}");
        }
    }
    let mut changed = wal.clone();
    changed[5] ^= 1;
    let refused = Folder::open(crashed(&changed).path()).expect_err("it is damaged").to_string();
    assert!(refused.contains("damaged at frame 0"), "{refused}");
    for cut in 1..page + 24 {
        // The last page is torn at all its sectors.
        if cut % 512 == 0 {
            let copy = crashed(&wal[..wal.len() - cut]);
            let mut log = Log::open(&Folder::open(copy.path()).unwrap()).unwrap();
            assert_eq!(read(&mut log, 0..50).await, (0..19).collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn what_the_disk_has_changed_or_lost_is_not_read() {
    for (damage, words) in [
        (
            "UPDATE log SET entry = CAST(replace(CAST(entry AS TEXT), '7', '8') AS BLOB) WHERE position = 7",
            "checksum",
        ),
        ("UPDATE log SET entry = x'' WHERE position = 9", "checksum"),
        ("DELETE FROM log WHERE position = 7", "lacks entries"),
        ("DELETE FROM log WHERE position < 7", "lacks entries"),
        ("UPDATE kept SET value = x'7b7d' WHERE key = 'purged'", "checksum"),
    ] {
        let folder = TempDir::new().unwrap();
        let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
        log.blocking_append(entries(0..10)).await.unwrap();
        log.purge(id(2)).await.unwrap();
        drop(log);
        drop(Folder::open(folder.path()).unwrap());
        let file = rusqlite::Connection::open(folder.path().join("log.sqlite")).unwrap();
        assert_eq!(file.execute(damage, []).unwrap().min(1), 1);
        drop(file);
        let folder = Folder::open(folder.path()).unwrap();
        let told = match Log::open(&folder) {
            Ok(mut log) => log.try_get_log_entries(0..50).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(told.to_string().contains(words), "{damage}: {told}");
    }
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
    let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
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
    // It waits for the thread that writes.
    let mut again = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
    assert_eq!(read(&mut again, 0..5000).await, (2000..2010).collect::<Vec<_>>());
    let state = again.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(1999)), Some(id(2009))));
}
