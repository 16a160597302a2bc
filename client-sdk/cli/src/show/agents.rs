//! `tenure agents`.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{AgentView, Agents};

use super::ask;
use super::table::{Cell, Look, Screen, Table, or_dash};
use crate::args::AgentsArgs;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

/// Lists the agents of the store.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn agents(args: &AgentsArgs, client: &Client) -> Result<(), Failure> {
    let agents = ask(client, "agents", client.agents()).await?;
    if args.output.json {
        return print_json(&agents);
    }
    print(&render(&agents, Screen::of_stdout()))
}

fn render(Agents { agents, .. }: &Agents, screen: Screen) -> String {
    let by_gateway = agents.iter().any(|agent| agent.principal.is_some());
    let mut header = vec!["HOST", "VERSION", "UP", "LAST SEEN", "SESSIONS", "HELD", "WAITING"];
    if by_gateway {
        header.push("PRINCIPAL");
    }
    let mut table = Table::new(&header);
    for agent in agents {
        let this = if agent.this { " (this one)" } else { "" };
        let last = brief(Duration::from_millis(agent.last_seen_ms));
        let (last, look) = match agent {
            AgentView { this: true, .. } => ("now".to_owned(), Look::Plain),
            AgentView { seen: true, .. } => (format!("{last} ago"), Look::Plain),
            _ => (format!("not seen for {last}"), Look::Bad),
        };
        table.row([
            Cell::from(format!("{}{this}", agent.host)),
            Cell::from(&agent.version),
            Cell::from(brief(Duration::from_millis(agent.up_ms))),
            Cell::new(last, look),
            Cell::from(agent.sessions),
            Cell::from(agent.held),
            Cell::from(agent.waiting),
            Cell::from(or_dash(agent.principal.as_deref())),
        ]);
    }
    table.render(screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_seen_stands_out_and_names_of_others_move_no_cursor() {
        let agent = |host: &str, seen, last_seen_ms| AgentView {
            host: host.to_owned(),
            version: "1.2.3".to_owned(),
            seen,
            last_seen_ms,
            up_ms: 3_600_000,
            held: 4,
            ..AgentView::default()
        };
        let mut agents = Agents {
            agents: vec![
                AgentView { this: true, ..agent("hosta", true, 0) },
                agent("hostb", true, 12_000),
                agent("host\u{1b}[2Jc", false, 240_000),
            ],
            cursor: None,
        };
        let text = render(&agents, Screen::default());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("  HOST") && lines[0].ends_with("WAITING"), "{text}");
        assert!(lines[1].contains("hosta (this one)") && lines[1].contains("now"), "{text}");
        assert!(lines[2].contains("hostb") && lines[2].contains("12s ago"), "{text}");
        assert!(lines[3].contains("not seen for 4m"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        agents.agents[1].principal = Some("laptop-7".to_owned());
        assert!(render(&agents, Screen::default()).contains("laptop-7"));
    }
}
