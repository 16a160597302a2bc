//! The agent's own key, for which it exchanges a join key: made once for each, and kept in its state directory.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;

use tenure_host::directory::Directory;
use tracing::warn;

use super::key::{New, Shown};
use super::wire::Join;
use crate::settings::secret::Secret;

/// In the state directory, for its owner alone.
const FILE: &str = "gateway-key";
/// A key that no gateway is known to have. It takes the place of the other once one has: until then the other may
/// be good.
const NEW_FILE: &str = "gateway-key.new";
/// Longer than any key with the id of another.
const BYTES_MAX: u64 = 128;

/// A key that no gateway need know yet.
#[derive(Debug, Clone)]
pub struct OwnKey {
    pub(super) text: Secret,
    /// The id of the join key. With another one comes another key: this may have been revoked because somebody
    /// read it.
    pub(super) made_for: String,
    /// What a gateway is told of it.
    pub(super) join: Join,
    place: Directory,
}

impl OwnKey {
    /// The key that was made earlier, or a new one, which is on the disk before anybody is told of it.
    ///
    /// # Errors
    ///
    /// When it cannot be read or kept.
    pub(super) fn read_or_make(place: &Directory, join: &Shown<'_>) -> io::Result<OwnKey> {
        let made_for = join.id.to_string();
        for name in [FILE, NEW_FILE] {
            let own = OwnKey::read(place, name).map_err(|error| named(place, name, &error))?;
            if let Some(own) = own.filter(|own| own.made_for == made_for) {
                return Ok(own);
            }
        }
        OwnKey::make(place, &made_for).map_err(|error| named(place, NEW_FILE, &error))
    }

    /// The key in a file; `None` if there is none. One that was cut short by a crash was never shown to anybody.
    fn read(place: &Directory, name: &str) -> io::Result<Option<OwnKey>> {
        let mut file = match place.read(name, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        if mode != 0o600 {
            let path = place.join(name);
            warn!(
                "{} had mode {mode:04o}, and has 0600 now: others may have read it",
                path.display()
            );
            file.set_permissions(PermissionsExt::from_mode(0o600))?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let lines = std::str::from_utf8(&bytes).ok().and_then(|text| text.split_once('\n'));
        let own = lines.and_then(|(text, made_for)| OwnKey::of(place, text, made_for.trim_end()));
        if own.is_none() {
            warn!("{} has no key, and is not used", place.join(name).display());
        }
        Ok(own)
    }

    fn make(place: &Directory, made_for: &str) -> io::Result<OwnKey> {
        let New { text, .. } = New::make().map_err(|error| io::Error::other(error.to_string()))?;
        place.remove(NEW_FILE)?;
        let mut file = place.create(NEW_FILE, 0o600)?;
        file.write_all(format!("{text}\n{made_for}\n").as_bytes())?;
        file.sync_data()?;
        nix::unistd::fsync(place)?;
        OwnKey::of(place, &text, made_for)
            .ok_or_else(|| io::Error::other("the new key has not the form of one"))
    }

    fn of(place: &Directory, text: &str, made_for: &str) -> Option<OwnKey> {
        let shown = Shown::parse(text)?;
        let join = Join { id: shown.id.to_string(), sha256: shown.hash().to_string() };
        let (text, made_for) = (Secret::new(text), made_for.to_owned());
        Some(OwnKey { text, made_for, join, place: place.clone() })
    }

    /// Puts it in the place of the key before it, now that a gateway knows it.
    pub(super) fn keep(&self) {
        let keep = || {
            let new = OwnKey::read(&self.place, NEW_FILE)?;
            if new.is_some_and(|new| new.join == self.join) {
                self.place.rename(NEW_FILE, FILE)?;
                nix::unistd::fsync(&self.place)?;
            }
            Ok(())
        };
        if let Err(error) = keep() {
            // The next start finds it all the same.
            warn!("{}", named(&self.place, NEW_FILE, &error));
        }
    }
}

fn named(place: &Directory, name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", place.join(name).display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kept_in(place: &Directory, join: &str) -> OwnKey {
        OwnKey::read_or_make(place, &Shown::parse(join).unwrap()).unwrap()
    }

    #[test]
    fn a_key_is_replaced_once_a_gateway_knows_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let place = Directory::private(dir.path(), 0o700).unwrap();
        let [first, second] = [(); 2].map(|()| New::make_join().unwrap().text);
        let own = kept_in(&place, &first);
        assert_eq!(kept_in(&place, &first).join, own.join, "an exchange can be repeated");
        own.keep();
        let other = kept_in(&place, &second);
        assert_ne!(other.join, own.join);
        assert_eq!(kept_in(&place, &second).join, other.join);
        assert_eq!(kept_in(&place, &first).join, own.join, "the second join key may be wrong");
        own.keep();
        assert_eq!(kept_in(&place, &second).join, other.join, "it is not the one that is known");
        other.keep();
        other.keep();
        assert!(!dir.path().join(NEW_FILE).exists());
        assert_eq!(kept_in(&place, &second).join, other.join);
        assert_ne!(kept_in(&place, &first).join, own.join);
    }

    #[test]
    fn a_file_that_others_can_read_is_mended_and_one_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let place = Directory::private(dir.path(), 0o700).unwrap();
        let join = New::make_join().unwrap().text;
        let own = kept_in(&place, &join);
        own.keep();
        let path = dir.path().join(FILE);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(kept_in(&place, &join).join, own.join);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        fs::write(&path, "tnr_cut").unwrap();
        assert_ne!(kept_in(&place, &join).join, own.join);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = OwnKey::read_or_make(&place, &Shown::parse(&join).unwrap()).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
