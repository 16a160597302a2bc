//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cluster::ClusterArgs;
use crate::keys::KeysCommand;
use crate::quarantine::QuarantineCommand;

/// Lets agents coordinate through a store whose password only this process has.
///
/// Without arguments it serves this host alone and keeps everything itself. A gateway for a team is given a
/// store, keys and an address: with keys_in_store `tenured-gateway keys add --subject laptop-7` makes a key that every
/// gateway over the store goes by; it goes into a file of the agent, which is started as
/// `tenured --upstream https://HOST:8740 --upstream-secret-file FILE`.
///
/// The same port serves the control plane of RFC-049 over gRPC, mailboxes with their runners and proxies:
/// `tenured-gateway --standalone --listen 127.0.0.1:8981` is one for this host.
///
/// Every setting can also be given in a file or in the environment: the key `stop.deadline` as
/// TENURED_GATEWAY_STOP_DEADLINE. Flags win over the environment, the environment over files.
/// `tenured-gateway check-config` prints what is in effect, and where each value comes from.
#[derive(Debug, Parser)]
#[command(
    name = "tenured-gateway",
    version,
    args_conflicts_with_subcommands = false,
    after_help = "Exit status: 0 stopped as asked, 64 wrong usage, 69 the address or a directory cannot \
                  be used, 78 wrong configuration."
)]
pub struct Cli {
    /// Command; without one it serves.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Check the configuration, and print what is in effect as TOML.
    CheckConfig {
        /// Print the SQL of the schema that a Postgres is given as the store, for an administrator who applies it by
        /// hand with psql.
        #[arg(long)]
        sql: bool,
    },
    /// Make, list, rotate and revoke the keys of callers.
    #[command(subcommand)]
    Keys(Box<KeysCommand>),
    /// Look after the quarantine of a store that lost data: the time in which it grants nothing.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Print the address of the page of a gateway on this host; with require_keys also the key, which the page takes from it.
    Page,
    /// Begin a cluster of gateways, add and take out nodes, look at it, back it up, restore it, and recover it when its
    /// majority is gone.
    Cluster(Box<ClusterArgs>),
}

/// Settings that have a flag.
#[derive(Debug, Clone, Default, Args)]
pub struct Flags {
    /// Read only this file; or of a directory its gateway.toml and then its conf.d/*.toml in the order of
    /// their names. Without this: the directory /etc/tenured-gateway [env: TENURED_GATEWAY_CONFIG].
    #[arg(long, value_name = "PATH", global = true)]
    pub config: Option<PathBuf>,
    /// local, lan or cloud: how much is asked of the store and of callers
    /// [env: TENURED_GATEWAY_MODE, PRISM_MODE].
    #[arg(long, value_name = "MODE", global = true)]
    pub mode: Option<String>,
    /// Address to serve at [env: TENURED_GATEWAY_LISTEN].
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub listen: Option<String>,
    /// Names by which it is called besides its addresses and those of its certificate, with commas between
    /// [env: TENURED_GATEWAY_HOSTS].
    #[arg(long, value_name = "NAMES", global = true)]
    pub hosts: Option<String>,
    /// Store of all holds: embedded:, a Redis such as redis://127.0.0.1:6379/0, or a Postgres such
    /// as postgres://tenure@127.0.0.1/tenure [env: TENURED_GATEWAY_UPSTREAM, PRISM_REDIS_URL].
    #[arg(long, value_name = "URL", global = true)]
    pub upstream: Option<String>,
    /// Keep everything on this host, in the embedded store: the same as --upstream embedded:
    #[arg(long, global = true, conflicts_with = "upstream")]
    pub standalone: bool,
    /// Be a node of a cluster of gateways, which keeps everything itself: the same as --upstream cluster:
    #[arg(long, global = true, conflicts_with_all = ["upstream", "standalone"])]
    pub cluster: bool,
    /// Where this node of a cluster listens to the others [env: TENURED_GATEWAY_CLUSTER_LISTEN].
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub cluster_listen: Option<String>,
    /// Nodes of a cluster, HOST:PORT with commas between, which this one asks to add it
    /// [env: TENURED_GATEWAY_CLUSTER_JOIN].
    #[arg(long, value_name = "ADDRESSES", global = true)]
    pub cluster_join: Option<String>,
    /// Begin a cluster as soon as all nodes of --cluster-join, this one among them, answer and belong to none
    /// [env: TENURED_GATEWAY_CLUSTER_BEGIN=true].
    #[arg(long, global = true)]
    pub cluster_begin: bool,
    /// A file with the store's password [env: TENURED_GATEWAY_UPSTREAM_SECRET_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub upstream_secret_file: Option<String>,
    /// File with the keys of callers, read again when it changes. Without keys everybody on this host is let in
    /// [env: TENURED_GATEWAY_KEYS_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub keys_file: Option<String>,
    /// Have the keys of callers in the store, where every gateway over it finds them
    /// [env: TENURED_GATEWAY_KEYS_IN_STORE=true].
    #[arg(long, global = true)]
    pub keys_in_store: bool,
    /// Ask for a key on loopback, too; one for this user is made in the runtime directory, if there are no others
    /// [env: TENURED_GATEWAY_REQUIRE_KEYS=true].
    #[arg(long, global = true)]
    pub require_keys: bool,
    /// File for the audit trail; - is the standard output [env: TENURED_GATEWAY_AUDIT].
    #[arg(long, value_name = "FILE", global = true)]
    pub audit: Option<String>,
    /// The gateway's certificate, in PEM format: with it TLS is spoken [env: TENURED_GATEWAY_TLS_CERT_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub tls_cert_file: Option<String>,
    /// The private key of that certificate [env: TENURED_GATEWAY_TLS_KEY_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub tls_key_file: Option<String>,
    /// Authorities of clients, in PEM format: who shows a certificate of theirs needs no key [env: TENURED_GATEWAY_TLS_CLIENT_CA_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub tls_client_ca_file: Option<String>,
    /// Rights of clients that show a certificate and no key, with commas between; left out, none
    /// [env: TENURED_GATEWAY_CERTIFICATE_RIGHTS].
    #[arg(long, value_name = "RIGHTS", global = true)]
    pub certificate_rights: Option<String>,
    /// Serve other hosts without TLS: whoever is on the way can read keys
    /// [env: TENURED_GATEWAY_INSECURE=true].
    #[arg(long, global = true)]
    pub insecure: bool,
    /// Directory of what must survive a reboot [env: TENURED_GATEWAY_STATE_DIR].
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<String>,
    /// Directory of what may be lost at a reboot [env: TENURED_GATEWAY_RUNTIME_DIR].
    #[arg(long, value_name = "DIR", global = true)]
    pub runtime_dir: Option<String>,
    /// error, warn, info, debug or trace, or a filter such as info,tenured_gateway::face=debug
    /// [env: TENURED_GATEWAY_LOG].
    #[arg(long, value_name = "LEVEL", global = true)]
    pub log: Option<String>,
    /// How log lines are written: auto, human, json or journald [env: TENURED_GATEWAY_LOG_FORMAT].
    #[arg(long, value_name = "FORMAT", global = true)]
    pub log_format: Option<String>,
}

