//! An etcd of one node.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::bench::machine::installed;
use crate::harness::{DEADLINE, Program, boottime_ns, until};

/// A running etcd. Dropping it kills it.
pub(in crate::bench) struct Etcd {
    _process: Program,
    endpoint: String,
    _dir: TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers.
    pub(super) fn start() -> anyhow::Result<Etcd> {
        anyhow::ensure!(installed("etcd"), "etcd is not installed");
        anyhow::ensure!(installed("etcdctl"), "etcdctl is not installed");
        let dir = TempDir::with_prefix("etcd-")?;
        let (endpoint, peer) = (free_address()?, free_address()?);
        let client_url = format!("http://{endpoint}");
        let peer_url = format!("http://{peer}");
        let log = std::fs::File::create(dir.path().join("etcd.log"))?;
        let process = Program::start(
            Command::new("etcd")
                .arg("--data-dir")
                .arg(dir.path().join("data"))
                .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &format!("default={peer_url}")])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log),
        );
        let etcd = Etcd { _process: process, endpoint, _dir: dir };
        until("etcd to answer", || {
            let mut health = etcd.control(&["endpoint", "health"]);
            health.stdout(Stdio::null()).stderr(Stdio::null());
            health.status().is_ok_and(|status| status.success())
        });
        Ok(etcd)
    }

    /// The address for its clients.
    pub(in crate::bench) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// An `etcdctl` with these arguments.
    pub(in crate::bench) fn control(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// An `etcdctl lock` that holds, or waits, until it is killed.
    pub(in crate::bench) fn lock(&self, name: &str) -> LockProcess {
        let mut program = Program::start(self.control(&["lock", name]).stdout(Stdio::piped()));
        let out = program.pipes().stdout.take();
        let (seen, held) = sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            // It prints its key once it holds; killed before, it prints nothing.
            if out.is_some_and(|out| BufReader::new(out).read_line(&mut line).is_ok_and(|n| n > 0))
            {
                // Fails only when nobody waits any more.
                let _ = seen.send(boottime_ns());
            }
        });
        LockProcess { program, held }
    }
}

/// A running `etcdctl lock`. Dropping it kills it.
pub(in crate::bench) struct LockProcess {
    program: Program,
    held: Receiver<u64>,
}

impl LockProcess {
    /// Waits until it holds, and returns when that was seen, CLOCK_BOOTTIME ns.
    pub(in crate::bench) fn held(&self) -> anyhow::Result<u64> {
        Ok(self.held.recv_timeout(DEADLINE)?)
    }

    /// SIGKILL; returns the instant before, CLOCK_BOOTTIME ns.
    pub(in crate::bench) fn kill(&mut self) -> u64 {
        let at_ns = boottime_ns();
        self.program.signal(Signal::SIGKILL);
        self.program.wait();
        at_ns
    }
}

/// A port that nobody listens on now. Somebody else may take it before etcd does; etcd then does
/// not start.
pub(super) fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
