//! The name of a server: whether it leads elsewhere than it did while the server stays up.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tokio::net::lookup_host;

use super::stream::Endpoint;

/// Looks in a row that found none of the first addresses, after which the name has moved. One alone may be of a resolver that
/// was behind.
const STRANGE_LOOKS: u32 = 2;

/// The addresses of a server's name, as a connection to it began.
#[derive(Debug)]
pub(super) struct Name {
    host: String,
    port: u16,
    /// Nothing, until the resolver has answered once.
    first: BTreeSet<IpAddr>,
    /// Looks in a row that found none of those.
    strange: u32,
}

impl Name {
    /// The name in an endpoint; `None` if that has an address.
    pub(super) fn of(endpoint: Option<Endpoint>) -> Option<Name> {
        let Some(Endpoint::Tcp(host, port)) = endpoint else { return None };
        let is_name = host.parse::<IpAddr>().is_err();
        is_name.then(|| Name { host, port, first: BTreeSet::new(), strange: 0 })
    }

    /// Looks it up; where it leads, once that is elsewhere.
    pub(super) async fn look(&mut self) -> Option<IpAddr> {
        let found = addresses(&self.host, self.port).await;
        self.learn(found)
    }

    /// Goes by what the first look found: an address that comes to stand beside the server's may be the next server's.
    fn learn(&mut self, found: BTreeSet<IpAddr>) -> Option<IpAddr> {
        let address = *found.first()?;
        if self.first.is_empty() {
            self.first = found;
        } else if found.is_disjoint(&self.first) {
            self.strange += 1;
        } else {
            self.strange = 0;
        }
        (self.strange >= STRANGE_LOOKS).then_some(address)
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
        let mut name = Name { host: String::new(), port: 1, first: BTreeSet::new(), strange: 0 };
        let mut moved = |found: &[u8]| name.learn(of(found)).is_some();
        assert!(!moved(&[]) && !moved(&[1, 2]));
        assert!(!moved(&[2, 3]), "a part of them");
        assert!(!moved(&[9]) && !moved(&[]) && !moved(&[1]), "once is not enough");
        // As the new server is named beside the old one for a while.
        assert!(!moved(&[1, 3]) && !moved(&[3]) && moved(&[3]));
    }
}
