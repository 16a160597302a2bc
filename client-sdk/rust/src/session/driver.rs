//! Keeps a session's event stream open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::SessionState;
use super::pages::FollowError;
use super::shared::Shared;
use crate::backoff::Backoff;
use crate::client::{CallError, EventStream};
use crate::wire::{Code, Event, Register, Resume};

/// The causes of a `shutdown` event after which there is nothing to come back to.
const SESSION_ENDED: &str = "session_ended";

/// Why the stream is not open yet.
#[derive(Debug, thiserror::Error)]
enum ReopenError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Follow(#[from] FollowError),
}

/// Takes an open stream; applies and passes on its events; opens it again whenever it breaks.
/// Ends when the session is gone.
pub(super) async fn drive(shared: Arc<Shared>, mut stream: EventStream) {
    let mut last_event_id = None;
    let mut number = shared.streams.load(Ordering::Acquire);
    let mut backoff = Backoff::new();
    loop {
        loop {
            match stream.next().await {
                Some(Ok(received)) => {
                    backoff = Backoff::new();
                    last_event_id = received.id.or(last_event_id);
                    shared.apply(&received.event, number);
                    let ended = is_end(&received.event);
                    // Fails only when nobody listens.
                    let _ = shared.events.send(received.event);
                    if ended {
                        shared.agent_knows.store(true, Ordering::Release);
                        return shared.end("the agent says that it ended");
                    }
                }
                // An answer that cannot be read once cannot be read again: go on from a snapshot.
                Some(Err(CallError::Protocol { .. })) => {
                    last_event_id = None;
                    break;
                }
                Some(Err(_)) | None => break,
            }
        }
        shared.set_state(SessionState::Reconnecting);
        drop(stream);
        stream = loop {
            // From here on a new hold may be missing from the coming snapshot.
            number = shared.streams.fetch_add(1, Ordering::AcqRel) + 1;
            match reopen(&shared, last_event_id).await {
                Ok(stream) => break stream,
                Err(ReopenError::Call(error)) if is_final(&error) => {
                    shared.agent_knows.store(true, Ordering::Release);
                    return shared.end(error.to_string());
                }
                Err(ReopenError::Follow(error @ FollowError::TooMany)) => {
                    return shared.end(error.to_string());
                }
                Err(_) => backoff.wait().await,
            }
        };
        shared.set_state(SessionState::Connected);
    }
}

/// Proves that the session is ours, since the agent may be another than before; then listens.
async fn reopen(shared: &Shared, last_event_id: Option<u64>) -> Result<EventStream, ReopenError> {
    let resume = Resume { session: shared.session(), secret: shared.registered.secret.clone() };
    let register = Register { resume: Some(resume), ..Register::default() };
    let registered = shared.client.register(&register).await?;
    shared.follow_page(registered.page.as_ref())?;
    Ok(shared.client.events(shared.session(), last_event_id).await?)
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::Shutdown(shutdown) if shutdown.cause == SESSION_ENDED)
}

/// True if trying again can only meet the same: the session is not there, or not ours.
fn is_final(error: &CallError) -> bool {
    match error.code() {
        None => false,
        Some(code) => {
            !matches!(code, Code::UpstreamUnavailable | Code::Stopping | Code::QuotaExceeded)
        }
    }
}
