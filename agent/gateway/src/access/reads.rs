//! What principals read: how many large reads are under way at a time, and how many rows come in a second.
//!
//! The budgets of bytes count an answer when it is complete. Answers that are being made are bounded here: a large read waits
//! for its turn before the store is asked, and until the rows that its principal has read before are due. Otherwise one that
//! lists all it has again and again would have most of the store's time, and of the processors'. No answer is cut.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{Answer, RESOURCES_LISTED_MAX, Request, STANDING_LISTED_MAX};
use tenure_host::clock;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::pace::RowPace;

/// Reads of no more rows wait for no turn: the holders, the waiters and the sessions of one resource.
const SMALL_ROWS: usize = 3 * STANDING_LISTED_MAX;
/// The weight of a read of all rows, whose number is not known before the store has answered.
const WHOLE_ROWS: usize = 2 * RESOURCES_LISTED_MAX;
/// Rows of the large reads of a principal that are under way: two of all rows, or four pages.
const ROWS_PER_PRINCIPAL_MAX: usize = 2 * WHOLE_ROWS;
/// The same of all principals.
const ROWS_MAX: usize = 4 * ROWS_PER_PRINCIPAL_MAX;
/// Principals are looked through when there are so many, and then when there are twice as many as were left: those without
/// a read that is under way, or whose rows are not due, are forgotten.
const FORGET_ABOVE: usize = 1024;
/// Answers of no more rows are not counted.
const FEW_ROWS: usize = 16;

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

/// True if the answer may have more than a few rows.
fn is_read(request: &Request) -> bool {
    rows(request) > FEW_ROWS || matches!(request, Request::History(_))
}

fn rows_of(answer: &Answer) -> usize {
    match answer {
        Answer::Standing(it) => it.holders.len() + it.waiters.len() + it.sessions.len(),
        Answer::Members(members) => members.as_ref().map_or(0, |it| it.sessions.len()),
        Answer::Routes(it) => it.routes.len(),
        Answer::Resources { resources, .. } => resources.len(),
        Answer::History(entries) => entries.len(),
        _ => 0,
    }
}

/// True if the answer may have many rows.
pub(crate) fn is_large(request: &Request) -> bool {
    rows(request) > SMALL_ROWS
}

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    pub mark: Mark,
    /// Rows that it may read in the long run; `None` if they are not counted.
    pub rows_per_second: Option<NonZeroU32>,
}

/// The reads of all principals.
#[derive(Debug)]
pub struct Reads {
    all: Arc<Semaphore>,
    own: Mutex<Table>,
}

/// Those of each principal.
#[derive(Debug)]
struct Table {
    of: MarkMap<Arc<Own>>,
    forget_at: usize,
}

/// Those of one principal.
#[derive(Debug)]
struct Own {
    turns: Arc<Semaphore>,
    pace: Mutex<RowPace>,
}

/// The turn of a large read, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

/// A read that may be carried out, and whose rows are to be counted.
#[derive(Debug)]
pub struct Read {
    own: Arc<Own>,
    rows_per_second: Option<NonZeroU32>,
    /// Of a large one.
    pub turn: Option<Arc<Turn>>,
}

impl Reads {
    /// Waits until a request may be carried out: until the rows that its principal has read are due, and a large read for
    /// its turn, unless its call has one. Reads of a principal go on in the order in which they came. `None` if it is no read.
    pub async fn begin(&self, reader: Reader, request: &Request, has_turn: bool) -> Option<Read> {
        if !is_read(request) {
            return None;
        }
        let rows_per_second = reader.rows_per_second;
        let own = self.of(reader.mark);
        // Beyond its pace a principal has no small reads: else any number of them would go on as soon as one may.
        let needs_turn = is_large(request) || !own.wait().is_zero();
        if !needs_turn || has_turn {
            own.keep_pace().await;
            return Some(Read { own, rows_per_second, turn: None });
        }
        let rows = u32::try_from(rows(request)).unwrap_or(u32::MAX);
        // Neither is ever closed. One that waits for its own principal's takes no part of all.
        let of_own = Arc::clone(&own.turns).acquire_many_owned(rows).await.ok();
        own.keep_pace().await;
        let of_all = Arc::clone(&self.all).acquire_many_owned(rows).await.ok();
        let turn = Some(Arc::new(Turn { _own: of_own, _all: of_all }));
        Some(Read { own, rows_per_second, turn })
    }

    fn of(&self, mark: Mark) -> Arc<Own> {
        let mut table = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if table.of.len() >= table.forget_at {
            let now = clock::now();
            // Each read that waits or is under way has a reference, too.
            table.of.retain(|_, own| Arc::strong_count(own) > 1 || !own.pace().is_over(now));
            table.forget_at = FORGET_ABOVE.max(2 * table.of.len());
        }
        Arc::clone(table.of.entry(mark).or_default())
    }
}

