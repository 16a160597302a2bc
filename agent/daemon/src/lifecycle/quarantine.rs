//! `tenured quarantine end`: asks the running agent, as any client does.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tenure_wire::{Problem, QuarantineEnded};

use crate::api;

/// A person waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the quarantine goes on.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// No agent answers.
    #[error("no agent answers at {path}: name its socket with --socket")]
    Unanswered {
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// It refuses.
    #[error("the agent refuses: {0}")]
    Refused(String),
    /// Nobody has said that it is meant.
    #[error("nothing was changed; say `tenured quarantine end --yes` if that is meant")]
    NotMeant,
}

/// Ends the quarantine of the agent at a socket, or says what that would risk. What was done, for people.
///
/// # Errors
///
/// See [`QuarantineError`].
pub fn end_quarantine(socket: &Path, yes: bool) -> Result<String, QuarantineError> {
    let ask = |method: &str, target: &str| {
        ask(socket, method, target).map_err(|source| QuarantineError::Unanswered {
            path: socket.display().to_string(),
            source,
        })
    };
    if !yes {
        let (status, body) = ask("GET", "/readyz")?;
        if status == 200 {
            return Ok("the agent grants: there is no quarantine".to_owned());
        }
        eprintln!("{}", detail(&body));
        eprintln!(
            "To end a quarantine risks two holders at once: a program that was granted something by the \
             earlier agent, and still runs, goes on until its own valid-until. Only the fencing token tells \
             the two apart. Stop such programs first, or wait."
        );
        return Err(QuarantineError::NotMeant);
    }
    match ask("POST", "/v1/quarantine/end")? {
        (200, body) => match serde_json::from_slice::<QuarantineEnded>(&body) {
            Ok(QuarantineEnded { ended: true, left_ms }) => {
                Ok(format!("ended, {} s before its time", left_ms.div_ceil(1000)))
            }
            // No agent can end the quarantine of a store behind a gateway.
            _ => match ask("GET", "/readyz")? {
                (200, _) => Ok("there is no quarantine".to_owned()),
                (_, body) => Err(QuarantineError::Refused(detail(&body))),
            },
        },
        (_, body) => Err(QuarantineError::Refused(detail(&body))),
    }
}

fn detail(body: &[u8]) -> String {
    let problem = serde_json::from_slice::<Problem>(body).map(|problem| problem.detail);
    problem.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned())
}

fn ask(socket: &Path, method: &str, target: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = "HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(format!("{method} {target} {head}").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(api::HEAD_MAX as u64 + api::BODY_MAX as u64).read_to_end(&mut answer)?;
    let (status, body) = api::parse_answer(&answer).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((status, body.to_vec()))
}
