//! The calls of a driver, and their replies.

use std::rc::Rc;

use tenure_core::model::{Answer, CallId, ClaimId, Request, Resource};

use crate::remote::audiences::Audience;
use crate::remote::backend::{Listening, Seen, Topic, Verified};
use crate::remote::writes::WriteError;

/// The purpose of a call.
pub(super) enum Task<C> {
    Request {
        call: CallId,
        request: Rc<Request>,
    },
    Verify(Rc<Vec<(ClaimId, Resource)>>),
    Watch(Rc<Vec<Topic>>),
    Listen,
    Hear {
        /// Some audiences were not heard when the feed started.
        is_late: bool,
    },
    /// The call waits until its audience is heard.
    Attend(CallId),
    Relay,
    StopHearing(Vec<Audience>),
    TryWrite,
    EndQuarantine,
    Chore(C),
}

/// The reply to a call.
pub(super) enum Reply<F> {
    Answer(Answer),
    Verified(Vec<Verified>),
    Watched(Vec<Seen>),
    /// The store's refusal to hint messages, if it refuses.
    Hears(Option<String>),
    /// The connection, and its feed; none if this connection listened already.
    Listening(Option<(u64, Listening)>),
    Found(F),
    WriteTried(Result<(), WriteError>),
    QuarantineEnded,
}
