//! Values of what a client leaves open, the same whatever store keeps them.

use tenure_wire::Attributes;

/// The surface of a session.
pub const SURFACE: &str = "unknown";
/// The surface whose sessions are preferred as master, from the session plane that Tenure implements.
pub const PREFERRED_SURFACE: &str = "claude_desktop";
/// The priority of its sessions; 0 is that of all others.
pub const PREFERRED_PRIORITY: i32 = 100;
/// Most waiters of one resource; beyond, a claim is answered as if it would not queue.
pub const QUEUE_MAX: usize = 100_000;
/// Partitions of leases are numbered below this.
const PARTITIONS: u32 = 256;
/// The word that a lease is listed with while it is held.
pub const STATUS: &str = "active";

/// The priority of a master claim of a session on that surface.
pub fn priority(surface: &str) -> i32 {
    if surface == PREFERRED_SURFACE { PREFERRED_PRIORITY } else { 0 }
}

/// The partition of a lease: CRC-32/IEEE of its name, unless its holder says otherwise.
pub fn partition(attributes: &Attributes, name: &str) -> u16 {
    attributes.partition.unwrap_or((crc32fast::hash(name.as_bytes()) % PARTITIONS) as u16)
}

/// The status of a lease that is held.
pub fn status(attributes: &Attributes) -> &str {
    attributes.status.as_deref().unwrap_or(STATUS)
}
