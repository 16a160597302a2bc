//! Why there is no connection, in words for whoever runs the agent.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no connection. Never contains a password.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Trouble {
    /// The name of the host is not known.
    #[error(
        "the host of Redis at {place} cannot be found; check the name in upstream, or the name service"
    )]
    Resolve {
        /// Where.
        place: String,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// Nothing listens there, or the way is closed.
    #[error("cannot connect to Redis at {place}")]
    Connect {
        /// Where.
        place: String,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// It took too long.
    #[error(
        "no answer from {whom} within {} ms while {doing}; see whether it is stopped or overloaded, \
         or raise redis.connect_timeout",
        .after.as_millis()
    )]
    Silent {
        /// Who did not answer.
        whom: String,
        /// What was asked.
        doing: &'static str,
        /// For how long it was waited.
        after: Duration,
    },
    /// The server refused what was said to it while signing in.
    #[error("Redis at {place} refuses the connection: {cause}{way_out}")]
    Refused {
        /// Where.
        place: String,
        /// The server's words.
        cause: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The server is not one that the agent can use.
    #[error("Redis at {place} {what}")]
    Unfit {
        /// Where.
        place: String,
        /// Why not, and what to do.
        what: String,
    },
    /// The server has no data yet, or none to give.
    #[error("Redis at {place} is not ready: {cause}")]
    NotReady {
        /// Where.
        place: String,
        /// The server's words.
        cause: String,
    },
    /// The connection was there and is no more.
    #[error("the connection to Redis at {place} was lost: {cause}")]
    Lost {
        /// Where.
        place: String,
        /// How.
        cause: String,
    },
}

impl Trouble {
    /// The whole story, with its causes.
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
