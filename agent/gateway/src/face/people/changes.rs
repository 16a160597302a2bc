//! What changes, for people: as far as it passes through this gateway, or its store tells of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Serialize;
use tenure_core::model::Resource;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use tenure_wire::Kind;
use tokio::sync::broadcast::{self, error::RecvError};
use uuid::Uuid;

use super::now_ms;
use crate::access::{Caller, Event, Fact, KeyBounds, Right};
use crate::face::refused::Refused;
use crate::face::stream::Source;
use crate::face::{Face, stream};

/// Changes that wait for the slowest reader, about 300 bytes each; one that is further behind misses some, and is told
/// how many.
const CHANGES_MAX: usize = 1024;
/// What the store tells of a resource within this time of a change that was told says no more than that did.
const SAID_BEFORE: Duration = Duration::from_secs(2);
/// Changes that are kept for later readers, some 300 bytes each and at most 2 KiB.
const PAST_MAX: usize = 256;

/// The way of changes to those who read them.
#[derive(Debug)]
pub(in crate::face) struct Changes {
    readers: broadcast::Sender<Arc<Change>>,
    /// The resource that was told of last, and when.
    last: Mutex<Option<(Resource, Boottime)>>,
    /// The latest changes with a holder, oldest first.
    past: Mutex<VecDeque<PastChange>>,
}

/// A change of the past, told to readers or not.
#[derive(Debug, Clone)]
pub(super) struct PastChange {
    /// ms since 1970.
    pub(super) at: u64,
    pub(super) resource: Resource,
    /// The claim or session that it is about.
    pub(super) about: Option<Uuid>,
    pub(super) change: Arc<str>,
    pub(super) reason: Option<&'static str>,
    pub(super) holder: Option<Arc<str>>,
    pub(super) token: Option<u64>,
}

#[derive(Debug)]
struct Change {
    resource: Resource,
    /// The event, as readers get it.
    event: Bytes,
    /// The claim or session that it is about, and the event without it, for readers of other principals.
    about: Option<(Uuid, Bytes)>,
}

/// The data of an event.
#[derive(Serialize)]
struct Data<'a> {
    /// ms since 1970.
    at: u64,
    tenant: &'a str,
    kind: Kind,
    name: &'a str,
    change: &'a str,
    reason: Option<&'a str>,
    /// The name of the session that it is about, where that is known.
    holder: Option<&'a str>,
    token: Option<u64>,
}

impl Default for Changes {
    fn default() -> Changes {
        let readers = broadcast::channel(CHANGES_MAX).0;
        Changes { readers, last: Mutex::default(), past: Mutex::default() }
    }
}

impl Changes {
    /// True if somebody reads.
    pub(in crate::face) fn is_watched(&self) -> bool {
        self.readers.receiver_count() > 0
    }

    /// Tells what became of something.
    pub(in crate::face) fn tell_fact(&self, fact: &Fact) {
        let Some(resource) = fact.resource.as_ref() else { return };
        let Some((change, reason)) = change_of(fact) else { return };
        let about = fact.claim.map(|id| id.0).or(fact.session.map(|id| id.0));
        let at = now_ms();
        self.keep(PastChange {
            at,
            resource: resource.clone(),
            about,
            change: change.into(),
            reason,
            holder: fact.holder.clone(),
            token: fact.token,
        });
        if !self.is_watched() {
            return;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((resource.clone(), clock::now()));
        let data = Data {
            at,
            reason,
            holder: fact.holder.as_deref(),
            token: fact.token,
            ..changed(resource, change)
        };
        self.tell(resource, about, &data);
    }

    fn keep(&self, told: PastChange) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if past.len() == PAST_MAX {
            past.pop_front();
        }
        past.push_back(told);
    }

    /// The kept changes within a caller's bounds, oldest first. Without the right `audit` the caller sees of changes of
    /// other principals only that they happened.
    pub(super) fn past(&self, caller: &Caller) -> Vec<PastChange> {
        let (mark, knows_all) = (caller.principal.mark, caller.has(Right::Audit));
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = past.iter().filter(|told| caller.bounds.shows(&told.resource)).cloned();
        shown
            .map(|told| match told.about {
                Some(id) if !knows_all && !mark.is_of(id) => PastChange {
                    about: None,
                    change: "changed".into(),
                    reason: None,
                    holder: None,
                    token: None,
                    ..told
                },
                _ => told,
            })
            .collect()
    }

