//! The outcome of opening a journal, and of writing it.

use std::io;

use tenure_core::{engine, keeper};

use super::log::{DAMAGED, FILE};

/// The rows that both rooms take up from a journal.
#[derive(Debug, Default)]
pub struct Found {
    /// The keeper's.
    pub keeper: keeper::journal::Saved,
    /// The engine's.
    pub engine: engine::journal::Saved,
}

/// Why a journal is new.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fresh {
    /// There was none.
    #[error("there was no journal")]
    Missing,
    /// It was of another boot, after which nothing in it means anything.
    #[error("the journal was of an earlier boot")]
    OtherBoot,
    /// It was written by another version of the agent.
    #[error(
        "the journal has layout {found}, which this version of the agent does not read; it is kept as {DAMAGED}"
    )]
    OtherVersion {
        /// The layout's number.
        found: u32,
    },
    /// A later agent ran without it.
    #[error("the journal was overtaken: a later agent could not write it")]
    Overtaken,
    /// It was cut, damaged or contradicts itself.
    #[error("the journal is damaged ({cause}) and is kept as {DAMAGED}")]
    Damaged { cause: String },
}

/// A journal cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the journal {FILE} cannot be made or read: check the space and the rights of runtime_dir")]
pub struct OpenError {
    #[from]
    source: io::Error,
}

/// An incident of a journal, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// A write failed.
    #[error(
        "{0}: nothing is granted until it is written anew, and a restart of the agent would lose what is \
         held; check the space and the rights of runtime_dir"
    )]
    Failed(String),
    /// There is no space to write ahead.
    #[error(
        "{0}: nothing is granted, so that what is held stays recorded; make space in runtime_dir"
    )]
    Short(String),
    /// It is whole again.
    #[error("the journal is complete again")]
    Mended,
}
