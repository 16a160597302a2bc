//! What may stand in a request to a store, and in its answer.
//!
//! A request that makes something new (claim, announcement, revocation, change for the history) is judged strictly: its
//! names are visible, its tenant and project have no colon. A request about what is there already (beat, release, end,
//! inspection, listing, history) takes each name that a program without Tenure may have chosen in a store that others
//! use, too: it is bounded in length, has no U+0000, and no colon where a store splits its keys. Texts that others wrote,
//! such as command lines, are bounded in length only, and escaped where they are shown.

use std::time::Duration;

use tenure_wire::Kind;
use tenure_wire::rules::{
    self, BARRED_MAX, Checked, Invalid, NAME_MAX, TIME_MAX, existing, existing_part, foreign_text,
    part, visible, visible_within,
};

use super::agents::FACTS_BYTES_MAX;
use super::{
    Answer, BEATS_MAX, Beat, BeatAnswer, Claim, ClaimAnswer, Ending, HistoryEntry, Holder, Owner,
    Page, RECORD_MAX, REVOKED_BY_MAX, Request, Resource, Revocation, SessionRecord, StandingEntry,
    Subject, TEXT_BYTES_MAX, TakeOver, Terms, Within,
};

/// Shortest ttl.
const TTL_MIN: Duration = Duration::from_millis(1);
/// Longest time that is told of the past.
const PAST_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Greatest number of a process.
const PID_MAX: u64 = i32::MAX as u64;

impl Request {
    /// Judges every field. A store refuses what does not pass, and is not asked.
    ///
    /// # Errors
    ///
    /// With the first field that breaks a rule.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Request::Claim(claim) => check_claim(claim),
            Request::Renew(beats) => check_beats(beats),
            Request::Release { resource, .. }
            | Request::Inspect(resource)
            | Request::Holders(resource)
            | Request::History(resource) => check_existing(resource),
            Request::Announce(record) => check_record(record),
            Request::EndSession { tenant, project, .. } => check_project(tenant, project),
            Request::Members { within, page, .. } => {
                if let Within::Project { tenant, project } = within {
                    check_project(tenant, project)?;
                }
                page.as_ref().map_or(Ok(()), check_page)
            }
            Request::Routes { tenant, name, page } => {
                existing_part("tenant", tenant)?;
                rules::optional("name", name.as_deref(), existing)?;
                check_page(page)
            }
            Request::Resources { page } => check_page(page),
            Request::Revoke { resource, token, revocation } => {
                check_new(resource)?;
                token.map_or(Ok(()), |token| rules::token("token", token))?;
                revocation.as_deref().map_or(Ok(()), check_revocation)
            }
            Request::Record(changes) => check_changes(changes),
        }
    }
}

impl Answer {
    /// Judges the tokens, by which guarded resources know late writers: 0 and what no store counts to are of no grant.
    ///
    /// # Errors
    ///
    /// With the first field that breaks a rule.
    pub fn check(&self) -> Result<(), Invalid> {
        // What programs without Tenure hold in a store that others use has no token: 0.
        let shown = |field, token| if token == 0 { Ok(()) } else { rules::token(field, token) };
        let holder = |holder: &StandingEntry| shown("holder.token", holder.token);
        match self {
            Answer::Claim(ClaimAnswer::Held { token, .. }) => rules::token("token", *token),
            Answer::Claim(ClaimAnswer::Contended { holder: Some(entry), .. }) => holder(entry),
            Answer::Renew(answers) => answers.iter().try_for_each(|answer| match answer {
                BeatAnswer::Held { token, .. } => rules::token("token", *token),
                _ => Ok(()),
            }),
            Answer::Standing(standing) => standing.holders.iter().try_for_each(holder),
            Answer::Routes(routes) => {
                routes.routes.iter().try_for_each(|route| shown("token", route.token))
            }
            Answer::History(changes) => {
                changes.iter().try_for_each(|change| shown("token", change.token))
            }
            _ => Ok(()),
        }
    }
}

fn check_claim(Claim { resource, owner, ttl, terms, .. }: &Claim) -> Checked {
    check_new(resource)?;
    check_owner(owner)?;
    check_ttl(*ttl)?;
    match terms {
        Terms::Leader | Terms::Master { .. } => check_kind(resource, terms),
        Terms::Semaphore { limit, .. } => {
            check_kind(resource, terms)?;
            rules::permits("limit", *limit)
        }
        Terms::Lease { grace, attributes, take_over } => {
            check_kind(resource, terms)?;
            rules::duration("grace", *grace, Duration::ZERO..=TIME_MAX)?;
            rules::attributes(attributes)?;
            match take_over.as_deref() {
                Some(TakeOver { unbeaten, .. }) => {
                    rules::duration("take_over.unbeaten", *unbeaten, Duration::ZERO..=TIME_MAX)
                }
                None => Ok(()),
            }
        }
    }
}

