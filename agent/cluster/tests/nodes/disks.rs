//! Disks that fail under a node. Takes root, for file systems of its own; these are the kernel's own faults.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tenure_cluster::Folder;
use tenure_core::model::{Answer, BeatAnswer};

use super::running::{self, Running, beat, claim, release, start, start_with, token, until};

/// File systems on a directory, until they are dropped.
struct Disk {
    folder: TempDir,
    mounted: Vec<PathBuf>,
}

#[track_caller]
fn run(program: &str, arguments: &[&str], path: &Path) {
    let done = Command::new(program).args(arguments).arg(path).status().unwrap();
    assert!(done.success(), "{program} {arguments:?} {}", path.display());
}

impl Disk {
    /// A tmpfs of a few MB; `None` without root.
    fn small() -> Option<Disk> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("without root this is NOT tested");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let at = folder.path().join("small");
        fs::create_dir(&at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=12m", "tmpfs"], &at);
        Some(Disk { folder, mounted: vec![at] })
    }

    /// An ext4 that has more blocks than there is space below it.
    fn thin() -> Option<Disk> {
        let mut disk = Disk::small()?;
        let (image, at) = (disk.path().join("image"), disk.folder.path().join("thin"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-O", "^has_journal", "-m", "0", "-E", "nodiscard"], &image);
        fs::create_dir(&at).unwrap();
        run("mount", &["-o", "loop", image.to_str().unwrap()], &at);
        disk.mounted.push(at);
        Some(disk)
    }

    fn path(&self) -> &Path {
        self.mounted.last().unwrap()
    }

    fn folder(&self) -> TempDir {
        TempDir::new_in(self.path()).unwrap()
    }

    /// Fills the one that is below all.
    fn fill(&self) {
        tenure_harness::fill(&self.mounted[0]);
    }

    fn empty(&self) {
        tenure_harness::empty(&self.mounted[0]);
    }

    /// Has everything that writes or syncs wait.
    fn freeze(&self) {
        run("fsfreeze", &["-f"], self.path());
    }

    fn thaw(&self) {
        run("fsfreeze", &["-u"], self.path());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for at in self.mounted.iter().rev() {
            // It may be frozen. Files in use go away with their last user.
            let _ = Command::new("fsfreeze").arg("-u").arg(at).output();
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}

/// Three nodes. The first one leads, and is on that disk.
async fn cluster(disk: &Disk) -> Vec<Running> {
    let mut nodes = vec![start(disk.folder()).await];
    nodes[0].found().await;
    for _ in 0..2 {
        let other = start(TempDir::new().unwrap()).await;
        nodes[0].add(&other).await;
        nodes.push(other);
    }
    nodes
}

/// Claims and releases at a node, until that holds; the highest token that was granted. Each answer is kept.
async fn work(nodes: &[Running], at: usize, mut until: impl FnMut(u64) -> bool) -> u64 {
    let mut last = 0;
    for number in 100.. {
        // Unknown answers are asked for again, as clients do.
        let granted = loop {
            if let Ok(answer) = nodes[at].node.ask(claim(number, false)).await {
                break token(&answer);
            }
        };
        assert!(granted > last, "{granted} after {last}");
        last = granted;
        while nodes[at].node.ask(release(number)).await.is_err() {}
        if until(u64::try_from(number).unwrap() - 99) {
            break;
        }
    }
    last
}

/// Looks at a node whose disk failed, and has it come back when that is well again.
async fn comes_back(mut nodes: Vec<Running>, words: &str, last: u64, mend: impl FnOnce()) {
    let why = nodes[0].node.until_halted().await;
    assert!(why.contains(words) && why.contains("log.sqlite"), "{why}");
    assert_eq!(nodes[0].node.view().leader, None);
    let refused = nodes[0].node.ask(claim(1, false)).await.unwrap_err();
    assert!(refused.cause().contains(words), "{refused:?}");
    let held = token(&nodes[1].node.ask(claim(1, false)).await.unwrap());
    assert!(held > last);
    let (folder, listener) = nodes.remove(0).stop().await;
    mend();
    let again = start_with(folder, listener, None).await;
    until("it to keep up", async || {
        let (one, other) = (again.node.view(), nodes[0].node.view());
        (one.applied, one.digest) == (other.applied, other.digest)
    })
    .await;
    let beaten = again.node.ask(beat(1)).await.unwrap();
    assert!(
        matches!(&beaten, Answer::Renew(it) if matches!(it[0], BeatAnswer::Held { token, .. } if token == held)),
        "{beaten:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_on_a_full_disk_stops_and_nothing_that_was_told_is_lost() {
    let Some(disk) = Disk::small() else { return };
    let nodes = cluster(&disk).await;
    disk.fill();
    let last = work(&nodes, 1, |_| nodes[0].node.halted().is_some()).await;
    comes_back(nodes, "full", last, || disk.empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_stops_the_node() {
    let Some(disk) = Disk::thin() else { return };
    let nodes = cluster(&disk).await;
    disk.fill();
    let last = work(&nodes, 1, |_| nodes[0].node.halted().is_some()).await;
    comes_back(nodes, "disk I/O error", last, || disk.empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_becomes_read_only_stops_the_node_and_does_not_start_one() {
    let Some(disk) = Disk::thin() else { return };
    let nodes = cluster(&disk).await;
    // As the kernel does at an error.
    run("mount", &["-o", "remount,abort"], disk.path());
    work(&nodes, 1, |_| nodes[0].node.halted().is_some()).await;
    let folder = nodes[0].folder.path();
    nodes[0].node.stop().await;
    let refused = Folder::open(folder).expect_err("it is read-only").to_string();
    assert!(refused.contains("cannot be used"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_does_not_wait_for_the_slow_disk_of_one_node() {
    let Some(disk) = Disk::thin() else { return };
    let nodes = cluster(&disk).await;
    disk.freeze();
    work(&nodes, 1, |rounds| rounds == 20).await;
    disk.thaw();
    until("it to keep up", async || {
        let (one, other) = (nodes[0].node.view(), nodes[1].node.view());
        (one.applied, one.digest) == (other.applied, other.digest)
    })
    .await;
    assert_eq!(nodes[0].node.halted(), None);
    token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_acknowledges_nothing_that_its_disk_does_not_take() {
    let Some(disk) = Disk::small() else { return };
    let node = start(disk.folder()).await;
    node.found().await;
    let mut told = Vec::new();
    let mut fill = Some(|| disk.fill());
    for number in 1.. {
        match node.node.ask(claim(number, true)).await {
            Ok(_) => told.push(number),
            Err(_) => break,
        }
        if number == 10 {
            fill.take().unwrap()();
        }
    }
    assert!(told.len() >= 10);
    let why = node.node.until_halted().await;
    assert!(why.contains("full"), "{why}");
    let (folder, listener) = node.stop().await;
    disk.empty();
    let again = start_with(folder, listener, None).await;
    until("it to lead", async || again.node.view().leader.is_some()).await;
    // The first one may have run out meanwhile, and the others have moved up.
    let asked = told.into_iter().map(|number| (number, again.node.ask(beat(number))));
    for (number, asked) in asked {
        let answer = asked.await.unwrap();
        let Answer::Renew(beats) = answer else { panic!("{answer:?}") };
        let is_known =
            !matches!(beats[0], BeatAnswer::Gone(tenure_core::model::GoneReason::Unknown));
        assert!(is_known, "{number}: {beats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_crashed_in_a_write_comes_back_and_a_damaged_one_does_not_start() {
    const LOG: &str = "log.sqlite";
    const WRITES: &str = "log.sqlite-wal";
    let mut nodes = running::cluster(3).await;
    let held = token(&nodes[1].node.ask(claim(1, false)).await.unwrap());
    let (folder, listener) = {
        let crashes = nodes.pop().unwrap();
        until("it to keep up", async || {
            crashes.node.view().applied == nodes[0].node.view().applied
        })
        .await;
        let files = [LOG, WRITES].map(|name| fs::read(crashes.folder.path().join(name)).unwrap());
        let (folder, listener) = crashes.stop().await;
        drop(Folder::open(folder.path()).unwrap());
        let [log, mut writes] = files;
        // Its last page is torn.
        writes.truncate(writes.len() - 1000);
        fs::write(folder.path().join(LOG), log).unwrap();
        fs::write(folder.path().join(WRITES), writes).unwrap();
        (folder, listener)
    };
    let again = start_with(folder, listener, None).await;
    let beaten = again.node.ask(beat(1)).await.unwrap();
    assert!(
        matches!(&beaten, Answer::Renew(it) if matches!(it[0], BeatAnswer::Held { token, .. } if token == held)),
        "{beaten:?}"
    );

    let (folder, listener) = again.stop().await;
    drop(Folder::open(folder.path()).unwrap());
    let mut log = fs::read(folder.path().join(LOG)).unwrap();
    let owner = b"program";
    let at = log.windows(owner.len()).position(|bytes| bytes == owner).unwrap();
    log[at] = b'P';
    fs::write(folder.path().join(LOG), log).unwrap();
    let heard = Arc::<running::Heard>::default();
    let refused = match running::try_start(folder.path(), listener, None, heard).await {
        Ok(node) => node.until_halted().await,
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("checksum"), "{refused}");
    // The others go on.
    assert_eq!(nodes[0].node.ask(release(1)).await.unwrap(), Answer::Released(true));
}
