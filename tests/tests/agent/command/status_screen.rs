//! `tenure status` on a terminal: it fits, and colours are where they are wanted.

use std::process::{Command, Stdio};

use serde_json::json;
use tenure_tests::harness::{Agent, Client, binary};
use uuid::Uuid;

/// What `tenure status` shows on a terminal of so many columns.
#[track_caller]
fn on_a_terminal(agent: &Agent, columns: usize, variables: &[(&str, &str)]) -> String {
    let line = format!("stty rows 24 cols {columns}; exec {} status", binary("tenure").display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TENURE_SOCKET", agent.socket());
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).output().expect("script(1) is there");
    let shown = String::from_utf8(output.stdout).expect("output is UTF-8");
    assert!(output.status.success(), "{shown}");
    shown.replace('\r', "")
}

fn without_colours(text: &str) -> String {
    ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"]
        .into_iter()
        .fold(text.to_owned(), |text, colour| text.replace(colour, ""))
}

/// No page has room for more than 4095.
const PER_SESSION: usize = 2500;

fn hold(agent: &Agent, count: usize) {
    let mut http = agent.http();
    let register = json!({"name": "nightly", "keepalive_ms": 600_000, "holds": PER_SESSION});
    let mut session = Uuid::nil();
    for number in 0..count {
        if number % PER_SESSION == 0 {
            session = http.register(&register).session;
        }
        let name = format!("job-{number:04}{}", "-with-a-long-name".repeat(number % 7));
        http.acquire(session, "leader", &name, &json!({"ttl_ms": 600_000}));
    }
}

/// The table of holds, without its title.
fn rows(shown: &str) -> Vec<&str> {
    let table = shown.lines().skip_while(|line| !line.starts_with("Holds: ")).skip(1);
    table.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn a_status_fits_the_terminal() {
    for count in [0, 5, 500, 5000] {
        let agent = Agent::start();
        hold(&agent, count);
        for columns in [80, 200] {
            for has_colour in [true, false] {
                let variables: &[_] = if has_colour { &[] } else { &[("NO_COLOR", "1")] };
                let shown = on_a_terminal(&agent, columns, variables);
                let plain = without_colours(&shown);
                assert_eq!(shown != plain, has_colour, "{shown}");
                let fits = |line: &str| line.chars().count() <= columns;
                let rows = rows(&plain);
                assert!(rows.iter().all(|row| fits(row)), "{columns}: {plain}");
                if count == 0 {
                    assert!(plain.ends_with("\nYou have no sessions here.\n"), "{plain}");
                    continue;
                }
                assert_eq!(shown.contains("\x1b[32mheld\x1b[0m"), has_colour, "{shown}");
                assert_eq!(rows.len(), count + 1, "{plain}");
                assert!(rows[0].starts_with("  RESOURCE "), "{plain}");
                assert!(rows[0].contains(" HELD FOR "), "{plain}");
                assert_eq!(rows.iter().any(|row| row.contains('…')), columns == 80, "{plain}");
                assert!(rows[1..].is_sorted(), "{plain}");
            }
        }
    }
}
