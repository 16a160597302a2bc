//! Renewals, as many in a call as the server does without keeping others waiting.

use redis::Value;
use tenure_core::model::{Beat, BeatAnswer, Resource, Subject};
use tenure_wire::{Kind, Role};

use super::super::layout::{Layout, SemaphoreKey, hyphenated, session_text};
use super::decode::{gone, limit};
use super::encode::millis;
use super::reply::{Items, ReplyError, count, text, unexpected};
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
    floor: u64,
    answers: Vec<BeatAnswer>,
}

impl RenewPage {
    pub(super) fn new(beats: Vec<Beat>, floor: u64) -> RenewPage {
        RenewPage { answers: Vec::with_capacity(beats.len()), beats, floor }
    }

    fn asked(&self) -> &[Beat] {
        let rest = &self.beats[self.answers.len()..];
        &rest[..at_once(rest)]
    }

    /// The call for the beats that are to be answered next.
    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        let mut tenants: Vec<&str> = Vec::new();
        let mut beats: Vec<[String; 5]> = Vec::with_capacity(self.asked().len());
        for Beat { subject, ttl } in self.asked() {
            let ttl = millis(*ttl).max(1).to_string();
            beats.push(match subject {
                Subject::Session(session) => {
                    let none = String::new;
                    ["session".to_owned(), none(), session_text(*session), none(), ttl]
                }
                Subject::Claim { claim, resource: Resource { tenant, kind, name } } => {
                    let known = tenants.iter().position(|it| **it == **tenant);
                    let index = known.unwrap_or_else(|| {
                        tenants.push(tenant);
                        tenants.len() - 1
                    });
                    let id = hyphenated(claim.0);
                    [kind.to_string(), (index + 1).to_string(), id, name.to_string(), ttl]
                }
            });
        }
        let mut call = Invocation::new(&scripts::RENEW)
            .arg(self.floor)
            .arg(layout.session(""))
            .arg(layout.masters())
            .arg(tenants.len());
        for tenant in tenants {
            for start in starts(layout, tenant) {
                call = call.arg(start);
            }
        }
        for part in beats.into_iter().flatten() {
            call = call.arg(part);
        }
        call
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
fn starts(layout: &Layout, tenant: &str) -> [String; 13] {
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
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            let mut page = RenewPage::new(beats, 0);
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
