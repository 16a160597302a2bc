//! `tenure ls`.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{DEFAULT_TENANT, Holder, Kind, Standing};

use super::ask;
use super::table::{Cell, Look, Screen, Table, or_dash, visible};
use super::when::{kept, now};
use crate::args::{ListArgs, kind_of};
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

/// Shows held and awaited resources, all or the overdue ones; returns the exit status.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn list(args: &ListArgs, client: &Client) -> Result<u8, Failure> {
    let ListArgs { glob, kind, tenant, output, .. } = args;
    let mut found = BTreeMap::new();
    for (kind, glob) in questions(*kind, glob.as_deref()) {
        let question = client.list(kind, glob, tenant.as_deref());
        for it in ask(client, "what is held", question).await? {
            found.insert((it.tenant.clone(), it.kind.as_str(), it.name.clone()), it);
        }
    }
    let bounds = [args.held_longer_than, args.waits_longer_than];
    let is_alert = bounds.iter().any(Option::is_some);
    let is_meant = |it: &Standing| !is_alert || is_overdue(it, bounds);
    let all: Vec<Standing> = found.into_values().filter(is_meant).collect();
    if output.json {
        print_json(&all)?;
    } else {
        let what = glob.as_ref().map(|glob| format!(" that matches {}", visible(glob)));
        print(&match &all[..] {
            // cron mails any output.
            [] if is_alert => String::new(),
            [] => format!("nothing{} is held or waited for\n", what.unwrap_or_default()),
            all => render(all, Screen::of_stdout()),
        })?;
    }
    Ok(if is_alert && !all.is_empty() { exit::REFUSED } else { 0 })
}

/// True if a holder has had the resource for longer than the first bound, or a waiter has waited for longer than the
/// second. A hold that is kept after its end does not count.
fn is_overdue(standing: &Standing, [held, waits]: [Option<Duration>; 2]) -> bool {
    let is_over = |since_ms: u64, bound: Option<Duration>| {
        bound.is_some_and(|bound| Duration::from_millis(since_ms) > bound)
    };
    let mut holders = standing.holders.iter().filter(|holder| holder.kept_ms.is_none());
    holders.any(|holder| is_over(holder.since_ms, held))
        || standing.waiters.iter().any(|waiter| is_over(waiter.since_ms, waits))
}

/// Kinds and globs to ask for: `leader/nightly` is a leader's name with its kind, or a name that has a slash; `leader`
/// is a kind, or a name.
fn questions(kind: Option<Kind>, glob: Option<&str>) -> Vec<(Option<Kind>, Option<&str>)> {
    let mut questions = vec![(kind, glob)];
    if let Some(word) = glob.and_then(kind_of)
        && kind.is_none()
    {
        questions.push((Some(word), None));
    }
    if let Some((word, name)) = glob.and_then(|glob| glob.split_once('/'))
        && !name.is_empty()
    {
        let is_meant = |it: &Kind| {
            let covers = super::glob::covers(word, it.as_str()) || kind_of(word) == Some(*it);
            kind.is_none_or(|kind| kind == *it) && covers
        };
        questions.extend(Kind::ALL.into_iter().filter(is_meant).map(|it| (Some(it), Some(name))));
    }
    questions
}

fn render(all: &[Standing], screen: Screen) -> String {
    let mut table = Table::new(&["RESOURCE", "", "HOST", "NAME", "PID", "USER", "FOR", "WAITING"]);
    for standing in all {
        let waiting = match standing.waiting {
            0 => "-".to_owned(),
            waiting => waiting.to_string(),
        };
        for holder in &standing.holders {
            table.row([
                Cell::from(name(standing)),
                state(holder),
                Cell::from(&holder.host),
                Cell::from(holder_name(holder)),
                Cell::from(or_dash(holder.pid)),
                Cell::from(user(holder)),
                Cell::from(kept(holder, now()).unwrap_or_else(|| held_for(holder))),
                Cell::from(&waiting),
            ]);
        }
        if standing.holders.is_empty() {
            let look = if standing.waiting > 0 { Look::Warning } else { Look::Plain };
            let nobody = ["-"; 5].map(Cell::from);
            let row = [Cell::from(name(standing)), Cell::new("free", look)].into_iter();
            table.row(row.chain(nobody).chain([Cell::from(waiting)]).collect::<Vec<_>>());
        }
    }
    table.render(screen)
}

