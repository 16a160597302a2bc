//! Client of the Tenure agent: leadership, leases and semaphore permits for programs that must
//! not act twice.
//!
//! # What is promised
//!
//! A hold is a *lease with a fence*, never an absolute lock: no service can keep two programs
//! apart in an asynchronous network, where any of them may stop at any instant and go on later.
//! The promise is twofold.
//!
//! - A holder *knows* when it must stop, before anybody else can be granted the same resource.
//!   [`Hold::is_held`] compares the clock with the hold's *valid until* on a page of memory; it is
//!   right even when the agent is dead, the network is down, or the program was asleep.
//!   [`Hold::lost`] completes at that instant at the latest.
//! - Every grant has a [token](Hold::token), greater than all before it. A store that refuses
//!   writes with a smaller token than it has seen keeps out a writer that was too late to notice.
//!
//! Heartbeats are the agent's business: this crate sends none, and a blocked event loop here
//! costs no hold. When the program ends, the agent notices and gives its holds to the next.
//!
//! # Example
//!
//! ```no_run
//! # async fn clean_up(token: u64) {}
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let agent = tenure::Agent::connect().await?;
//!     let session = agent.session().name("nightly").open().await?;
//!     // Acquires, drops the work where it stands if the hold is lost, and gives back.
//!     session.leader("cleanup").run(|hold| async move { clean_up(hold.token()).await }).await?;
//!     Ok(())
//! }
//! ```
//!
//! # Layers and features
//!
//! [`Agent`], [`Session`], [`Resource`] and [`Hold`] are for programs, [`blocking`] is for those without
//! a runtime; [`client`] has the agent's calls one by one, [`page`] the validity page, [`wire`] the shapes
//! that travel.
//!
//! Without the feature `client` there are only the last two, for a program that reads the page of a
//! `tenure run` around it, and neither hyper nor Tokio is built. Both `client` and `blocking` are on unless
//! `default-features = false`.

#![deny(unsafe_code)]
// Links to what is not built lead nowhere.
#![cfg_attr(not(feature = "blocking"), allow(rustdoc::broken_intra_doc_links))]

/// The examples of the README, which are built like all others.
#[cfg(all(doctest, feature = "blocking"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "client")]
mod agent;
#[cfg(feature = "client")]
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
mod hold;
pub mod page;
#[cfg(feature = "client")]
mod process;
#[cfg(feature = "client")]
mod session;

#[cfg(feature = "client")]
pub use self::agent::Agent;
#[cfg(feature = "client")]
pub use self::hold::{
    AcquireError, Attempt, Campaign, Hold, Lost, Reason, ReleaseError, Resource, RunError,
};
#[cfg(feature = "client")]
pub use self::session::{
    Events, Missed, Session, SessionBuilder, SessionError, SessionGone, SessionState,
};
#[doc(no_inline)]
pub use tenure_wire as wire;
