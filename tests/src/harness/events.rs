//! An event stream, read in this process.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use uuid::Uuid;

use super::http::{connect, read_body, read_chunk, read_head};
use super::{Answer, EventLog};

/// Why a stream could not be opened.
#[derive(Debug)]
pub enum StreamError {
    /// The agent refused.
    Refused(Answer),
    /// The socket failed.
    Io(io::Error),
}

/// An open event stream, read by a thread into its [`EventLog`]. Dropping it closes the stream.
pub struct Events {
    log: Arc<EventLog>,
    stream: UnixStream,
    reader: Option<JoinHandle<()>>,
}

impl Events {
    /// Opens the stream of a session; it must open.
    #[track_caller]
    pub fn open(socket: &Path, session: Uuid) -> Events {
        Events::try_open(socket, &format!("/v1/events?session={session}"), None)
            .unwrap_or_else(|error| panic!("the stream of {session} did not open: {error:?}"))
    }

    /// Opens a stream, after the event that was seen last.
    pub fn try_open(
        socket: &Path,
        path: &str,
        last_event_id: Option<u64>,
    ) -> Result<Events, StreamError> {
        let mut stream = connect(socket).map_err(StreamError::Io)?;
        let last = last_event_id.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).map_err(StreamError::Io)?;
        let mut unread = Vec::new();
        let mut answer = read_head(&mut stream, &mut unread).map_err(StreamError::Io)?;
        if answer.status != 200 {
            read_body(&mut stream, &mut unread, &mut answer).map_err(StreamError::Io)?;
            return Err(StreamError::Refused(answer));
        }
        let content_type = answer.header("content-type").unwrap_or_default();
        assert!(content_type.starts_with("text/event-stream"), "{content_type}");

        // The stream may be silent for ever; `drop` shuts it down.
        stream.set_read_timeout(None).map_err(StreamError::Io)?;
        let log = Arc::new(EventLog::default());
        let reader = std::thread::spawn({
            let log = Arc::clone(&log);
            let mut stream = stream.try_clone().map_err(StreamError::Io)?;
            move || {
                while let Ok(Some(chunk)) = read_chunk(&mut stream, &mut unread) {
                    log.feed(&chunk);
                }
                log.finish();
            }
        });
        Ok(Events { log, stream, reader: Some(reader) })
    }

    /// The socket under the stream.
    pub fn socket(&self) -> &UnixStream {
        &self.stream
    }

    /// The bytes that came and are not parsed yet, and the rest of the stream.
    pub fn log(&self) -> &Arc<EventLog> {
        &self.log
    }
}

impl std::ops::Deref for Events {
    type Target = EventLog;

    fn deref(&self) -> &EventLog {
        &self.log
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Fails only when the agent closed it first.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
