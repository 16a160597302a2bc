//! Changes of who holds what, for people who ask later.

use std::time::Duration;

use redis::Value;
use tenure_core::model::{Answer, HISTORY_KEPT, HISTORY_MAX, HistoryEntry, Resource};
use tenure_wire::DEFAULT_TENANT;

use super::super::layout::Layout;
use super::reply::{Items, ReplyError, count, text};
use super::scripts::{self, Invocation};

fn key(layout: &Layout, Resource { tenant, kind, name }: &Resource) -> String {
    format!("{}{kind}:{name}", layout.histories(tenant))
}

/// Most resources that have a history, of some 600 bytes for each change, 50 of them at most; those that have not
/// changed for longest are forgotten.
const HISTORIES_MAX: usize = 10_000;

pub(super) fn record(layout: &Layout, entries: &[HistoryEntry]) -> Invocation {
    let all = layout.tenure(DEFAULT_TENANT, "histories");
    let invocation = Invocation::new(&scripts::RECORD).key(all);
    let invocation = invocation.arg(HISTORY_MAX).arg(HISTORY_KEPT.as_millis()).arg(HISTORIES_MAX);
    entries.iter().fold(invocation, |invocation, entry| {
        // The same text each time it is told.
        let told = HistoryEntry { ago: Duration::ZERO, ..entry.clone() };
        // Writing plain structs to memory cannot fail.
        let told = serde_json::to_string(&told).unwrap_or_default();
        let ago = entry.ago.as_micros();
        invocation.key(key(layout, &entry.resource)).arg(ago).arg(told)
    })
}

pub(super) fn ask(layout: &Layout, resource: &Resource) -> Invocation {
    let invocation = Invocation::new(&scripts::HISTORY).key(key(layout, resource));
    invocation.arg(HISTORY_MAX).arg(HISTORY_KEPT.as_millis())
}

pub(super) fn answer(reply: Value) -> Result<Answer, ReplyError> {
    let mut items = Items::of(reply)?;
    let mut changes: Vec<HistoryEntry> = Vec::new();
    while !items.is_empty() {
        let ago = Duration::from_micros(count(items.next())?);
        // One of a later version may be beyond this one.
        let Ok(entry) = serde_json::from_str(&text(items.next())?) else { continue };
        let entry = HistoryEntry { ago, ..entry };
        if !changes.iter().any(|known| known.is_same(&entry)) {
            changes.push(entry);
        }
    }
    Ok(Answer::History(changes))
}