impl Read {
    /// Counts the rows of its answer. Few rows cost no more than any other call.
    pub fn count(&self, answer: &Answer) {
        let rows = rows_of(answer);
        if let (true, Some(per_second)) = (rows > FEW_ROWS, self.rows_per_second) {
            self.own.pace().add(clock::now(), rows, per_second);
        }
    }
}

impl Own {
    #[expect(clippy::disallowed_methods, reason = "a machine that sleeps reads nothing meanwhile")]
    async fn keep_pace(&self) {
        let wait = self.wait();
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    fn wait(&self) -> Duration {
        self.pace().wait(clock::now())
    }

    fn pace(&self) -> MutexGuard<'_, RowPace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Own {
    fn default() -> Own {
        Own { turns: Arc::new(Semaphore::new(ROWS_PER_PRINCIPAL_MAX)), pace: Mutex::default() }
    }
}

impl Default for Reads {
    fn default() -> Reads {
        let own = Mutex::new(Table { of: MarkMap::default(), forget_at: FORGET_ABOVE });
        Reads { all: Arc::new(Semaphore::new(ROWS_MAX)), own }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tenure_core::model::{ClaimId, Page, Resource, Within};
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    fn reader(principal: &str) -> Reader {
        Reader { mark: Mark::of(principal), rows_per_second: NonZeroU32::new(5_000) }
    }

    fn members(page: Option<Page>) -> Request {
        let within = Within::Project { tenant: "t".into(), project: "p".into() };
        Request::Members { within, listed: true, page }
    }

    fn resource() -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Semaphore, name: "s".into() }
    }

    #[test]
    fn few_large_reads_of_a_principal_are_under_way_and_those_of_others_go_on() {
        let (reads, greedy) = (Reads::default(), reader("greedy"));
        let (whole, holders) = (members(None), Request::Holders(resource()));
        let inspect = Request::Inspect(resource());
        let page = members(Some(Page { after: None, limit: 1024 }));
        let begin = |reader, request| reads.begin(reader, request, false).now_or_never();
        let mut held: Vec<_> = (0..2).map(|_| begin(greedy, &whole).unwrap()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(begin(greedy, &whole).is_none(), "one more waits");
        assert!(begin(greedy, &holders).is_none());
        assert!(begin(greedy, &inspect).unwrap().unwrap().turn.is_none(), "small ones do not");
        let other = begin(reader("other"), &whole);
        assert!(other.is_some());
        held.pop();
        let pages: Vec<_> = (0..3).map(|_| begin(greedy, &page)).collect();
        assert_eq!(pages.iter().filter(|page| page.is_some()).count(), 2);
    }

    #[tokio::test]
    async fn one_that_has_read_many_rows_waits_until_they_are_due_and_others_do_not() {
        let (reads, greedy) = (Reads::default(), reader("greedy"));
        let (whole, inspect) = (members(None), Request::Inspect(resource()));
        let begin = |reader, request| reads.begin(reader, request, false).now_or_never();
        let resources = vec![resource(); 10_000];
        let many = Answer::Resources { resources, next: None };
        let read = begin(greedy, &whole).unwrap().unwrap();
        (0..4).for_each(|_| read.count(&many));
        drop(read);
        assert!(begin(greedy, &whole).is_none());
        assert!(begin(greedy, &inspect).is_none(), "nor any small ones");
        let claim = Request::Release { claim: ClaimId(Uuid::nil()), resource: resource() };
        assert!(begin(greedy, &claim).unwrap().is_none(), "what is no read goes on");
        assert!(begin(reader("other"), &whole).unwrap().is_some());
        let read = reads.begin(greedy, &whole, false).await.unwrap();
        assert!(read.turn.is_some());
        read.count(&many);
        drop(read);
        for number in 0..2 * FORGET_ABOVE {
            begin(reader(&number.to_string()), &whole);
        }
        assert!(begin(greedy, &whole).is_none(), "what it owes is not forgotten for others");
    }

    #[test]
    fn all_principals_have_a_bound_and_leave_nothing_behind() {
        let (reads, whole) = (Reads::default(), members(None));
        let begin = |number: usize| reads.begin(reader(&number.to_string()), &whole, false);
        let held: Vec<_> = (0..20).filter_map(|number| begin(number).now_or_never()).collect();
        assert_eq!(held.len(), ROWS_MAX / WHOLE_ROWS);
        drop(held);
        for number in 0..2 * FORGET_ABOVE {
            assert!(begin(number).now_or_never().is_some());
        }
        assert!(reads.own.lock().unwrap().of.len() <= FORGET_ABOVE);
        assert_eq!(reads.all.available_permits(), ROWS_MAX);
    }
}
