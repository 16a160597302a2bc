//! The holders of a resource, by token, so oldest grant first.

use std::collections::BTreeMap;

use crate::model::ClaimId;

/// Most resources have one holder, who takes no room of its own.
#[derive(Debug, Default)]
pub(super) enum Holders {
    #[default]
    None,
    One(u64, ClaimId),
    Several(BTreeMap<u64, ClaimId>),
}

impl Holders {
    pub(super) fn len(&self) -> usize {
        match self {
            Holders::None => 0,
            Holders::One(..) => 1,
            Holders::Several(holders) => holders.len(),
        }
    }

    pub(super) fn insert(&mut self, token: u64, claim: ClaimId) {
        *self = match std::mem::take(self) {
            Holders::None => Holders::One(token, claim),
            Holders::One(first, holder) => {
                Holders::Several(BTreeMap::from([(first, holder), (token, claim)]))
            }
            Holders::Several(mut holders) => {
                holders.insert(token, claim);
                Holders::Several(holders)
            }
        };
    }

    pub(super) fn remove(&mut self, token: u64) {
        let is_last = match self {
            Holders::None => false,
            Holders::One(held, _) => *held == token,
            Holders::Several(holders) => {
                holders.remove(&token);
                holders.is_empty()
            }
        };
        if is_last {
            *self = Holders::None;
        }
    }

    pub(super) fn get(&self, token: u64) -> Option<ClaimId> {
        match self {
            Holders::Several(holders) => holders.get(&token).copied(),
            _ => self.iter().next().filter(|(held, _)| *held == token).map(|(_, claim)| claim),
        }
    }

    /// The one with the oldest grant.
    pub(super) fn first(&self) -> Option<ClaimId> {
        self.iter().next().map(|(_, claim)| claim)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, ClaimId)> {
        let (one, several) = match self {
            Holders::None => (None, None),
            Holders::One(token, claim) => (Some((*token, *claim)), None),
            Holders::Several(holders) => (None, Some(holders)),
        };
        let several = several.into_iter().flatten().map(|(token, claim)| (*token, *claim));
        one.into_iter().chain(several)
    }
}
