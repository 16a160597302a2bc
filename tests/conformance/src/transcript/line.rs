//! Reading the lines of a transcript.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Beat, Claim, ClaimId, Owner, Page, Request, Resource, SessionId, SessionRecord, Subject,
    TakeOver, Terms,
};
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

/// A line taken apart.
pub(super) struct Line<'a> {
    pub(super) second: u64,
    pub(super) words: Vec<&'a str>,
    options: HashMap<&'a str, &'a str>,
}

/// The meaning of a line.
pub(super) enum Asked {
    Request(Request),
    /// Revokes the grant of a claim by its token, or by one that was never granted.
    RevokeOf {
        resource: Resource,
        of: Option<ClaimId>,
    },
    Reconnect,
    /// Time passes.
    Nothing,
    /// A word of the engine alone.
    OfEngine,
}

impl<'a> Line<'a> {
    /// `None` for a line of settings, which are of the engine alone.
    pub(super) fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut words = line.split_whitespace();
        let second = words.next()?.parse().ok()?;
        let mut parsed = Line { second, words: Vec::new(), options: HashMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(parsed.options.insert(key, value)),
                None => parsed.words.push(word),
            }
        }
        Some(parsed)
    }

    pub(super) fn option(&self, key: &str) -> Option<&'a str> {
        self.options.get(key).copied()
    }

    pub(super) fn number(&self, key: &str, default: u64) -> u64 {
        self.option(key).map_or(default, |value| value.parse().expect("a number"))
    }

    fn seconds(&self, key: &str, default: u64) -> Duration {
        Duration::from_secs(self.number(key, default))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.option(key).map(str::to_owned)
    }

    pub(super) fn asked(&self) -> Asked {
        let word = |index: usize| self.words[index];
        let claim_id = || ClaimId(id(word(1)));
        let tenant = || Arc::from("default");
        Asked::Request(match word(0) {
            "claim" => Request::Claim(self.claim()),
            "renew" => Request::Renew(vec![Beat {
                subject: Subject::Claim { claim: claim_id(), resource: resource(word(2)) },
                ttl: self.seconds("ttl", 30),
            }]),
            "beat" => Request::Renew(vec![Beat {
                subject: Subject::Session {
                    session: SessionId(id(word(1))),
                    master: resource("master/p"),
                },
                ttl: self.seconds("ttl", 90),
            }]),
            "release" => Request::Release { claim: claim_id(), resource: resource(word(2)) },
            "revoke" if self.words.get(2) == Some(&"of") => {
                let of = (word(3) != "nobody").then(|| ClaimId(id(word(3))));
                return Asked::RevokeOf { resource: resource(word(1)), of };
            }
            "revoke" => {
                Request::Revoke { resource: resource(word(1)), token: None, revocation: None }
            }
            "announce" => Request::Announce(SessionRecord {
                owner: owner(word(1)),
                tenant: tenant(),
                project: Arc::from(word(3)),
                surface: Arc::from("cli"),
                ttl: self.seconds("ttl", 90),
                registered_at: None,
            }),
            "end" => Request::EndSession {
                session: SessionId(id(word(1))),
                tenant: tenant(),
                project: Arc::from(word(3)),
            },
            "inspect" => Request::Inspect(resource(word(1))),
            "holders" => Request::Holders(resource(word(1))),
            "routes" => Request::Routes {
                tenant: tenant(),
                name: self.words.get(1).map(|name| Arc::from(*name)),
                page: Page::whole(),
            },
            "wait" => return Asked::Nothing,
            "reconnect" => return Asked::Reconnect,
            "quarantine" | "extend" | "restart" => return Asked::OfEngine,
            other => panic!("{other:?} is not a word of transcripts"),
        })
    }

    fn claim(&self) -> Claim {
        let resource = resource(self.words[4]);
        let terms = match resource.kind {
            Kind::Leader => Terms::Leader,
            Kind::Master => Terms::Master {
                priority: self.option("priority").map_or(0, |it| it.parse().expect("a number")),
            },
            Kind::Semaphore => Terms::Semaphore {
                limit: self.number("limit", 1) as u32,
                keeps: self.words.contains(&"keep"),
                only_own: false,
            },
            Kind::Lease => Terms::Lease {
                grace: self.seconds("grace", 0),
                attributes: Attributes {
                    address: self.text("address"),
                    status: self.text("status"),
                    partition: self.option("partition").map(|it| it.parse().expect("a number")),
                    proxy_id: self.text("proxy"),
                },
                take_over: self.option("take_over").map(|from| {
                    Box::new(TakeOver {
                        from: ClaimId(id(from)),
                        unbeaten: self.seconds("unbeaten", 0),
                    })
                }),
            },
        };
        Claim {
            id: ClaimId(id(self.words[1])),
            resource,
            owner: owner(self.words[3]),
            ttl: self.seconds("ttl", 30),
            terms,
            enqueue: !self.words.contains(&"try"),
        }
    }
}

/// Short names are ids: their bytes.
pub(super) fn id(name: &str) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Uuid::from_bytes(bytes)
}

/// The short name of an id.
pub(super) fn name(id: Uuid) -> String {
    String::from_utf8_lossy(id.as_bytes()).trim_end_matches('\0').to_owned()
}

/// `leader/x`, or `acme:leader/x` for another tenant.
fn resource(text: &str) -> Resource {
    let (scope, name) = text.split_once('/').expect("KIND/NAME");
    let (tenant, kind) = scope.split_once(':').unwrap_or(("default", scope));
    let kind: Kind = kind.parse().expect("a kind");
    Resource { tenant: Arc::from(tenant), kind, name: Arc::from(name) }
}

fn owner(session: &str) -> Owner {
    let name = format!("{session}-name");
    Owner { session: SessionId(id(session)), host: Arc::from("host"), name: Arc::from(name) }
}
