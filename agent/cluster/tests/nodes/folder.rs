//! Folders of nodes: whose they are, and what is refused.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tenure_cluster::Folder;
use tenure_core::model::Answer;

use super::running::{claim, cluster, release, start, start_with, token, until};

/// The words with which a folder is refused.
#[track_caller]
fn refusal(path: &Path) -> String {
    Folder::open(path).expect_err("it is refused").to_string()
}

fn sql(file: &Path, batch: &str) {
    rusqlite::Connection::open(file).unwrap().execute_batch(batch).unwrap();
}

#[test]
fn a_folder_has_one_process_and_one_id() {
    let folder = TempDir::new().unwrap();
    let opened = Folder::open(folder.path()).unwrap();
    let id = opened.id();
    assert!(id > 0 && id < 1 << 53, "{id}");
    let taken = refusal(folder.path());
    let pid = std::process::id().to_string();
    assert!(taken.contains("another process") && taken.contains(&pid), "{taken}");
    drop(opened);
    assert_eq!(Folder::open(folder.path()).unwrap().id(), id);
    let other = TempDir::new().unwrap();
    assert_ne!(Folder::open(other.path()).unwrap().id(), id);
}

#[test]
fn what_another_program_or_machine_has_written_is_refused_with_words() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let id = Folder::open(folder.path()).unwrap().id();
    for file in ["log.sqlite", "image.sqlite"] {
        sql(&path(file), "PRAGMA user_version = 2");
        let refused = refusal(folder.path());
        assert!(refused.contains("format 2") && refused.contains("install"), "{refused}");
        sql(&path(file), "PRAGMA user_version = 1");
    }
    fs::write(path("machine"), "0123456789abcdef0123456789abcdef").unwrap();
    let refused = refusal(folder.path());
    assert!(refused.contains("another machine") && refused.contains("/machine"), "{refused}");
    fs::remove_file(path("machine")).unwrap();
    assert_eq!(Folder::open(folder.path()).unwrap().id(), id);
}

#[test]
fn a_copy_on_the_same_machine_is_refused_and_a_folder_that_moved_is_not() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
    let id = Folder::open(&path("node")).unwrap().id();
    let copy = |from: &str, to: &str| {
        fs::create_dir(path(to)).unwrap();
        for file in fs::read_dir(path(from)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), path(to).join(file.file_name())).unwrap();
        }
    };
    copy("node", "twin");
    let refused = refusal(&path("twin"));
    assert!(refused.contains("it is a copy of") && refused.contains("twin/place"), "{refused}");
    assert_eq!(Folder::open(&path("node")).unwrap().id(), id);
    // Renamed; and on another disk, which is mounted where the first one was.
    fs::rename(path("node"), path("elsewhere")).unwrap();
    assert_eq!(Folder::open(&path("elsewhere")).unwrap().id(), id);
    fs::rename(path("elsewhere"), path("before")).unwrap();
    copy("before", "elsewhere");
    assert_eq!(Folder::open(&path("elsewhere")).unwrap().id(), id);
    // A folder of an earlier release does not say where it was.
    fs::remove_file(path("twin").join("place")).unwrap();
    assert_eq!(Folder::open(&path("twin")).unwrap().id(), id);
}

#[test]
fn a_folder_that_has_lost_a_file_is_refused() {
    for (name, words) in
        [("log.sqlite", "its log is of no node"), ("image.sqlite", "its image of no node")]
    {
        let folder = TempDir::new().unwrap();
        Folder::open(folder.path()).unwrap();
        let purge = "INSERT INTO kept (key, value) VALUES ('purged', x'00')";
        sql(&folder.path().join("log.sqlite"), purge);
        fs::remove_file(folder.path().join(name)).unwrap();
        let refused = refusal(folder.path());
        assert!(refused.contains(words) && refused.contains("wipe the folder"), "{refused}");
    }
    let folder = TempDir::new().unwrap();
    Folder::open(folder.path()).unwrap();
    fs::write(
        folder.path().join("log.sqlite"),
        "no database, and long enough to look at".repeat(100),
    )
    .unwrap();
    let refused = refusal(folder.path());
    assert!(refused.contains("not a database") && refused.contains("wipe the folder"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_folder_is_a_new_node_and_not_taken_for_the_old_one() {
    let mut nodes = cluster(3).await;
    let first = token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    let stopped = nodes.pop().unwrap();
    let (old, address) = (stopped.node.id(), stopped.address.clone());
    let (folder, listener) = stopped.stop().await;
    drop(folder);
    let new = start_with(TempDir::new().unwrap(), listener, None).await;
    assert_ne!(new.node.id(), old);
    // Nobody takes it for the old one, at the same address though it is.
    let refused = nodes[0].node.add(old, address).await.unwrap_err().to_string();
    assert!(refused.contains("is not for this node"), "{refused}");
    assert_eq!(new.cluster(), None);
    // The others go on, and it takes the old one's place.
    assert_eq!(nodes[1].node.ask(release(1)).await.unwrap(), Answer::Released(true));
    let leader = nodes[0].node.view().leader.unwrap();
    let leads = nodes.iter().find(|it| it.node.id() == leader).unwrap();
    leads.node.remove(old).await.unwrap();
    leads.add(&new).await;
    until("it to know its cluster", async || new.cluster() == nodes[0].cluster()).await;
    let second = token(&new.node.ask(claim(2, false)).await.unwrap());
    assert!(second > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_free_when_its_node_has_stopped() {
    let node = start(TempDir::new().unwrap()).await;
    node.found().await;
    let id = node.node.id();
    assert!(refusal(node.folder.path()).contains("another process"));
    // Somebody may still have the node.
    node.node.stop().await;
    assert_eq!(Folder::open(node.folder.path()).unwrap().id(), id);
}
