//! The folder of a node, in SQLite: the log with its vote, and the latest image.
//!
//! Invariant: nothing is said to be kept before it is synced, and after an error nothing is kept any more: the
//! node stops. What a failed sync has left on the disk is not known.

mod folder;
mod images;
mod log;
mod seal;
#[cfg(test)]
mod tests;
mod writer;

pub use folder::Folder;
pub(crate) use folder::Place;
pub(crate) use images::Images;
pub(crate) use log::Log;