fn name(standing: &Standing) -> String {
    let Standing { tenant, kind, name, .. } = standing;
    match tenant.as_str() {
        DEFAULT_TENANT => format!("{kind}/{name}"),
        tenant => format!("{tenant}:{kind}/{name}"),
    }
}

/// A holder without a token holds by other means than Tenure's: it has a lock value instead of a name.
pub(super) fn holder_name(holder: &Holder) -> String {
    if holder.is_of_tenure() {
        return holder.name.clone();
    }
    format!("a program without Tenure (lock value {})", holder.name)
}

/// Says whether the resource is held, or kept from others after the end of a hold.
pub(super) fn state(holder: &Holder) -> Cell {
    match holder.kept_ms {
        Some(_) => Cell::new("kept", Look::Warning),
        None => Cell::new("held", Look::Good),
    }
}

/// How long it has been held. Of other programs no store knows when they began.
pub(super) fn held_for(holder: &Holder) -> String {
    match holder.since_ms {
        0 if !holder.is_of_tenure() => "-".to_owned(),
        since => brief(Duration::from_millis(since)),
    }
}

pub(super) fn user(holder: &Holder) -> String {
    let number = holder.uid.map(|uid| uid.to_string());
    or_dash(holder.user.clone().or(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_its_kind_before_a_slash() {
        let leader = Some(Kind::Leader);
        assert_eq!(questions(None, None), [(None, None)]);
        assert_eq!(questions(None, Some("night*")), [(None, Some("night*"))]);
        let both = [(None, Some("leader/a/*")), (leader, Some("a/*"))];
        assert_eq!(questions(None, Some("leader/a/*")), both);
        let two = [(None, Some("le*/a")), (leader, Some("a")), (Some(Kind::Lease), Some("a"))];
        assert_eq!(questions(None, Some("le*/a")), two);
        assert_eq!(questions(leader, Some("lease/a")), [(leader, Some("lease/a"))]);
        assert_eq!(questions(None, Some("leader/")), [(None, Some("leader/"))]);
    }

    #[test]
    fn a_list_has_a_line_for_each_holder_and_for_what_only_is_waited_for() {
        let holder = |token, name: &str| Holder {
            host: "hosta".to_owned(),
            name: name.to_owned(),
            token,
            since_ms: 60_000,
            ..Holder::default()
        };
        let standing = |kind, holders: Vec<Holder>, waiting| Standing {
            tenant: "t".to_owned(),
            kind,
            name: "a".to_owned(),
            limit: None,
            holding: holders.len() as u64,
            holders,
            waiters: Vec::new(),
            waiting,
            sessions: Vec::new(),
            members: 0,
        };
        let all = [
            standing(Kind::Semaphore, vec![holder(7, "x"), holder(0, "a510b8bc")], 0),
            standing(Kind::Leader, Vec::new(), 3),
        ];
        let text = render(&all, Screen::default());
        assert_eq!(text.lines().count(), 4, "{text}");
        let ended = Holder { kept_ms: Some(540_000), ended_ms: Some(2000), ..holder(7, "x") };
        let text = render(&[standing(Kind::Lease, vec![ended], 0)], Screen::default());
        assert!(
            text.contains("t:lease/a  kept  hosta  x     -    -     ended 2.0s ago, kept"),
            "{text}"
        );
        let text = render(&all, Screen::default());
        let foreign = Holder { since_ms: 0, ..holder(0, "a510b8bc") };
        assert_eq!(held_for(&foreign), "-", "its start is not known");
        assert_eq!(held_for(&Holder { since_ms: 0, ..holder(7, "x") }), "0ms");
        assert!(text.contains("t:semaphore/a  held  hosta  x"), "{text}");
        assert!(text.contains("a program without Tenure (lock value a510b8bc)"), "{text}");
        assert!(text.contains("t:leader/a     free"), "{text}");
        let too_long = |held, waits| {
            let bound = |seconds: Option<u64>| seconds.map(Duration::from_secs);
            is_overdue(&all[0], [bound(held), bound(waits)])
        };
        assert!(too_long(Some(59), None) && !too_long(Some(60), None) && !too_long(None, Some(0)));
        let mut kept = all[0].clone();
        kept.holders.iter_mut().for_each(|holder| holder.kept_ms = Some(1));
        assert!(!is_overdue(&kept, [Some(Duration::ZERO), None]), "nobody has it");
    }
}
