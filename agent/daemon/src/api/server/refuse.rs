//! A few last words to a connection that is not served.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use nix::sys::socket::{Shutdown, shutdown};
use tenure_core::model::Full;
use tenure_wire::{Code, Problem};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::api::limits::REFUSALS_MAX;
use crate::api::respond::{PROBLEM_JSON, retry_after_seconds};

/// How long a refused client has to send its request, so that it reads the answer to it instead of
/// failing to write.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// When a refused client should come again.
const RETRY_AFTER_MS: u64 = 1000;

/// Refuses connections, a bounded number at a time; the rest are closed without a word.
#[derive(Clone)]
pub(super) struct Refuser(Arc<Semaphore>);

impl Refuser {
    pub(super) fn new() -> Refuser {
        Refuser(Arc::new(Semaphore::new(REFUSALS_MAX)))
    }

    /// Starts a task that tells the client why, and ends within 200 ms.
    pub(super) fn refuse(&self, stream: UnixStream, problem: Problem) {
        let Ok(permit) = self.0.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _permit = permit;
            let _ = tokio::time::timeout(LAST_WORDS, tell(&stream, &problem)).await;
        });
    }
}

/// A response with that problem, as hyper would write it.
pub(super) fn text(problem: &Problem) -> String {
    let body = serde_json::to_string(problem).unwrap_or_default();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry_after = problem
        .retry_after_ms
        .map(|ms| format!("retry-after: {}\r\n", retry_after_seconds(ms)))
        .unwrap_or_default();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n\
         {retry_after}connection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn tell(stream: &UnixStream, problem: &Problem) {
    if stream.writable().await.is_err() || stream.try_write(text(problem).as_bytes()).is_err() {
        return;
    }
    // Whatever fails here fails because the client is gone.
    let _ = shutdown(stream.as_raw_fd(), Shutdown::Write);
    let mut scrap = [0; 4096];
    loop {
        let _ = stream.readable().await;
        match stream.try_read(&mut scrap) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The refusal of a connection beyond a limit.
pub(super) fn full(full: Full, uid: u32) -> Problem {
    let detail = match full {
        Full::User(max) => format!(
            "uid {uid} has {max} connections with requests or streams, the most that \
             limits.connections_per_uid_max allows; close some, or have the limit raised"
        ),
        Full::All(max) => {
            format!(
                "{max} connections have requests or streams, the most that limits.connections_max \
                 allows; try again later, or have the limit raised"
            )
        }
    };
    Problem::new(Code::QuotaExceeded, detail).retry_after_ms(RETRY_AFTER_MS)
}
