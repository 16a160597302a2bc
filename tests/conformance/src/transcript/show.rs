//! Answers and hints as a transcript has them.

use std::fmt::Write as _;

use tenure_core::model::{Answer, BeatAnswer, Change, ClaimAnswer, StandingEntry};
use tenure_wire::Role;

use super::line::name;

pub(super) fn show(answer: &Answer) -> String {
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
            [BeatAnswer::Revoked(words)] => format!("revoked by {}", words.by),
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
        Answer::Recorded => "recorded".to_owned(),
        Answer::History(changes) => {
            let changes = changes.iter().map(|it| format!("{} {}", it.what, it.token));
            changes.collect::<Vec<_>>().join(", ")
        }
        Answer::Resources { resources, next } => format!("{resources:?}, next {next:?}"),
        Answer::Members(members) => format!("{members:?}"),
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

pub(super) fn show_change(change: &Change) -> String {
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
