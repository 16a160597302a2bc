//! I12: a request id has one answer, over restarts of the agent too: whoever repeats a request is told
//! of the same hold, and of no other once that has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::model::ClaimId;
use uuid::Uuid;

use super::super::time::TrueTime;
use super::Verdict;

/// The answer that its program read.
#[derive(Debug, Clone, Copy)]
struct Known {
    hold: ClaimId,
    has_ended: bool,
    /// When it asked last and was told that the hold lives. It may have read that much later.
    at: TrueTime,
}

/// Answers that programs read, by session and request id.
#[derive(Default)]
pub(crate) struct OneAnswer {
    known: BTreeMap<(Uuid, String), Known>,
}

impl OneAnswer {
    /// A program that asked then has read now that its request has this hold.
    pub(crate) fn has(
        &mut self,
        (asked, now): (TrueTime, TrueTime),
        (session, request): (Uuid, &str),
        hold: ClaimId,
        remember: Duration,
    ) -> Verdict {
        let next = Known { hold, has_ended: false, at: asked };
        let known = self.known.insert((session, request.to_owned()), next);
        match known.filter(|known| now.since(known.at) < remember) {
            Some(known) if known.has_ended || known.hold != hold => Err(format!(
                "request {request:?} of session {session} was given {}{}, and now {hold}",
                known.hold,
                if known.has_ended { ", which has ended" } else { "" }
            )),
            _ => Ok(()),
        }
    }

    /// A program read that the hold of its request has ended.
    pub(crate) fn has_ended(&mut self, (session, request): (Uuid, &str), hold: ClaimId) {
        // A program that was never told of it may be given another one. It is remembered from its end on, which came
        // after the last answer that it lives.
        if let Some(known) = self.known.get_mut(&(session, request.to_owned()))
            && known.hold == hold
        {
            known.has_ended = true;
        }
    }
}
