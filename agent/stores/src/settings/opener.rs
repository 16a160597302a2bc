//! How a store is opened, once its settings are checked.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tenure_core::time::Boottime;
use uuid::Uuid;

use super::Broken;
use super::secret::Secret;
use crate::Upstream;
use crate::journal::{self, Disk, Journal, LedgerError, SavedKeeper};
use crate::keyring::Keyring;

/// Checked settings of a store.
pub trait Opener: Debug + Send + Sync {
    /// Opens the store and the journal beside it.
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError>;

    /// Passwords by the key that gave them, so that a change can be noticed: of a file the password that was
    /// read last.
    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        Vec::new()
    }

    /// Reads again what it may without another start: certificates, and files with passwords. With anything wrong
    /// in them nothing changes.
    fn reload(&self) -> Result<(), Broken> {
        Ok(())
    }

    /// The keys of gateways in the store; `None` if it is of one gateway alone, and keeps none. Must be called
    /// in a runtime.
    fn keyring(&self) -> Option<Arc<dyn Keyring>> {
        None
    }
}

/// The circumstances in which a store is opened.
pub struct Place<'a> {
    pub runtime_dir: Box<dyn Disk>,
    pub state_dir: Box<dyn Disk + Send>,
    pub boot_id: Uuid,
    pub now: Boottime,
    /// Tokens start here at least.
    pub wall_clock_us: u64,
    /// Adds what the keeper has from elsewhere.
    pub catch_up: &'a dyn Fn(&mut SavedKeeper),
}

/// An opened store, and what it shares with its agent.
pub struct Opened {
    pub store: Box<dyn Upstream>,
    pub journal: Rc<RefCell<Journal>>,
    /// The rows that the keeper takes up.
    pub saved: SavedKeeper,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Journal(#[from] journal::OpenError),
    /// The tokens of the embedded store.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store is one that runs in this process.
    #[error("the store cannot be started")]
    Start(#[source] io::Error),
    /// It would be the same at the next start.
    #[error("the store cannot be started until the following is put right")]
    Refused(#[source] io::Error),
    #[error("the agent's own key, for which it exchanges a join key, cannot be kept in state_dir")]
    OwnKey(#[source] io::Error),
}
