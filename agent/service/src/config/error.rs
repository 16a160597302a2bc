//! Errors of a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of a file.
    File {
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(&'static str),
}

impl Origin {
    /// The environment variable, if the value came from one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Origin::Environment(variable) => Some(variable),
            Origin::Default | Origin::File { .. } | Origin::Flag(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Why a configuration is refused. Never contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read configuration file {}", .path.display())]
    Read {
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is not TOML. The parser's own text would quote the line, which may have a secret.
    #[error("{}:{line}: {message}", .path.display())]
    Syntax {
        path: PathBuf,
        /// The line.
        line: usize,
        message: String,
    },
    /// There is no such key.
    #[error("{origin}: there is no key {key}{}", did_you_mean(*.nearest))]
    UnknownKey {
        /// The key as written.
        key: String,
        origin: Origin,
        /// A known key that may have been meant.
        nearest: Option<&'static str>,
    },
    /// A value breaks a rule.
    #[error("{origin}: {key} = {value}: {rule}")]
    Value {
        key: String,
        /// Its value, or `***`.
        value: String,
        origin: Origin,
        /// The rule that it breaks.
        rule: String,
    },
    /// The system does not say what it must.
    #[error("cannot find out the host's name; set host_name")]
    HostName(#[source] io::Error),
}

fn did_you_mean(key: Option<&str>) -> String {
    key.map(|key| format!("; did you mean {key}?")).unwrap_or_default()
}

/// The known key that is most like what was written.
pub fn closest(written: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    const ALIKE: f64 = 0.7;
    // `ttl.leader` for `leader.ttl` is a likely slip, and no likeness of letters.
    let turned: Vec<&str> = written.rsplit(['.', '_']).collect();
    let turned = turned.join(".");
    known
        .map(|key| (strsim::jaro(written, key).max(strsim::jaro(&turned, key)), key))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, key)| key)
}
