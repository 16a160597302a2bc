//! The agent's own key, for which it exchanges a join key: made once for each, and kept in its state directory.

use std::io;

use super::key::{New, Shown};
use super::wire::Join;
use crate::journal::Disk;
use crate::settings::secret::Secret;

/// In the state directory, for its owner alone.
const FILE: &str = "gateway-key";
/// Longer than any key.
const READ_MAX: usize = 128;

/// A key that no gateway need know yet.
#[derive(Debug, Clone)]
pub struct OwnKey {
    pub(super) text: Secret,
    /// The id of the join key. With another one comes another key: this may have been revoked because somebody
    /// read it.
    pub(super) made_for: String,
    /// What a gateway is told of it.
    pub(super) join: Join,
}

impl OwnKey {
    /// The key that was made earlier, or a new one, which is on the disk before anybody is told of it.
    ///
    /// # Errors
    ///
    /// When it cannot be read or kept.
    pub(super) fn read_or_make(disk: &mut dyn Disk, join: &Shown<'_>) -> io::Result<OwnKey> {
        let made_for = join.id.to_string();
        if disk.length(FILE)?.is_some() {
            let mut bytes = [0; READ_MAX];
            let length = disk.read_at(FILE, 0, &mut bytes)?;
            let text = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
            // One that was cut short by a crash was never shown to anybody.
            let own = text.and_then(|text| text.split_once('\n')).and_then(OwnKey::read);
            if let Some(own) = own.filter(|own| own.made_for == made_for) {
                return Ok(own);
            }
        }
        let New { text, .. } = New::make().map_err(|error| io::Error::other(error.to_string()))?;
        disk.create(FILE)?;
        disk.write_at(FILE, 0, format!("{text}\n{made_for}\n").as_bytes())?;
        disk.sync(FILE)?;
        OwnKey::read((&text, &made_for))
            .ok_or_else(|| io::Error::other("the new key has not the form of one"))
    }

    fn read((text, made_for): (&str, &str)) -> Option<OwnKey> {
        let shown = Shown::parse(text)?;
        let made_for = made_for.trim_end().to_owned();
        let join = Join { id: shown.id.to_string(), sha256: shown.hash().to_string() };
        Some(OwnKey { text: Secret::new(text), made_for, join })
    }
}
