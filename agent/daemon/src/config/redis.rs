//! The section `[redis]`.

use std::path::PathBuf;
use std::time::Duration;

use tenure_stores::redis::layout::Prefixes;
use tenure_stores::redis::settings::TIMEOUT;

/// Longest time between two questions about a contended resource: what a lost hint costs at most.
pub(super) const POLL_MAX: Duration = Duration::from_secs(1);

/// The section `[redis]`, which is checked also where it is not needed.
#[derive(Debug, Clone)]
pub(super) struct RedisSection {
    pub(super) prefixes: Prefixes,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) poll: Duration,
    pub(super) tls_ca_file: Option<PathBuf>,
    pub(super) tls_cert_file: Option<PathBuf>,
    pub(super) tls_key_file: Option<PathBuf>,
    pub(super) sentinel_secret_file: Option<PathBuf>,
}

impl Default for RedisSection {
    fn default() -> RedisSection {
        RedisSection {
            prefixes: Prefixes::default(),
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            poll: POLL_MAX,
            tls_ca_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            sentinel_secret_file: None,
        }
    }
}
