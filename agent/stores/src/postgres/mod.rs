//! Postgres as the upstream: several hosts contend on one server.
//!
//! Each operation is one function of the schema `tenure`, and one transaction. It locks the row of its resource, reads
//! the clock after that, and may be performed again: the id of a claim is the id of its operations.
//!
//! Settings are read by every build. The client is part of those with the feature `postgres`.

#[cfg(feature = "postgres")]
mod address;
#[cfg(feature = "postgres")]
mod chores;
#[cfg(feature = "postgres")]
mod connection;
#[cfg(feature = "postgres")]
mod durability;
#[cfg(feature = "postgres")]
mod examine;
#[cfg(feature = "postgres")]
mod feed;
#[cfg(feature = "postgres")]
mod keyring;
#[cfg(feature = "postgres")]
mod perform;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod schema;
pub mod settings;
#[cfg(feature = "postgres")]
mod statements;
#[cfg(feature = "postgres")]
mod store;
#[cfg(feature = "postgres")]
mod way_out;
#[cfg(feature = "postgres")]
mod wire;

#[cfg(feature = "postgres")]
pub use keyring::PostgresKeyring;
#[cfg(feature = "postgres")]
pub use schema::sql;
pub use settings::{PostgresAccess, PostgresServer, settings};
#[cfg(feature = "postgres")]
pub use store::Postgres;

/// The guarantee of a Postgres that was not reached yet.
pub const GUARANTEE: &str = "one Postgres; what a grant survives depends on its settings, which are read when it is reached";
