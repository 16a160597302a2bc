//! `tenure ls`.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{DEFAULT_TENANT, Holder, Standing};

use super::ask;
use super::table::{Cell, Look, Screen, Table, or_dash};
use crate::args::ListArgs;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

/// Shows all that is held or waited for.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn list(args: &ListArgs, client: &Client) -> Result<(), Failure> {
    let ListArgs { glob, kind, tenant, output } = args;
    let question = client.list(*kind, glob.as_deref(), tenant.as_deref());
    let all = ask(client, "what is held", question).await?;
    if output.json { print_json(&all) } else { print(&render(&all, Screen::of_stdout())) }
}

fn render(all: &[Standing], screen: Screen) -> String {
    if all.is_empty() {
        return "nothing is held or waited for\n".to_owned();
    }
    let mut table = Table::new(&["RESOURCE", "", "HOST", "NAME", "PID", "USER", "FOR", "WAITING"]);
    for standing in all {
        let waiting = match standing.waiting {
            0 => "-".to_owned(),
            waiting => waiting.to_string(),
        };
        for holder in &standing.holders {
            table.row([
                Cell::from(name(standing)),
                Cell::new("held", Look::Good),
                Cell::from(&holder.host),
                Cell::from(holder_name(holder)),
                Cell::from(or_dash(holder.pid)),
                Cell::from(user(holder)),
                Cell::from(brief(Duration::from_millis(holder.since_ms))),
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

pub(super) fn user(holder: &Holder) -> String {
    let number = holder.uid.map(|uid| uid.to_string());
    or_dash(holder.user.clone().or(number))
}

#[cfg(test)]
mod tests {
    use tenure::wire::Kind;

    use super::*;

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
        assert!(text.contains("t:semaphore/a  held  hosta  x"), "{text}");
        assert!(text.contains("a program without Tenure (lock value a510b8bc)"), "{text}");
        assert!(text.contains("t:leader/a     free"), "{text}");
        assert_eq!(render(&[], Screen::default()), "nothing is held or waited for\n");
    }
}
