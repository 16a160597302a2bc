//! Fencing tokens: strictly increasing, and never beyond what is durable.

use serde::{Deserialize, Serialize};

/// Tokens that may be granted, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRange {
    pub first: u64,
    pub last: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tokens {
    next: u64,
    last: u64,
    /// With fewer left than this more are asked for.
    low: u64,
    asked: bool,
    /// None are given out for now.
    suspended: bool,
}

impl Tokens {
    pub(super) fn new(range: TokenRange) -> Tokens {
        let (next, last) = (range.first, range.last);
        let mut tokens = Tokens { next, last, low: 0, asked: false, suspended: false };
        tokens.low = tokens.left() / 2;
        tokens
    }

    /// The next one, and the last that may be granted.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.next, self.last)
    }

    pub(super) fn left(&self) -> u64 {
        (self.last + 1).saturating_sub(self.next)
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.suspended || self.left() == 0
    }

    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    pub(super) fn take(&mut self) -> Option<u64> {
        if self.is_exhausted() {
            return None;
        }
        let token = self.next;
        self.next += 1;
        Some(token)
    }

    /// True, once until they come, if more should be asked for.
    pub(super) fn should_ask(&mut self) -> bool {
        if self.asked || self.left() >= self.low {
            return false;
        }
        self.asked = true;
        true
    }

    pub(super) fn extend(&mut self, upto: u64) {
        if upto <= self.last {
            // What was asked for is still to come, and when to ask is as it was.
            return;
        }
        self.last = self.last.max(upto);
        self.low = self.left() / 2;
        self.asked = false;
    }

    pub(super) fn skip(&mut self, count: u64) {
        self.next += count.min(self.left());
    }

    /// Nothing at or below this is granted from now on.
    pub(super) fn skip_past(&mut self, token: u64) {
        self.next = self.next.max(token.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_hear_of_no_more_does_not_put_off_the_asking() {
        let mut tokens = Tokens::new(TokenRange { first: 1, last: 8 });
        for _ in 0..5 {
            assert!(!tokens.should_ask());
            tokens.extend(8);
            assert!(tokens.take().is_some());
        }
        assert!(tokens.should_ask());
        tokens.extend(8);
        assert!(!tokens.should_ask(), "it was asked for");
        tokens.extend(16);
        assert_eq!(tokens.left(), 11);
    }
}
