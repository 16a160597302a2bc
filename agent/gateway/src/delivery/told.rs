//! The mailboxes that proxies may have been told of, kept over the end of a gateway: what ends while there is none is
//! removed from proxies by the next run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::Followed;
use crate::routes::Place;

/// The file, in the folder of the gateway's state.
const FILE: &str = "routes-told";
/// Most tenants that are kept while no proxy of theirs is told. Of further ones nothing is known any more.
const TENANTS_MAX: usize = 1024;

/// By tenant.
type Mailboxes = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// What proxies may have been told, and the file that says so.
#[derive(Debug, Default)]
pub struct Told {
    file: PathBuf,
    mailboxes: Mutex<Mailboxes>,
}

impl Told {
    /// What the run before has left; nothing if it cannot be read.
    pub fn read(state_dir: &Path) -> Told {
        let file = state_dir.join(FILE);
        let mailboxes = read(&file).unwrap_or_else(|error| {
            warn!(%error, ?file, "not known what proxies were told: they may keep routes that ended");
            Mailboxes::new()
        });
        Told { file, mailboxes: Mutex::new(mailboxes) }
    }

    /// The mailboxes of a tenant of which proxies may have been told, until its routes are read.
    pub(super) fn before(&self, tenant: &str) -> Vec<Arc<str>> {
        self.mailboxes().get(tenant).cloned().unwrap_or_default()
    }

    /// Takes what there is of the tenants that were read; what there is of all. The others stay as they were:
    /// their proxies may come back.
    fn take(&self, read: Mailboxes) -> Mailboxes {
        let mut all = self.mailboxes();
        all.retain(|tenant, _| !read.contains_key(tenant));
        while all.len() + read.len() > TENANTS_MAX && all.pop_last().is_some() {}
        all.extend(read.into_iter().filter(|(_, mailboxes)| !mailboxes.is_empty()));
        all.clone()
    }

    fn mailboxes(&self) -> MutexGuard<'_, Mailboxes> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
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
        let tables = || tables.iter().filter(|it| it.was_read());
        let come = tables().map(|it| (Arc::clone(&it.tenant), it.table().place()));
        let come = Vec::from_iter(come);
        if come == self.written {
            return;
        }
        let read = tables().map(|it| (Arc::clone(&it.tenant), it.table().mailboxes()));
        let all = told.take(read.collect());
        let file = told.file.clone();
        let written = tokio::task::spawn_blocking(move || write(&file, &all)).await;
        let error = written.map_err(io::Error::other).and_then(|it| it).err();
        if let Some(error) = error.as_ref().filter(|_| !self.has_failed) {
            warn!(%error, file = ?told.file, "cannot keep what proxies were told");
        }
        self.has_failed = error.is_some();
        if !self.has_failed {
            self.written = come;
        }
    }
}

/// Nothing if there is no file.
fn read(file: &Path) -> io::Result<Mailboxes> {
    match fs::read(file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Mailboxes::new()),
        Err(error) => Err(error),
    }
}

fn write(file: &Path, all: &Mailboxes) -> io::Result<()> {
    let path = file.with_extension("new");
    let mut new = File::create(&path)?;
    new.write_all(&serde_json::to_vec(all)?)?;
    // After a power cut there would be an empty file of the right name.
    new.sync_all()?;
    fs::rename(path, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Reading;

    #[test]
    fn what_was_told_is_known_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Told::read(dir.path()).before("t").is_empty());
        let file = dir.path().join(FILE);
        let all = Mailboxes::from([("t".into(), vec!["a\n".into(), "b".into()])]);
        write(&file, &all).unwrap();
        let told = Told::read(dir.path());
        assert_eq!(told.before("t"), ["a\n", "b"].map(Arc::<str>::from));
        assert!(read(dir.path()).is_err(), "only a file that is missing is none");
        assert!(told.before("other").is_empty());
        fs::write(&file, "{\"t\": [").unwrap();
        assert!(Told::read(dir.path()).before("t").is_empty());
    }

    fn read_table(tenant: &str, mailbox: &str) -> Arc<Followed> {
        let followed = Followed::new(tenant.into(), vec![mailbox.into()]);
        followed.take(Reading::default());
        Arc::new(followed)
    }

    #[tokio::test]
    async fn a_tenant_that_is_not_told_now_is_kept_and_what_failed_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let before = [("away", "a"), ("unread", "u"), ("read", "old")];
        let before = before.map(|(tenant, mailbox)| (tenant.into(), vec![mailbox.into()]));
        write(&dir.path().join(FILE), &Mailboxes::from(before)).unwrap();
        let told = Told::read(dir.path());
        let unread = Arc::new(Followed::new("unread".into(), told.before("unread")));
        let tables = [unread, read_table("read", "new")];
        let mut note = Note::default();
        let in_the_way = dir.path().join(FILE).with_extension("new");
        fs::create_dir(&in_the_way).unwrap();
        note.keep(&told, &tables).await;
        assert!(note.has_failed);
        fs::remove_dir(&in_the_way).unwrap();
        note.keep(&told, &tables).await;
        let next = Told::read(dir.path());
        for (tenant, mailbox) in [("away", "a"), ("unread", "u"), ("read", "new")] {
            assert_eq!(next.before(tenant), [Arc::from(mailbox)], "{tenant}");
        }
    }

    #[test]
    fn the_tenants_that_are_kept_have_a_bound() {
        let told = Told::default();
        let many = |name: &str| {
            let tenants = 0..TENANTS_MAX;
            tenants.map(|number| (format!("{name}{number}").into(), vec!["m".into()])).collect()
        };
        for name in ["a", "b"] {
            assert_eq!(told.take(many(name)).len(), TENANTS_MAX);
        }
        assert_eq!(told.before("b0").len(), 1);
    }
}
