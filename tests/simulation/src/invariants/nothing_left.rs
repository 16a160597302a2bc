//! I5: whoever ended leaves nothing behind.
//!
//! Four things are checked: a claim whose release was confirmed is never seen again; a grant or a
//! place in a queue that its agent knows nothing of, and has no reason to know nothing of, does not
//! stay (somebody's claim was answered when nobody waited for it any more); a grant of which nobody has
//! read is given back; and at the end of a run nothing is left anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::model::ClaimId;

use super::super::time::TrueTime;
use super::Verdict;

/// A claim that its agent does not know may be there for so long: its release is on its way.
const GHOST_MAX: Duration = Duration::from_millis(500);

/// A grant that nobody has read of may be there for so long, while its agent reaches the upstream.
const UNREAD_MAX: Duration = Duration::from_millis(800);

/// Claims that the upstream has confirmed to be released, and those that nobody owns up to.
#[derive(Default)]
pub(crate) struct NothingLeft {
    released: BTreeSet<ClaimId>,
    ghosts: BTreeMap<ClaimId, TrueTime>,
    read: BTreeSet<ClaimId>,
    /// On which host, and since when its agent could have given it back.
    unread: BTreeMap<ClaimId, (usize, TrueTime)>,
}

impl NothingLeft {
    /// An agent was told that its release of this claim is done.
    pub(crate) fn released(&mut self, claim: ClaimId) {
        self.released.insert(claim);
    }

    /// The upstream has these, held or waiting.
    pub(crate) fn present(&self, claims: impl Iterator<Item = ClaimId>) -> Verdict {
        for claim in claims {
            if self.released.contains(&claim) {
                return Err(format!(
                    "{claim} was confirmed to be released, and the upstream has it still, or again"
                ));
            }
        }
        Ok(())
    }

    /// A caller has read that it was granted this.
    pub(crate) fn read(&mut self, claim: ClaimId) {
        self.read.insert(claim);
        self.unread.remove(&claim);
    }

    /// A caller was answered with this, and has gone without reading it.
    pub(crate) fn unread(&mut self, now: TrueTime, host: usize, claim: ClaimId) {
        if !self.read.contains(&claim) {
            self.unread.insert(claim, (host, now));
        }
    }

    /// An agent died, and with it what it was told by its callers' connections.
    pub(crate) fn crashed(&mut self, host: usize) {
        self.unread.retain(|_, (of, _)| *of != host);
    }

    /// These are held upstream; `settled` says which agents could have given them back.
    pub(crate) fn kept_unread(
        &mut self,
        now: TrueTime,
        held: &BTreeSet<ClaimId>,
        settled: impl Fn(usize) -> bool,
    ) -> Verdict {
        self.unread.retain(|claim, _| held.contains(claim));
        for (claim, (host, since)) in &mut self.unread {
            if !settled(*host) {
                *since = now;
            } else if now.since(*since) > UNREAD_MAX {
                return Err(format!(
                    "{claim} is held for a caller that went without reading of it"
                ));
            }
        }
        Ok(())
    }

    /// These are upstream, and their agents know nothing of them.
    pub(crate) fn unowned(&mut self, now: TrueTime, ghosts: &[ClaimId]) -> Verdict {
        self.ghosts.retain(|claim, _| ghosts.contains(claim));
        for claim in ghosts {
            let since = *self.ghosts.entry(*claim).or_insert(now);
            if now.since(since) > GHOST_MAX {
                return Err(format!(
                    "{claim} is upstream, and its agent has known nothing of it for {:?}",
                    now.since(since)
                ));
            }
        }
        Ok(())
    }

    /// An agent keeps so many waits whose callers are gone.
    pub(crate) fn abandoned(&self, host: usize, count: usize) -> Verdict {
        if count == 0 {
            return Ok(());
        }
        Err(format!("host {host} keeps {count} waits whose callers are gone"))
    }

    /// The run is over, and there must be nothing of `what`.
    pub(crate) fn finished(&self, what: &str, left: &[String]) -> Verdict {
        if left.is_empty() {
            return Ok(());
        }
        Err(format!("after all programs ended there is left {what}: {}", left.join(", ")))
    }
}
