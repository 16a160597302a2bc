//! PURE. The bytes that a cluster keeps, as its image would have them: counted when one is made, and guessed from what has
//! come since. The guess is too high rather than too low: what has ended meanwhile is still in it.

use std::io;

use serde::Serialize;
use tenure_core::engine::journal::Key;
use tenure_core::model::Request;

use crate::keys;
use crate::machine::{Machine, Operation};

/// Bytes of a claim or a session in an image beyond those of its request.
const ROW: u64 = 512;
/// Bytes of the mark of something that has ended.
const MARK: u64 = 128;

/// The bytes, so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// The bytes of the latest image that was counted.
    counted: u64,
    /// Guesses, of all entries and of those before that image.
    added: u64,
    before: u64,
}

/// The guesses that an image contains, until it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsOf(u64);

impl Size {
    /// The bytes now.
    pub(crate) fn now(&self) -> u64 {
        self.counted + (self.added - self.before)
    }

    /// An entry is applied.
    pub(crate) fn add(&mut self, operation: &Operation) {
        self.added += guess(operation);
    }

    /// The instant of an image.
    pub(crate) fn as_of(&self) -> AsOf {
        AsOf(self.added)
    }

    /// The image of that instant has so many bytes.
    pub(crate) fn count(&mut self, AsOf(added): AsOf, bytes: u64) {
        // The later one counts where two are made at once.
        if added >= self.before {
            (self.counted, self.before) = (bytes, added);
        }
    }

    /// Another machine has taken the place of this one, with an image of so many bytes.
    pub(crate) fn replace(&mut self, bytes: u64) {
        self.count(self.as_of(), bytes);
    }
}

/// The bytes of a text in JSON, without the text.
pub(crate) fn bytes_of(what: &impl Serialize) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0 += bytes.len() as u64;
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither the count nor these shapes can fail.
    let _ = serde_json::to_writer(&mut count, what);
    count.0
}

/// The bytes that an entry adds, at most.
fn guess(operation: &Operation) -> u64 {
    match operation {
        Operation::Request(Request::Claim(claim)) => bytes_of(claim) + ROW,
        Operation::Request(Request::Announce(record)) => bytes_of(record) + ROW,
        Operation::Request(Request::Record(changes)) => {
            bytes_of(changes) + MARK * changes.len() as u64
        }
        Operation::Request(Request::Revoke { revocation, .. }) => bytes_of(revocation) + MARK,
        Operation::Request(Request::Release { .. } | Request::EndSession { .. }) => MARK,
        Operation::Keys(keys::Change::Add { key, .. }) => bytes_of(key) + MARK,
        Operation::Found(founding) => bytes_of(founding),
        Operation::Request(_) | Operation::Keys(_) | Operation::Tick | Operation::Version(_) => 0,
    }
}

/// True if an operation asks for something more to be kept. Whatever is there already may be said again, renewed and
/// ended: to refuse that would take away what is held.
pub(crate) fn asks_for_more(machine: &Machine, operation: &Operation) -> bool {
    let has = |key: Key| machine.engine().is_some_and(|engine| engine.row(&key).is_some());
    match operation {
        Operation::Request(Request::Claim(claim)) => !has(Key::Claim(claim.id)),
        Operation::Request(Request::Announce(record)) => !has(Key::Session(record.owner.session)),
        Operation::Request(Request::Record(_)) | Operation::Keys(keys::Change::Add { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_since_an_image_is_put_to_it() {
        let mut size = Size::default();
        let tick = Operation::Request(Request::Release {
            claim: tenure_core::model::ClaimId(uuid::Uuid::nil()),
            resource: tenure_core::model::Resource {
                tenant: "t".into(),
                kind: tenure_wire::Kind::Leader,
                name: "n".into(),
            },
        });
        size.add(&tick);
        let as_of = size.as_of();
        size.add(&tick);
        assert_eq!(size.now(), 2 * MARK);
        size.count(as_of, 1000);
        assert_eq!(size.now(), 1000 + MARK);
        size.replace(7);
        // An image from before the other one.
        size.count(as_of, 1000);
        assert_eq!(size.now(), 7);
        assert_eq!(bytes_of(&"four"), 6);
    }
}
