//! Renewals, as many in a call as the server does without keeping others waiting.

use std::collections::{BTreeMap, VecDeque};

use redis::Value;
use tenure_core::model::{Beat, BeatAnswer, Resource, Subject, defaults};
use tenure_wire::{Kind, Role};

use super::super::layout::{Layout, SemaphoreKey, hyphenated, session_text};
use super::By;
use super::decode::{gone, limit, revocation};
use super::encode::millis;
use super::reply::{Items, ReplyError, count, integer, text, unexpected};
use super::scripts::{self, Invocation};
use super::steady;

/// The most that the beats of one call take of the server, µs/10: it does nothing else meanwhile. Not a ms, as not
/// every machine is as fast as the one where the costs below were seen.
const COST_PER_CALL_MAX: usize = 8000;
/// The cost of a call that has other than steady beats, before the first of them: it makes all functions.
const COST_OF_OTHERS: usize = 350;

/// What a beat costs, µs/10, as seen on Redis 7.0: steady ones of ten thousand holds whose changes it tells of, the
/// others of few. That of a waiting permit does the work of a queue.
fn cost(beat: &Beat, is_steady: bool) -> usize {
    let kind = match &beat.subject {
        Subject::Session { .. } => return 45,
        Subject::Claim { resource, .. } => resource.kind,
    };
    match (kind, is_steady) {
        (Kind::Leader, true) => 40,
        (Kind::Semaphore, true) => 75,
        (Kind::Lease, true) => 70,
        (Kind::Leader, false) => 100,
        (Kind::Lease | Kind::Master, _) => 120,
        (Kind::Semaphore, false) => 150,
    }
}

/// How many of the first of these beats go into one call; for each, whether it is a steady one.
pub fn at_once<'a>(beats: impl IntoIterator<Item = (&'a Beat, bool)>) -> usize {
    let (mut sum, mut others) = (0, 0);
    let fits = |(beat, is_steady): &(&Beat, bool)| {
        sum += cost(beat, *is_steady);
        if !is_steady {
            others = COST_OF_OTHERS;
        }
        sum + others <= COST_PER_CALL_MAX
    };
    beats.into_iter().take_while(fits).count()
}

/// Renewals, some of them answered.
#[derive(Debug)]
pub(super) struct RenewPage {
    beats: Vec<Beat>,
    by: By,
    answers: Vec<Option<BeatAnswer>>,
    /// Those to be asked, by their place among `beats`.
    open: VecDeque<usize>,
    /// Those that are asked as steady ones, in the order of the call, each with the token of its grant …
    steady: Vec<(usize, u64)>,
    /// … and all others.
    others: Vec<usize>,
}

impl RenewPage {
    pub(super) fn new(beats: Vec<Beat>, by: By) -> RenewPage {
        let (answers, open) = (vec![None; beats.len()], (0..beats.len()).collect());
        RenewPage { beats, by, answers, open, steady: Vec::new(), others: Vec::new() }
    }

    /// The call for the beats that are to be answered next.
    pub(super) fn ask(&mut self, layout: &Layout) -> Invocation {
        let grants = self.by.grants.borrow();
        let known = self.open.iter().map(|at| (*at, grants.steady(&self.beats[*at])));
        let known: Vec<_> = known.collect();
        let costs = known.iter().map(|(at, token)| (&self.beats[*at], token.is_some()));
        let asked = at_once(costs);
        self.open.drain(..asked);
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for (at, token) in known.into_iter().take(asked) {
            match (token, &self.beats[at]) {
                (Some(token), Beat { subject: Subject::Claim { claim, resource }, ttl }) => {
                    let group = groups.entry((resource.kind as u8, *ttl)).or_default();
                    group.push((at, token, *claim, resource));
                }
                _ => self.others.push(at),
            }
        }
        let is_claim = |beat: &&Beat| matches!(beat.subject, Subject::Claim { .. });
        let longest = self.beats.iter().filter(is_claim).map(|beat| beat.ttl).max();
        let call = Invocation::new(&scripts::RENEW).for_ttl(longest.unwrap_or_default());
        let mut call = call.arg(groups.len());
        for ((_, ttl), group) in groups {
            call = steady::add(call, layout, ttl, group.iter().map(|it| (it.2, it.3)));
            self.steady.extend(group.iter().map(|(at, token, ..)| (*at, *token)));
        }
        let mut batch = Batch::default();
        for Beat { subject, ttl } in self.others.iter().map(|at| &self.beats[*at]) {
            let ttl = millis(*ttl).max(1).to_string();
            match subject {
                Subject::Session { session, .. } => {
                    let none = String::new;
                    batch.add(["session".to_owned(), none(), session_text(*session), none(), ttl]);
                }
                Subject::Claim { claim, resource: Resource { tenant, kind, name } } => {
                    let tenant = batch.tenant(tenant);
                    let id = hyphenated(claim.0);
                    batch.add([kind.to_string(), tenant, id, name.to_string(), ttl]);
                }
            }
        }
        batch.add_to(call, layout, &self.by)
    }

