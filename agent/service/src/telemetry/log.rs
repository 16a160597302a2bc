//! The log: for people on a terminal, to the journal of systemd, or JSON; what is logged can be
//! changed while the daemon runs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write as _};
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, Layered, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, reload};

pub use super::filter::{Filter, check};
use super::format::LogFormat;
use super::writer::{Text, Time, Writer, now};
use super::{human, journald};

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be parsed.
    #[error("log = {text:?}: {rule}")]
    Filter {
        text: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// There is no journal to write to.
    #[error(
        "log_format = \"journald\": there is no journal at {}; start systemd-journald, or choose auto, \
         human or json",
        journald::SOCKET
    )]
    NoJournald,
    /// There is a log already.
    #[error("the log is started twice")]
    Twice,
    /// The system refused a thread.
    #[error("cannot start the log's thread")]
    Thread(#[source] io::Error),
}

/// A filter, and then a layer that writes what it lets through.
type Filtered = Layered<reload::Layer<EnvFilter, Registry>, Registry>;
type Lines = Box<dyn Layer<Filtered> + Send + Sync>;

/// The log of this process.
pub struct Log {
    filter: Filter,
    is_json: bool,
    flush: Box<dyn Fn() + Send + Sync>,
}

/// Starts to log to standard error, or to the journal under the daemon's name. `dropped` counts lines that
/// nobody took in time.
///
/// # Errors
///
/// See [`LogError`].
pub fn start(
    daemon: &'static str,
    filter: &str,
    format: LogFormat,
    dropped: Counter,
) -> Result<Log, LogError> {
    let (layer, filter) = Filter::new(filter)?;
    let mut is_json = false;
    let (lines, flush) = match format {
        LogFormat::Human => human(dropped)?,
        LogFormat::Auto if io::stderr().is_terminal() => human(dropped)?,
        LogFormat::Journald if !journald::is_there() => return Err(LogError::NoJournald),
        LogFormat::Journald => journal(daemon, dropped)?,
        LogFormat::Auto if journald::is_standard_error() => journal(daemon, dropped)?,
        LogFormat::Auto | LogFormat::Json => {
            is_json = true;
            json(dropped)?
        }
    };
    let started = tracing_subscriber::registry().with(layer).with(lines).try_init();
    started.map_err(|_| LogError::Twice)?;
    Ok(Log { filter, is_json, flush })
}

type Started = (Lines, Box<dyn Fn() + Send + Sync>);

fn human(dropped: Counter) -> Result<Started, LogError> {
    let writer = Writer::start(Text(io::stderr()), dropped).map_err(LogError::Thread)?;
    let colours = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(Arc::clone(&writer)).with_timer(Time);
    let lines = lines.fmt_fields(human::fields());
    writer.format_all();
    Ok((lines.with_target(false).with_ansi(colours).boxed(), Box::new(move || writer.flush())))
}

fn json(dropped: Counter) -> Result<Started, LogError> {
    let writer = Writer::start(Text(io::stderr()), dropped).map_err(LogError::Thread)?;
    let lines = fmt::layer().with_writer(Arc::clone(&writer)).with_timer(Time);
    let lines = lines.with_target(false).json().flatten_event(true);
    writer.format_all();
    Ok((lines.boxed(), Box::new(move || writer.flush())))
}

#[cfg(feature = "systemd")]
fn journal(daemon: &'static str, dropped: Counter) -> Result<Started, LogError> {
    let writer = Writer::start(journald::Journald { daemon }, dropped).map_err(LogError::Thread)?;
    let lines = journald::Entries { daemon, writer: Arc::clone(&writer) }.boxed();
    writer.format_all();
    Ok((lines, Box::new(move || writer.flush())))
}

#[cfg(not(feature = "systemd"))]
fn journal(_: &'static str, _: Counter) -> Result<Started, LogError> {
    Err(LogError::NoJournald)
}

impl Log {
    /// The filter of the log.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Prints lines for whoever started the daemon; as JSON where the log is, since one program may read both.
    pub fn announce(&self, text: &impl Display) {
        for line in text.to_string().lines() {
            let line = announced(line, self.is_json && !io::stdout().is_terminal());
            // Fails when nobody reads; the daemon serves all the same.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

fn announced(line: &str, is_json: bool) -> String {
    if !is_json {
        return line.to_owned();
    }
    let timestamp = humantime::format_rfc3339_micros(now()).to_string();
    serde_json::json!({ "timestamp": timestamp, "level": "INFO", "message": line }).to_string()
}

impl Drop for Log {
    fn drop(&mut self) {
        (self.flush)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_lines_of_json_a_line_is_json() {
        assert_eq!(announced("ready in 5 ms", false), "ready in 5 ms");
        let line: serde_json::Value =
            serde_json::from_str(&announced("ready: \"it's\"", true)).expect("it is JSON");
        assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"ready: \"it's\"".into()));
        assert!(line["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");
    }
}
