//! PURE: the host that a request names, and lists of hosts.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use tenure_stores::settings::Refusal;

/// Longest name of a host, bytes, as DNS has it.
const NAME_MAX: usize = 253;
/// Most entries of a list.
const ENTRIES_MAX: usize = 64;

/// The host of a `Host` header, or of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host<'a> {
    /// An address, which no name server can change.
    Address(IpAddr),
    /// As it was written, without the dot at its end.
    Name(&'a str),
}

impl<'a> Host<'a> {
    /// Parts `HOST` or `HOST:PORT`; `None` if it is neither.
    pub fn parse(text: &'a str) -> Option<(Host<'a>, Option<u16>)> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            return Some((Host::Address(address.to_canonical()), number(port)?));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let port = number(port)?;
        if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
            return Some((Host::Address(address.into()), port));
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        is_name(name).then_some((Host::Name(name), port))
    }

    /// True of the names and addresses that lead to this host alone.
    pub fn is_this_host(&self) -> bool {
        match self {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    pub(super) fn is_same(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
            (one, other) => one == other,
        }
    }
}

/// The number of a port. An empty one is none, as in a URL.
fn number(port: Option<&str>) -> Option<Option<u16>> {
    match port {
        None | Some("") => Some(None),
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok().map(Some),
        Some(_) => None,
    }
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= NAME_MAX && name.split('.').all(is_label)
}

/// Hosts by which a listener may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Address(IpAddr),
    /// In lower case.
    Name(String),
    /// The names below this one.
    Below(String),
}

impl Entry {
    fn parse(text: &str) -> Option<Entry> {
        if let Some(parent) = text.strip_prefix("*.") {
            return is_name(parent).then(|| Entry::Below(parent.to_ascii_lowercase()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Entry::Address(address.to_canonical()));
        }
        match Host::parse(text)? {
            (Host::Address(address), None) => Some(Entry::Address(address)),
            (Host::Name(name), None) => Some(Entry::Name(name.to_ascii_lowercase())),
            (_, Some(_)) => None,
        }
    }

    fn has(&self, host: &Host<'_>) -> bool {
        match (self, host) {
            (Entry::Address(entry), Host::Address(address)) => entry == address,
            (Entry::Name(entry), Host::Name(name)) => entry.eq_ignore_ascii_case(name),
            (Entry::Below(parent), Host::Name(name)) => is_below(name, parent),
            _ => false,
        }
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    let Some(at) = name.len().checked_sub(parent.len()) else { return false };
    let Some((first, last)) = name.split_at_checked(at) else { return false };
    first.len() > 1 && first.ends_with('.') && last.eq_ignore_ascii_case(parent)
}

impl HostList {
    /// Reads names and addresses with commas between, as a setting has them.
    ///
    /// # Errors
    ///
    /// With the rule, and the entry that breaks it.
    pub fn parse(text: &str) -> Result<HostList, Refusal> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let read = |word: &str| {
            Entry::parse(word).ok_or_else(|| {
                format!(
                    "must be names of hosts or addresses without a port, with commas between, such as \
                     \"tenure.example, *.corp.example\", and {word:?} is none"
                )
            })
        };
        let entries: Vec<_> = words.map(read).collect::<Result<_, _>>()?;
        if entries.len() > ENTRIES_MAX {
            return Err(format!("must have {ENTRIES_MAX} entries at most, not {}", entries.len()));
        }
        Ok(HostList(entries))
    }

    /// The names that a certificate is for. What is no name of a host is left out.
    pub fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> HostList {
        HostList(names.filter_map(Entry::parse).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, host: &Host<'_>) -> bool {
        self.0.iter().any(|entry| entry.has(host))
    }
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match entry {
                Entry::Address(address) => write!(f, "{address}")?,
                Entry::Name(name) => f.write_str(name)?,
                Entry::Below(parent) => write!(f, "*.{parent}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_or_an_address_and_perhaps_a_port() {
        let address = |text: &str| Host::Address(text.parse().unwrap());
        for (text, expected) in [
            ("127.0.0.1:8740", Some((address("127.0.0.1"), Some(8740)))),
            ("127.0.0.1", Some((address("127.0.0.1"), None))),
            ("[::1]:1", Some((address("::1"), Some(1)))),
            ("[::ffff:10.0.0.1]", Some((address("10.0.0.1"), None))),
            ("Gateway.Example.:80", Some((Host::Name("Gateway.Example"), Some(80)))),
            ("a_b-c:", Some((Host::Name("a_b-c"), None))),
            ("", None),
            (".", None),
            (":80", None),
            ("a..b", None),
            ("a:b", None),
            ("a:+8", None),
            ("a:65536", None),
            ("user@127.0.0.1", None),
            ("127.0.0.1/", None),
            ("::1", None),
            ("[::1", None),
            ("[::1]80", None),
            ("[fe80::1%eth0]", None),
            ("ä.example", None),
            ("127.0.0.1 evil.example", None),
        ] {
            assert_eq!(Host::parse(text), expected, "{text}");
        }
        // A number that browsers take for an address is a name here, and so listed nowhere.
        assert_eq!(Host::parse("2130706433"), Some((Host::Name("2130706433"), None)));
    }

    #[test]
    fn a_list_has_names_addresses_and_names_below() {
        let list = HostList::parse("Tenure.example, *.corp.example,10.0.0.7, ::1,").unwrap();
        assert_eq!(list.to_string(), "tenure.example, *.corp.example, 10.0.0.7, ::1");
        for (host, expected) in [
            ("tenure.example", true),
            ("TENURE.EXAMPLE.:1", true),
            ("a.tenure.example", false),
            ("a.corp.example", true),
            ("a.b.Corp.example", true),
            ("corp.example", false),
            (".corp.example", false),
            ("evilcorp.example", false),
            ("corp.example.evil", false),
            ("10.0.0.7:8740", true),
            ("10.0.0.8", false),
            ("[::1]", true),
        ] {
            let found = Host::parse(host).is_some_and(|(host, _)| list.has(&host));
            assert_eq!(found, expected, "{host}");
        }
        assert!(HostList::parse("").unwrap().is_empty());
        for wrong in ["*", "*.", "http://a", "a:80", "a b", "*.*.a", "[::1]:8"] {
            let rule = HostList::parse(wrong).unwrap_err();
            assert!(rule.contains(&format!("{wrong:?}")), "{rule}");
        }
        assert!(HostList::parse(&"a,".repeat(65)).unwrap_err().contains("64"));
    }
}
