//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Keeps leadership, leases and semaphore permits for every process on this host.
///
/// Without arguments it serves the user that starts it, or as root the whole host, and keeps
/// everything itself. Every setting can also be given in a file or in the environment: the key
/// `leader.ttl` as TENURED_LEADER_TTL. Flags win over the environment, the environment over files.
#[derive(Debug, Parser)]
#[command(
    name = "tenured",
    version,
    args_conflicts_with_subcommands = false,
    after_help = "Exit status: 0 stopped as asked, 64 wrong usage, 69 the socket or a directory \
                  cannot be used, 78 wrong configuration."
)]
pub struct Cli {
    /// Command; `agent` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Serve the programs of this host.
    Agent,
    /// Check the configuration, and print what is in effect as TOML.
    CheckConfig {
        /// Print the SQL of the schema that a Postgres is given as the upstream, for an administrator who applies it
        /// by hand with psql.
        #[cfg(feature = "postgres")]
        #[arg(long)]
        sql: bool,
    },
    /// Look after a quarantine: the time in which nothing is granted, as the agent lost its journal, or a Redis or a
    /// Postgres its data.
    #[command(subcommand)]
    Quarantine(Quarantine),
    /// Run the gateway, tenured-gateway, with everything that follows: a program of its own, in a package of
    /// its own.
    #[command(disable_help_flag = true)]
    Gateway {
        /// What it is given; see `tenured gateway --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
}

/// Commands about a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Quarantine {
    /// End it now, for every agent of the store, although earlier grants may still be valid. For root and the agent's
    /// user.
    End {
        /// Do it. Without this only what it risks is said.
        #[arg(long)]
        yes: bool,
    },
}

/// Settings that have a flag.
#[derive(Debug, Clone, Default, Args)]
pub struct Flags {
    /// Read only this file; or of a directory its tenured.toml and then its conf.d/*.toml in the order
    /// of their names. Without this: the directory /etc/tenured, then
    /// $XDG_CONFIG_HOME/tenured/tenured.toml [env: TENURED_CONFIG].
    #[arg(long, value_name = "PATH", global = true)]
    pub config: Option<PathBuf>,
    /// Socket for programs: a path, or a unix: URI [env: TENURED_SOCKET, TENURE_SOCKET].
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<String>,
    /// Store of all holds: embedded:, a Redis such as redis://127.0.0.1:6379/0, or gateways such as
    /// https://a.example,b.example [env: TENURED_UPSTREAM].
    #[arg(long, value_name = "URL", global = true)]
    pub upstream: Option<String>,
    /// A file with the upstream's password [env: TENURED_UPSTREAM_SECRET_FILE].
    #[arg(long, value_name = "FILE", global = true)]
    pub upstream_secret_file: Option<String>,
    /// Directory of what must survive a reboot [env: TENURED_STATE_DIR].
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<String>,
    /// Socket, pages and journal; may be lost at a reboot [env: TENURED_RUNTIME_DIR].
    #[arg(long, value_name = "DIR", global = true)]
    pub runtime_dir: Option<String>,
    /// error, warn, info, debug or trace, or a filter such as info,tenured::api=debug
    /// [env: TENURED_LOG].
    #[arg(long, value_name = "LEVEL", global = true)]
    pub log: Option<String>,
    /// How log lines are written: auto, human, json or journald [env: TENURED_LOG_FORMAT].
    #[arg(long, value_name = "FORMAT", global = true)]
    pub log_format: Option<String>,
}

impl Flags {
    /// Flag, key and value of everything that was given and is a key.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        [
            ("--socket", "socket", &self.socket),
            ("--upstream", "upstream", &self.upstream),
            ("--upstream-secret-file", "upstream_secret_file", &self.upstream_secret_file),
            ("--state-dir", "state_dir", &self.state_dir),
            ("--runtime-dir", "runtime_dir", &self.runtime_dir),
            ("--log", "log", &self.log),
            ("--log-format", "log_format", &self.log_format),
        ]
        .into_iter()
        .filter_map(|(flag, key, value)| Some((flag, key, value.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_on_either_side() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        for line in ["tenured check-config --log debug", "tenured --log debug check-config"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(matches!(cli.command, Some(Command::CheckConfig { .. })));
            assert_eq!(cli.flags.log.as_deref(), Some("debug"));
        }
        assert_eq!(Cli::try_parse_from(["tenured"]).unwrap().command, None);
        let agent = Cli::try_parse_from(["tenured", "agent", "--socket", "/s"]).unwrap();
        assert_eq!(agent.command, Some(Command::Agent));
        let line = ["tenured", "gateway", "--listen", "[::1]:1", "keys", "--help"];
        let gateway = Cli::try_parse_from(line).unwrap();
        let arguments = line[2..].iter().map(Into::into).collect();
        assert_eq!(gateway.command, Some(Command::Gateway { arguments }));
        assert!(Cli::try_parse_from(["tenured", "gatewy"]).is_err());
    }
}
