//! Changes that a later one of the same batch makes void.

use std::collections::HashMap;

use super::redo::Change;
use crate::{engine, keeper};

/// A row, by table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Hold(u64),
    Valid(u64),
    Grant(u64),
    Waiter(u64),
}

/// Leaves out what is overwritten or removed later in the batch: most holds of a busy host come and
/// go between two commits.
pub(super) fn without(changes: Vec<Change>) -> Vec<Change> {
    let mut changes: Vec<_> = changes.into_iter().map(Some).collect();
    let mut last: HashMap<Row, usize> = HashMap::with_capacity(changes.len());
    for at in 0..changes.len() {
        let (writes, ends) = match &changes[at] {
            Some(Change::Keeper(entry)) => of_keeper(entry),
            Some(Change::Engine(entry)) => of_engine(entry),
            None => continue,
        };
        for row in writes.into_iter().chain(ends.into_iter().flatten()) {
            let void = if Some(row) == writes { last.insert(row, at) } else { last.remove(&row) };
            if let Some(void) = void {
                changes[void] = None;
            }
        }
    }
    changes.into_iter().flatten().collect()
}

/// The row that a change writes, and those that it ends.
fn of_keeper(entry: &keeper::journal::Entry) -> (Option<Row>, [Option<Row>; 2]) {
    use keeper::journal::Entry;
    match entry {
        Entry::Hold(hold) => (Some(Row::Hold(hold.row)), [None; 2]),
        Entry::Valid { row, .. } => (Some(Row::Valid(*row)), [None; 2]),
        Entry::HoldEnded { row, .. } => (None, [Some(Row::Hold(*row)), Some(Row::Valid(*row))]),
        Entry::Session(_) | Entry::SessionEnded(_) => (None, [None; 2]),
    }
}

fn of_engine(entry: &engine::journal::Entry) -> (Option<Row>, [Option<Row>; 2]) {
    use engine::journal::Entry;
    match entry {
        Entry::GrantEnded { row } => (None, [Some(Row::Grant(*row)), None]),
        Entry::Waiter(waiter) => (Some(Row::Waiter(waiter.row)), [None; 2]),
        Entry::WaiterEnded { row } => (None, [Some(Row::Waiter(*row)), None]),
        Entry::Grant(grant) => (Some(Row::Grant(grant.row)), [None; 2]),
        Entry::Limit { .. }
        | Entry::LimitEnded { .. }
        | Entry::Session(_)
        | Entry::SessionEnded(_)
        | Entry::Routes { .. }
        | Entry::RoutesEnded { .. } => (None, [None; 2]),
    }
}
