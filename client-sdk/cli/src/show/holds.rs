//! Sessions and holds of a status, what needs a person's eye first.

use std::fmt::Write;
use std::time::Duration;

use tenure::wire::{HoldState, HoldView, SessionStatus};

use super::glob;
use super::leftovers;
use super::status::{counted, word};
use super::table::{Cell, Look, Screen, Table, or_dash, visible};
use crate::failure::{brief, ordinal};

/// What is to be shown.
#[derive(Default)]
pub(super) struct Choice<'a> {
    /// The glob that all of it is covered by.
    pub(super) filter: Option<&'a str>,
    /// Ids and tokens as well, and every session.
    pub(super) verbose: bool,
}

/// A hold and its session.
type Row<'a> = (&'a SessionStatus, &'a HoldView);

/// Leaves what a glob covers.
pub(super) fn narrow(sessions: &mut Vec<SessionStatus>, glob: &str) {
    for session in &mut *sessions {
        session.holds.retain(|hold| covers(glob, hold));
    }
    sessions.retain(|session| !session.holds.is_empty());
}

/// The holds, and what is left to say of the sessions.
pub(super) fn render(sessions: &[SessionStatus], choice: &Choice<'_>, screen: Screen) -> String {
    let holds = |session: &'_ SessionStatus| session.holds.len();
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(sessions.iter().map(holds).sum());
    for session in sessions {
        rows.extend(session.holds.iter().map(|hold| (session, hold)));
    }
    rows.sort_by(|(_, a), (_, b)| {
        let key = |hold: &HoldView| (urgency(hold.state), hold.kind);
        let rest = |hold: &HoldView| (hold.position, hold.token);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name)).then_with(|| rest(a).cmp(&rest(b)))
    });
    let mut out = String::new();
    if !rows.is_empty() {
        let table = hold_table(&rows, choice.verbose);
        let _infallible = write!(out, "\nHolds: {}\n{}", counts(&rows), table.render(screen));
    }
    for session in sessions {
        let held = session.holds.iter().filter(|hold| hold.token.is_some());
        let held: Vec<String> = held.map(|hold| format!("{}/{}", hold.kind, hold.name)).collect();
        if let Some(command) = &session.ended_command
            && !held.is_empty()
        {
            let holds = visible(&held.join(", "));
            let _infallible = writeln!(out, "\n{holds}: {}", leftovers::told(command));
        }
    }
    let is_idle = |session: &&SessionStatus| session.holds.is_empty();
    let idle = sessions.iter().filter(is_idle).count();
    out.push_str(&match (sessions.len(), choice) {
        (0, Choice { filter: Some(glob), .. }) => {
            format!("\nNothing of yours here is called {}.\n", visible(glob))
        }
        (0, _) => "\nYou have no sessions here.\n".to_owned(),
        (_, Choice { verbose: true, .. }) => {
            let mut sorted: Vec<&SessionStatus> = sessions.iter().collect();
            sorted.sort_by(|a, b| (&a.name, a.session).cmp(&(&b.name, b.session)));
            format!("\nSessions\n{}", session_table(&sorted).render(screen))
        }
        _ if idle > 0 => {
            let idle = counted(idle as u64, "session");
            format!("\n{idle} without a hold: see `tenure status --verbose`\n")
        }
        _ => String::new(),
    });
    out
}

fn covers(glob: &str, hold: &HoldView) -> bool {
    let name = format!("{}/{}", hold.kind, hold.name);
    // Who leaves out the kind means every kind.
    glob::covers(glob, &name) || glob::covers(glob, &hold.name)
}

/// A smaller number is shown earlier.
fn urgency(state: HoldState) -> u8 {
    match state {
        HoldState::Lost => 0,
        HoldState::Jeopardy => 1,
        HoldState::Waiting => 2,
        HoldState::Held => 3,
        HoldState::Released => 4,
    }
}

/// `497 held, 2 in jeopardy, 1 waiting`.
fn counts(rows: &[Row<'_>]) -> String {
    let states = [
        (HoldState::Held, "held"),
        (HoldState::Jeopardy, "in jeopardy"),
        (HoldState::Waiting, "waiting"),
        (HoldState::Lost, "lost"),
        (HoldState::Released, "released"),
    ];
    let count = |state| rows.iter().filter(|(_, hold)| hold.state == state).count();
    let counts = states.into_iter().map(|(state, words)| (count(state), words));
    let told: Vec<String> = counts
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    told.join(", ")
}

fn hold_table(rows: &[Row<'_>], verbose: bool) -> Table {
    let mut header = vec!["RESOURCE", "STATE", "HELD FOR", "VALID FOR", "NAME", "PID"];
    if verbose {
        header.extend(["TOKEN", "HOLD", "SESSION"]);
    }
    // Ids must be whole, so that they can be copied.
    let mut table = if verbose { Table::new(&header) } else { Table::elastic(&header, &[0, 4]) };
    for (session, hold) in rows {
        let time = |ms| brief(Duration::from_millis(ms));
        let mut cells = vec![
            Cell::from(format!("{}/{}", hold.kind, hold.name)),
            state(hold),
            Cell::from(or_dash(hold.since_ms.map(time))),
            Cell::from(or_dash((hold.valid_ms > 0).then(|| time(hold.valid_ms)))),
            Cell::from(&session.name),
            Cell::from(or_dash(session.pid)),
        ];
        if verbose {
            cells.extend([
                Cell::from(or_dash(hold.token)),
                Cell::from(hold.hold),
                Cell::from(session.session),
            ]);
        }
        table.row(cells);
    }
    table
}

fn state(hold: &HoldView) -> Cell {
    let look = match hold.state {
        HoldState::Held => Look::Good,
        HoldState::Waiting | HoldState::Jeopardy => Look::Warning,
        HoldState::Released => Look::Plain,
        HoldState::Lost => Look::Bad,
    };
    match (hold.state, hold.position) {
        (HoldState::Waiting, Some(position)) => {
            Cell::new(format!("waiting, {}", ordinal(position)), look)
        }
        (state, _) => Cell::new(word(&state), look),
    }
}

fn session_table(sessions: &[&SessionStatus]) -> Table {
    let mut table =
        Table::new(&["NAME", "SURFACE", "UID", "PID", "TETHER", "ROLE", "HOLDS", "SESSION"]);
    for session in sessions {
        table.row([
            Cell::from(&session.name),
            Cell::from(&session.surface),
            Cell::from(session.uid),
            Cell::from(or_dash(session.pid)),
            Cell::from(word(&session.tether)),
            Cell::from(word(&session.role)),
            Cell::from(session.holds.len()),
            Cell::from(session.session),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
