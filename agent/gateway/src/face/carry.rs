//! The one way of callers to the store: their rights, what they have, and the audit trail.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::Request as Call;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, ClaimAnswer, ClaimId, Ending, Failure, GoneReason, HistoryEntry,
    Holder, Owner, Program, Request, Resource, SessionId, SessionRecord,
};
use tenure_host::clock;
use tenure_wire::{Code, Happened, Kind};
use tokio::runtime::Handle;
use tracing::info;

use super::Face;
use super::budget::Visit;
use super::counted;
use super::cursor::Cursors;
use super::looks::Looks;
use super::owners;
use super::presence;
use super::refused::Refused;
use super::sessions;
use crate::access::{Caller, Event, Fact, KeyChange, Keys, Peer, Right, StoreKeys, Stranger};
use crate::store::{Gone, Observer, Then};
use crate::trail::By;

/// Has the store tell a face of claims that end without having been asked to.
///
/// # Errors
///
/// When the store has ended.
pub async fn observe(face: &Arc<Face>) -> Result<(), Gone> {
    // One of its own knows all that a change of a resource is about.
    let is_shared = face.info.kind != "embedded";
    let face_of = Arc::downgrade(face);
    let looks = Looks::new(face_of.clone(), Handle::current());
    face.store.observe(Box::new(Observing { face: face_of, is_shared, looks })).await
}

/// Who tells the history of the changes that a request makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorder {
    Agent,
    Gateway,
}

/// A change for the history, if it is one of who holds something.
fn entry(by: &By, fact: &Fact) -> Option<HistoryEntry> {
    let what = match (fact.event, fact.outcome.as_str()) {
        // What was granted before was told then.
        (Event::Grant, "granted") => Happened::Granted,
        (Event::Release, _) => Happened::Released,
        (Event::Preemption | Event::Loss, _) => Happened::Lost,
        _ => return None,
    };
    let host = by.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string());
    let reason = (what != Happened::Granted).then(|| fact.outcome.as_str().into());
    Some(HistoryEntry {
        resource: fact.resource.clone()?,
        claim: fact.claim?,
        owner: Owner { session: fact.session?, host: host.into(), name: fact.holder.clone()? },
        token: fact.token?,
        what,
        holder: Holder {
            program: Program { user: by.principal.clone(), command: None },
            ..Holder::default()
        },
        end: Ending { reason, ..Ending::default() },
        held: Duration::ZERO,
        ago: Duration::ZERO,
    })
}

/// A face that is told of what nobody asked for.
struct Observing {
    face: Weak<Face>,
    /// Others change things in this store, too.
    is_shared: bool,
    looks: Arc<Looks>,
}

impl Observer for Observing {
    fn lost(&self, claim: ClaimId, reason: GoneReason) {
        if let Some(face) = self.face.upgrade() {
            face.lost(claim, reason);
        }
    }

    fn may_be_lost(&self, claim: ClaimId, resource: &Resource) {
        let Some(face) = self.face.upgrade() else { return };
        let owner = face.access.owner(claim.0).filter(|owner| owner.account.has(claim));
        if let Some(owner) = owner {
            self.looks.at_end(resource, owner, claim);
        }
    }

    fn may_be_preempted(&self, session: SessionId) {
        let Some(face) = self.face.upgrade() else { return };
        let Some(owner) = face.access.owner(session.0) else { return };
        if let Some((claim, resource)) = owner.account.master_of(session) {
            self.looks.at_end(&resource, owner, claim);
        }
    }

    fn changed(&self, resource: &Resource) {
        let Some(face) = self.face.upgrade() else { return };
        if resource.kind == Kind::Lease {
            face.delivery.changed(&resource.tenant);
        }
        if !self.is_shared {
            return;
        }
        let people = &face.people;
        if people.changes.is_watched() && people.seen.is_looked_at(resource) {
            self.looks.at_change(resource);
        }
    }
}

impl Face {
    /// Lets the caller of a call in, if its key or certificate is good.
    ///
    /// # Errors
    ///
    /// 401.
    pub(super) fn let_in<B>(&self, call: &Call<B>) -> Result<Caller, Refused> {
        self.greet(call, self.access.caller(call))
    }

    /// Notes a refused caller in the audit trail.
    fn greet<B>(
        &self,
        call: &Call<B>,
        caller: Result<Caller, Stranger>,
    ) -> Result<Caller, Refused> {
        let caller = caller.map_err(Refused::from).inspect_err(|refused| {
            let peer = call.extensions().get::<Peer>().map(|peer| peer.address);
            self.note_refusal(By { peer, ..By::default() }, refused);
        })?;
        if let Some(visit) = call.extensions().get::<Arc<Visit>>() {
            visit.let_in(caller.principal.mark);
        }
        Ok(caller)
    }

    /// The same, if it is not too fast, and does not have too many calls under way.
    ///
    /// # Errors
    ///
    /// 401 and 429.
    pub(super) fn admit<B>(&self, call: &Call<B>, beats: bool) -> Result<Caller, Refused> {
        self.begin(call, self.let_in(call)?, beats)
    }