    /// Takes the answers to what was asked; whether there is more to ask.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        let mut grants = self.by.grants.borrow_mut();
        let mut items = Items::of(reply)?;
        for (at, token) in self.steady.drain(..) {
            let said = items.next();
            match integer(said)? {
                ..0 => {
                    // It is asked like any other.
                    grants.forget(&self.beats[at]);
                    self.open.push_front(at);
                }
                of => {
                    let limit = (of > 0).then(|| u32::try_from(of).unwrap_or(u32::MAX));
                    self.answers[at] = Some(BeatAnswer::Held { token, limit });
                }
            }
        }
        for at in self.others.drain(..) {
            let beat = &self.beats[at];
            let (answer, is_steady) = answer(&mut items)?;
            match answer {
                BeatAnswer::Held { token, .. } if is_steady => grants.note(beat, token),
                _ => grants.forget(beat),
            }
            self.answers[at] = Some(answer);
        }
        if !items.is_empty() {
            return Err(unexpected("as many answers as beats", &items.next()));
        }
        Ok(!self.open.is_empty())
    }

    pub(super) fn finish(self) -> Vec<BeatAnswer> {
        self.answers.into_iter().flatten().collect()
    }
}

/// The items of a call, and the tenants that they name by number.
#[derive(Default)]
struct Batch<'a> {
    tenants: Vec<&'a str>,
    items: Vec<[String; 5]>,
}

impl<'a> Batch<'a> {
    fn tenant(&mut self, tenant: &'a str) -> String {
        let known = self.tenants.iter().position(|it| *it == tenant);
        let index = known.unwrap_or_else(|| {
            self.tenants.push(tenant);
            self.tenants.len() - 1
        });
        (index + 1).to_string()
    }

    fn add(&mut self, item: [String; 5]) {
        self.items.push(item);
    }

    fn add_to(self, call: Invocation, layout: &Layout, by: &By) -> Invocation {
        if self.items.is_empty() {
            return call;
        }
        let mut call = call
            .arg(by.floor)
            .arg(layout.session(""))
            .arg(layout.masters())
            .arg(layout.session_channel(""))
            .arg(defaults::PREFERRED_SURFACE)
            .arg(defaults::PREFERRED_PRIORITY)
            .arg(layout.agent_channel(&by.agent))
            .arg(self.tenants.len());
        for tenant in self.tenants {
            for start in starts(layout, tenant) {
                call = call.arg(start);
            }
        }
        for part in self.items.into_iter().flatten() {
            call = call.arg(part);
        }
        call
    }
}

/// An answer, and whether the next beat of the same is a steady one.
fn answer(items: &mut Items) -> Result<(BeatAnswer, bool), ReplyError> {
    let word = items.next();
    let (first, second) = (items.next(), items.next());
    let answer = match text(word.clone())?.as_str() {
        said @ ("held" | "steady") => {
            let held = BeatAnswer::Held { token: count(first)?, limit: limit(second)? };
            return Ok((held, said == "steady"));
        }
        "waiting" => BeatAnswer::Waiting { position: count(first)?, limit: limit(second)? },
        "gone" => match revocation(&second) {
            Some(words) => BeatAnswer::Revoked(words),
            None => BeatAnswer::Gone(gone(first)?),
        },
        "session" => {
            let is_master = count(first)? > 0;
            BeatAnswer::Session { role: if is_master { Role::Master } else { Role::Peer } }
        }
        _ => return Err(unexpected("held, steady, waiting, gone or session", &word)),
    };
    Ok((answer, false))
}

