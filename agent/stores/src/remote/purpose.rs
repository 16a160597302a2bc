//! What a connection is for.

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Renewals, which nothing else may delay.
    Beats,
    /// Everything else that clients ask.
    Commands,
    /// Work that no client waits for.
    Background,
    /// The change feed.
    Feed,
    /// A look at the server, for a moment.
    Examination,
}

impl Purpose {
    /// The name in the log, and in a server's list of its connections.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Beats => "beats",
            Purpose::Commands => "commands",
            Purpose::Background => "care",
            Purpose::Feed => "pushes",
            Purpose::Examination => "examination",
        }
    }
}
