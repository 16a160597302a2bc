//! Runs a transcript and compares what happens with what it says.
//!
//! A line that starts with a number is a request at that second; `#` starts a comment. Times are
//! in seconds, tokens start at 1. Words:
//!
//! ```text
//! claim ID by SESSION RESOURCE [ttl=30] [max_hold=N] [limit=1] [keep] [priority=0] [grace=0]
//!                              [address=A] [status=S] [partition=N] [try]
//! renew ID RESOURCE [ttl=30]      release ID RESOURCE       revoke RESOURCE [token=N]
//! announce SESSION in PROJECT     beat SESSION [ttl=90]     end SESSION in PROJECT
//! inspect RESOURCE                routes [NAME]             wait
//! quarantine until=N              extend upto=N             restart [gone=ID]
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Attributes, Kind, Role};
use uuid::Uuid;

use super::super::{Effect, Engine, EngineSettings, TokenRange};
use super::mirror::Mirror;
use crate::model::{
    Answer, Beat, BeatAnswer, Change, Claim, ClaimAnswer, ClaimId, Owner, Request, Resource,
    SessionId, SessionRecord, StandingEntry, Subject, Terms,
};
use crate::time::Boottime;

pub(super) const TOKENS: TokenRange = TokenRange { first: 1, last: 1_000_000 };

#[track_caller]
pub(super) fn check(transcript: &str) {
    check_with(EngineSettings::default(), TOKENS, transcript);
}

#[track_caller]
pub(super) fn check_with(settings: EngineSettings, tokens: TokenRange, transcript: &str) {
    let expected: Vec<&str> = transcript
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .collect();
    let mut run = Run {
        engine: Engine::new(settings.clone(), tokens),
        mirror: Mirror::default(),
        settings,
        tokens,
    };
    let mut actual = String::new();
    for line in expected.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let _ = writeln!(actual, "{line}");
        run.step(line, &mut actual);
    }
    let expected = expected.join("\n") + "\n";
    assert!(expected == actual, "expected:\n{expected}\nactual:\n{actual}");
}

struct Run {
    engine: Engine,
    mirror: Mirror,
    settings: EngineSettings,
    tokens: TokenRange,
}

/// A line taken apart.
struct Line<'a> {
    now: Boottime,
    words: Vec<&'a str>,
    options: HashMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Line<'a> {
        let mut words = line.split_whitespace();
        let now = at(words.next().unwrap());
        let mut parsed = Line { now, words: Vec::new(), options: HashMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(parsed.options.insert(key, value)),
                None => parsed.words.push(word),
            }
        }
        parsed
    }

    fn number(&self, key: &str, default: u64) -> u64 {
        self.options.get(key).map_or(default, |value| value.parse().unwrap())
    }

    fn seconds(&self, key: &str, default: u64) -> Duration {
        Duration::from_secs(self.number(key, default))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.options.get(key).map(|value| (*value).to_owned())
    }
}

fn at(seconds: &str) -> Boottime {
    Boottime::ZERO + Duration::from_secs(seconds.parse().unwrap())
}

/// Short names are ids: their bytes.
fn id(name: &str) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Uuid::from_bytes(bytes)
}

fn name(id: Uuid) -> String {
    String::from_utf8_lossy(id.as_bytes()).trim_end_matches('\0').to_owned()
}

pub(super) fn resource(text: &str) -> Resource {
    let (tenant, rest) = text.split_once(':').unwrap_or(("default", text));
    let (kind, name) = rest.split_once('/').unwrap();
    let kind: Kind = kind.parse().unwrap();
    Resource { tenant: Arc::from(tenant), kind, name: Arc::from(name) }
}

fn owner(session: &str) -> Owner {
    let name = format!("{session}-name");
    Owner { session: SessionId(id(session)), host: Arc::from("host"), name: Arc::from(name) }
}

fn claim(line: &Line<'_>) -> Claim {
    let resource = resource(line.words[4]);
    let terms = match resource.kind {
        Kind::Leader => Terms::Leader,
        Kind::Master => Terms::Master {
            priority: line.options.get("priority").map_or(0, |it| it.parse().unwrap()),
        },
        Kind::Semaphore => Terms::Semaphore {
            limit: line.number("limit", 1) as u32,
            keeps: line.words.contains(&"keep"),
        },
        Kind::Lease => Terms::Lease {
            grace: line.seconds("grace", 0),
            attributes: Attributes {
                address: line.text("address"),
                status: line.text("status"),
                partition: line.options.get("partition").map(|number| number.parse().unwrap()),
                proxy_id: None,
            },
        },
    };
    Claim {
        id: ClaimId(id(line.words[1])),
        resource,
        owner: owner(line.words[3]),
        ttl: line.seconds("ttl", 30),
        max_hold: line.options.contains_key("max_hold").then(|| line.seconds("max_hold", 0)),
        terms,
        enqueue: !line.words.contains(&"try"),
    }
}

fn request(line: &Line<'_>) -> Option<Request> {
    let word = |index: usize| line.words[index];
    let claim_id = || ClaimId(id(word(1)));
    let tenant = || Arc::from("default");
    Some(match word(0) {
        "claim" => Request::Claim(claim(line)),
        "renew" => Request::Renew(vec![Beat {
            subject: Subject::Claim { claim: claim_id(), resource: resource(word(2)) },
            ttl: line.seconds("ttl", 30),
        }]),
        "beat" => Request::Renew(vec![Beat {
            subject: Subject::Session(SessionId(id(word(1)))),
            ttl: line.seconds("ttl", 90),
        }]),
        "release" => Request::Release { claim: claim_id(), resource: resource(word(2)) },
        "revoke" => Request::Revoke {
            resource: resource(word(1)),
            token: line.options.contains_key("token").then(|| line.number("token", 0)),
        },
        "announce" => Request::Announce(SessionRecord {
            owner: owner(word(1)),
            tenant: tenant(),
            project: Arc::from(word(3)),
            surface: Arc::from("cli"),
            ttl: line.seconds("ttl", 90),
        }),
        "end" => Request::EndSession {
            session: SessionId(id(word(1))),
            tenant: tenant(),
            project: Arc::from(word(3)),
        },
        "inspect" => Request::Inspect(resource(word(1))),
        "routes" => Request::Routes {
            tenant: tenant(),
            name: line.words.get(1).map(|name| Arc::from(*name)),
            page: crate::model::Page::whole(),
        },
        _ => return None,
    })
}

