//! Settings of TLS.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

/// The settings of a TLS connection: trusted authorities, and the agent's own certificate if it has
/// one.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl fmt::Debug for Trust {
    /// Without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Takes a configuration of rustls.
    pub fn new(config: ClientConfig) -> Trust {
        Trust(Arc::new(config))
    }

    /// The configuration.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}