    /// The same for a request of the status page; a proxy may have signed its person in.
    ///
    /// # Errors
    ///
    /// 401, 403 and 429.
    pub(super) fn admit_person<B>(&self, call: &Call<B>) -> Result<Caller, Refused> {
        let person = self.access.person(call).transpose();
        let caller = person.unwrap_or_else(|| self.access.caller(call));
        self.begin(call, self.greet(call, caller)?, false)
    }

    fn begin<B>(&self, call: &Call<B>, caller: Caller, beats: bool) -> Result<Caller, Refused> {
        let mut caller = caller;
        let paced = caller.pace(beats).map_err(|wait| Refused::too_fast(&caller, wait));
        let call_under_way = paced.and_then(|()| {
            let begun = caller.begin_call(beats, &self.budgets.allowance);
            begun.map_err(|denied| Refused::denied(&denied))
        });
        let under_way =
            call_under_way.inspect_err(|refused| self.note_refusal(By::from(&caller), refused))?;
        if let Some(visit) = call.extensions().get::<Arc<Visit>>() {
            visit.is_call(under_way);
        }
        Ok(caller)
    }

    /// Carries out a request of a caller. Beats of what its key does not cover, any more, are answered as
    /// if an administrator had taken it, which is so, and cost the others nothing.
    ///
    /// # Errors
    ///
    /// 403 outside of the bounds of its key, 429 with too many of something, 404 for ids of others, 503 as the store fails.
    pub(super) async fn carry_out(
        &self,
        caller: &Caller,
        request: Request,
    ) -> Result<Answer, Refused> {
        self.carry(caller, request, Recorder::Gateway).await
    }

    /// The same for an agent, which tells of the changes of its holds by itself, and is given sealed cursors.
    ///
    /// # Errors
    ///
    /// Those of [`Face::carry_out`], and 422 for a cursor that this caller was not given for the same question.
    pub(super) async fn carry_out_for_agent(
        &self,
        caller: &Caller,
        request: Request,
    ) -> Result<Answer, Refused> {
        let mut request = request;
        let cursors = Cursors::own()?;
        let question = cursors.open(&caller.principal.name, &mut request)?;
        let mut answer = match presence::of(&request) {
            Some(asked) => self.carry_presence(caller, request, asked).await,
            None => self.carry(caller, request, Recorder::Agent).await,
        }?;
        if let Some(question) = question {
            cursors.seal(&question, &mut answer)?;
        }
        Ok(answer)
    }

    async fn carry(
        &self,
        caller: &Caller,
        request: Request,
        recorder: Recorder,
    ) -> Result<Answer, Refused> {
        if let Request::Record(entries) = request {
            return self.record(caller, entries).await;
        }
        let request = caller.principal.mark.admit(request).ok_or_else(|| {
            Refused::new(Code::SessionUnknown, "there is no such session or claim of this caller")
        })?;
        let (request, outside) = match request {
            Request::Renew(beats) => {
                let (beats, outside) = self.within(caller, beats);
                (Request::Renew(beats), outside)
            }
            request => {
                caller.bounds.judge(&request).map_err(|denied| Refused::denied(&denied))?;
                if let Request::History(Resource { kind, name, .. }) = &request {
                    caller.needs(Right::History, || format!("the history of {kind} {name:?}"))?;
                }
                (request, Vec::new())
            }
        };
        let mut answer = match request {
            Request::Revoke { resource, token, revocation } => {
                self.revoke(caller, resource, token, revocation.as_deref()).await?
            }
            Request::Claim(claim) => self.claim(caller, claim, recorder).await?,
            Request::Announce(record) => {
                // The word of an agent for the time is not taken.
                let registered_at = Some(sessions::iso8601(clock::wall_us()));
                let record = SessionRecord { registered_at, ..record };
                self.ask(caller, Request::Announce(record), recorder).await?
            }
            request => self.ask(caller, request, recorder).await?,
        };
        match &mut answer {
            Answer::Renew(answers) => {
                for index in outside {
                    answers.insert(index, BeatAnswer::Gone(GoneReason::Revoked));
                }
            }
            Answer::Members(Some(members)) => {
                caller.bounds.judge_members(members).map_err(|denied| Refused::denied(&denied))?;
            }
            Answer::Routes(routes) => caller.bounds.narrow(routes),
            Answer::Resources { resources, .. } => {
                resources.retain(|resource| caller.bounds.shows(resource));
            }
            _ => {}
        }
        if !caller.has(Right::Owners) {
            owners::hide(caller.principal.mark, &mut answer);
        }
        Ok(answer)
    }

