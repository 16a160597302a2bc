//! The agent on this host.

use std::path::Path;

use crate::client::{CallError, Client};
use crate::session::SessionBuilder;

/// The agent on this host: where sessions begin. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = tenure::Agent::connect().await?;
/// let session = agent.session().name("nightly").open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Agent {
    client: Client,
}

impl Agent {
    /// The agent at `TENURE_SOCKET`, else this user's own, else the service's; see
    /// [`Client::connect`]. Asks whether it is there.
    ///
    /// # Errors
    ///
    /// [`CallError`], which names the socket and what to do.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::client::CallError> {
    /// let agent = tenure::Agent::connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect() -> Result<Agent, CallError> {
        Agent::of(Client::connect(None)?).await
    }

    /// The agent at `socket`, a path or a `unix:` URI. Asks whether it is there.
    ///
    /// # Errors
    ///
    /// [`CallError`], which names the socket and what to do.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::client::CallError> {
    /// let agent = tenure::Agent::connect_to("/run/tenured/api.sock").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_to(socket: impl AsRef<Path>) -> Result<Agent, CallError> {
        Agent::of(Client::connect(Some(socket.as_ref()))?).await
    }

    async fn of(client: Client) -> Result<Agent, CallError> {
        client.healthz().await?;
        Ok(Agent { client })
    }

    /// The agent's calls one by one.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Describes a session; [`SessionBuilder::open`] registers it.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.client.clone())
    }
}
