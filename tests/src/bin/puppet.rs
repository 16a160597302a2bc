//! A program of its own that does what a test tells it: one JSON command a line on standard input,
//! one JSON line back. Events of the streams it opened come in between.
//!
//! Exists so that tests have clients which can be killed, stopped, and run as another user.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};
use tenure_tests::harness::{Events, Http, StreamError};
use uuid::Uuid;

fn main() -> anyhow::Result<()> {
    let socket = std::env::args_os().nth(1).map(PathBuf::from);
    let socket = socket.ok_or_else(|| anyhow::anyhow!("usage: puppet SOCKET"))?;
    let mut http = Http::new(&socket);
    let mut streams = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        say(&obey(&command, &socket, &mut http, &mut streams))?;
    }
    Ok(())
}

fn say(line: &Value) -> std::io::Result<()> {
    // One write a line: the threads of several streams share the pipe.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

fn obey(
    command: &Value,
    socket: &Path,
    http: &mut Http,
    streams: &mut HashMap<Uuid, Events>,
) -> Value {
    let text = |key: &str| command[key].as_str().unwrap_or_default();
    let session = || text("session").parse().unwrap_or_default();
    match text("do") {
        "call" => match http.try_call(text("method"), text("path"), text("body").as_bytes()) {
            Ok(answer) => json!({
                "status": answer.status,
                "headers": answer.headers,
                "body": answer.text(),
            }),
            Err(error) => json!({"error": error.to_string()}),
        },
        "events" => {
            let path = format!("/v1/events?session={}", session());
            match Events::try_open(socket, &path, command["last"].as_u64()) {
                Ok(events) => {
                    forward(&events, &command["stream"]);
                    streams.insert(session(), events);
                    json!({"status": 200})
                }
                Err(StreamError::Refused(answer)) => json!({
                    "status": answer.status,
                    "headers": answer.headers,
                    "body": answer.text(),
                }),
                Err(StreamError::Io(error)) => json!({"error": error.to_string()}),
            }
        }
        "close_events" => {
            streams.remove(&session());
            json!({})
        }
        // A child that inherits the stream's connection, as after fork without exec.
        "heir" => match streams.get(&session()).map(spawn_heir) {
            Some(Ok(pid)) => json!({"pid": pid}),
            Some(Err(error)) => json!({"error": error.to_string()}),
            None => json!({"error": "no such stream"}),
        },
        "read_file" => match std::fs::read(text("path")) {
            Ok(bytes) => json!({"bytes": bytes.len()}),
            Err(error) => json!({"error": error.to_string()}),
        },
        other => json!({"error": format!("the puppet cannot do {other:?}")}),
    }
}

/// Prints what comes out of a stream until it ends.
fn forward(events: &Events, stream: &Value) {
    let (log, stream) = (std::sync::Arc::clone(events.log()), stream.clone());
    std::thread::spawn(move || {
        let mut told = 0;
        loop {
            let (seen, finished) = log.wait_beyond(told);
            for seen in &seen {
                let line = json!({
                    "of": stream,
                    "id": seen.id,
                    "at_ns": seen.at_ns,
                    "name": seen.event.name(),
                    "data": seen.event.data().expect("what was parsed can be printed"),
                });
                if say(&line).is_err() {
                    return;
                }
            }
            told += seen.len();
            if finished {
                // Fails only when nobody listens any more.
                let _ = say(&json!({"ended": stream}));
                return;
            }
        }
    });
}

fn spawn_heir(events: &Events) -> anyhow::Result<u32> {
    let stream = events.socket().as_fd();
    fcntl(stream, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let child =
        Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    fcntl(stream, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(child?.id())
}