/// Terms of another kind would have a store keep a record that it cannot read.
fn check_kind(resource: &Resource, terms: &Terms) -> Checked {
    let kind = match terms {
        Terms::Leader => Kind::Leader,
        Terms::Master { .. } => Kind::Master,
        Terms::Semaphore { .. } => Kind::Semaphore,
        Terms::Lease { .. } => Kind::Lease,
    };
    if kind == resource.kind {
        return Ok(());
    }
    let rule = format!("those of the resource's kind, {}", resource.kind);
    Err(Invalid::new("terms", &format!("those of a {kind}"), &rule, "correct one of the two"))
}

fn check_new(Resource { tenant, kind, name }: &Resource) -> Checked {
    part("tenant", tenant)?;
    rules::resource_name(*kind, name)
}

fn check_existing(Resource { tenant, kind, name }: &Resource) -> Checked {
    existing_part("tenant", tenant)?;
    match kind {
        Kind::Master => existing_part("name", name),
        Kind::Leader | Kind::Lease | Kind::Semaphore => existing("name", name),
    }
}

fn check_project(tenant: &str, project: &str) -> Checked {
    existing_part("tenant", tenant)?;
    existing_part("project", project)
}

fn check_owner(Owner { host, name, .. }: &Owner) -> Checked {
    visible("owner.host", host)?;
    visible("owner.name", name)
}

fn check_ttl(ttl: Duration) -> Checked {
    rules::duration("ttl", ttl, TTL_MIN..=TIME_MAX)
}

fn check_beats(beats: &[Beat]) -> Checked {
    if beats.len() > BEATS_MAX {
        let rule = format!("{BEATS_MAX} at most");
        return Err(Invalid::new("beats", &beats.len().to_string(), &rule, "send them in parts"));
    }
    beats.iter().enumerate().try_for_each(|(at, Beat { subject, ttl })| {
        let resource = match subject {
            Subject::Claim { resource, .. } => resource,
            Subject::Session { master, .. } => master,
        };
        let checked = check_existing(resource).and_then(|()| check_ttl(*ttl));
        checked.map_err(|invalid| invalid.within(&format!("beats[{at}]")))
    })
}

fn check_record(record: &SessionRecord) -> Checked {
    let SessionRecord { owner, tenant, project, surface, ttl, registered_at } = record;
    part("tenant", tenant)?;
    part("project", project)?;
    visible("surface", surface)?;
    visible("owner.host", &owner.host)?;
    rules::optional("registered_at", registered_at.as_deref(), visible)?;
    match record.is_agent() {
        // What an agent tells of itself, as JSON.
        true => foreign_text("owner.name", &owner.name, FACTS_BYTES_MAX)?,
        false => visible("owner.name", &owner.name)?,
    }
    check_ttl(*ttl)
}

fn check_page(Page { after, limit }: &Page) -> Checked {
    rules::optional("page.after", after.as_deref(), rules::cursor)?;
    let limit = u64::try_from(*limit).unwrap_or(u64::MAX);
    rules::number("page.limit", limit, 1..=u64::MAX)
}

fn check_revocation(Revocation { by, reason, for_ms }: &Revocation) -> Checked {
    visible_within("revocation.by", by, REVOKED_BY_MAX)?;
    rules::optional("revocation.reason", reason.as_deref(), visible)?;
    let barred = Duration::from_millis(*for_ms);
    rules::duration("revocation.for_ms", barred, Duration::ZERO..=BARRED_MAX)
}

fn check_changes(changes: &[HistoryEntry]) -> Checked {
    if changes.len() > RECORD_MAX {
        let rule = format!("{RECORD_MAX} at most");
        let count = changes.len().to_string();
        return Err(Invalid::new("changes", &count, &rule, "send them in parts"));
    }
    changes.iter().enumerate().try_for_each(|(at, change)| {
        check_change(change).map_err(|invalid| invalid.within(&format!("changes[{at}]")))
    })
}

fn check_change(change: &HistoryEntry) -> Checked {
    let HistoryEntry { resource, owner, token, holder, end, held, ago, .. } = change;
    check_new(resource)?;
    check_owner(owner)?;
    rules::token("token", *token)?;
    let Holder { pid, program, .. } = holder;
    pid.map_or(Ok(()), |pid| rules::number("holder.pid", pid.into(), 1..=PID_MAX))?;
    let Ending { reason, detail, by, kept, .. } = end;
    let texts = [
        ("holder.program.user", &program.user),
        ("holder.program.command", &program.command),
        ("end.reason", reason),
        ("end.detail", detail),
        ("end.by", by),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            foreign_text(field, text, TEXT_BYTES_MAX)?;
        }
    }
    rules::duration("end.kept", *kept, Duration::ZERO..=TIME_MAX)?;
    rules::duration("held", *held, Duration::ZERO..=PAST_MAX)?;
    rules::duration("ago", *ago, Duration::ZERO..=PAST_MAX)
}

// A revocation's words fit where a change for the history repeats them.
const _: () = assert!(REVOKED_BY_MAX <= TEXT_BYTES_MAX && NAME_MAX <= TEXT_BYTES_MAX);

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
