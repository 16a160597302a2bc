//! `tenure events` and `tenure observe`.

use tenure::client::{CallError, Client, EventStream};
use tenure::wire::{Event, HoldEvent};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::ask;
use super::resource::render;
use super::status::word;
use super::table::visible;
use crate::args::{EventsArgs, ResourceNameArgs};
use crate::exit;
use crate::failure::Failure;
use crate::output::{coloured, print};

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

/// Prints a resource's standing now and at every change.
///
/// # Errors
///
/// When the stream cannot be opened, or breaks.
pub(crate) async fn observe(args: &ResourceNameArgs, client: &Client) -> Result<(), Failure> {
    let ResourceNameArgs { kind, name, tenant, output } = args;
    let what = format!("{kind}/{name}");
    let stream = ask(client, &what, client.observe(*kind, name, tenant.as_deref())).await?;
    let coloured = coloured();
    follow(stream, &what, |event| match event {
        Event::Standing(standing) if output.json => json(standing),
        Event::Standing(standing) => render(standing, coloured),
        Event::Shutdown(shutdown) if !output.json => format!("the agent is {}\n", shutdown.cause),
        _ => String::new(),
    })
    .await
}

async fn follow(
    mut stream: EventStream,
    what: &str,
    line: impl Fn(&Event) -> String,
) -> Result<(), Failure> {
    while let Some(received) = stream.next().await {
        let received = received.map_err(|error: CallError| Failure::of_call(what, &error))?;
        print(&line(&received.event))?;
        if let Event::Shutdown(shutdown) = &received.event
            && shutdown.cause != "session_ended"
        {
            let line =
                format!("{what}: the agent closed the stream ({}); run this again", shutdown.cause);
            return Err(Failure::new(exit::UNAVAILABLE, line));
        }
    }
    Ok(())
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
            let holders: Vec<&str> = standing.holders.iter().map(|h| h.name.as_str()).collect();
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
