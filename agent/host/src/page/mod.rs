//! Page files: what a session sees of its holds without asking. The layout is in [`tenure_wire::page`].

mod access;
mod file;
mod guard;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_wire::HoldState;
use tenure_wire::page::{SLOT_SIZE, SLOTS_MAX, size};
use uuid::Uuid;

use self::file::{Identity, Page, Slot};
use super::directory::{Directory, DirectoryError};

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} page {}", .path.display())]
pub struct PageError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The pages of all sessions, `<runtime_dir>/pages/<session uuid>`.
#[derive(Debug)]
pub struct Pages {
    directory: Directory,
    boot_id: Uuid,
    open: HashMap<SessionId, Open>,
    /// Set once it was said that a page cannot be written.
    is_failing: bool,
}

/// A page in use.
#[derive(Debug)]
struct Open {
    slots: u32,
    /// The user who may read it.
    uid: u32,
    /// `None` while it cannot be written.
    page: Option<Page>,
}

impl Pages {
    /// Takes the directory into use, and makes it if it is missing. Pages that are in it stay as
    /// they are until [`Pages::open`] or [`Pages::remove_strays`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or somebody else can write to it.
    pub fn in_directory(runtime_dir: &Directory, boot_id: Uuid) -> Result<Pages, DirectoryError> {
        // 0711: whoever knows the name of a page can open it, but nobody can list them.
        let directory = runtime_dir.child("pages", 0o711)?;
        Ok(Pages { directory, boot_id, open: HashMap::new(), is_failing: false })
    }

    /// The path of a session's page, which need not be there.
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.directory.join(session.to_string())
    }

    /// Makes a session's page with that many slots, readable by that user. A page of this boot that
    /// is there already is kept with its content, which stays valid until it is rewritten.
    ///
    /// # Errors
    ///
    /// When it cannot be made. The session can do without: it has its event stream.
    pub fn open(&mut self, session: SessionId, uid: u32, slots: u32) -> Result<(), PageError> {
        if self.open.contains_key(&session) {
            return Ok(());
        }
        let page = Some(self.take_up(session, uid, slots)?);
        self.open.insert(session, Open { slots, uid, page });
        Ok(())
    }

    /// Until when a page of this boot shows that hold in that slot; `None` if it does not.
    pub fn shown_until(
        &self,
        session: SessionId,
        slots: u32,
        slot: u32,
        hold: ClaimId,
    ) -> Option<Boottime> {
        let identity = Identity { session, boot_id: self.boot_id, slots };
        Page::look(&self.directory, identity, slot, hold).ok().flatten()
    }

    fn take_up(&self, session: SessionId, uid: u32, slots: u32) -> Result<Page, PageError> {
        let fail = |what| {
            let path = self.path(session);
            move |source: io::Error| PageError { what, path, source }
        };
        let identity = Identity { session, boot_id: self.boot_id, slots };
        match Page::adopt(&self.directory, identity).map_err(fail("adopt"))? {
            Some(page) => Ok(page),
            None => Page::create(&self.directory, identity, uid).map_err(fail("create")),
        }
    }

    /// Writes a slot of an open page; nothing for one that could not be opened.
    ///
    /// A page that cannot be written, because its file system turned read-only, keeps what it says,
    /// and nothing extends that: what is held there ends for its reader at valid-until. It is written
    /// again, void at first, as soon as that is possible.
    pub fn write_slot(
        &mut self,
        session: SessionId,
        slot: u32,
        hold: ClaimId,
        token: u64,
        valid_until: Boottime,
        state: HoldState,
    ) {
        let slot_content = Slot { hold, token, valid_until, state };
        self.write(session, |page| page.write_slot(slot, slot_content));
    }

    /// Voids the slots of an open page but those.
    pub fn void_all_but(&mut self, session: SessionId, keep: &[u32]) {
        self.write(session, |page| page.void_all_but(keep));
    }

    fn write(&mut self, session: SessionId, write: impl Fn(&Page) -> io::Result<()>) {
        let Some(Open { slots, uid, page }) = self.open.get(&session) else { return };
        let written = match page {
            Some(page) => write(page),
            None => {
                let Ok(page) = self.take_up(session, *uid, *slots) else { return };
                let written = page.void_all_but(&[]).and_then(|()| write(&page));
                if written.is_ok()
                    && let Some(open) = self.open.get_mut(&session)
                {
                    open.page = Some(page);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!(%session, "pages can be written again");
                    }
                }
                return;
            }
        };
        if let Err(error) = written {
            if let Some(open) = self.open.get_mut(&session) {
                open.page = None;
            }
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::error!(
                    %session,
                    %error,
                    "a page cannot be written, nor perhaps others: what they show ends at its \
                     valid-until; check the file system of {}",
                    self.directory.path().display()
                );
            }
        }
    }

    /// Takes everything on the page back, for whoever still maps it, and removes the file.
    pub fn close(&mut self, session: SessionId) {
        self.void_all_but(session, &[]);
        if self.open.remove(&session).is_some() {
            // If it cannot be removed it is a stray for the next start; it is void already.
            let _ = self.directory.remove(session.to_string());
        }
    }

    /// Removes every page that has not been opened: of sessions that this agent does not know.
    /// Their readers see that nothing on them is held. Returns how many there were.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn remove_strays(&self, known: &HashSet<SessionId>) -> Result<usize, PageError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| PageError { what, path, source }
        };
        let mut removed = 0;
        for name in self.directory.names().map_err(fail("list", self.directory.path()))? {
            let Some(session) = name.to_str().and_then(|name| Uuid::try_parse(name).ok()) else {
                continue;
            };
            let session = SessionId(session);
            if known.contains(&session) {
                continue;
            }
            self.void_stray(session, &name);
            let gone = self.directory.remove(&name);
            gone.map_err(fail("remove", &self.directory.join(&name)))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Voids a page of whatever size, if it is one of this boot.
    fn void_stray(&self, session: SessionId, name: &OsStr) {
        let Ok(file) = self.directory.read(name, size(SLOTS_MAX) as u64) else { return };
        let Ok(found) = file.metadata() else { return };
        let slots = (found.len() / SLOT_SIZE as u64).saturating_sub(1);
        let slots = u32::try_from(slots).unwrap_or(0);
        let identity = Identity { session, boot_id: self.boot_id, slots };
        if slots > 0
            && let Ok(Some(page)) = Page::adopt(&self.directory, identity)
        {
            // One that cannot be written ends at its valid-until.
            let _ = page.void_all_but(&[]);
        }
    }
}

#[cfg(test)]
mod tests;
