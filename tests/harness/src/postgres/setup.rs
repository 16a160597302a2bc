//! How a server is to be started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Cluster, Postgres};
use crate::{Program, free_port};

/// Copies of a certificate, of its key, and of the authorities of clients.
pub(super) const TLS_FILES: [&str; 3] = ["server.pem", "server.key", "clients.pem"];
/// The settings that name these files.
const TLS_SETTINGS: [&str; 3] = ["ssl_cert_file", "ssl_key_file", "ssl_ca_file"];

/// How a server is to be started.
#[derive(Clone, Default)]
pub struct PostgresSetup {
    options: Vec<String>,
    variables: Vec<(String, OsString)>,
    tcp: bool,
    disk: Option<String>,
    /// A certificate and its key, and perhaps the authorities of clients.
    tls: Vec<PathBuf>,
}

impl PostgresSetup {
    pub(super) fn plain(options: &[&str], variables: &[(&str, OsString)]) -> PostgresSetup {
        PostgresSetup {
            options: options.iter().map(ToString::to_string).collect(),
            variables: variables
                .iter()
                .map(|(name, it)| ((*name).to_owned(), it.clone()))
                .collect(),
            ..PostgresSetup::default()
        }
    }

    /// It outlives a kill, though not a loss of power.
    pub(super) fn fast() -> PostgresSetup {
        PostgresSetup::plain(&["-c", "fsync=off"], &[])
    }

    /// With this setting.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> PostgresSetup {
        self.options.extend(["-c".to_owned(), format!("{name}={value}")]);
        self
    }

    /// Listens on a TCP port of the loopback interface too.
    #[must_use]
    pub fn tcp(mut self) -> PostgresSetup {
        self.tcp = true;
        self
    }

    /// Speaks TLS with this certificate and key, over TCP.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path) -> PostgresSetup {
        self.tls = vec![certificate.to_owned(), key.to_owned()];
        self.tcp()
    }

    /// Takes certificates of clients of the authorities in this file, besides speaking TLS.
    #[must_use]
    pub fn clients(mut self, authorities: &Path) -> PostgresSetup {
        self.tls.truncate(2);
        self.tls.push(authorities.to_owned());
        self
    }

    /// On a disk of its own of that size, which a test can fill. Takes root.
    #[must_use]
    pub fn disk(mut self, size: &str) -> PostgresSetup {
        self.disk = Some(size.to_owned());
        self
    }

    /// Makes a cluster, starts its server, and waits until it can be connected to.
    #[track_caller]
    pub fn start(self) -> Postgres {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn try_start(self) -> Result<Postgres, String> {
        let port = if self.tcp { free_port() } else { super::POSTGRES_PORT };
        let cluster = Cluster::make(port, self.disk.as_deref())?;
        for (path, name) in self.tls.iter().zip(TLS_FILES) {
            cluster.take(path, name)?;
        }
        self.start_in(cluster)
    }

    pub(super) fn start_in(self, cluster: Cluster) -> Result<Postgres, String> {
        let process = self.spawn(&cluster);
        let mut postgres = Postgres { process, setup: self, cluster };
        postgres.cluster.wait_ready(&mut postgres.process)?;
        Ok(postgres)
    }

    pub(super) fn spawn(&self, cluster: &Cluster) -> Program {
        let mut server = cluster.command("postgres");
        let addresses = if self.tcp { "listen_addresses=127.0.0.1" } else { "listen_addresses=" };
        server.arg("-D").arg(cluster.data()).args(["-c", addresses, "-k"]).arg(cluster.path());
        server.arg("-p").arg(cluster.port.to_string()).args(&self.options);
        for (setting, name) in TLS_SETTINGS.into_iter().zip(TLS_FILES).take(self.tls.len()) {
            let path = cluster.path().join(name);
            server.args(["-c", &format!("{setting}={}", path.display())]);
        }
        if !self.tls.is_empty() {
            server.args(["-c", "ssl=on"]);
        }
        server.envs(self.variables.iter().map(|(name, value)| (name, value)));
        server.stdin(Stdio::null()).stdout(cluster.log_file()).stderr(cluster.log_file());
        Program::start(&mut server)
    }
}