    /// Goes by the keys that are in the store now, and writes down what is different, unless they are the first.
    ///
    /// # Errors
    ///
    /// As the store fails. Keys that are not there any more let nobody in, even if the others cannot be read.
    pub async fn read_keys(&self, keys: &StoreKeys, is_first: bool) -> Result<(), Failure> {
        // What was read earlier must not come after what was read later: it may have keys that were revoked.
        let _turn = keys.turn().await;
        match keys.read().await {
            Ok(keys) if is_first => {
                self.metrics.keys.set(keys.count() as u64);
                self.access.replace(keys);
                Ok(())
            }
            Ok(keys) => {
                self.take_keys(keys);
                Ok(())
            }
            Err(failure) => {
                self.take_keys(self.access.only(&keys.ids().await?));
                Err(failure)
            }
        }
    }

    /// Goes by these keys from now on, and writes down what is different.
    pub fn take_keys(&self, keys: Keys) {
        let count = keys.count();
        let changes = self.access.replace(keys);
        self.metrics.keys.set(count as u64);
        if !changes.is_empty() {
            info!(keys = count, changes = changes.len(), "read the keys again");
        }
        for KeyChange { key, principal, change } in changes {
            let by = By { key: Some(key), principal: Some(principal), peer: None };
            self.trail.tell(by, Fact::new(Event::Key, change));
        }
    }

    /// Writes a refusal down.
    pub(super) fn note_refusal(&self, by: By, refused: &Refused) {
        if self.trail.is_kept() && refused.is_of_caller() {
            self.trail.tell(by, Fact::new(Event::Refusal, &refused.to_string()));
        }
    }

    /// Learns from the store that a claim has ended.
    fn lost(&self, claim: ClaimId, reason: GoneReason) {
        if let Some(principal) = self.access.owner(claim.0)
            && let Some(fact) = principal.account.lost(claim, reason)
        {
            let principal = Some(Arc::clone(&principal.name));
            self.people.changes.tell_fact(&fact);
            self.trail.tell(By { principal, ..By::default() }, fact);
        }
    }

    /// The beats within the bounds of a caller, and the places of the others, the least first.
    fn within(&self, caller: &Caller, beats: Vec<Beat>) -> (Vec<Beat>, Vec<usize>) {
        let mut outside = Vec::new();
        let mut inside = Vec::with_capacity(beats.len());
        for (index, beat) in beats.into_iter().enumerate() {
            match caller.bounds.judge_beat(&beat) {
                Ok(()) => inside.push(beat),
                Err(denied) => {
                    // One line for a call.
                    if outside.is_empty() {
                        self.note_refusal(By::from(caller), &Refused::denied(&denied));
                    }
                    outside.push(index);
                }
            }
        }
        (inside, outside)
    }

    /// Asks the store, and keeps what the caller has.
    pub(super) async fn ask(
        &self,
        caller: &Caller,
        request: Request,
        recorder: Recorder,
    ) -> Result<Answer, Refused> {
        if matches!(&request, Request::Renew(beats) if beats.is_empty()) {
            return Ok(Answer::Renew(Vec::new()));
        }
        let began = clock::now();
        // Of a claim that ends, people are told whose it was, also those who came after it was granted.
        let answer = if request.is_read() {
            self.ask_counted(caller, request, None).await
        } else {
            self.ask_and_settle(caller, request, recorder).await?
        };
        self.metrics.store_answered(clock::now().since(began), answer.as_ref().err());
        Ok(answer?)
    }

    async fn ask_and_settle(
        &self,
        caller: &Caller,
        request: Request,
        recorder: Recorder,
    ) -> Result<Result<Answer, Failure>, Refused> {
        let account = &caller.principal.account;
        if matches!(&request, Request::Claim(claim) if account.is_elsewhere(clock::now(), claim)) {
            return Ok(Ok(Answer::Claim(ClaimAnswer::Gone(GoneReason::Conflict))));
        }
        let admitted =
            account.admit(clock::now(), &request, &caller.bounds, &self.budgets.allowance);
        admitted.map_err(|denied| Refused::denied(&denied))?;
        let (by, trail, asked) = (By::from(caller), self.trail.clone(), request.clone());
        let principal = Arc::clone(&caller.principal);
        let changes = Arc::clone(&self.people.changes);
        let (store, runtime) = (self.store.clone(), Handle::current());
        // By the store's thread, so that lines are in the order in which the store answered.
        let then = Box::new(move |result: &_| {
            let facts = principal.account.settle(clock::now(), &asked, result);
            if recorder == Recorder::Gateway {
                let entries: Vec<_> = facts.iter().filter_map(|fact| entry(&by, fact)).collect();
                if !entries.is_empty() {
                    // Nobody waits for the history, and what it lacks is no harm.
                    runtime.spawn(async move {
                        let _ = store.ask(principal.mark, Request::Record(entries)).await;
                    });
                }
            }
            for fact in facts {
                changes.tell_fact(&fact);
                trail.tell(by.clone(), fact);
            }
        });
        Ok(self.ask_counted(caller, request, Some(then)).await)
    }

    /// Asks the store in a way that counts: see [`counted::ask`].
    pub(super) async fn ask_counted(
        &self,
        caller: &Caller,
        request: Request,
        then: Option<Then>,
    ) -> Result<Answer, Failure> {
        counted::ask(&self.store, &self.budgets.allowance, caller, request, then).await
    }
}