impl Flags {
    /// Flag, key and value of everything that was given and is a key.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let insecure = self.insecure.then_some("true");
        let keys_in_store = self.keys_in_store.then_some("true");
        let require_keys = self.require_keys.then_some("true");
        let standalone = self.standalone.then_some("embedded:");
        let cluster = self.cluster.then_some("cluster:");
        let cluster_begin = self.cluster_begin.then_some("true");
        [
            ("--standalone", "upstream", standalone),
            ("--cluster", "upstream", cluster),
            ("--cluster-listen", "cluster.listen", self.cluster_listen.as_deref()),
            ("--cluster-join", "cluster.join", self.cluster_join.as_deref()),
            ("--cluster-begin", "cluster.begin", cluster_begin),
            ("--mode", "mode", self.mode.as_deref()),
            ("--listen", "listen", self.listen.as_deref()),
            ("--hosts", "hosts", self.hosts.as_deref()),
            ("--upstream", "upstream", self.upstream.as_deref()),
            (
                "--upstream-secret-file",
                "upstream_secret_file",
                self.upstream_secret_file.as_deref(),
            ),
            ("--keys-file", "keys_file", self.keys_file.as_deref()),
            ("--keys-in-store", "keys_in_store", keys_in_store),
            ("--require-keys", "require_keys", require_keys),
            ("--audit", "audit", self.audit.as_deref()),
            ("--tls-cert-file", "tls.cert_file", self.tls_cert_file.as_deref()),
            ("--tls-key-file", "tls.key_file", self.tls_key_file.as_deref()),
            ("--tls-client-ca-file", "tls.client_ca_file", self.tls_client_ca_file.as_deref()),
            ("--certificate-rights", "certificate_rights", self.certificate_rights.as_deref()),
            ("--insecure", "insecure", insecure),
            ("--state-dir", "state_dir", self.state_dir.as_deref()),
            ("--runtime-dir", "runtime_dir", self.runtime_dir.as_deref()),
            ("--log", "log", self.log.as_deref()),
            ("--log-format", "log_format", self.log_format.as_deref()),
        ]
        .into_iter()
        .filter_map(|(flag, key, value)| Some((flag, key, value?)))
    }
}
