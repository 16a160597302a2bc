//! Describes a session before it is opened.

use std::time::Duration;

use super::{Session, SessionError, milliseconds};
use crate::client::Client;
use crate::wire::{Register, Tether};

/// Describes a session; [`open`](SessionBuilder::open) registers it.
///
/// ```no_run
/// # async fn example(agent: tenure::Agent) -> Result<(), tenure::SessionError> {
/// use std::time::Duration;
///
/// let session = agent
///     .session()
///     .name("nightly")
///     .project("reports")
///     .progress(Duration::from_secs(20))
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a session begins with `open`"]
pub struct SessionBuilder {
    client: Client,
    register: Register,
}

impl SessionBuilder {
    pub(crate) fn new(client: Client) -> SessionBuilder {
        let register = Register { tether: Some(Tether::Connection), ..Register::default() };
        SessionBuilder { client, register }
    }

    /// The holder's name as people see it; 1–200 bytes. Default: that of the program or script.
    pub fn name(mut self, name: impl Into<String>) -> SessionBuilder {
        self.register.name = Some(name.into());
        self
    }

    /// The kind of program, such as `cli`. Default `unknown`.
    pub fn surface(mut self, surface: impl Into<String>) -> SessionBuilder {
        self.register.surface = Some(surface.into());
        self
    }

    /// The tenant in which all names are looked up. Default `default`.
    pub fn tenant(mut self, tenant: impl Into<String>) -> SessionBuilder {
        self.register.tenant = Some(tenant.into());
        self
    }

    /// The project whose master this session may become. Naming one announces the session to the
    /// project's other sessions. Default `default`, unannounced.
    pub fn project(mut self, project: impl Into<String>) -> SessionBuilder {
        self.register.project = Some(project.into());
        self
    }

    /// The tie of the session to life. Default [`Tether::Connection`]: the event stream that this
    /// crate keeps open. With [`Tether::Keepalive`] the program calls [`Session::beat`] itself.
    pub fn tether(mut self, tether: Tether) -> SessionBuilder {
        self.register.tether = Some(tether);
        self
    }

    /// How long a keepalive tether lasts without a beat, in whole ms. Default 30 s.
    pub fn keepalive(mut self, keepalive: Duration) -> SessionBuilder {
        self.register.keepalive_ms = Some(milliseconds(keepalive));
        self
    }

    /// How long a connection tether outlives its stream while the process lives, in whole ms.
    /// Default 3 s.
    pub fn linger(mut self, linger: Duration) -> SessionBuilder {
        self.register.linger_ms = Some(milliseconds(linger));
        self
    }

    /// Promises to call [`Session::beat`] at least this often, in whole ms; a broken promise loses
    /// the holds. Default none.
    pub fn progress(mut self, progress: Duration) -> SessionBuilder {
        self.register.progress_ms = Some(milliseconds(progress));
        self
    }

    /// How many holds the session may have at once, waiting ones counted: 1 to 4095. Default 63.
    pub fn holds(mut self, holds: u32) -> SessionBuilder {
        self.register.holds = Some(holds);
        self
    }

    /// How long the session outlives its last beat upstream, in whole ms. Default 90 s.
    pub fn ttl(mut self, ttl: Duration) -> SessionBuilder {
        self.register.ttl_ms = Some(milliseconds(ttl));
        self
    }

    /// The guarded work goes on until the tether ends: a lost hold is kept from others until then,
    /// or until its valid-until has passed. Default false.
    pub fn guarded(mut self, guarded: bool) -> SessionBuilder {
        self.register.guarded = Some(guarded);
        self
    }

    /// Registers the session, maps its page and opens its event stream. The session lives in the
    /// Tokio runtime that this is called in, which needs its I/O and time drivers.
    ///
    /// # Errors
    ///
    /// [`SessionError`]: the agent refused or could not be asked, or the page cannot be read here.
    pub async fn open(self) -> Result<Session, SessionError> {
        Session::open(self.client, self.register).await
    }
}
