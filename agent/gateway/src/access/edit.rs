//! Changes to the file of keys: each changes the lines of one key, and leaves all others as they are.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Principal;
use super::file::{Keys, KeysError, read_text};
use super::written::{Written, WrittenBounds, WrittenKey};
use tenure_stores::gateway::key::{KeyId, New};
use tenure_stores::keyring::KEYS_MAX;
use tenure_wire::rules::{Checked, Invalid, glob, scope_glob};

const SECTION: &str = "[[key]]";

/// A change to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// A new key.
    Add {
        principal: String,
        expires_at: Option<u64>,
        bounds: Box<WrittenBounds>,
    },
    /// A new key of the same principal with the same bounds; the old one expires at that time.
    Rotate {
        id: KeyId,
        old_expires_at: u64,
        expires_at: Option<u64>,
    },
    Revoke {
        id: KeyId,
    },
}

/// Why the file cannot be changed. It stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("there is no key {0}; see keys list")]
    NoKey(KeyId),
    #[error("the lines of key {0} are not where they are expected; change the file by hand")]
    Unclear(KeyId),
    #[error(
        "key {0} is a join key, good for one exchange: make another with keys add --once, and revoke this one"
    )]
    JoinKey(KeyId),
    #[error(
        "there are {KEYS_MAX} keys in the store, and there may be no more: take some out with keys revoke; those that \
         expired a day ago are gone already"
    )]
    Full,
    #[error("the system gives no randomness: {0}")]
    NoRandomness(getrandom::Error),
    #[error("cannot be written")]
    Unwritable(#[from] std::io::Error),
}

impl Edit {
    /// Judges what a new key says. Keys that are there already let in whom they did: what covers no name that may be
    /// asked for covers nothing.
    ///
    /// # Errors
    ///
    /// [`EditError::Invalid`].
    pub fn check(&self) -> Result<(), EditError> {
        let Edit::Add { principal, bounds, .. } = self else { return Ok(()) };
        Principal::check_name("subject", principal)?;
        let WrittenBounds { tenants, projects, names, .. } = &**bounds;
        let each = |field, globs: &Option<Vec<String>>, check: fn(&str, &str) -> Checked| {
            globs.iter().flatten().try_for_each(|glob| check(field, glob))
        };
        each("tenant", tenants, scope_glob)?;
        each("project", projects, scope_glob)?;
        each("name", names, glob)?;
        Ok(())
    }

    /// Changes the file; the new key, where there is one. A file that is not there is made by
    /// [`Edit::Add`].
    ///
    /// # Errors
    ///
    /// See [`EditError`].
    pub fn carry_out(&self, path: &Path) -> Result<Option<New>, EditError> {
        self.check()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // Two who change it at once would undo each other's work.
        let lock = File::open(folder)?;
        lock.lock()?;
        let text = match read_text(path) {
            Err(KeysError::Unreadable(error))
                if error.kind() == std::io::ErrorKind::NotFound
                    && matches!(self, Edit::Add { .. }) =>
            {
                String::new()
            }
            text => text?,
        };
        let (changed, new) = self.change(&text)?;
        Keys::parse(&changed)?;
        write(path, &changed)?;
        Ok(new)
    }

    /// The text after the change.
    fn change(&self, text: &str) -> Result<(String, Option<New>), EditError> {
        Keys::parse(text)?;
        match self {
            Edit::Add { principal, expires_at, bounds } => {
                let new = New::make().map_err(EditError::NoRandomness)?;
                let line = Keys::line(&new, principal, *expires_at, bounds)?;
                Ok((appended(text, &line), Some(new)))
            }
            Edit::Rotate { id, old_expires_at, expires_at } => {
                let WrittenKey { principal, bounds, expires_at: old, .. } = find(text, *id)?;
                if bounds.once {
                    return Err(EditError::JoinKey(*id));
                }
                let new = New::make().map_err(EditError::NoRandomness)?;
                let line = Keys::line(&new, &principal, *expires_at, &bounds)?;
                // One that ends earlier goes on to do so.
                let old = old.map_or(*old_expires_at, |old| old.min(*old_expires_at));
                let kept = with_expiry(text, *id, old)?;
                Ok((appended(&kept, &line), Some(new)))
            }
            Edit::Revoke { id } => {
                find(text, *id)?;
                let (before, _, after) = split(text, *id)?;
                Ok((format!("{before}{after}"), None))
            }
        }
    }
}

fn appended(text: &str, line: &str) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{gap}{line}")
}

fn find(text: &str, id: KeyId) -> Result<WrittenKey, EditError> {
    let Written { keys } = toml::from_str(text)
        .map_err(|error: toml::de::Error| KeysError::NotKeys(error.message().to_owned()))?;
    let name = id.to_string();
    keys.into_iter().find(|key| key.id == name).ok_or(EditError::NoKey(id))
}

/// The text with another expiry of a key.
fn with_expiry(text: &str, id: KeyId, expires_at: u64) -> Result<String, EditError> {
    let (before, section, after) = split(text, id)?;
    let mut lines: Vec<&str> = section.split_inclusive('\n').collect();
    lines.retain(|line| !line.trim_start().starts_with("expires_at"));
    let expiry = format!("expires_at = {expires_at}\n");
    // The first line is that of the section; what follows a table of its own would be part of it.
    lines.insert(1.min(lines.len()), &expiry);
    let changed = format!("{before}{}{after}", lines.concat());
    match find(&changed, id)?.expires_at {
        Some(found) if found == expires_at => Ok(changed),
        _ => Err(EditError::Unclear(id)),
    }
}