impl Run {
    fn step(&mut self, text: &str, out: &mut String) {
        let line = Line::parse(text);
        if let Some(request) = request(&line) {
            let answer = self.engine.handle(line.now, request);
            let _ = writeln!(out, "= {}", show(&answer));
        } else {
            match line.words[0] {
                "wait" => self.engine.handle_timeout(line.now),
                "quarantine" => {
                    self.engine.quarantine(Boottime::ZERO + line.seconds("until", 0));
                }
                "extend" => self.engine.extend_tokens(line.number("upto", 0)),
                "restart" => {
                    let saved = self.mirror.saved();
                    // Its holder knows that it has run out by now.
                    let gone = line.options.get("gone").map(|gone| (ClaimId(id(gone)), line.now));
                    self.engine = Engine::restore(
                        self.settings.clone(),
                        self.tokens,
                        saved,
                        &gone.into_iter().collect(),
                        line.now,
                    );
                }
                other => panic!("{other:?} is not a word of transcripts"),
            }
        }
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Persist(entry) => self.mirror.write(entry),
                Effect::ReserveTokens => out.push_str("! reserve tokens\n"),
                Effect::Change(change) => {
                    let _ = writeln!(out, "! {}", show_change(&change));
                }
            }
        }
    }
}

fn show(answer: &Answer) -> String {
    match answer {
        Answer::Claim(ClaimAnswer::Held { token, limit, limit_was }) => {
            held(*token, *limit) + &was(*limit_was)
        }
        Answer::Claim(ClaimAnswer::Waiting { position, limit, limit_was }) => {
            waiting(*position, *limit) + &was(*limit_was)
        }
        Answer::Claim(ClaimAnswer::Contended { holder, free_in, limit, limit_was }) => {
            let holder = holder.as_ref().map_or("nobody".to_owned(), |it| name(it.claim.0));
            let free_in = free_in.map_or(String::new(), |it| format!(" free_in={}", it.as_secs()));
            format!("contended {holder}{free_in}{}{}", of(*limit), was(*limit_was))
        }
        Answer::Claim(ClaimAnswer::Gone(reason)) => format!("gone {reason:?}"),
        Answer::Claim(ClaimAnswer::Quarantined { free_in }) => {
            format!("quarantined {}", free_in.as_secs_f64())
        }
        Answer::Renew(answers) => match answers.as_slice() {
            [BeatAnswer::Held { token, limit }] => held(*token, *limit),
            [BeatAnswer::Waiting { position, limit }] => waiting(*position, *limit),
            [BeatAnswer::Gone(reason)] => format!("gone {reason:?}"),
            [BeatAnswer::Session { role: Role::Master }] => "master".to_owned(),
            [BeatAnswer::Session { .. }] => "peer".to_owned(),
            other => format!("{other:?}"),
        },
        Answer::Released(there) | Answer::Ended(there) => there.to_string(),
        Answer::Announced => "announced".to_owned(),
        Answer::Revoked(count) => format!("revoked {count}"),
        Answer::Standing(standing) => {
            let list = |entries: &[StandingEntry]| -> Vec<String> {
                let show = |entry: &StandingEntry| {
                    format!("{}:{}@{}", name(entry.claim.0), entry.token, entry.since.as_secs())
                };
                entries.iter().map(show).collect()
            };
            let mut text = format!("held [{}]", list(&standing.holders).join(" "));
            if !standing.waiters.is_empty() {
                let _ = write!(text, " waiting [{}]", list(&standing.waiters).join(" "));
            }
            if !standing.sessions.is_empty() {
                let _ = write!(text, " sessions [{}]", standing.sessions.join(" "));
            }
            text + &of(standing.limit)
        }
        Answer::Routes(routes) => {
            let mut text = format!("version {}", routes.version);
            for route in &routes.routes {
                let _ = write!(
                    text,
                    " [{} {} {:?} {} {} {} v{}]",
                    route.name,
                    route.holder,
                    route.address,
                    route.partition,
                    route.status,
                    route.token,
                    route.version
                );
            }
            text
        }
    }
}

fn held(token: u64, limit: Option<u32>) -> String {
    format!("held {token}{}", of(limit))
}

fn waiting(position: u64, limit: Option<u32>) -> String {
    format!("waiting {position}{}", of(limit))
}

fn was(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |limit| format!(" instead of {limit}"))
}

fn of(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |limit| format!(" of {limit}"))
}

fn show_change(change: &Change) -> String {
    match change {
        Change::Resource(resource) => format!("changed {resource}"),
        Change::Granted { claim, .. } => format!("granted {}", name(claim.0)),
        Change::Lost { claim, .. } => format!("lost {}", name(claim.0)),
        Change::Message { project, session, payload, .. } => {
            let to = session.map_or_else(|| project.to_string(), |session| name(session.0));
            let by = payload.get("by").unwrap_or(payload);
            let who = by["name"].as_str().unwrap_or_default();
            format!("message to {to}: {} {who}", payload["type"].as_str().unwrap_or_default())
        }
    }
}
