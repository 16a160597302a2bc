//! `tenure events` and `tenure observe`.

use std::time::Duration;

use tenure::client::{CallError, Client, EventStream};
use tenure::wire::{Event, Happened, HistoryEntry, HoldEvent};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::history::why;
use super::resource::render;
use super::status::word;
use super::table::{shown, visible};
use super::when::{local, now};
use super::{answer, ask, find};
use crate::args::{EventsArgs, ResourceName, ResourceWords};
use crate::exit;
use crate::failure::Failure;
use crate::output::{coloured, print};

/// Ends that are told at one change, how often each is looked for, and when again: an agent tells of it within a
/// tenth of a second.
const ENDS_TOLD: usize = 3;
const END_LOOKS: usize = 5;
const END_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Prints the events of one session, or of all that the caller has now, until their streams end.
///
/// # Errors
///
/// When a stream cannot be opened, or breaks.
pub(crate) async fn events(args: &EventsArgs, client: &Client) -> Result<(), Failure> {
    let sessions = match args.session {
        Some(session) => vec![session],
        None => {
            let status = ask(client, "events", client.status()).await?;
            status.sessions.iter().map(|session| session.session).collect()
        }
    };
    if sessions.is_empty() {
        let line = "events: you have no sessions here; see `tenure observe` for a resource";
        return Err(Failure::new(exit::REFUSED, line));
    }
    let json = args.output.json;
    let mut streams = JoinSet::new();
    for session in sessions {
        let client = client.clone();
        streams.spawn(async move {
            let what = format!("session {session}");
            let stream = client.events(session, None).await;
            let stream = stream.map_err(|error| Failure::of_call(&what, &error))?;
            follow(stream, &what, |event| session_line(session, event, json)).await
        });
    }
    while let Some(ended) = streams.join_next().await {
        // A task that panicked has said so itself.
        ended.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Prints a resource's standing now and at every change, with the local time, and why holds ended.
///
/// # Errors
///
/// When the stream cannot be opened, or breaks.
pub(crate) async fn observe(args: &ResourceWords, client: &Client) -> Result<(), Failure> {
    let args = &find(args, client).await?;
    let ResourceName { kind, name, tenant, output } = args;
    let what = format!("{kind}/{name}");
    let mut stream = ask(client, &what, client.observe(*kind, name, tenant.as_deref())).await?;
    if output.json {
        let line = |event: &Event| match event {
            Event::Standing(standing) => json(standing),
            _ => String::new(),
        };
        return follow(stream, &what, line).await;
    }
    let mut former: Vec<u64> = Vec::new();
    while let Some(received) = stream.next().await {
        let received = received.map_err(|error: CallError| Failure::of_call(&what, &error))?;
        match &received.event {
            Event::Standing(standing) => {
                let tokens: Vec<u64> = standing.holders.iter().map(|it| it.token).collect();
                let text = render(standing, coloured());
                print(&format!("{}  {text}", local(now())))?;
                let gone = former.iter().filter(|token| !tokens.contains(token));
                for token in gone.take(ENDS_TOLD) {
                    if let Some(end) = end_of(args, client, *token).await {
                        print(&format!("  {end}\n"))?;
                    }
                }
                former = tokens;
            }
            Event::Shutdown(shutdown) => print(&format!("the agent is {}\n", shutdown.cause))?,
            _ => {}
        }
        stays_open(&what, &received.event)?;
    }
    Ok(())
}

#[allow(
    clippy::disallowed_methods,
    reason = "after a sleep of the machine it is late, and no worse"
)]
async fn pause() {
    sleep(END_LOOK_EVERY).await;
}

/// How a grant ended, once its agent has told it.
async fn end_of(args: &ResourceName, client: &Client, token: u64) -> Option<String> {
    let ResourceName { kind, name, tenant, .. } = args;
    for _ in 0..END_LOOKS {
        let history = answer(client, client.history(*kind, name, tenant.as_deref())).await.ok()?;
        let is_end = |it: &&HistoryEntry| it.token == token && it.what != Happened::Granted;
        if let Some(end) = history.changes.iter().find(is_end) {
            let (name, host) = (shown(&end.name), shown(&end.host));
            return Some(format!("{} by {name} on {host}: {}", end.what, shown(&why(end))));
        }
        pause().await;
    }
    None
}

async fn follow(
    mut stream: EventStream,
    what: &str,
    line: impl Fn(&Event) -> String,
) -> Result<(), Failure> {
    while let Some(received) = stream.next().await {
        let received = received.map_err(|error: CallError| Failure::of_call(what, &error))?;
        print(&line(&received.event))?;
        stays_open(what, &received.event)?;
    }
    Ok(())
}

/// Refuses to go on when the agent has closed the stream.
fn stays_open(what: &str, event: &Event) -> Result<(), Failure> {
    match event {
        Event::Shutdown(shutdown) if shutdown.cause != "session_ended" => {
            let line =
                format!("{what}: the agent closed the stream ({}); run this again", shutdown.cause);
            Err(Failure::new(exit::UNAVAILABLE, line))
        }
        _ => Ok(()),
    }
}

fn session_line(session: Uuid, event: &Event, as_json: bool) -> String {
    if as_json {
        let mut value = serde_json::to_value(event).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("session".to_owned(), session.to_string().into());
        }
        return json(&value);
    }
    let short = session.to_string();
    let short = &short[..8];
    format!("{short}  {:<9} {}\n", event.name(), visible(&detail(event)))
}

/// One line of an event's data.
fn detail(event: &Event) -> String {
    let of = |hold: &HoldEvent| format!("{}/{}", hold.kind, hold.name);
    match event {
        Event::Snapshot(snapshot) => {
            let holds: Vec<String> = snapshot
                .holds
                .iter()
                .map(|hold| format!("{}/{} {}", hold.kind, hold.name, word(&hold.state)))
                .collect();
            if holds.is_empty() { "no holds".to_owned() } else { holds.join(", ") }
        }
        Event::Queued(event) => format!("{} position {}", of(&event.of), event.position),
        Event::Granted(event) | Event::Safe(event) => {
            format!("{} token {} valid for {} ms", of(&event.of), event.token, event.valid_ms)
        }
        Event::Jeopardy(event) => {
            format!("{} {} ms left: {}", of(&event.of), event.valid_ms, event.cause)
        }
        Event::Lost(event) => format!("{} token {}: {}", of(&event.of), event.token, event.words()),
        Event::Released(event) => format!("{} {}", of(&event.of), word(&event.cause)),
        Event::Standing(standing) => {
            let holders: Vec<String> = standing.holders.iter().map(|h| shown(&h.name)).collect();
            let holders = if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") };
            format!("{}/{} held by {holders}", standing.kind, standing.name)
        }
        Event::Message(message) => format!("{} {}", message.project, message.payload),
        Event::Shutdown(shutdown) => shutdown.cause.clone(),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // A wire type always has JSON.
    serde_json::to_string(value).map(|line| line + "\n").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let data = r#"{"hold":"0192f6c8-4c1e-7d0a-9b1f-0a8f4f1f7c11","kind":"leader",
            "name":"clean\nup","token":4,"reason":"max_hold"}"#;
        let event = Event::parse("lost", data).expect("parsed").expect("known");
        let session = Uuid::nil();
        let line = session_line(session, &event, false);
        assert_eq!(line, "00000000  lost      leader/clean\u{fffd}up token 4: max_hold\n");
        let line = session_line(session, &event, true);
        assert!(
            line.contains(r#""event":"lost""#) && line.contains(r#""session":"0000"#),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }
}
