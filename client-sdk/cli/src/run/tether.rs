//! The session that holds: its registration, and the event stream that keeps it alive.

use std::time::Duration;

use tenure::client::{CallError, Client, EventStream};
use tenure::wire::{self, Code, Register, Registered, Resume};
use tokio::time::sleep;

/// First pause before the agent is tried again; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A session and its stream.
pub(super) struct Tether {
    pub(super) registered: Registered,
    pub(super) stream: EventStream,
}

/// Attaches to a session again after its stream broke, for as long as that takes. The new stream
/// starts with a snapshot, which says what was missed. A session that is tied to the process `pid` stays so.
///
/// # Errors
///
/// An error that no patience cures: the session has ended.
pub(super) async fn attach_again(
    client: Client,
    registered: Registered,
    pid: Option<u32>,
) -> Result<Tether, CallError> {
    let resume = Register {
        resume: Some(Resume { session: registered.session, secret: registered.secret.clone() }),
        tether: pid.map(|_| wire::Tether::Process),
        pid,
        ..Register::default()
    };
    let mut pause = PAUSE_MIN;
    loop {
        let error = match attach(&client, &resume).await {
            Ok(tether) => return Ok(tether),
            Err(error) => error,
        };
        if !(error.is_transient() || error.code() == Some(Code::QuotaExceeded)) {
            return Err(error);
        }
        #[expect(clippy::disallowed_methods, reason = "a pause before a repetition, 1 s at most")]
        sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn attach(client: &Client, resume: &Register) -> Result<Tether, CallError> {
    let registered = client.register(resume).await?;
    let stream = client.events(registered.session, None).await?;
    Ok(Tether { registered, stream })
}
