//! Pure. Requests become script calls, and their replies answers.
//!
//! An [`Exchange`] is one request on its way: [`Exchange::start`] gives the first call, and each reply
//! goes into [`Exchange::step`], which gives the answer or the next call. Nothing here waits, and
//! nothing depends on a call being sent once: every script may be repeated.

mod decode;
mod encode;
pub mod epoch;
mod foreign;
mod history;
mod members;
mod renew;
pub(super) mod reply;
mod resources;
mod revoke;
mod routes;
mod scripts;
mod standing;
mod steady;
mod upkeep;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use members::MembersPage;
use renew::RenewPage;
pub use renew::at_once;
pub use reply::ReplyError;
use revoke::RevokePage;
use routes::RoutesPage;
pub use scripts::{Invocation, Script};
pub(super) use scripts::{PUT_KEY, RESTORE_KEYS};
use standing::StandingPage;
pub use steady::Grants;
use tenure_core::model::{Answer, ClaimAnswer, GoneReason, Request, Resource};
pub use upkeep::{CareOf, Cared, care, cared, stand, stood, sweep, swept, verified, verify};

use super::layout::Layout;
pub use crate::remote::Verified;

/// The one who asks.
#[derive(Debug, Clone, Default)]
pub struct By {
    /// The agent, by whose channel it hears what its waiters are granted.
    pub agent: Arc<str>,
    /// The greatest token that it has seen: nothing at or below it is granted, even by a store that lost its
    /// last token and runs behind.
    pub floor: u64,
    /// What the server said of grants that are beaten.
    pub grants: Rc<RefCell<Grants>>,
}

/// One request on its way.
#[derive(Debug)]
pub struct Exchange(Stage);

/// The subject of the next reply.
#[derive(Debug)]
enum Stage {
    Claim,
    /// The claim's terms are not those of its resource's kind: nothing is asked.
    Misfit,
    Renew(RenewPage),
    Release,
    Announce,
    EndSession,
    Inspect(StandingPage),
    Members(MembersPage),
    Routes(RoutesPage),
    Resources,
    Record,
    History,
    Revoke(RevokePage),
}

/// The step after a reply.
#[derive(Debug)]
pub enum Step {
    /// The answer to the request.
    Done(Answer),
    /// There is more to ask.
    Next(Exchange, Invocation),
}

impl Exchange {
    /// The first call for a request.
    pub fn start(layout: &Layout, request: &Request, by: By) -> (Exchange, Invocation) {
        let floor = by.floor;
        let (stage, invocation) = match request {
            Request::Claim(claim) => {
                by.grants.borrow_mut().forget_claim(claim.id);
                match encode::claim(layout, claim, &layout.agent_channel(&by.agent), floor) {
                    Some(invocation) => (Stage::Claim, invocation),
                    None => (Stage::Misfit, RenewPage::new(Vec::new(), by).ask(layout)),
                }
            }
            Request::Renew(beats) => {
                let mut page = RenewPage::new(beats.clone(), by);
                let invocation = page.ask(layout);
                (Stage::Renew(page), invocation)
            }
            Request::Release { claim, resource } => {
                (Stage::Release, encode::release(layout, *claim, resource, floor))
            }
            Request::Announce(record) => (Stage::Announce, encode::announce(layout, record)),
            Request::EndSession { session, tenant, project } => {
                (Stage::EndSession, encode::end_session(layout, *session, tenant, project))
            }
            Request::Inspect(resource) | Request::Holders(resource) => {
                let is_whole = matches!(request, Request::Holders(_));
                let page = StandingPage::new(resource.clone(), is_whole);
                let invocation = page.ask(layout);
                (Stage::Inspect(page), invocation)
            }
            Request::Members { within, listed, page } => {
                let page = MembersPage::new(within.clone(), *listed, page.clone());
                let invocation = page.ask(layout);
                (Stage::Members(page), invocation)
            }
            Request::Routes { tenant, name, page } => {
                let page = RoutesPage::new(tenant.clone(), name.clone(), page);
                let invocation = page.ask(layout);
                (Stage::Routes(page), invocation)
            }
            Request::Resources { page } => (Stage::Resources, resources::ask(layout, page)),
            Request::Record(entries) => (Stage::Record, history::record(layout, entries)),
            Request::History(resource) => (Stage::History, history::ask(layout, resource)),
            Request::Revoke { resource, token, revocation } => {
                let words = revocation.as_deref().map(decode::words_of).unwrap_or_default();
                let page = RevokePage::new(resource.clone(), *token, words, floor);
                let invocation = page.ask(layout);
                (Stage::Revoke(page), invocation)
            }
        };
        (Exchange(stage), invocation)
    }

    /// The first call for [`Request::Inspect`] of a master, where `names` of its project's sessions are
    /// known from before; used if there are more sessions than are named.
    pub fn inspect_project(
        layout: &Layout,
        master: &Resource,
        names: Vec<Arc<str>>,
    ) -> (Exchange, Invocation) {
        let page = StandingPage::of_project(master.clone(), names);
        let invocation = page.ask(layout);
        (Exchange(Stage::Inspect(page)), invocation)
    }

    /// Takes the reply to the last call.
    pub fn step(self, layout: &Layout, reply: redis::Value) -> Result<Step, ReplyError> {
        let answer = match self.0 {
            Stage::Claim => Answer::Claim(decode::claim(reply)?),
            Stage::Misfit => Answer::Claim(ClaimAnswer::Gone(GoneReason::Conflict)),
            Stage::Release => Answer::Released(reply::integer(reply)? > 0),
            Stage::Announce => {
                reply::integer(reply)?;
                Answer::Announced
            }
            Stage::EndSession => Answer::Ended(reply::integer(reply)? > 0),
            Stage::Resources => resources::answer(layout, reply)?,
            Stage::Record => {
                reply::integer(reply)?;
                Answer::Recorded
            }
            Stage::History => history::answer(reply)?,
            Stage::Renew(mut page) => {
                if page.take(reply)? {
                    let invocation = page.ask(layout);
                    return Ok(Step::Next(Exchange(Stage::Renew(page)), invocation));
                }
                Answer::Renew(page.finish())
            }
            Stage::Inspect(mut page) => {
                if page.take(reply)? {
                    let invocation = page.ask(layout);
                    return Ok(Step::Next(Exchange(Stage::Inspect(page)), invocation));
                }
                Answer::Standing(page.finish())
            }
            Stage::Members(mut page) => {
                if page.take(reply)? {
                    let invocation = page.ask(layout);
                    return Ok(Step::Next(Exchange(Stage::Members(page)), invocation));
                }
                Answer::Members(page.finish())
            }
            Stage::Routes(mut page) => {
                if page.take(reply)? {
                    let invocation = page.ask(layout);
                    return Ok(Step::Next(Exchange(Stage::Routes(page)), invocation));
                }
                Answer::Routes(page.finish())
            }
            Stage::Revoke(mut page) => {
                if page.take(reply)? {
                    let invocation = page.ask(layout);
                    return Ok(Step::Next(Exchange(Stage::Revoke(page)), invocation));
                }
                Answer::Revoked(page.finish())
            }
        };
        Ok(Step::Done(answer))
    }
}
