//! The part of a store that a driver needs, over a model of Redis instead of a connection.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::model::{Answer, BeatAnswer, ClaimId, Failure, Request, Resource};
use tenure_core::time::Boottime;
use tenure_stores::redis::chores::{Chore, Chores, Found};
use tenure_stores::redis::exchange::{CareOf, Grants, at_once};
use tenure_stores::remote::{
    self, Audience, Backend, ClaimStep, ConnectError, ConnectionHints, Connector, Dialed, Hears,
    Hint, LineOf, Listening, Purpose, Seen, Server, Topic, Verified,
};
use tokio::sync::oneshot;

/// A command on its way to the model.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Listen,
    Request(Request),
    Watch(Vec<Topic>),
    Hear(Vec<Audience>),
    StopHearing(Vec<Audience>),
    Verify(Vec<(ClaimId, Resource)>),
    Chore(Chore),
}

/// The reply to it.
pub(super) enum Said {
    /// It listens, or hears, or hears no longer.
    Done,
    Answer(Answer),
    Watched(Vec<Seen>),
    Verified(Vec<Verified>),
    Found(Found),
}

pub(super) struct Sent {
    pub(super) asked: Asked,
    pub(super) reply: oneshot::Sender<Said>,
}

/// What an agent has sent within a turn.
pub(super) type Outbox = Rc<RefCell<Vec<Sent>>>;

/// The agent's end of its feed.
#[derive(Clone, Default)]
pub(super) struct Ear(Arc<Mutex<Option<ConnectionHints>>>);

impl Ear {
    pub(super) fn hear(&self, hint: Hint) {
        if let Some(hints) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            hints.push(hint);
        }
    }
}

impl Connector for Ear {
    type Connection = ();
    const STORE: &'static str = "a model of Redis";
    const KIND: &'static str = "model";

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<()>, ConnectError> {
        if purpose == Purpose::Feed {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hints;
        }
        let server = Server { place: "here".to_owned(), version: "1".to_owned() };
        Ok(Dialed { connection: (), server, pump: Box::pin(pending()) })
    }

    async fn check(&self, (): &(), _server: &Server) -> Result<(), ConnectError> {
        Ok(())
    }
}

/// The model as one agent reaches it.
pub(super) struct Model {
    pub(super) outbox: Outbox,
    pub(super) grants: RefCell<Grants>,
}

impl Model {
    async fn ask(&self, line: &LineOf<Model>, asked: Asked) -> Result<Said, Failure> {
        let _place = line.place().await;
        line.sending();
        let (reply, said) = oneshot::channel();
        self.outbox.borrow_mut().push(Sent { asked, reply });
        said.await.map_err(|_| Failure::Unknown("the model is gone".to_owned()))
    }
}

fn strange() -> Failure {
    Failure::Unknown("an answer to another question".to_owned())
}

impl Backend for Model {
    type Connector = Ear;
    type Chores = Care;

    async fn perform(
        &self,
        line: &mut LineOf<Self>,
        request: &Request,
        _floor: u64,
    ) -> Result<Answer, Failure> {
        if let Request::Claim(claim) = request {
            self.grants.borrow_mut().forget_claim(claim.id);
        }
        let Request::Renew(beats) = request else {
            return match self.ask(line, Asked::Request(request.clone())).await? {
                Said::Answer(answer) => Ok(answer),
                _ => Err(strange()),
            };
        };
        let mut answers = Vec::with_capacity(beats.len());
        while answers.len() < beats.len() {
            let rest = &beats[answers.len()..];
            let known = |grants: &Grants| {
                at_once(rest.iter().map(|beat| (beat, grants.steady(beat).is_some())))
            };
            let page = &rest[..known(&self.grants.borrow())];
            match self.ask(line, Asked::Request(Request::Renew(page.to_vec()))).await? {
                Said::Answer(Answer::Renew(more)) => {
                    for (beat, answer) in page.iter().zip(&more) {
                        let mut grants = self.grants.borrow_mut();
                        match answer {
                            BeatAnswer::Held { token, .. } => grants.note(beat, *token),
                            _ => grants.forget(beat),
                        }
                    }
                    answers.extend(more);
                }
                _ => return Err(strange()),
            }
        }
        Ok(Answer::Renew(answers))
    }

