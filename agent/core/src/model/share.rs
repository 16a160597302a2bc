//! How much of something one user may have, and how much all of them.

/// One place in so many is for root and the agent's own user, so that whoever mends things gets in.
const RESERVED: usize = 32;

/// The places there are of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// In all.
    pub max: usize,
    /// The most of one user.
    pub per_uid: usize,
}

/// No place is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// For this user, who has so many.
    User(usize),
    /// For anybody: there are so many.
    All(usize),
}

impl Share {
    /// So many in all. Unless said otherwise one user has three quarters, so that some are left for
    /// others.
    pub fn of(max: usize, per_uid: Option<usize>) -> Share {
        Share { max, per_uid: per_uid.unwrap_or_else(|| (max - max / 4).max(1)) }
    }

    /// Looks for a place for one more, when `total` are taken, `own` of them by that user.
    ///
    /// # Errors
    ///
    /// [`Full`] with the limit that is reached.
    pub fn check(&self, total: usize, own: usize, administrator: bool) -> Result<(), Full> {
        if own >= self.per_uid {
            return Err(Full::User(self.per_uid));
        }
        let open = if administrator { self.max } else { self.max - self.max / RESERVED };
        if total >= open { Err(Full::All(open)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_places_for_others_and_all_leave_some_for_administrators() {
        let share = Share::of(64, None);
        assert_eq!(share.check(47, 47, false), Ok(()));
        assert_eq!(share.check(48, 48, false), Err(Full::User(48)));
        assert_eq!(share.check(48, 0, false), Ok(()));
        assert_eq!(share.check(62, 0, false), Err(Full::All(62)));
        assert_eq!(share.check(62, 0, true), Ok(()));
        assert_eq!(share.check(64, 0, true), Err(Full::All(64)));
    }

    #[test]
    fn what_is_said_counts() {
        assert_eq!(Share::of(100, Some(100)).per_uid, 100);
        assert_eq!(Share::of(1, None), Share { max: 1, per_uid: 1 });
    }
}
