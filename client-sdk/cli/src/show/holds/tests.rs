use serde_json::json;
use uuid::Uuid;

use super::*;

const PLAIN: Screen = Screen { coloured: false, width: None };
const WIDTHS: [usize; 2] = [80, 200];

/// So many holds in sessions of one to three, in an order that nobody wants to read: some in danger,
/// some waited for, with names of all lengths.
fn sessions(holds: usize) -> Vec<SessionStatus> {
    let hold = |number: usize| {
        // A prime, so that neighbours are not neighbours in the table.
        let scattered = number * 7919 % holds;
        let (state, position) = match scattered % 5 {
            0 if scattered.is_multiple_of(2) => ("waiting", Some(scattered % 3 + 1)),
            4 => ("jeopardy", None),
            _ => ("held", None),
        };
        let kind = ["leader", "lease", "semaphore"][scattered % 3];
        let name = format!("job-{scattered:04}{}", "-and-more".repeat(scattered % 8));
        let mut hold = json!({"hold": Uuid::from_u128(number as u128), "kind": kind, "name": name,
            "state": state, "ttl_ms": 30_000, "valid_ms": 0, "valid_until_boottime_ns": 0,
            "slot": 0});
        if state == "waiting" {
            hold["position"] = json!(position);
        } else {
            hold["token"] = json!(1_763_000_000_000_000_u64 + scattered as u64);
            hold["since_ms"] = json!(scattered * 61_000);
            hold["valid_ms"] = json!(19_000);
        }
        hold
    };
    let all: Vec<serde_json::Value> = (0..holds).map(hold).collect();
    let session = |(number, holds): (usize, &[serde_json::Value])| {
        serde_json::from_value(json!({
            "session": Uuid::from_u128(number as u128), "name": format!("worker-{number}"),
            "surface": "cli", "tenant": "default", "project": "default", "uid": 1000,
            "pid": 4000 + number, "tether": "connection", "role": "none", "streams": 1,
            "holds": holds}))
        .expect("a session")
    };
    all.chunks(3).enumerate().map(session).collect()
}

fn render_all(sessions: &[SessionStatus], screen: Screen) -> String {
    render(sessions, &Choice::default(), screen)
}

#[test]
fn five_holds_look_like_this() {
    let narrow = Screen { width: Some(80), ..PLAIN };
    let expected = "
Holds: 3 held, 1 in jeopardy, 1 waiting
  RESOURCE                     STATE         HELD FOR  VALID FOR  NAME      PID
  lease/job-0004-and-more-an…  jeopardy      4m4s      19s        worker-0  4000
  leader/job-0000              waiting, 1st  -         -          worker-0  4000
  leader/job-0003-and-more-a…  held          3m3s      19s        worker-0  4000
  lease/job-0001-and-more      held          1m1s      19s        worker-1  4001
  semaphore/job-0002-and-mor…  held          2m2s      19s        worker-1  4001
";
    assert_eq!(render_all(&sessions(5), narrow), expected);
    let wide = render_all(&sessions(5), Screen { width: Some(200), ..PLAIN });
    assert_eq!(wide, render_all(&sessions(5), PLAIN), "there is room for all of it");
    assert!(
        wide.contains("lease/job-0004-and-more-and-more-and-more-and-more  jeopardy"),
        "{wide}"
    );
    let colourful = render_all(&sessions(5), Screen { coloured: true, width: Some(80) });
    assert!(
        colourful.contains("\x1b[33mjeopardy\x1b[0m") && colourful.contains("\x1b[32mheld\x1b[0m")
    );
    assert_eq!(without_colours(&colourful), expected);
}

fn without_colours(text: &str) -> String {
    ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"]
        .into_iter()
        .fold(text.to_owned(), |text, colour| text.replace(colour, ""))
}

#[test]
fn a_status_without_holds_says_so() {
    assert_eq!(render_all(&[], PLAIN), "\nYou have no sessions here.\n");
    let mut idle = sessions(1);
    idle[0].holds.clear();
    let said = "\n1 session without a hold: see `tenure status --verbose`\n";
    assert_eq!(render_all(&idle, PLAIN), said);
    let choice = Choice { filter: Some("leader/*"), verbose: false };
    assert_eq!(render(&[], &choice, PLAIN), "\nNothing of yours here is called leader/*.\n");
}

#[test]
fn many_holds_fit_on_the_screen_and_the_urgent_ones_are_on_top() {
    for count in [500, 5_000] {
        let sessions = sessions(count);
        for width in WIDTHS {
            let said = render_all(&sessions, Screen { width: Some(width), ..PLAIN });
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines.len(), count + 3, "a line each");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {said}");
            let rows = &lines[3..];
            let of = |state: &str| rows.iter().filter(|row| row.contains(state)).count();
            let (danger, waiting) = (of(" jeopardy "), of(" waiting, "));
            let title =
                format!("Holds: {} held, {danger} in jeopardy, {waiting} waiting", of(" held "));
            assert_eq!(lines[1], title);
            assert!(rows[..danger].iter().all(|row| row.contains(" jeopardy ")));
            assert!(rows[danger..danger + waiting].iter().all(|row| row.contains(" waiting, ")));
            let names: Vec<&str> = rows[danger + waiting..]
                .iter()
                .filter_map(|row| row.split_whitespace().next())
                .collect();
            assert!(names.is_sorted(), "by resource");
            let coloured = Screen { coloured: true, width: Some(width) };
            assert_eq!(without_colours(&render_all(&sessions, coloured)), said);
        }
    }
}

#[test]
fn a_filter_names_resources_with_or_without_their_kind() {
    let names = |glob: &str| -> Vec<String> {
        let mut sessions = sessions(5);
        narrow(&mut sessions, glob);
        let holds = sessions.into_iter().flat_map(|session| session.holds);
        holds.map(|hold| format!("{}/{}", hold.kind, hold.name)).collect()
    };
    assert_eq!(names("leader/job-0000"), ["leader/job-0000"]);
    assert_eq!(names("job-0000"), ["leader/job-0000"]);
    assert_eq!(names("leader/*").len(), 2);
    assert_eq!(names("*-and-more").len(), 4);
    assert!(names("job").is_empty());
}

#[test]
fn ids_and_sessions_are_for_those_who_ask() {
    let choice = Choice { filter: None, verbose: true };
    let said = render(&sessions(2), &choice, Screen { width: Some(80), ..PLAIN });
    let id = Uuid::from_u128(1).to_string();
    assert!(said.contains(&id) && said.contains("1763000000000001"), "{said}");
    assert!(said.contains("\nSessions\n  NAME      SURFACE  UID"), "{said}");
    assert!(!render_all(&sessions(2), PLAIN).contains(&id));
}