/// The prefixes of a tenant's keys, in the order in which the script reads them.
fn starts(layout: &Layout, tenant: &str) -> [String; 19] {
    let of = |kind| layout.main(&Resource { tenant: tenant.into(), kind, name: "".into() });
    [
        of(Kind::Leader),
        of(Kind::Master),
        layout.master_claim(tenant, ""),
        of(Kind::Lease),
        of(Kind::Semaphore),
        layout.semaphore(tenant, SemaphoreKey::Ttl, ""),
        layout.semaphore(tenant, SemaphoreKey::Waiting, ""),
        layout.semaphore(tenant, SemaphoreKey::WaitingHeartbeat, ""),
        layout.semaphore(tenant, SemaphoreKey::Max, ""),
        layout.notification(tenant, ""),
        layout.claim(tenant, ""),
        layout.fence(tenant),
        layout.routes(tenant),
        layout.leases(tenant),
        layout.queues(tenant),
        layout.queues_ends(tenant),
        layout.queue_sessions(tenant, ""),
        layout.project_channel(tenant, ""),
        layout.sets(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::model::ClaimId;
    use uuid::Uuid;

    use super::*;

    fn beat(kind: Kind, id: u128) -> Beat {
        Beat {
            subject: Subject::Claim {
                claim: ClaimId(Uuid::from_u128(id)),
                resource: Resource { tenant: "t".into(), kind, name: "n".into() },
            },
            ttl: Duration::from_secs(30),
        }
    }

    #[test]
    fn a_call_has_as_many_beats_as_the_server_does_in_a_moment() {
        let calls = |kinds: &[Kind], are_steady: bool| {
            let beats = (0..600).map(|id| beat(kinds[id % kinds.len()], id as u128));
            let (beats, by) = (beats.collect::<Vec<_>>(), By::default());
            if are_steady {
                beats.iter().for_each(|beat| by.grants.borrow_mut().note(beat, 7));
            }
            let mut page = RenewPage::new(beats, by);
            let mut calls = Vec::new();
            loop {
                page.ask(&Layout::default());
                calls.push(page.steady.len() + page.others.len());
                let held = || [Value::SimpleString("held".into()), Value::Int(7), Value::Int(-1)];
                let answers = page.steady.iter().map(|_| Value::Int(0));
                let answers = answers.chain(page.others.iter().flat_map(|_| held()));
                if !page.take(Value::Array(answers.collect())).unwrap() {
                    assert_eq!(page.finish().len(), 600);
                    break calls;
                }
            }
        };
        assert_eq!(calls(&[Kind::Leader], true), [200, 200, 200]);
        assert_eq!(calls(&[Kind::Semaphore], true), [106, 106, 106, 106, 106, 70]);
        assert_eq!(calls(&[Kind::Leader], false)[0], 76);
        assert_eq!(calls(&[Kind::Semaphore], false)[0], 51);
        assert_eq!(calls(&[Kind::Leader, Kind::Master], true)[0], 95);
    }

    #[test]
    fn a_beat_that_is_not_steady_after_all_is_asked_like_any_other() {
        let beats = vec![beat(Kind::Leader, 1), beat(Kind::Leader, 2)];
        let by = By::default();
        beats.iter().for_each(|beat| by.grants.borrow_mut().note(beat, 7));
        let mut page = RenewPage::new(beats.clone(), by.clone());
        page.ask(&Layout::default());
        assert!(page.take(Value::Array(vec![Value::Int(-1), Value::Int(0)])).unwrap());
        page.ask(&Layout::default());
        assert_eq!((&page.steady[..], &page.others[..]), (&[][..], &[0][..]));
        let gone = [Value::SimpleString("gone".into()), Value::SimpleString("expired".into())];
        let gone = gone.into_iter().chain([Value::Int(-1)]).collect();
        assert!(!page.take(Value::Array(gone)).unwrap());
        let held = BeatAnswer::Held { token: 7, limit: None };
        let expired = BeatAnswer::Gone(tenure_core::model::GoneReason::Expired);
        assert_eq!(page.finish(), [expired, held]);
        assert_eq!(by.grants.borrow().steady(&beats[0]), None);
        assert_eq!(by.grants.borrow().steady(&beats[1]), Some(7));
    }
}
