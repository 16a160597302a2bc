//! A project's master and its sessions, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{ClaimId, Member, Members, Page, Within};

use super::super::layout::{Layout, session_text};
use super::foreign::id_of;
use super::reply::{Items, ReplyError, count_if_any, text, text_if_any};
use super::scripts::{self, Invocation};

/// How many sessions are looked at in a call; the server may look at some more.
const SESSIONS_PER_CALL: usize = 128;
/// The first cursor, and the one after the last page.
const END: &str = "0";

/// Members that are being read.
#[derive(Debug)]
pub(super) struct MembersPage {
    within: Within,
    listed: bool,
    /// How many are enough.
    limit: usize,
    cursor: String,
    /// Once the project is known.
    found: Option<Members>,
    /// By time and id; a scan may meet a session twice.
    sessions: BTreeMap<(Option<Arc<str>>, Arc<str>), Member>,
}

impl MembersPage {
    pub(super) fn new(within: Within, listed: bool, page: Option<Page>) -> MembersPage {
        let found = match &within {
            Within::Project { tenant, project } => {
                Some(of(Arc::clone(tenant), Arc::clone(project)))
            }
            Within::Session(_) => None,
        };
        let Page { after, limit } = page.unwrap_or_else(Page::whole);
        let is_number = |cursor: &&str| cursor.parse::<u64>().is_ok();
        let cursor = after.as_deref().filter(is_number).unwrap_or(END).to_owned();
        MembersPage { within, listed, limit, cursor, found, sessions: BTreeMap::new() }
    }

    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        match (&self.found, &self.within) {
            (None, Within::Session(session)) => {
                Invocation::new(&scripts::FIND_SESSION).key(layout.session(&session_text(*session)))
            }
            (Some(Members { tenant, project, .. }), _)
            | (None, Within::Project { tenant, project }) => Invocation::new(&scripts::MEMBERS)
                .key(layout.master(tenant, project))
                .key(layout.master_claim(tenant, project))
                .key(layout.sessions(tenant, project))
                .arg(layout.claim(tenant, ""))
                .arg(project)
                .arg(layout.session(""))
                .arg(layout.project_channel(tenant, project))
                .arg(if self.listed { &self.cursor } else { "" })
                .arg(self.limit.clamp(1, SESSIONS_PER_CALL)),
        }
    }

    /// Takes a reply; whether there is more to ask.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        let Some(found) = &mut self.found else {
            if matches!(reply, Value::Nil) {
                return Ok(false);
            }
            let mut items = Items::of(reply)?;
            self.found = Some(of(text(items.next())?.into(), text(items.next())?.into()));
            return Ok(true);
        };
        let mut items = Items::of(reply)?;
        found.master = text_if_any(items.next())?.map(Into::into);
        found.master_claim = text_if_any(items.next())?.map(|claim| ClaimId(id_of(&claim)));
        self.cursor = text(items.next())?;
        while !items.is_empty() {
            let member = member(&mut items)?;
            let key = (member.registered_at.clone(), Arc::clone(&member.session));
            self.sessions.insert(key, member);
        }
        Ok(self.cursor != END && self.sessions.len() < self.limit)
    }

    pub(super) fn finish(self) -> Option<Members> {
        let sessions = self.sessions.into_values().collect();
        let next = Some(self.cursor).filter(|cursor| cursor != END).map(Into::into);
        self.found.map(|found| Members { sessions, next, ..found })
    }
}

fn of(tenant: Arc<str>, project: Arc<str>) -> Members {
    let sessions = Vec::new();
    Members { tenant, project, master: None, master_claim: None, sessions, next: None }
}

fn member(items: &mut Items) -> Result<Member, ReplyError> {
    let mut next = || text(items.next()).map(Arc::<str>::from);
    let (session, name, surface, host) = (next()?, next()?, next()?, next()?);
    let registered_at = Some(next()?).filter(|at| !at.is_empty());
    let runs_out = count_if_any(items.next())?.map(Duration::from_millis);
    Ok(Member { session, name, surface, host, registered_at, runs_out })
}
