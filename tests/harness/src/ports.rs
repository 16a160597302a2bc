//! Ports for the programs under test.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::unistd::geteuid;

use crate::eventually;

/// Ports below those from which the kernel takes the ends of outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port on which no program listens. The port is locked: no other test gets it while this process runs.
pub fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Locks of ports, which end with the process.
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let locks = std::env::temp_dir().join(format!("tenure-ports-{}", geteuid()));
    // So that processes that start together do not all try the same ones first.
    let own = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    eventually("a free port", || {
        let offset = TRIED.fetch_add(1, Ordering::Relaxed).wrapping_mul(61);
        let port = FIRST + own.wrapping_add(offset) % COUNT;
        fs::create_dir_all(&locks).expect("a temporary directory can be made");
        let lock = File::options().create(true).append(true).open(locks.join(port.to_string()));
        let lock = lock.ok().filter(|lock| lock.try_lock().is_ok())?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
        Some(port)
    })
}