/// The text before the section of a key, the section, and the text after it, which begins with the
/// comments and empty lines at the section's end.
fn split(text: &str, id: KeyId) -> Result<(&str, &str, &str), EditError> {
    let mut begins = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        // Editors of Windows begin a file with a byte order mark.
        let line_text = line.strip_prefix('\u{feff}').unwrap_or(line);
        if line_text.trim_start().starts_with(SECTION) {
            begins.push(at);
        }
        at += line.len();
    }
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    for (begin, end) in begins.iter().copied().zip(ends) {
        let section = text.get(begin..end).unwrap_or_default();
        if !is_of(section, id) {
            continue;
        }
        let kept = section.split_inclusive('\n').rev().take_while(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#')
        });
        let middle = end - kept.map(str::len).sum::<usize>();
        if let (Some(before), Some(own), Some(after)) =
            (text.get(..begin), text.get(begin..middle), text.get(middle..))
        {
            return Ok((before, own, after));
        }
    }
    Err(EditError::Unclear(id))
}

/// True if the section is that of the key and of no other.
fn is_of(section: &str, id: KeyId) -> bool {
    let name = id.to_string();
    let written = toml::from_str::<Written>(section);
    written.is_ok_and(|written| matches!(&written.keys[..], [key] if key.id == name))
}

/// Puts a text in the place of the file, all of it or nothing.
fn write(path: &Path, text: &str) -> Result<(), EditError> {
    let found = fs::metadata(path).ok();
    // A first one is for whoever has the folder.
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    // One that a crash left is nobody's.
    let _ = fs::remove_file(&new);
    let mode = found.as_ref().map_or(0o600, |found| found.mode() & 0o7777);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    if let Some(found) = found.or(folder) {
        // The gateway's user may be another than whoever changes the file.
        let _ = std::os::unix::fs::fchown(&file, Some(found.uid()), Some(found.gid()));
    }
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(principal: &str) -> Edit {
        let bounds = WrittenBounds { names: Some(vec!["a/*".to_owned()]), ..Default::default() };
        Edit::Add { principal: principal.to_owned(), expires_at: None, bounds: Box::new(bounds) }
    }

    #[test]
    fn each_change_leaves_all_else_as_it_was() {
        let (first, alpha) = add("alpha").change("# of the team\n").unwrap();
        let alpha = alpha.unwrap().id;
        let (text, beta) = add("beta").change(&format!("{first}\n# beta's")).unwrap();
        let beta = beta.unwrap().id;

        let rotate = Edit::Rotate { id: alpha, old_expires_at: 50, expires_at: Some(99) };
        let (text, new) = rotate.change(&text).unwrap();
        let keys = Keys::parse(&text).unwrap();
        let listed: Vec<_> =
            keys.list().iter().map(|key| (key.principal.to_owned(), key.id)).collect();
        assert_eq!(listed.len(), 3);
        let expiry = |id| keys.list().iter().find(|key| key.id == id).unwrap().expires_at;
        assert_eq!((expiry(alpha), expiry(beta)), (Some(50), None));
        let new = new.unwrap().id;
        assert_eq!(expiry(new), Some(99));
        assert!(keys.list().iter().all(|key| key.bounds.names.is_some()));

        // Rotated again, the old one does not live longer.
        let again = Edit::Rotate { id: alpha, old_expires_at: 70, expires_at: None };
        let (again, _) = again.change(&text).unwrap();
        let keys = Keys::parse(&again).unwrap();
        let old = keys.list().into_iter().find(|key| key.id == alpha).unwrap().expires_at;
        assert_eq!(old, Some(50));

        let (text, none) = Edit::Revoke { id: alpha }.change(&text).unwrap();
        assert!(none.is_none() && !text.contains(&alpha.to_string()));
        assert!(text.starts_with("# of the team\n") && text.contains("# beta's\n"), "{text}");
        assert_eq!(Keys::parse(&text).unwrap().count(), 2);
        let gone = Edit::Revoke { id: alpha }.change(&text).unwrap_err();
        assert!(matches!(gone, EditError::NoKey(id) if id == alpha));
    }

    #[test]
    fn a_file_of_windows_is_changed_like_any_other() {
        let (text, first) = add("alpha").change("").unwrap();
        let (text, second) = add("beta").change(&text).unwrap();
        let text = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        for id in [first.unwrap().id, second.unwrap().id] {
            let rotate = Edit::Rotate { id, old_expires_at: 50, expires_at: None };
            let (rotated, _) = rotate.change(&text).unwrap();
            let keys = Keys::parse(&rotated).unwrap();
            let old = keys.list().into_iter().find(|key| key.id == id).unwrap();
            assert_eq!((keys.count(), old.expires_at), (3, Some(50)));
            let (revoked, _) = Edit::Revoke { id }.change(&text).unwrap();
            assert_eq!(Keys::parse(&revoked).unwrap().count(), 1);
            assert!(!revoked.contains(&id.to_string()));
        }
    }

    #[test]
    fn a_file_is_made_for_its_owner_alone_and_its_mode_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        let id = add("alpha").carry_out(&path).unwrap().unwrap().id;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        Edit::Revoke { id }.carry_out(&path).unwrap();
        assert_eq!((mode(), Keys::read(&path).unwrap().count()), (0o640, 0));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let none = dir.path().join("none");
        Edit::Revoke { id }.carry_out(&none).unwrap_err();
        assert!(!none.exists());
    }
}
