//! The name of a server: whether it leads elsewhere than it did while the server stays up.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tokio::net::lookup_host;

use super::stream::Endpoint;

/// Looks in a row that found none of the known addresses, after which the name has moved. One alone may be of a resolver that
/// was behind.
const STRANGE_LOOKS: u32 = 2;
/// Addresses of a name that are known. A name of more is of no one server.
const KNOWN_MAX: usize = 64;

/// The addresses of a server's name, as a connection to it began.
#[derive(Debug)]
pub(super) struct Name {
    host: String,
    port: u16,
    known: BTreeSet<IpAddr>,
    /// Looks in a row that found none of them.
    strange: u32,
}

impl Name {
    /// Looks a name up; `None` if it is an address, or not known now.
    pub(super) async fn of(endpoint: Option<Endpoint>) -> Option<Name> {
        let Some(Endpoint::Tcp(host, port)) = endpoint else { return None };
        if host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let known = addresses(&host, port).await;
        (!known.is_empty()).then_some(Name { host, port, known, strange: 0 })
    }

    /// Looks it up again; where it leads, once that is elsewhere.
    pub(super) async fn look(&mut self) -> Option<IpAddr> {
        let found = addresses(&self.host, self.port).await;
        self.learn(found)
    }

    fn learn(&mut self, found: BTreeSet<IpAddr>) -> Option<IpAddr> {
        let first = *found.first()?;
        if found.is_disjoint(&self.known) {
            self.strange += 1;
            return (self.strange >= STRANGE_LOOKS).then_some(first);
        }
        self.strange = 0;
        // Some resolvers tell a part of them each time.
        self.known.extend(found);
        while self.known.len() > KNOWN_MAX {
            self.known.pop_last();
        }
        None
    }
}

/// None while the resolver does not answer: nothing is known then.
async fn addresses(host: &str, port: u16) -> BTreeSet<IpAddr> {
    let found = lookup_host((host, port)).await;
    found.map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_moved_when_two_looks_find_no_address_that_was_known() {
        let of = |last: &[u8]| last.iter().map(|it| IpAddr::from([10, 0, 0, *it])).collect();
        let mut name = Name { host: String::new(), port: 1, known: of(&[1, 2]), strange: 0 };
        let mut moved = |found: &[u8]| name.learn(of(found)).is_some();
        assert!(!moved(&[2, 3]), "a part of them");
        assert!(!moved(&[3]), "it was told a moment ago");
        assert!(!moved(&[9]) && !moved(&[]) && !moved(&[1]), "once is not enough");
        assert!(!moved(&[9]) && moved(&[9]));
        let many: Vec<u8> = (0..=255).collect();
        assert!(!moved(&many));
        assert_eq!(name.known.len(), KNOWN_MAX);
    }
}
