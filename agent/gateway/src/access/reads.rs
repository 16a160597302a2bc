//! Large reads: how many of them are under way at a time.
//!
//! The budgets of bytes count an answer when it is complete. Answers that are being made are bounded here: a large read waits
//! for its turn before the store is asked. No answer is cut.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::model::{RESOURCES_LISTED_MAX, Request, STANDING_LISTED_MAX};
use tenure_stores::gateway::scope::Mark;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads of no more rows wait for nothing: the holders, the waiters and the sessions of one resource.
const SMALL_ROWS: usize = 3 * STANDING_LISTED_MAX;
/// The weight of a read of all rows, whose number is not known before the store has answered.
const WHOLE_ROWS: usize = 2 * RESOURCES_LISTED_MAX;
/// Rows of the large reads of a principal that are under way: two of all rows, or four pages.
const ROWS_PER_PRINCIPAL_MAX: usize = 2 * WHOLE_ROWS;
/// The same of all principals.
const ROWS_MAX: usize = 4 * ROWS_PER_PRINCIPAL_MAX;
/// Principals are looked through when there are so many: those without a large read are forgotten.
const FORGET_ABOVE: usize = 1024;

/// The weight of a request: the most rows that its answer may have. A request that reads nothing weighs 1.
pub(crate) fn rows(request: &Request) -> usize {
    let rows = match request {
        Request::Members { listed: false, .. } | Request::Routes { name: Some(_), .. } => 1,
        Request::Members { listed: true, page: None, .. } | Request::Holders(_) => WHOLE_ROWS,
        Request::Members { listed: true, page: Some(page), .. } | Request::Routes { page, .. } => {
            page.limit
        }
        Request::Resources { page } => page.limit.min(RESOURCES_LISTED_MAX),
        Request::Inspect(_) => SMALL_ROWS,
        _ => 1,
    };
    rows.min(WHOLE_ROWS)
}

/// True if the answer may have many rows.
pub(crate) fn is_large(request: &Request) -> bool {
    rows(request) > SMALL_ROWS
}

/// The large reads of all principals.
#[derive(Debug)]
pub struct LargeReads {
    all: Arc<Semaphore>,
    own: Mutex<HashMap<Mark, Arc<Semaphore>>>,
}

/// A large read, until it is dropped.
#[derive(Debug)]
pub struct LargeRead {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl LargeReads {
    /// Waits until a request may be carried out, in the order in which those of its principal came; `None` if it is no
    /// large read.
    pub async fn begin(&self, mark: Mark, request: &Request) -> Option<LargeRead> {
        if !is_large(request) {
            return None;
        }
        let rows = u32::try_from(rows(request)).unwrap_or(u32::MAX);
        // Neither is ever closed. One that waits for its own principal's takes no part of all.
        let own = self.of(mark).acquire_many_owned(rows).await.ok();
        let all = Arc::clone(&self.all).acquire_many_owned(rows).await.ok();
        Some(LargeRead { _own: own, _all: all })
    }

    fn of(&self, mark: Mark) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() >= FORGET_ABOVE {
            // Each read that waits or is under way has the semaphore, too.
            own.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let new = || Arc::new(Semaphore::new(ROWS_PER_PRINCIPAL_MAX));
        Arc::clone(own.entry(mark).or_insert_with(new))
    }
}

impl Default for LargeReads {
    fn default() -> LargeReads {
        LargeReads { all: Arc::new(Semaphore::new(ROWS_MAX)), own: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tenure_core::model::{Page, Resource, Within};
    use tenure_wire::Kind;

    use super::*;

    fn members(page: Option<Page>) -> Request {
        let within = Within::Project { tenant: "t".into(), project: "p".into() };
        Request::Members { within, listed: true, page }
    }

    fn resource() -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Semaphore, name: "s".into() }
    }

    #[test]
    fn few_large_reads_of_a_principal_are_under_way_and_those_of_others_go_on() {
        let (reads, greedy) = (LargeReads::default(), Mark::of("greedy"));
        let (whole, holders) = (members(None), Request::Holders(resource()));
        let inspect = Request::Inspect(resource());
        let page = members(Some(Page { after: None, limit: 1024 }));
        let begin = |mark, request| reads.begin(mark, request).now_or_never();
        let mut held: Vec<_> = (0..2).map(|_| begin(greedy, &whole).unwrap()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(begin(greedy, &whole).is_none(), "one more waits");
        assert!(begin(greedy, &holders).is_none());
        assert!(begin(greedy, &inspect).unwrap().is_none(), "small ones do not");
        let other = begin(Mark::of("other"), &whole);
        assert!(other.is_some());
        held.pop();
        let pages: Vec<_> = (0..3).map(|_| begin(greedy, &page)).collect();
        assert_eq!(pages.iter().filter(|page| page.is_some()).count(), 2);
    }

    #[test]
    fn all_principals_have_a_bound_and_leave_nothing_behind() {
        let (reads, whole) = (LargeReads::default(), members(None));
        let begin = |number: usize| reads.begin(Mark::of(&number.to_string()), &whole);
        let held: Vec<_> = (0..20).filter_map(|number| begin(number).now_or_never()).collect();
        assert_eq!(held.len(), ROWS_MAX / WHOLE_ROWS);
        drop(held);
        for number in 0..2 * FORGET_ABOVE {
            assert!(begin(number).now_or_never().is_some());
        }
        assert!(reads.own.lock().unwrap().len() <= FORGET_ABOVE);
        assert_eq!(reads.all.available_permits(), ROWS_MAX);
    }
}
