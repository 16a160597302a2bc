//! Entries of agents for the history, as far as the gateway can vouch for them.

use std::sync::Arc;

use tenure_core::model::{Answer, HistoryEntry, Request, TEXT_BYTES_MAX};
use tenure_host::clock;

use super::Face;
use super::carry::Recorder;
use super::refused::Refused;
use crate::access::Caller;

impl Face {
    /// Keeps the entries of an agent's that are about claims of its own, which were granted with that token. The others
    /// are left out and counted: refused, one would take a whole batch with it.
    ///
    /// # Errors
    ///
    /// As the store fails; the agent may then tell them again.
    pub(super) async fn record(
        &self,
        caller: &Caller,
        entries: Vec<HistoryEntry>,
    ) -> Result<Answer, Refused> {
        let (sent, now) = (entries.len(), clock::now());
        let (mark, account) = (caller.principal.mark, &caller.principal.account);
        let is_own = |entry: &HistoryEntry| {
            mark.is_of(entry.claim.0)
                && mark.is_of(entry.owner.session.0)
                && caller.bounds.shows(&entry.resource)
        };
        let mut known = account.vouch(now, entries.into_iter().filter(is_own).collect());
        self.metrics.history_left_out.inc_by((sent - known.len()) as u64);
        if known.is_empty() {
            return Ok(Answer::Recorded);
        }
        known.iter_mut().for_each(|entry| sign(caller, entry));
        let told = Vec::from_iter(known.iter().map(|entry| {
            let HistoryEntry { claim, resource, what, .. } = entry;
            (*claim, resource.clone(), *what)
        }));
        let recorded = self.ask(caller, Request::Record(known), Recorder::Agent).await;
        recorded.inspect_err(|_| account.untell(clock::now(), &told))
    }
}

/// Adds the principal to the user, which is the agent's word alone: `alice at laptop-7`.
fn sign(caller: &Caller, entry: &mut HistoryEntry) {
    if caller.is_anybody() {
        return;
    }
    let principal = &caller.principal.name;
    let user = entry.holder.program.user.take();
    let signed = user.map(|user| format!("{user} at {principal}"));
    let signed = signed.filter(|text| text.len() <= TEXT_BYTES_MAX);
    entry.holder.program.user =
        Some(signed.map_or_else(|| Arc::clone(principal), |text| text.into()));
}
