//! Requests of foreign pages, and how they are refused.

use tenure_wire::{Code, Problem};

/// Most bytes of a header that are quoted.
const QUOTED_MAX: usize = 64;

/// What is foreign in a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("a request needs the header Host")]
    NoHost,
    #[error("the header Host must be there once")]
    SeveralHosts,
    #[error("the header Host must be a host, perhaps with a port, and \"{0}\" is none")]
    BadHost(String),
    #[error(
        "\"{host}\" is no name of this listener; use one of its addresses or localhost, or add that name to the setting {setting}"
    )]
    Misdirected { host: String, setting: &'static str },
    #[error(
        "pages of the origin \"{origin}\" may send nothing here; only the listener's own pages may, and those of hosts in the setting {setting}"
    )]
    Origin { origin: String, setting: &'static str },
    #[error(
        "a page of another site may send nothing here (Sec-Fetch-Site: {site}); only the listener's own pages may, and \
         those of hosts in the setting {setting}"
    )]
    Site { site: String, setting: &'static str },
}

impl Foreign {
    pub(super) fn no_host(host: &[u8]) -> Foreign {
        Foreign::BadHost(quoted(host))
    }

    pub(super) fn misdirected(host: &[u8], setting: &'static str) -> Foreign {
        Foreign::Misdirected { host: quoted(host), setting }
    }

    pub(super) fn origin(origin: &[u8], setting: &'static str) -> Foreign {
        Foreign::Origin { origin: quoted(origin), setting }
    }

    pub(super) fn site(site: &[u8], setting: &'static str) -> Foreign {
        Foreign::Site { site: quoted(site), setting }
    }

    /// The header that is foreign.
    fn field(&self) -> &'static str {
        match self {
            Foreign::NoHost
            | Foreign::SeveralHosts
            | Foreign::BadHost(_)
            | Foreign::Misdirected { .. } => "host",
            Foreign::Origin { .. } => "origin",
            Foreign::Site { .. } => "sec-fetch-site",
        }
    }

    /// The refusal: 400 without a good `Host`, 421 with another's, 403 for a page of another origin.
    pub fn problem(&self) -> Problem {
        let (code, status) = match self {
            Foreign::NoHost | Foreign::SeveralHosts | Foreign::BadHost(_) => (Code::Invalid, 400),
            Foreign::Misdirected { .. } => (Code::Invalid, 421),
            Foreign::Origin { .. } | Foreign::Site { .. } => (Code::Forbidden, 403),
        };
        let field = Some(self.field().to_owned());
        Problem { status, field, ..Problem::new(code, self.to_string()) }
    }
}

/// The beginning of a header, as a terminal can show it.
pub fn quoted(text: &[u8]) -> String {
    match text.get(..QUOTED_MAX) {
        Some(first) if text.len() > QUOTED_MAX => format!("{}…", first.escape_ascii()),
        _ => text.escape_ascii().to_string(),
    }
}
