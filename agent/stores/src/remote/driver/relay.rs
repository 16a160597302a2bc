//! What a gateway asks of the store beyond requests.

use std::rc::Rc;
use std::sync::Arc;

use tenure_core::model::{Answer, CallId, Report};
use tenure_core::time::Boottime;

use super::{Driver, Reply, Task};
use crate::relay::{Relay, Told};
use crate::remote::audiences::Audience;
use crate::remote::backend::{Backend, LineOf};

impl<B: Backend> Driver<B> {
    /// The principal is heard for, or will be, and then everything is to be read again.
    pub(super) fn attended(&mut self, now: Boottime, call: CallId) {
        let result = Ok(Answer::Announced);
        self.reports.push_back(Report::Answer { call, sent_at: now, result });
    }
}

impl<B: Backend> Relay for Driver<B> {
    fn begin(&mut self) {
        self.backend.serve_principals();
    }

    fn attend(&mut self, now: Boottime, call: CallId, principal: Arc<str>) {
        let audience = Audience::Principal(principal);
        if !self.own_claims.audiences.attend(&audience) {
            return self.attended(now, call);
        }
        let backend = Rc::clone(&self.backend);
        let hear = async move |mut line: LineOf<B>| {
            backend.hear(&mut line, &[audience]).await.map(Reply::Hears)
        };
        self.calls.start(now, self.timeout, &self.links.feed, Task::Attend(call), hear);
    }

    fn leave(&mut self, now: Boottime, principal: Arc<str>) {
        self.own_claims.audiences.abandon(now, &Audience::Principal(principal));
    }

    fn relay(&mut self, now: Boottime, principal: Arc<str>, news: Vec<u8>) {
        self.start_in_background(now, Task::Relay, async move |backend, line| {
            backend.relay(line, &principal, &news).await.map(|()| Reply::Hears(None))
        });
    }

    fn next_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}