    async fn listen(&self, line: &mut LineOf<Self>) -> Result<Listening, Failure> {
        self.ask(line, Asked::Listen).await?;
        Ok(Listening { hears: Hears::Watched, refused: None })
    }

    async fn watch(&self, line: &mut LineOf<Self>, topics: &[Topic]) -> Result<Vec<Seen>, Failure> {
        match self.ask(line, Asked::Watch(topics.to_vec())).await? {
            Said::Watched(seen) => Ok(seen),
            _ => Err(strange()),
        }
    }

    async fn hear(
        &self,
        line: &mut LineOf<Self>,
        audiences: &[Audience],
    ) -> Result<Option<String>, Failure> {
        self.ask(line, Asked::Hear(audiences.to_vec())).await.map(|_| None)
    }

    async fn stop_hearing(
        &self,
        line: &mut LineOf<Self>,
        audiences: &[Audience],
    ) -> Result<(), Failure> {
        self.ask(line, Asked::StopHearing(audiences.to_vec())).await.map(drop)
    }

    async fn verify(
        &self,
        line: &mut LineOf<Self>,
        claims: &[(ClaimId, Resource)],
    ) -> Result<Vec<Verified>, Failure> {
        match self.ask(line, Asked::Verify(claims.to_vec())).await? {
            Said::Verified(found) => Ok(found),
            _ => Err(strange()),
        }
    }

    async fn do_chore(
        &self,
        line: &mut LineOf<Self>,
        chore: Chore,
        _floor: u64,
    ) -> Result<Found, Failure> {
        match self.ask(line, Asked::Chore(chore)).await? {
            Said::Found(found) => Ok(found),
            _ => Err(strange()),
        }
    }
}

/// Semaphores in one call of the planted fault.
const LOOKS_PER_CALL: usize = 512;
/// How long after a change it looks.
const LOOKS_AFTER: Duration = Duration::from_secs(1);

/// The chores that ship; with the planted fault this agent also looks after every semaphore that it hears
/// of.
pub(super) struct Care {
    shipped: Chores,
    looks: Option<BTreeMap<Resource, Boottime>>,
}

impl Care {
    pub(super) fn new(seed: u64, looks_after_all: bool) -> Care {
        let looks = looks_after_all.then(BTreeMap::new);
        Care { shipped: Chores::new(seed), looks }
    }
}

impl remote::Chores for Care {
    type Chore = Chore;
    type Found = Found;

    fn handle_hint(&mut self, now: Boottime, hint: &Hint) {
        if let (Some(looks), Hint::Resource(resource)) = (&mut self.looks, hint)
            && resource.kind == Kind::Semaphore
        {
            looks.entry(resource.clone()).or_insert(now + LOOKS_AFTER);
        }
        self.shipped.handle_hint(now, hint);
    }

    fn handle_claim_step(&mut self, now: Boottime, resource: &Resource, step: ClaimStep) {
        self.shipped.handle_claim_step(now, resource, step);
    }

    fn handle_expires_soon(&mut self, now: Boottime, resource: &Resource) {
        self.shipped.handle_expires_soon(now, resource);
    }

    fn feed_started(&mut self, now: Boottime, hears: Hears) {
        self.shipped.feed_started(now, hears);
    }

    fn feed_stopped(&mut self) {
        self.shipped.feed_stopped();
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        let looks = self.looks.iter().flat_map(|looks| looks.values().copied());
        looks.chain(self.shipped.poll_timeout()).min()
    }

    fn take(&mut self, now: Boottime) -> Option<Chore> {
        if let Some(looks) = &mut self.looks {
            let due = looks.iter().filter(|(_, at)| **at <= now).map(|(it, _)| it.clone());
            let due: Vec<_> = due.take(LOOKS_PER_CALL).collect();
            for semaphore in &due {
                looks.remove(semaphore);
            }
            if !due.is_empty() {
                let of = |Resource { tenant, name, .. }| CareOf { tenant, name, shared: false };
                return Some(Chore::Care(due.into_iter().map(of).collect()));
            }
        }
        self.shipped.take(now)
    }

    fn handle_done(&mut self, now: Boottime, chore: Chore, found: Option<Found>) {
        self.shipped.handle_done(now, chore, found);
    }
}
