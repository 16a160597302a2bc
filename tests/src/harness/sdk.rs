//! Programs of the Rust SDK, within a test.

use std::path::PathBuf;
use std::time::Duration;

use tenure::wire::Tether;

use super::DEADLINE;

/// A session as a program makes it, with a linger that outlasts any restart of the agent in a test.
pub async fn open_session(socket: PathBuf) -> tenure::Session {
    let connected = tenure::Agent::connect_to(socket).await.expect("it answers");
    let builder = connected.session().name("program").tether(Tether::Connection);
    builder.linger(Duration::from_secs(600)).open().await.expect("it registers")
}

/// Waits for a future.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(DEADLINE, future).await;
    result.unwrap_or_else(|_| panic!("waited {DEADLINE:?} in vain for {what}"))
}
