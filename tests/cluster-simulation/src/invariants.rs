//! What must hold in true time, as programs see it.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::program::THINGS;

/// Grants that programs rely on, and all that they have been told.
#[derive(Default)]
pub(crate) struct Invariants {
    claims: BTreeMap<Uuid, Known>,
    /// By thing and token.
    tokens: BTreeMap<(usize, u64), Uuid>,
    /// The fingerprint after each entry.
    digests: BTreeMap<u64, u64>,
    pub(crate) grants: u64,
    pub(crate) revocations: u64,
    pub(crate) answered: u64,
    pub(crate) unanswered: u64,
    pub(crate) violation: Option<String>,
}

#[derive(Default)]
struct Known {
    thing: usize,
    first_sent_us: u64,
    token: Option<u64>,
    /// When its program was first told of the grant.
    told_us: u64,
    /// Until then its program relies on it.
    until_us: u64,
    /// When an administrator was told that nobody has it.
    revoked_us: Option<u64>,
}

impl Invariants {
    pub(crate) fn broke(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// A program asks for it.
    pub(crate) fn claims(&mut self, claim: Uuid, now_us: u64) {
        self.claims.entry(claim).or_insert(Known { first_sent_us: now_us, ..Known::default() });
    }

    /// A program relies on it no more.
    pub(crate) fn lets_go(&mut self, claim: Uuid, now_us: u64) {
        if let Some(known) = self.claims.get_mut(&claim) {
            known.until_us = known.until_us.min(now_us);
        }
    }

    /// An administrator was told that nobody has it.
    pub(crate) fn is_revoked(&mut self, claim: Uuid, now_us: u64) {
        self.revocations += 1;
        if let Some(known) = self.claims.get_mut(&claim) {
            known.revoked_us.get_or_insert(now_us);
        }
    }

    /// A program was told that it has it.
    pub(crate) fn holds(
        &mut self,
        thing: usize,
        claim: Uuid,
        token: u64,
        (now_us, until_us): (u64, u64),
    ) {
        let Some(known) = self.claims.get_mut(&claim) else { return };
        let is_revoked = known.revoked_us.is_some();
        let (is_new, first_sent_us) = (known.token.is_none(), known.first_sent_us);
        let before = *known.token.get_or_insert(token);
        known.thing = thing;
        known.until_us = known.until_us.max(until_us);
        if is_new {
            known.told_us = now_us;
            self.grants += 1;
        }
        if is_revoked {
            self.broke(format!("{claim} was revoked, and is held"));
        }
        if before != token {
            self.broke(format!("{claim} had token {before}, and has {token}"));
        }
        let other = *self.tokens.entry((thing, token)).or_insert(claim);
        if other != claim {
            self.broke(format!("{claim} and {other} have token {token}"));
        }
        let earlier = self.claims.iter().find(|(_, known)| {
            known.thing == thing
                && known.token.is_some_and(|it| it > token)
                && known.told_us < first_sent_us
        });
        if let (true, Some((other, _))) = (is_new, earlier) {
            let what =
                format!("{claim} has token {token}, less than {other}, which was told before");
            self.broke(what);
        }
        let holders = self.claims.values().filter(|it| it.thing == thing && it.until_us > now_us);
        let (count, (_, name, limit)) = (holders.count(), THINGS[thing]);
        if count > limit {
            self.broke(format!("{count} hold {name}, and {limit} may; the last is {claim}"));
        }
    }

    /// A program was told that it has lost it.
    pub(crate) fn loses(&mut self, claim: Uuid, now_us: u64, reason: &str) {
        let Some(known) = self.claims.get_mut(&claim) else { return };
        let left_us = known.until_us.saturating_sub(now_us);
        known.until_us = now_us.min(known.until_us);
        if left_us > 0 {
            self.broke(format!("{claim} is lost ({reason}) {left_us} µs before its time"));
        }
    }

    /// A program was told who has it. All who were told of a grant before it asked, and rely on it still, are there; none is
    /// whose grant was taken away before.
    pub(crate) fn sees(&mut self, thing: usize, tokens: &[u64], (sent_us, now_us): (u64, u64)) {
        let revoked = self.claims.values().find(|it| {
            it.thing == thing
                && it.revoked_us.is_some_and(|at_us| at_us < sent_us)
                && it.token.is_some_and(|token| tokens.contains(&token))
        });
        if let Some(Known { token, .. }) = revoked {
            let what = format!("a read sees {tokens:?}, of which {token:?} was revoked");
            return self.broke(what);
        }
        let missed = self.claims.values().find(|it| {
            it.thing == thing
                && it.told_us < sent_us
                && it.until_us > now_us
                && it.token.is_some_and(|token| !tokens.contains(&token))
        });
        if let Some(Known { token, .. }) = missed {
            self.broke(format!("a read sees {tokens:?}, and not {token:?}"));
        }
    }

    /// A node has applied so much, and become this.
    pub(crate) fn became(&mut self, node: usize, applied: u64, digest: u64) {
        let other = *self.digests.entry(applied).or_insert(digest);
        if other != digest {
            self.broke(format!("after entry {applied} node {node} is unlike another"));
        }
    }
}
