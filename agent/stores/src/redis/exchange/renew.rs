//! Renewals, as many in a call as the server does without keeping others waiting.

use std::time::Duration;

use redis::Value;
use tenure_core::model::{Beat, BeatAnswer, Resource, Subject, defaults};
use tenure_wire::{Kind, Role};

use super::super::layout::{Layout, SemaphoreKey, hyphenated, session_text};
use super::By;
use super::decode::{gone, limit};
use super::encode::millis;
use super::reply::{Items, ReplyError, count, integer, text, unexpected};
use super::scripts::{self, Invocation};

/// The most that the beats of one call cost the server: about a millisecond, for which it does
/// nothing else. A leader's beat costs 1.
const COST_PER_CALL_MAX: usize = 256;

/// The cost of a beat, in those of a leader. That of a waiting permit does the work of a queue.
fn cost(beat: &Beat) -> usize {
    match &beat.subject {
        Subject::Session(_) => 2,
        Subject::Claim { resource, .. } => match resource.kind {
            Kind::Leader => 1,
            Kind::Master | Kind::Lease => 3,
            Kind::Semaphore => 4,
        },
    }
}

/// How many of the first of these beats go into one call.
pub fn at_once(beats: &[Beat]) -> usize {
    let mut left = COST_PER_CALL_MAX;
    let fits = |beat: &&Beat| match left.checked_sub(cost(beat)) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    beats.iter().take_while(fits).count()
}

/// Renewals, some of them answered.
#[derive(Debug)]
pub(super) struct RenewPage {
    beats: Vec<Beat>,
    by: By,
    answers: Vec<BeatAnswer>,
}

impl RenewPage {
    pub(super) fn new(beats: Vec<Beat>, by: By) -> RenewPage {
        RenewPage { answers: Vec::with_capacity(beats.len()), beats, by }
    }

    fn asked(&self) -> &[Beat] {
        let rest = &self.beats[self.answers.len()..];
        &rest[..at_once(rest)]
    }

    /// The call for the beats that are to be answered next.
    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        let mut batch = Batch::default();
        for Beat { subject, ttl } in self.asked() {
            let ttl = millis(*ttl).max(1).to_string();
            match subject {
                Subject::Session(session) => {
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
        batch.call(layout, &self.by)
    }

    /// Takes the answers to what was asked; whether there is more to ask.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        let asked = self.asked().len();
        let mut items = Items::of(reply)?;
        for _ in 0..asked {
            let answer = answer(&mut items)?;
            self.answers.push(answer);
        }
        if !items.is_empty() {
            return Err(unexpected("as many answers as beats", &items.next()));
        }
        Ok(self.answers.len() < self.beats.len())
    }

    pub(super) fn finish(self) -> Vec<BeatAnswer> {
        self.answers
    }
}

/// Looks after those who wait for exclusive resources: purges who ran out, and grants what is free.
pub fn look(layout: &Layout, resources: &[Resource], by: &By) -> Invocation {
    let mut batch = Batch::default();
    for Resource { tenant, kind, name } in resources {
        let tenant = batch.tenant(tenant);
        let none = "0".to_owned();
        batch.add(["look".to_owned(), tenant, kind.to_string(), name.to_string(), none]);
    }
    batch.call(layout, by)
}

/// How an exclusive resource was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// When somebody's time is up; a good time to look again.
    pub next: Option<Duration>,
    /// How many wait for it.
    pub waiting: u64,
    /// True if somebody has it.
    pub taken: bool,
}

/// The findings of [`look`], in the same order.
pub fn looked(reply: Value) -> Result<Vec<Looked>, ReplyError> {
    let mut items = Items::of(reply)?;
    let mut looked = Vec::new();
    while !items.is_empty() {
        text(items.next())?;
        // Negative where nobody holds it, or for as long as he likes.
        let next = u64::try_from(integer(items.next())?).ok().map(Duration::from_millis);
        looked.push(Looked {
            next,
            waiting: count(items.next())?,
            taken: count(items.next())? > 0,
        });
    }
    Ok(looked)
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

    fn call(self, layout: &Layout, by: &By) -> Invocation {
        let mut call = Invocation::new(&scripts::RENEW)
            .arg(by.floor)
            .arg(layout.session(""))
            .arg(layout.masters())
            .arg(layout.session_channel(""))
            .arg(layout.lost_channel())
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

fn answer(items: &mut Items) -> Result<BeatAnswer, ReplyError> {
    let word = items.next();
    let (first, second) = (items.next(), items.next());
    match text(word.clone())?.as_str() {
        "held" => Ok(BeatAnswer::Held { token: count(first)?, limit: limit(second)? }),
        "waiting" => Ok(BeatAnswer::Waiting { position: count(first)?, limit: limit(second)? }),
        "gone" => Ok(BeatAnswer::Gone(gone(first)?)),
        "session" => {
            let is_master = count(first)? > 0;
            Ok(BeatAnswer::Session { role: if is_master { Role::Master } else { Role::Peer } })
        }
        _ => Err(unexpected("held, waiting, gone or session", &word)),
    }
}

/// The prefixes of a tenant's keys, in the order in which the script reads them.
fn starts(layout: &Layout, tenant: &str) -> [String; 18] {
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
    ]
}

#[cfg(test)]
mod tests {
    use tenure_core::model::ClaimId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_call_has_as_many_beats_as_the_server_does_in_a_moment() {
        let beat = |kind, id| Beat {
            subject: Subject::Claim {
                claim: ClaimId(Uuid::from_u128(id)),
                resource: Resource { tenant: "t".into(), kind, name: "n".into() },
            },
            ttl: Duration::from_secs(30),
        };
        let calls = |kinds: &[Kind]| {
            let beats = (0..300).map(|id| beat(kinds[id % kinds.len()], id as u128)).collect();
            let mut page = RenewPage::new(beats, By::default());
            let mut calls = Vec::new();
            loop {
                let asked = page.asked().len();
                calls.push(asked);
                let held = || [Value::SimpleString("held".into()), Value::Int(7), Value::Int(-1)];
                let answers = (0..asked).flat_map(|_| held());
                if !page.take(Value::Array(answers.collect())).unwrap() {
                    break calls;
                }
            }
        };
        assert_eq!(calls(&[Kind::Leader]), [256, 44]);
        assert_eq!(calls(&[Kind::Semaphore]), [64, 64, 64, 64, 44]);
        assert_eq!(calls(&[Kind::Leader, Kind::Semaphore]), [103, 102, 95]);
    }
}
