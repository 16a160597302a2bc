//! Revocations, of the permits of a semaphore in pages.

use redis::Value;
use tenure_core::model::Resource;
use tenure_wire::Kind;

use super::super::layout::Layout;
use super::encode;
use super::reply::{Items, ReplyError, count, text};
use super::scripts::Invocation;

/// A revocation, some of it done.
#[derive(Debug)]
pub(super) struct RevokePage {
    resource: Resource,
    token: Option<u64>,
    /// Kept with the mark of each grant that is taken away.
    words: String,
    floor: u64,
    revoked: u64,
    /// The greatest token that is taken away, the time to go on at, and how many of that time are done.
    from: [String; 3],
}

impl RevokePage {
    pub(super) fn new(
        resource: Resource,
        token: Option<u64>,
        words: String,
        floor: u64,
    ) -> RevokePage {
        let from = ["", "-inf", "0"].map(str::to_owned);
        RevokePage { resource, token, words, floor, revoked: 0, from }
    }

    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        let call = encode::revoke(layout, &self.resource, self.token, self.floor).arg(&self.words);
        match self.resource.kind {
            Kind::Semaphore => call.args(self.from.iter().cloned()),
            Kind::Leader | Kind::Master | Kind::Lease => call,
        }
    }

    /// Takes a page; whether there is another.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        if self.resource.kind != Kind::Semaphore {
            self.revoked = count(reply)?;
            return Ok(false);
        }
        let mut items = Items::of(reply)?;
        self.revoked += count(items.next())?;
        let has_more = !items.is_empty();
        if has_more {
            self.from = [text(items.next())?, text(items.next())?, text(items.next())?];
        }
        Ok(has_more)
    }

    pub(super) fn finish(self) -> u64 {
        self.revoked
    }
}
