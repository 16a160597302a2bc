//! PURE. A backup: one text, whose first line says what it is, and whose second one is the image of a cluster.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tenure_core::engine::OutOfRange;
use uuid::Uuid;

use crate::clock::ClusterTime;
use crate::machine::Image;

/// The version of the format.
const FORMAT: u32 = 1;
/// Greatest time of a cluster, ns: 292 years.
const STAMP_MAX: u64 = i64::MAX.unsigned_abs();

/// A cluster at one instant.
#[derive(Debug, PartialEq)]
pub struct Backup {
    /// µs since 1970.
    pub taken_at_us: u64,
    /// The cluster's time.
    pub stamp: ClusterTime,
    pub image: Image,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    tenure_backup: u32,
    cluster: Uuid,
    taken_at_us: u64,
    stamp: ClusterTime,
    /// Of the second line.
    sha256: String,
}

/// A text is no backup that can be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("it is no backup of a cluster: its first line does not say so")]
    Foreign,
    #[error("it is a backup of format {0}, and this program knows {FORMAT}: use a later release")]
    TooNew(u32),
    #[error("it is damaged: what follows its first line is not what was written")]
    Damaged,
    #[error("{0}: no cluster has written that; take another backup")]
    OutOfRange(#[from] OutOfRange),
}

impl Backup {
    /// Its text.
    pub fn text(&self) -> String {
        // These shapes have a text.
        let image = serde_json::to_string(&self.image).unwrap_or_default();
        let head = Head {
            tenure_backup: FORMAT,
            cluster: self.image.cluster(),
            taken_at_us: self.taken_at_us,
            stamp: self.stamp,
            sha256: sha256(&image),
        };
        let head = serde_json::to_string(&head).unwrap_or_default();
        format!("{head}\n{image}\n")
    }

    /// The backup with this text.
    ///
    /// # Errors
    ///
    /// If it is none that this program can read.
    pub fn read(text: &[u8]) -> Result<Backup, BackupError> {
        /// Nothing but the version.
        #[derive(Deserialize)]
        struct Format {
            tenure_backup: u32,
        }
        let mut lines = text.splitn(2, |byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let format: Format = serde_json::from_slice(first).map_err(|_| BackupError::Foreign)?;
        if format.tenure_backup != FORMAT {
            return Err(BackupError::TooNew(format.tenure_backup));
        }
        let head: Head = serde_json::from_slice(first).map_err(|_| BackupError::Damaged)?;
        let image = lines.next().unwrap_or_default();
        let image = std::str::from_utf8(image).map_err(|_| BackupError::Damaged)?.trim_end();
        if sha256(image) != head.sha256 {
            return Err(BackupError::Damaged);
        }
        let image: Image = serde_json::from_str(image).map_err(|_| BackupError::Damaged)?;
        OutOfRange::check("stamp", head.stamp.as_nanos(), STAMP_MAX)?;
        image.check_numbers()?;
        Ok(Backup { taken_at_us: head.taken_at_us, stamp: head.stamp, image })
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use tenure_core::engine::EngineSettings;

    use super::*;
    use crate::machine::{Command, Founding, Machine, Operation, VERSION};

    #[test]
    fn a_backup_is_read_as_it_was_written_and_a_damaged_one_is_not() {
        let mut machine = Machine::default();
        let settings = EngineSettings::default();
        let (cluster, token_floor) = (Uuid::from_u128(7), 1000);
        let founding =
            Founding { cluster, token_floor, settings, version: VERSION, restored: None };
        let operation = Operation::Found(Box::new(founding));
        machine.apply(Command { at: ClusterTime::default(), operation }).unwrap();
        let image = machine.freeze().unwrap();
        let backup = Backup { taken_at_us: 5, stamp: ClusterTime::from_nanos(9), image };
        let text = backup.text();
        assert_eq!(Backup::read(text.as_bytes()).unwrap(), backup);
        let version = format!("\"version\":{VERSION}");
        for (old, new) in [(version.as_str(), "\"version\":99"), ("\"stamp\":9", "\"stamp\":\"x\"")]
        {
            assert!(text.contains(old), "{text}");
            let damaged = text.replace(old, new);
            let error = Backup::read(damaged.as_bytes()).unwrap_err();
            assert!(matches!(error, BackupError::Damaged), "{error}");
        }
        // With a good hash, as whoever changes a backup on purpose would give it.
        let doctored = |old: &str, new: &str| {
            let (head, image) = text.split_once('\n').unwrap();
            assert!(head.contains(old) || image.contains(old), "{old} in {text}");
            let changed = image.replace(old, new);
            let [was, is] = [image, &changed].map(|image| sha256(image.trim_end()));
            let head = head.replace(old, new).replace(&was, &is);
            Backup::read(format!("{head}\n{changed}").as_bytes()).unwrap_err().to_string()
        };
        let last = 1000 + (1_u64 << 20);
        for (old, new, field) in [
            (
                format!("\"last_token\":{last}"),
                format!("\"last_token\":{}", u64::MAX),
                "last_token",
            ),
            (format!("\"last\":{last}"), format!("\"last\":{}", u64::MAX), "engine.tokens.last"),
            ("\"next\":1001".to_owned(), format!("\"next\":{}", u64::MAX), "engine.tokens.next"),
            (
                "\"next_place\":0".to_owned(),
                format!("\"next_place\":{}", u64::MAX),
                "engine.next_place",
            ),
            ("\"stamp\":9".to_owned(), format!("\"stamp\":{}", u64::MAX), "stamp"),
        ] {
            let refused = doctored(&old, &new);
            let words = format!("its {field} is {}, and must be ", u64::MAX);
            assert!(refused.contains(&words) && refused.contains("at most"), "{refused}");
        }
        let later = text.replace("\"tenure_backup\":1", "\"tenure_backup\":2");
        assert!(matches!(Backup::read(later.as_bytes()), Err(BackupError::TooNew(2))));
        for foreign in ["", "PGDMP", "{}\n{}"] {
            assert!(matches!(Backup::read(foreign.as_bytes()), Err(BackupError::Foreign)));
        }
    }
}
