//! I9: a restart of the agent loses no valid hold.

use std::collections::{BTreeMap, BTreeSet};

use tenure::wire::Wait;
use tenure_core::keeper::journal::{Saved, SavedEnd, SavedHold};
use tenure_core::model::{ClaimId, SessionId, Terms};
use tenure_core::time::Boottime;

use super::Verdict;

/// Compares what pages said before a start with what the agent knows after it.
#[derive(Default)]
pub(crate) struct RestartKeeps;

impl RestartKeeps {
    /// An agent started and found no journal to go on from.
    pub(crate) fn lost(&self, host: usize, why: &str, is_harmed: bool) -> Verdict {
        if is_harmed {
            return Ok(());
        }
        Err(format!("host {host}: {why}, although nothing but the agent has died"))
    }

    /// An agent started; `found` is what its journal says, `written` what was written, but for renewals that
    /// may have been left out, as long as it lacks some.
    pub(crate) fn read(
        &self,
        host: usize,
        now: Boottime,
        mut found: Saved,
        written: Saved,
        lacks_renewals: &mut bool,
    ) -> Verdict {
        if std::mem::take(lacks_renewals) {
            let until = |hold: &SavedHold| (hold.claim.id, hold.valid_until);
            let until: BTreeMap<_, _> = written.holds.iter().map(until).collect();
            for hold in &mut found.holds {
                let renewed = until.get(&hold.claim.id).filter(|until| **until > hold.valid_until);
                if let Some(until) = renewed.filter(|_| hold.token.is_some()) {
                    (hold.valid_until, *lacks_renewals) = (*until, true);
                }
            }
        }
        let rows = |saved: Saved| {
            let Saved { sessions, holds, mut remembered } = saved;
            // A log that is written anew has no others.
            let known: BTreeSet<_> = sessions.iter().map(|session| session.id).collect();
            remembered.retain(|end| match end {
                SavedEnd::Hold { session, until, .. } => *until > now && known.contains(session),
                SavedEnd::Session { until, .. } => *until > now,
            });
            let remembered = remembered.into_iter().map(|end| format!("{end:?}"));
            let sessions = sessions.into_iter().map(|session| format!("{session:?}"));
            let holds = holds.into_iter().map(|mut hold| {
                if let Terms::Semaphore { keeps, .. } = &mut hold.claim.terms {
                    // Changes when the wait is in the queue, and whoever takes it up knows that.
                    *keeps = true;
                }
                if hold.wait == Wait::Block {
                    // Another one once an agent was killed and its caller has not come back.
                    let is_patient = hold.token.is_some() && hold.wait_until.is_some();
                    hold.wait_until = is_patient.then_some(Boottime::ZERO);
                }
                format!("{hold:?}")
            });
            sessions.chain(holds).chain(remembered).collect::<BTreeSet<_>>()
        };
        let (found, written) = (rows(found), rows(written));
        let Some(row) = found.symmetric_difference(&written).next() else { return Ok(()) };
        let by = if found.contains(row) { "was never written so" } else { "is not there" };
        Err(format!("the journal of host {host} was read: {row} {by}"))
    }

    /// An agent started; `believed` is what the pages said, `known` what it has taken up.
    pub(crate) fn started(
        &self,
        host: usize,
        believed: &[(SessionId, ClaimId)],
        known: &[ClaimId],
    ) -> Verdict {
        match believed.iter().find(|(_, claim)| !known.contains(claim)) {
            None => Ok(()),
            Some((session, claim)) => Err(format!(
                "the agent of host {host} started and does not know {claim}, which the page of \
                 session {session} says is held"
            )),
        }
    }
}
