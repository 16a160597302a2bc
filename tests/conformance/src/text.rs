//! Answers as one line, for the trace of a run.

use std::fmt::Write;
use std::time::Duration;

use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, StandingEntry, UpstreamStanding};
use tenure_wire::Routes;
use uuid::Uuid;

/// Enough of an id to tell it from the others of a run.
pub(crate) fn short(id: Uuid) -> String {
    let mut text = id.simple().to_string();
    text.truncate(6);
    text
}

/// A duration in seconds and ms.
pub(crate) fn ms(duration: Duration) -> String {
    let ms = duration.as_millis();
    format!("{}.{:03}s", ms / 1000, ms % 1000)
}

/// An answer as one line.
pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Claim(answer) => claim(answer),
        Answer::Renew(answers) => {
            let beats: Vec<String> = answers.iter().map(beat).collect();
            beats.join(", ")
        }
        Answer::Released(there) => format!("released {there}"),
        Answer::Announced => "announced".to_owned(),
        Answer::Ended(there) => format!("ended {there}"),
        Answer::Standing(it) => standing(it),
        Answer::Members(it) => format!("{it:?}"),
        Answer::Routes(it) => routes(it),
        Answer::Recorded => "recorded".to_owned(),
        Answer::History(changes) => {
            let changes = changes.iter().map(|it| format!("{} {}", it.what, it.token));
            changes.collect::<Vec<_>>().join(", ")
        }
        Answer::Resources { resources, next } => format!("{resources:?}, next {next:?}"),
        Answer::Revoked(count) => format!("revoked {count}"),
    }
}

fn claim(answer: &ClaimAnswer) -> String {
    match answer {
        ClaimAnswer::Held { token, limit, limit_was } => {
            format!("held {token}{}{}", of(*limit), was(*limit_was))
        }
        ClaimAnswer::Waiting { position, limit, limit_was } => {
            format!("waiting {position}{}{}", of(*limit), was(*limit_was))
        }
        ClaimAnswer::Contended { holder, free_in, limit, limit_was } => {
            let holder = holder.as_ref().map_or_else(|| "nobody".to_owned(), entry);
            let free_in = free_in.map_or_else(|| "never".to_owned(), ms);
            format!("contended {holder}, free in {free_in}{}{}", of(*limit), was(*limit_was))
        }
        ClaimAnswer::Gone(reason) => format!("gone {reason:?}"),
        ClaimAnswer::Quarantined { free_in } => format!("quarantined {}", ms(*free_in)),
    }
}

fn beat(answer: &BeatAnswer) -> String {
    match answer {
        BeatAnswer::Held { token, limit } => format!("held {token}{}", of(*limit)),
        BeatAnswer::Waiting { position, limit } => format!("waiting {position}{}", of(*limit)),
        BeatAnswer::Gone(reason) => format!("gone {reason:?}"),
        BeatAnswer::Revoked(words) => format!("gone {words:?}"),
        BeatAnswer::Session { role } => format!("{role:?}"),
        BeatAnswer::Failed(cause) => format!("failed: {cause}"),
    }
}

fn was(limit: Option<u32>) -> String {
    limit.map(|limit| format!(" instead of {limit}")).unwrap_or_default()
}

fn of(limit: Option<u32>) -> String {
    limit.map(|limit| format!(" of {limit}")).unwrap_or_default()
}

fn entry(entry: &StandingEntry) -> String {
    let StandingEntry { claim, owner, token, since, unbeaten } = entry;
    let unbeaten = unbeaten.map(|it| format!(" unbeaten {}", ms(it))).unwrap_or_default();
    let (claim, session) = (short(claim.0), short(owner.session.0));
    format!(
        "{claim} of {session} {}@{} token {token} since {}{unbeaten}",
        owner.name,
        owner.host,
        ms(*since)
    )
}

fn standing(standing: &UpstreamStanding) -> String {
    let list = |entries: &[StandingEntry]| -> String {
        entries.iter().map(entry).collect::<Vec<_>>().join(", ")
    };
    let UpstreamStanding {
        limit,
        holders,
        holding,
        waiters,
        waiting,
        sessions,
        members,
        runs_out,
        lease: _,
    } = standing;
    let runs_out = runs_out.map(|left| format!(", runs out in {}", ms(left))).unwrap_or_default();
    let (holders, waiters) = (list(holders), list(waiters));
    let of = of(*limit);
    format!(
        "held {holding} [{holders}] waiting {waiting} [{waiters}]{of} {members} {sessions:?}{runs_out}"
    )
}

fn routes(routes: &Routes) -> String {
    let mut text = format!("version {}", routes.version);
    for it in &routes.routes {
        let _ = write!(
            text,
            " [{:?} {}@{} {:?} {:?} {} {} token {} v{}]",
            it.name,
            it.holder,
            it.host,
            it.address,
            it.proxy_id,
            it.partition,
            it.status,
            it.token,
            it.version
        );
    }
    text
}
