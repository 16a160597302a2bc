use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Ends with the given status when its input is closed.
fn child(then: &str) -> Child {
    let script = format!("read line; {then}");
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

async fn end(child: &mut Child, wait: bool) -> Option<i32> {
    let pidfd = system::open(child.id()).unwrap().unwrap();
    assert!(!has_exited(&pidfd));
    let first = exited(&pidfd).unwrap();
    let second = exited(&pidfd).unwrap();
    drop(child.stdin.take());
    if wait {
        child.wait().unwrap();
    }
    let status = tokio::time::timeout(PATIENCE, first).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, second).await.unwrap(), status);
    assert!(has_exited(&pidfd));
    status
}

fn kernel() -> (u32, u32) {
    let release = nix::sys::utsname::uname().unwrap().release().to_owned();
    let mut numbers = release.to_str().unwrap().split('.').map(|number| number.parse());
    (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap())
}

#[tokio::test]
async fn tells_how_a_process_ended() {
    for (then, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        for wait in [false, true] {
            let mut child = child(then);
            let told = end(&mut child, wait).await;
            child.wait().unwrap();
            let tells = kernel() >= (6, 15);
            assert_eq!(told, tells.then_some(status), "{then}, waited for: {wait}");
        }
    }
}

#[tokio::test]
async fn reopens_only_the_same_process() {
    let mut child = child("exit 0");
    let pid = child.id();
    let process = Process { pid, start_ticks: start_ticks(pid).unwrap() };
    let pidfd = reopen(process).unwrap().unwrap();
    assert_eq!(number(&pidfd), Some(pid));
    let another = Process { start_ticks: process.start_ticks + 1, ..process };
    assert!(reopen(another).unwrap().is_none());
    end(&mut child, false).await;
    assert!(reopen(process).unwrap().is_none(), "ended, though nobody has waited for it");
    child.wait().unwrap();
    assert!(reopen(process).unwrap().is_none());
    assert_eq!(number(&pidfd), None);
    assert_eq!(number(&std::fs::File::open("/dev/null").unwrap().into()), None);
}

/// Set for the run of this test in a process of its own, which may lack descriptors.
const ALONE: &str = "TENURE_TEST_WITHOUT_DESCRIPTORS";

#[test]
fn without_descriptors_nobody_is_taken_for_ended() {
    let this =
        Process { pid: std::process::id(), start_ticks: start_ticks(std::process::id()).unwrap() };
    if std::env::var_os(ALONE).is_none() {
        let path = concat!(module_path!(), "::without_descriptors_nobody_is_taken_for_ended");
        let (_, name) = path.split_once("::").unwrap();
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    // One is left for the handle in the second round, and none for /proc.
    for left in [0, 1] {
        let next = std::fs::File::open("/dev/null").unwrap();
        let limit = u64::try_from(next.as_raw_fd()).unwrap() + left;
        drop(next);
        let (former, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let reopened = reopen(this);
        setrlimit(Resource::RLIMIT_NOFILE, former, hard).unwrap();
        assert!(reopened.is_err(), "{left} left");
    }
    assert!(reopen(this).unwrap().is_some());
}
