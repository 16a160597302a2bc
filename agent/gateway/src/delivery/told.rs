//! The mailboxes that proxies may have been told of, kept over the end of a gateway: what ends while there is none is
//! removed from proxies by the next run.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::Followed;
use crate::routes::Place;

/// The file, in the folder of the gateway's state.
const FILE: &str = "routes-told";

/// By tenant.
type Mailboxes = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// What the run before told, and the file that says so.
#[derive(Debug, Default)]
pub struct Told {
    file: PathBuf,
    before: Mailboxes,
}

impl Told {
    /// What the run before has left; nothing if it cannot be read.
    pub fn read(state_dir: &Path) -> Told {
        let file = state_dir.join(FILE);
        let before = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!(%error, ?file, "not known what proxies were told: they may keep routes that ended");
                Mailboxes::new()
            }),
            Err(_) => Mailboxes::new(),
        };
        Told { file, before }
    }

    /// The mailboxes of a tenant of which the run before may have told proxies.
    pub(super) fn before(&self, tenant: &str) -> &[Arc<str>] {
        self.before.get(tenant).map_or(&[], Vec::as_slice)
    }
}

/// Writes down what proxies may have been told.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// How far the tables had come that were written.
    written: Vec<(Arc<str>, Place)>,
    has_failed: bool,
}

impl Note {
    /// Notes the mailboxes of the tables that proxies are told of, if any has changed. One of a moment ago may be
    /// missing when the gateway is killed.
    pub(super) async fn keep(&mut self, told: &Told, tables: &[Arc<Followed>]) {
        // Before the first reading a table has less than the run before.
        let tables = || tables.iter().filter(|it| *it.news().borrow() > 0);
        let come = tables().map(|it| (Arc::clone(&it.tenant), it.table().place()));
        let come = Vec::from_iter(come);
        if come == self.written {
            return;
        }
        let all = tables().map(|it| (Arc::clone(&it.tenant), it.table().mailboxes()));
        let (all, file) = (Mailboxes::from_iter(all), told.file.clone());
        let written = tokio::task::spawn_blocking(move || write(&file, &all)).await;
        let error = written.map_err(io::Error::other).and_then(|it| it).err();
        if let Some(error) = error.as_ref().filter(|_| !self.has_failed) {
            warn!(%error, file = ?told.file, "cannot keep what proxies were told");
        }
        self.has_failed = error.is_some();
        self.written = come;
    }
}

fn write(file: &Path, all: &Mailboxes) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(all)?)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_known_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Told::read(dir.path()).before("t").is_empty());
        let file = dir.path().join(FILE);
        let all = Mailboxes::from([("t".into(), vec!["a\n".into(), "b".into()])]);
        write(&file, &all).unwrap();
        let told = Told::read(dir.path());
        assert_eq!(told.before("t"), ["a\n", "b"].map(Arc::<str>::from));
        assert!(told.before("other").is_empty());
        fs::write(&file, "{\"t\": [").unwrap();
        assert!(Told::read(dir.path()).before("t").is_empty());
    }
}
