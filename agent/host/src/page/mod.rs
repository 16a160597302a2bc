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
    runtime_dir: Directory,
    directory: Directory,
    boot_id: Uuid,
    open: HashMap<SessionId, Open>,
    /// Sessions whose pages are to be made again.
    missing: Vec<SessionId>,
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
    /// The first page, if somebody removed its file: the program has mapped it. Not more of them: each is a mapping, of which
    /// a process has 65 530.
    removed: Option<Page>,
}

/// The folder of pages, in the runtime directory.
pub const PAGES: &str = "pages";
/// Whoever knows the name of a page can open it, but nobody can list them.
const PAGES_MODE: u32 = 0o711;
/// Pages that are made again in a turn of the heart: some ms of it.
const RENEWED_AT_ONCE: usize = 64;

impl Pages {
    /// Takes the directory into use, and makes it if it is missing. Pages that are in it stay as
    /// they are until [`Pages::open`] or [`Pages::remove_strays`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or somebody else can write to it.
    pub fn in_directory(runtime_dir: &Directory, boot_id: Uuid) -> Result<Pages, DirectoryError> {
        let directory = runtime_dir.child(PAGES, PAGES_MODE)?;
        Ok(Pages {
            runtime_dir: runtime_dir.clone(),
            directory,
            boot_id,
            open: HashMap::new(),
            missing: Vec::new(),
            is_failing: false,
        })
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
        self.open.insert(session, Open { slots, uid, page, removed: None });
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
        let Some(Open { slots, uid, page, removed }) = self.open.get(&session) else { return };
        if let Some(page) = removed {
            // One that cannot be written ends at its valid-until.
            let _ = write(page);
        }
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

    /// Makes the directory again if somebody removed it, and notes the pages that are to be made again; see [`Pages::renew_some`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be made; then nothing is noted.
    pub fn renew(&mut self) -> Result<(), PageError> {
        let path = self.directory.path();
        let fail =
            |source| PageError { what: "make again the folder of the", path: path.into(), source };
        let made =
            self.runtime_dir.child(PAGES, PAGES_MODE).map_err(io::Error::other).map_err(fail)?;
        self.directory.replace_by(&made).map_err(fail)?;
        self.missing = self.open.keys().copied().collect();
        Ok(())
    }

    /// True while pages are to be made again.
    pub fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Makes some pages again that somebody removed. Those that readers have mapped are written on, too.
    ///
    /// # Errors
    ///
    /// When a page cannot be made; others may be.
    pub fn renew_some(&mut self) -> Result<(), PageError> {
        let mut result = Ok(());
        for _ in 0..RENEWED_AT_ONCE {
            let Some(session) = self.missing.pop() else { break };
            let path = self.path(session);
            let Some(open) = self.open.get_mut(&session) else { continue };
            let Some(page) = open.page.as_ref().filter(|page| !page.is_at(&path)) else { continue };
            let identity = Identity { session, boot_id: self.boot_id, slots: open.slots };
            let made = Page::create_like(page, &self.directory, identity, open.uid);
            let made = made.map_err(|source| {
                // The next write makes it.
                result = Err(PageError { what: "make again", path, source });
            });
            let gone = std::mem::replace(&mut open.page, made.ok());
            match (&open.removed, gone) {
                (None, gone) => open.removed = gone,
                // Its readers map the next one, or ask the agent.
                (Some(_), Some(gone)) => {
                    let _ends_at_valid_until = gone.void_all_but(&[]);
                }
                (Some(_), None) => {}
            }
        }
        result
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
            let named = name.to_str().map(|name| name.strip_suffix(file::NEW).unwrap_or(name));
            let Some(session) = named.and_then(|name| Uuid::try_parse(name).ok()) else { continue };
            let session = SessionId(session);
            // One that was not whole yet has no readers.
            let is_new = name.as_encoded_bytes().ends_with(file::NEW.as_bytes());
            if !is_new {
                if known.contains(&session) {
                    continue;
                }
                self.void_stray(session, &name);
            }
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
