//! The parts of the URLs of stores. No refusal quotes any part of one: there may be a password in it.

use std::fmt;
use std::fmt::Write;

use super::Refusal;
use super::secret::{Secret, SecretSource};

/// Longest name of a host, see RFC 1035.
const HOST_MAX: usize = 253;
/// Longest user, password, master or path, bytes.
const PART_MAX: usize = 4096;

/// As whom to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// `None` for the server's default user.
    pub user: Option<String>,
    /// Its password; `None` for a server that wants none.
    pub password: Option<SecretSource>,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A name or an IP address, IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

pub(crate) fn login_shown(login: &Login) -> String {
    let user = login.user.as_deref().map(encoded).unwrap_or_default();
    match &login.password {
        Some(_) => format!("{user}:***@"),
        None if user.is_empty() => user,
        None => format!("{user}@"),
    }
}

/// The parts of a URL after its scheme.
pub(crate) struct Parts<'a> {
    pub(crate) login: Login,
    pub(crate) hosts: &'a str,
    /// With its slash.
    pub(crate) path: &'a str,
    pub(crate) parameters: Vec<(&'a str, String)>,
}

pub(crate) fn parts(rest: &str) -> Result<Parts<'_>, Refusal> {
    let rest = rest.strip_prefix("//").ok_or("must have // after the scheme")?;
    if rest.contains('#') {
        return Err("must have no # in it; in a password it is written %23".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (user_and_password(login)?, hosts),
        None => (Login::default(), authority),
    };
    let mut parameters: Vec<(&str, String)> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if parameters.iter().any(|(other, _)| *other == key) {
            return Err("must have each parameter after ? once only".to_owned());
        }
        parameters.push((key, decoded("a parameter after ?", value)?));
    }
    Ok(Parts { login, hosts, path, parameters })
}

impl Parts<'_> {
    /// Takes a parameter out.
    pub(crate) fn parameter(&mut self, key: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(other, _)| *other == key)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Refuses parameters that nobody knows.
    pub(crate) fn no_more(&self, known: &str) -> Result<(), Refusal> {
        if self.parameters.is_empty() {
            Ok(())
        } else {
            Err(format!("must have no parameters after ?{known}; a ? in a password is written %3F"))
        }
    }
}

pub(crate) fn user_and_password(text: &str) -> Result<Login, Refusal> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let user =
        (!user.is_empty()).then(|| part("the user", decoded("the user", user)?)).transpose()?;
    let password = password
        .map(|password| part("the password", decoded("the password", password)?))
        .transpose()?
        .map(|password| SecretSource::Given(Secret::new(password)));
    if user.is_none() && password.is_none() {
        return Err("must have a user or a password before the @".to_owned());
    }
    Ok(Login { user, password })
}

pub(crate) fn place(text: &str, default: u16) -> Result<Place, Refusal> {
    const RULE: &str = "must have a host after the //, with or without a port from 1 to 65535; an \
                        IPv6 address stands in brackets; / @ : in a password are written %2F %40 %3A";
    let split = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, rest)| (host, rest.strip_prefix(':'), rest)),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)));
            Some((host, port, ""))
        }
    };
    let Some((host, port, rest)) = split else { return Err(RULE.to_owned()) };
    let is_good = match text.starts_with('[') {
        true => host.parse::<std::net::Ipv6Addr>().is_ok() && (rest.is_empty() || port.is_some()),
        false => {
            let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            (1..=HOST_MAX).contains(&host.len()) && host.chars().all(good)
        }
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0),
        None => Some(default),
    };
    match port {
        Some(port) if is_good => Ok(Place { host: host.to_owned(), port }),
        _ => Err(RULE.to_owned()),
    }
}

/// A part that was decoded, if it is one that can be sent.
pub(crate) fn part(what: &str, text: String) -> Result<String, Refusal> {
    if text.is_empty() || text.len() > PART_MAX || text.contains(char::is_control) {
        return Err(format!(
            "must have 1 to {PART_MAX} bytes without control characters for {what}"
        ));
    }
    Ok(text)
}

/// Takes %XX back, see RFC 3986.
pub(crate) fn decoded(what: &str, text: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let value =
            digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(16 * high + low).ok());
        let Some(value) = value else {
            return Err(format!(
                "must have two hexadecimal digits after each % in {what}; % itself is %25"
            ));
        };
        bytes.push(value);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("must have UTF-8 for {what}"))
}

/// With %XX for whatever would not come back the same.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
