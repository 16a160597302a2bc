//! Keys of earlier versions, so that a file that still has one says what to do.
//!
//! A renamed key is read under its old name, with a warning, up to the version that its tombstone
//! names; from then on its fate is [`Fate::Removed`]. A tombstone is never taken away: files are older
//! than anybody remembers.

/// A key that there was.
#[derive(Debug)]
pub(super) struct Tombstone {
    /// As it was in a file: `section.key`.
    pub(super) key: &'static str,
    /// The version that knows it no more under this name.
    pub(super) since: &'static str,
    pub(super) fate: Fate,
}

/// The fate of a key.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "no key was renamed or removed yet"))]
pub(super) enum Fate {
    /// It means the same under another name.
    Renamed {
        /// The key that there is now.
        to: &'static str,
        /// The version that reads the old name no more.
        until: &'static str,
    },
    /// It means nothing any more.
    Removed {
        /// The way out, as an order: `remove it; sessions need no such limit`.
        instead: &'static str,
    },
}

/// Every key that was renamed or removed.
pub(super) static TOMBSTONES: [Tombstone; 0] = [];

impl Tombstone {
    /// `leader.ttl` was TENURED_LEADER_TTL.
    pub(super) fn variable(&self) -> String {
        super::keys::variable(self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn a_tombstone_is_of_a_dead_key_and_points_to_a_living_one() {
        for Tombstone { key, fate, .. } in &TOMBSTONES {
            assert!(keys::find(key).is_none(), "{key} is alive");
            if let Fate::Renamed { to, .. } = fate {
                assert!(keys::find(to).is_some(), "{key} was renamed to {to}, which there is not");
            }
        }
    }
}
