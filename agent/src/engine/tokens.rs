//! Fencing tokens: strictly increasing, and never beyond what is durable.

/// Tokens that may be granted, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRange {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

#[derive(Debug)]
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
        self.last = self.last.max(upto);
        self.low = self.left() / 2;
        self.asked = false;
    }

    #[cfg(test)]
    pub(super) fn skip(&mut self, count: u64) {
        self.next += count.min(self.left());
    }

    /// Nothing at or below this is granted from now on.
    pub(super) fn skip_past(&mut self, token: u64) {
        self.next = self.next.max(token.saturating_add(1));
    }
}
