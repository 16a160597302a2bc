//! Rights: deeds beyond those that touch only the own holds of a principal. A key has none unless it names them.

use std::fmt;
use std::str::FromStr;

use super::Proof;

/// A deed that concerns other principals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Taking away the holds of other principals.
    Revoke,
    /// Changing the limit of a semaphore that other principals use.
    Limit,
    /// Registering a proxy, and following the routes as one.
    Proxy,
    /// Reading the history of a resource.
    History,
    /// Listing the agents of other principals.
    Agents,
    /// Examining the store.
    Examine,
    /// Reading the gateway's metrics.
    Metrics,
    /// Following the changes of other principals.
    Audit,
    /// Seeing session, host and name of other principals' holders, waiters and members.
    Owners,
}

/// The word for all rights, in the file of keys and in the command.
const ALL: &str = "all";

impl Right {
    pub const ALL: [Right; 9] = [
        Right::Revoke,
        Right::Limit,
        Right::Proxy,
        Right::History,
        Right::Agents,
        Right::Examine,
        Right::Metrics,
        Right::Audit,
        Right::Owners,
    ];

    /// The word for it: in the file of keys, in the command, and as the `field` of a refusal.
    pub const fn word(self) -> &'static str {
        match self {
            Right::Revoke => "revoke",
            Right::Limit => "limit",
            Right::Proxy => "proxy",
            Right::History => "history",
            Right::Agents => "agents",
            Right::Examine => "examine",
            Right::Metrics => "metrics",
            Right::Audit => "audit",
            Right::Owners => "owners",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of rights. The default is none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u16);

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Vec::from_iter(self.iter().map(Right::word));
        f.write_str(&words.join(", "))
    }
}

/// A word that is no right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be revoke, limit, proxy, history, agents, examine, metrics, audit or owners, or all for all of them"
)]
pub struct NoRight;

impl Rights {
    pub const NONE: Rights = Rights(0);
    pub const ALL: Rights = Rights((1 << Right::ALL.len()) - 1);

    pub const fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u16 != 0
    }

    #[must_use]
    pub const fn with(self, right: Right) -> Rights {
        Rights(self.0 | 1 << right as u16)
    }

    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }

    /// The rights that words name; those of an empty list are none.
    ///
    /// # Errors
    ///
    /// With the first word that is no right.
    pub fn read<'a>(
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Rights, (&'a str, NoRight)> {
        words.into_iter().try_fold(Rights::NONE, |rights, word| match word {
            ALL => Ok(Rights::ALL),
            word => word.parse().map(|right| rights.with(right)).map_err(|error| (word, error)),
        })
    }
}

impl FromStr for Right {
    type Err = NoRight;

    fn from_str(word: &str) -> Result<Right, NoRight> {
        Right::ALL.into_iter().find(|right| right.word() == word).ok_or(NoRight)
    }
}

/// Something that a caller does not have the right to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    pub right: Right,
    pub(super) what: String,
    pub(super) proof: Proof,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lacking { right, what, proof } = self;
        let (bearer, way) = match proof {
            Proof::Certificate => ("certificates do", format!("add {right} to certificate_rights")),
            Proof::Proxy => {
                ("this person does", format!("add {right} to the rights of a section [[people]]"))
            }
            Proof::Key | Proof::None => {
                ("this key does", format!("make a key with it: keys add --right {right}"))
            }
        };
        write!(
            f,
            "{what} takes the right {right:?}, which {bearer} not have; ask the gateway's administrator to {way}",
            right = right.word()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_none_unless_they_are_named() {
        assert_eq!(Rights::read([]), Ok(Rights::NONE));
        assert_eq!(Rights::default(), Rights::NONE);
        assert!(Right::ALL.iter().all(|right| !Rights::NONE.has(*right)));
        let some = Rights::read(["revoke", "owners"]).unwrap();
        assert_eq!(Vec::from_iter(some.iter()), [Right::Revoke, Right::Owners]);
        assert_eq!(Rights::read(["all"]), Ok(Rights::ALL));
        assert_eq!(Rights::read(Right::ALL.map(Right::word)), Ok(Rights::ALL));
        for word in ["", "Revoke", "everything"] {
            assert_eq!(Rights::read(["limit", word]), Err((word, NoRight)));
        }
        let words = NoRight.to_string();
        assert!(Right::ALL.iter().all(|right| words.contains(right.word())));
    }

    #[test]
    fn a_refusal_names_the_deed_the_right_and_the_way_out() {
        let mut lacking = Lacking {
            right: Right::Revoke,
            what: "taking leader \"a\" away".to_owned(),
            proof: Proof::Key,
        };
        assert_eq!(
            lacking.to_string(),
            "taking leader \"a\" away takes the right \"revoke\", which this key does not have; ask the gateway's \
             administrator to make a key with it: keys add --right revoke"
        );
        lacking.proof = Proof::Certificate;
        assert!(lacking.to_string().ends_with("add revoke to certificate_rights"));
        lacking.proof = Proof::Proxy;
        assert!(lacking.to_string().ends_with("add revoke to the rights of a section [[people]]"));
    }
}
