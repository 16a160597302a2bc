//! The best that the machine can do: servers that do nothing else, each in a process of its own as
//! the agent is.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::samples::timed_us;
use super::{Effort, Samples};
use crate::harness::{Http, Program, binary, until};

/// Bytes of a raw echo: about those of an acquire.
const RAW_BYTES: usize = 128;

/// Serves a floor until it is killed; the `bench` program runs this in its child.
pub fn serve(kind: &str, socket: &Path) -> anyhow::Result<()> {
    match kind {
        "raw" => {
            for stream in UnixListener::bind(socket)?.incoming() {
                let stream = stream?;
                std::thread::spawn(move || echo(stream));
            }
            Ok(())
        }
        // The runtime that `#[tokio::main]` makes, and the server that axum's own examples use.
        "http" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::bind(socket)?;
                let echo = post(|Json(body): Json<Value>| async { Json(body) });
                axum::serve(listener, Router::new().route("/echo", echo)).await?;
                Ok(())
            })
        }
        other => anyhow::bail!("{other} is not a floor: raw or http"),
    }
}

fn echo(mut stream: UnixStream) {
    let mut bytes = [0; RAW_BYTES];
    while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
}

/// A running floor.
pub(super) struct Floor {
    _server: Program,
    socket: PathBuf,
    _dir: TempDir,
}

impl Floor {
    /// Starts it and waits until it can be connected to.
    pub(super) fn start(kind: &str) -> anyhow::Result<Floor> {
        let dir = TempDir::with_prefix("floor-")?;
        let socket = dir.path().join("echo.sock");
        let server = Program::start(
            Command::new(binary("bench"))
                .args(["serve-floor", kind])
                .arg(&socket)
                .stdin(Stdio::null()),
        );
        until("the floor to listen", || UnixStream::connect(&socket).is_ok());
        Ok(Floor { _server: server, socket, _dir: dir })
    }

    /// A client of it.
    pub(super) fn http(&self) -> Http {
        Http::new(&self.socket)
    }

    /// Times of one call each, µs.
    pub(super) fn raw_us(&self, effort: &Effort) -> anyhow::Result<Samples> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let mut bytes = [b'x'; RAW_BYTES];
        let mut times = Vec::with_capacity(effort.calls);
        for _ in 0..effort.calls {
            let (us, result) = timed_us(|| {
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)
            });
            result?;
            times.push(us);
        }
        Ok(Samples::new(times))
    }
}

/// One call of the bare HTTP echo, with a body like an acquire's, parsed like an acquire's answer.
pub(super) fn call_echo(http: &mut Http) -> anyhow::Result<()> {
    let body = json!({
        "session": "6b0f5e3e-3f0c-4b61-9f1c-2d1a0a1f7c11",
        "kind": "leader",
        "name": "cleanup",
    });
    let answer = http.try_call("POST", "/echo", body.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "the floor answered {}", answer.status);
    let _: Value = serde_json::from_slice(&answer.body)?;
    Ok(())
}