    /// Tells that something became of a resource, by the word of the store.
    pub(in crate::face) fn tell_changed(&self, resource: &Resource) {
        if !self.is_watched() {
            return;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_said = |(of, at): (Resource, Boottime)| {
            of == *resource && clock::now().since(at) < SAID_BEFORE
        };
        if !last.is_some_and(is_said) {
            self.tell(resource, None, &changed(resource, "changed"));
        }
    }

    fn tell(&self, resource: &Resource, about: Option<Uuid>, data: &Data<'_>) {
        let Some(whole) = event("change", data) else { return };
        let bare = || event("change", &Data { at: data.at, ..changed(resource, "changed") });
        let about = about.and_then(|id| Some((id, bare()?)));
        // The last reader may have just gone.
        let _ =
            self.readers.send(Arc::new(Change { resource: resource.clone(), event: whole, about }));
    }
}

/// The data of a change of which no more is said.
fn changed<'a>(resource: &'a Resource, change: &'a str) -> Data<'a> {
    let Resource { tenant, kind, name } = resource;
    let (at, kind) = (now_ms(), *kind);
    Data { at, tenant, kind, name, change, reason: None, holder: None, token: None }
}

/// The word for what became of something, and why; `None` for what people need not be told.
fn change_of(fact: &Fact) -> Option<(&str, Option<&'static str>)> {
    let reason = match fact.outcome.as_str() {
        "expired" => Some("it was not renewed in time"),
        "preempted" => Some("a higher priority took it"),
        "revoked" => Some("an administrator took it"),
        "unknown" => Some("the store does not know it any more"),
        "conflict" => Some("somebody else has it"),
        _ => None,
    };
    match (fact.event, fact.outcome.as_str()) {
        // Neither is new.
        (Event::Grant, "found_held") | (Event::Release, "not_found") => None,
        (
            Event::Grant
            | Event::Release
            | Event::Wait
            | Event::Loss
            | Event::Preemption
            | Event::Register,
            outcome,
        ) => Some((outcome, reason)),
        // Of each claim that it ended there is a loss.
        (
            Event::Revocation
            | Event::Refusal
            | Event::RefusalsLeftOut
            | Event::Key
            | Event::Dropped,
            _,
        ) => None,
    }
}

fn event(name: &str, data: &impl Serialize) -> Option<Bytes> {
    let mut event = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut event, data).ok()?;
    event.extend_from_slice(b"\n\n");
    Some(event.into())
}

/// A reader, and what it may be told.
struct Reader {
    changes: broadcast::Receiver<Arc<Change>>,
    bounds: Arc<KeyBounds>,
    mark: Mark,
}

impl Reader {
    /// The event as this reader may have it: without the right, of others that something changed and no more.
    fn event(&self, change: &Change) -> Bytes {
        match &change.about {
            Some((id, bare)) if !self.bounds.rights.has(Right::Audit) && !self.mark.is_of(*id) => {
                bare.clone()
            }
            _ => change.event.clone(),
        }
    }
}

