//! The meaning of hints: keys to look at, and news for the keeper.

use std::sync::Arc;

use redis::PushInfo;
use tenure_core::model::{Change, ClaimId, Resource, SessionId};
use tenure_core::time::Boottime;
use tenure_wire::Kind;
use uuid::Uuid;

use super::Redis;
use super::feed::{self, Hint};
use super::layout::{About, Channel};
use crate::Report;

impl Redis {
    /// Takes up what a push says.
    pub(super) fn handle_push(&mut self, now: Boottime, push: PushInfo) {
        for hint in feed::hints(push) {
            match hint {
                Hint::Key(key) => {
                    if let Some(about) = self.layout.about(&key) {
                        self.handle_touched(now, about);
                    }
                }
                Hint::Said { channel, payload } => {
                    if let Some(channel) = self.layout.channel(&channel) {
                        self.handle_said(channel, &payload);
                    }
                }
                Hint::Everything => self.reports.push_back(Report::FeedLost),
            }
        }
    }

    fn handle_touched(&mut self, now: Boottime, about: About) {
        match about {
            About::Resource(resource) => {
                self.own_claims.changed(now, &resource);
                self.reports.push_back(Report::Change(Change::Resource(resource)));
            }
            About::Permits(semaphore) => {
                self.own_claims.changed(now, &semaphore);
                self.care.permits_changed(now, &semaphore);
                self.reports.push_back(Report::Change(Change::Resource(semaphore)));
            }
            About::Queue(semaphore) => self.care.queue_changed(now, &semaphore),
            About::Notification { id: claim } => {
                if let Some(resource) = self.own_claims.granted(claim) {
                    self.reports.push_back(Report::Change(Change::Granted { claim, resource }));
                }
            }
        }
    }

    fn handle_said(&mut self, channel: Channel, payload: &[u8]) {
        let message = || {
            serde_json::from_slice(payload)
                .unwrap_or_else(|_| String::from_utf8_lossy(payload).into_owned().into())
        };
        match channel {
            Channel::ProjectEvents { tenant, project } => {
                let change = Change::Message { tenant, project, session: None, payload: message() };
                self.reports.push_back(Report::Change(change));
            }
            Channel::SessionEvents { session } => {
                let Ok(session) = Uuid::try_parse(&session).map(SessionId) else { return };
                let Some((tenant, project)) = self.own_claims.project_of(session).cloned() else {
                    return;
                };
                // Most of what is said to a session is that its master was preempted.
                let (kind, name) = (Kind::Master, Arc::clone(&project));
                let master = Resource { tenant: Arc::clone(&tenant), kind, name };
                if let Some(claim) = self.own_claims.hold_of(&master) {
                    self.reports
                        .push_back(Report::Change(Change::Lost { claim, resource: master }));
                }
                let session = Some(session);
                let change = Change::Message { tenant, project, session, payload: message() };
                self.reports.push_back(Report::Change(change));
            }
            Channel::Lost => {
                let claim =
                    std::str::from_utf8(payload).ok().and_then(|id| Uuid::try_parse(id).ok());
                let Some(claim) = claim.map(ClaimId) else { return };
                if let Some(resource) = self.own_claims.resource_of(claim) {
                    self.reports.push_back(Report::Change(Change::Lost { claim, resource }));
                }
            }
            Channel::Routes { .. } => {}
        }
    }
}
