//! Child processes of the trial. Threads at idle priority would hold locks that other threads of their process wait for.

use std::io::{self, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{env, hint, thread};

use nix::unistd::gettid;

/// A test of this program that runs until the end of its input.
pub(crate) struct ChildTest(Child);

impl ChildTest {
    /// Starts the test of this name, with these variables.
    pub(crate) fn begin(test: &str, with: &[(&str, String)]) -> ChildTest {
        let mut command = Command::new(env::current_exe().expect("it runs"));
        command.args(["--exact", "--ignored", "--nocapture"]);
        command.arg(format!("hostile_principal::{test}"));
        command.envs(with.iter().map(|(name, value)| (name, value)));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        ChildTest(child.expect("it runs already"))
    }

    /// Tells it to end; what it said.
    pub(crate) fn end(mut self) -> String {
        drop(self.0.stdin.take());
        let mut said = String::new();
        let out = self.0.stdout.take().expect("it is piped");
        BufReader::new(out).read_to_string(&mut said).expect("it is text");
        said
    }
}

impl Drop for ChildTest {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it is a child");
    }
}

/// Returns when the process that started this one closes the pipe, or has died.
pub(crate) fn until_told_to_end() {
    io::stdin().read_to_end(&mut Vec::new()).expect("it is a pipe");
}

/// Sets this thread to idle priority: a real attacker has a processor of its own, and here it would take the gateway's and
/// the honest callers'.
pub(crate) fn yield_to_others() {
    let thread = gettid().to_string();
    let mut chrt = Command::new("chrt");
    let status = chrt.args(["--idle", "--pid", "0", &thread]).status();
    assert!(status.is_ok_and(|status| status.success()), "chrt is of util-linux");
}

/// Keeps every processor busy at idle priority, before and during an attack, so that both have what an attacker's program
/// costs others by running on the same machine.
pub(crate) fn busy_processors() -> ChildTest {
    ChildTest::begin("processes::processors_are_busy", &[])
}

#[test]
#[ignore = "a process of the other tests"]
fn processors_are_busy() {
    let stop = AtomicBool::new(false);
    let count = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                yield_to_others();
                while !stop.load(Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        until_told_to_end();
        stop.store(true, Relaxed);
    });
}