impl Source for Reader {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.changes.recv().await {
                Ok(change) if self.bounds.shows(&change.resource) => {
                    return Some(self.event(&change));
                }
                Ok(_) => {}
                // Some of them may have been none of its business: whoever has bounds is told less.
                Err(RecvError::Lagged(count)) => {
                    return event("missed", &serde_json::json!({ "missed": count }));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Tells what changes from now on.
pub(super) async fn changes(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.admit_person(&request)?;
    let place = face.budgets.stream(&caller)?;
    let changes = face.people.changes.readers.subscribe();
    let (bounds, mark) = (Arc::clone(&caller.bounds), caller.principal.mark);
    let reader = Reader { changes, bounds, mark };
    Ok(stream::open(face, caller, place, reader))
}

#[cfg(test)]
mod tests {
    use tenure_core::model::ClaimId;

    use super::*;
    use crate::access::{Access, Rights};

    fn fact(event: Event, outcome: &str, tenant: &str) -> Fact {
        let resource = Resource { tenant: tenant.into(), kind: Kind::Leader, name: "n".into() };
        let holder = Some("h".into());
        Fact { resource: Some(resource), token: Some(7), holder, ..Fact::new(event, outcome) }
    }

    fn reader(changes: &Changes, tenants: Option<&str>) -> Reader {
        let tenants = tenants.map(|it| tenure_bounds::Globs::new([it]).unwrap());
        let scope = tenure_bounds::Bounds { tenants, ..Default::default() };
        let rights = Rights::NONE.with(Right::Audit);
        let bounds = Arc::new(KeyBounds { scope, rights, ..KeyBounds::default() });
        Reader { changes: changes.readers.subscribe(), bounds, mark: Mark::of("alpha") }
    }

    async fn next(reader: &mut Reader) -> String {
        String::from_utf8(reader.next().await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_reader_is_told_what_is_within_its_bounds() {
        let changes = Changes::default();
        changes.tell_fact(&fact(Event::Grant, "granted", "nobody reads"));
        let (mut all, mut bound) = (reader(&changes, None), reader(&changes, Some("acme")));
        for (event, outcome, tenant) in [
            (Event::Grant, "found_held", "acme"),
            (Event::Grant, "granted", "other"),
            (Event::Loss, "expired", "acme"),
        ] {
            changes.tell_fact(&fact(event, outcome, tenant));
        }
        let granted = next(&mut all).await;
        assert!(granted.starts_with("event: change\ndata: {\"at\":") && granted.ends_with("}\n\n"));
        assert!(
            granted.contains(r#""tenant":"other","kind":"leader","name":"n","change":"granted","#)
        );
        assert!(granted.contains(r#""reason":null,"holder":"h","token":7}"#), "{granted}");
        for lost in [next(&mut all).await, next(&mut bound).await] {
            assert!(lost.contains(r#""change":"expired","reason":"it was not renewed"#), "{lost}");
        }
    }

    #[tokio::test]
    async fn without_the_right_a_change_of_another_principal_is_told_as_a_change_alone() {
        let changes = Changes::default();
        let mut alpha = reader(&changes, None);
        alpha.bounds = Arc::default();
        for name in ["beta", "alpha"] {
            let claim = Some(ClaimId(Mark::of(name).scoped(Uuid::nil())));
            changes.tell_fact(&Fact { claim, ..fact(Event::Grant, "granted", "t") });
        }
        let of_beta = next(&mut alpha).await;
        let bare = r#""change":"changed","reason":null,"holder":null,"token":null}"#;
        assert!(of_beta.contains(bare), "{of_beta}");
        let own = next(&mut alpha).await;
        assert!(
            own.contains(r#""change":"granted","reason":null,"holder":"h","token":7}"#),
            "{own}"
        );
    }

    #[test]
    fn what_happened_before_is_kept_up_to_a_bound_and_told_within_bounds_and_rights() {
        let changes = Changes::default();
        for token in 0..PAST_MAX as u64 + 5 {
            let claim = Some(ClaimId(Mark::of("beta").scoped(Uuid::nil())));
            let token = Some(token);
            changes.tell_fact(&Fact { claim, token, ..fact(Event::Grant, "granted", "acme") });
        }
        let mut caller = Access::anybody().caller(&axum::http::Request::new(())).unwrap();
        let past = changes.past(&caller);
        assert_eq!((past.len(), past[0].token), (PAST_MAX, Some(5)));
        assert_eq!((&*past[0].change, past[0].holder.as_deref()), ("granted", Some("h")));
        caller.bounds = Arc::default();
        let bare = changes.past(&caller).remove(0);
        assert_eq!((&*bare.change, bare.token, bare.holder), ("changed", None, None));
        let tenants = Some(tenure_bounds::Globs::new(["other"]).unwrap());
        let scope = tenure_bounds::Bounds { tenants, ..Default::default() };
        caller.bounds = Arc::new(KeyBounds { scope, ..KeyBounds::default() });
        assert_eq!(changes.past(&caller).len(), 0);
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_it_missed() {
        let changes = Changes::default();
        let mut slow = reader(&changes, None);
        for _ in 0..CHANGES_MAX + 5 {
            changes.tell_fact(&fact(Event::Grant, "granted", "acme"));
        }
        assert_eq!(next(&mut slow).await, "event: missed\ndata: {\"missed\":5}\n\n");
        for _ in 0..CHANGES_MAX {
            assert!(next(&mut slow).await.contains("granted"));
        }
    }

    #[tokio::test]
    async fn what_the_store_tells_of_a_change_that_was_told_is_not_told_again() {
        let changes = Changes::default();
        let mut all = reader(&changes, None);
        let granted = fact(Event::Grant, "granted", "acme");
        changes.tell_changed(granted.resource.as_ref().unwrap());
        changes.tell_fact(&granted);
        changes.tell_changed(granted.resource.as_ref().unwrap());
        changes.tell_fact(&fact(Event::Wait, "waiting", "acme"));
        for change in ["changed", "granted", "waiting"] {
            assert!(next(&mut all).await.contains(&format!("\"change\":\"{change}\"")));
        }
    }
}
