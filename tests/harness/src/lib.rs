//! Processes, servers of Redis and Postgres, chance, threads, and waiting, for the tests of every crate.
//!
//! Everything waits for a condition with one generous deadline ([`DEADLINE`]); nothing asserts how
//! long something took. What a test starts ends with the test.

mod authority;
mod full;
mod ports;
mod postgres;
mod process;
pub mod random;
mod redis;
mod replace;
pub mod threads;
mod until;
mod watched;

pub use authority::Authority;
pub use full::{empty, fill};
pub use ports::free_port;
pub use postgres::{OpenTransaction, POSTGRES_PORT, Pooler, Postgres, PostgresSetup};
pub use process::{Program, apart, apart_with_foreign_proc, cpu_ns, rss_kib, rss_max_kib, runs};
pub use redis::{
    Contents, Direction, Entry, Listener, Proxy, RedisServer, RedisSetup, SENTINEL_SERVICE,
    Sentinel,
};
pub use replace::replace;
pub use until::{DEADLINE, boottime_ns, eventually, until};
pub use watched::Watched;
