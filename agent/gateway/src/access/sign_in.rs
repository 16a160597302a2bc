//! Identities in a header of a reverse proxy, which has signed people in.
//!
//! A client that can send this header can be any person. So the header counts only on connections from the proxies'
//! addresses, only for the status page, and only for people in the configuration. Agents and programs show keys.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Method, Request, header};
use tenure_bounds::Globs;
use tenure_stores::gateway::scope::Mark;

use super::bounds::KeyBounds;
use super::certified::Certified;
use super::{Principal, Stranger};
use crate::delivery::Network;

/// The beginning of the principals of people: none of them is that of a key or a certificate by chance.
const PERSON: &str = "person:";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How long a stream goes on before the proxy judges its reader anew, s.
pub(super) const STREAM_SECONDS: u64 = 15 * 60;

/// A section `[[people]]`: names, and the bounds of all people with these names.
#[derive(Debug, Clone)]
pub struct People {
    pub who: Globs,
    pub bounds: Arc<KeyBounds>,
}

/// The way in which people sign in.
#[derive(Debug, Clone)]
pub struct SignIn {
    /// The header with the identity.
    pub header: HeaderName,
    /// The proxies that may send it.
    pub proxies: Vec<Network>,
    /// The first section that matches a name counts.
    pub people: Vec<People>,
}

impl SignIn {
    /// The person of a request, with its bounds; `None` if the request has a key, or no such header.
    ///
    /// # Errors
    ///
    /// When the header comes from another address, names no listed person, or may come with another page's request.
    pub(super) fn person<B>(
        &self,
        request: &Request<B>,
        peer: IpAddr,
        now: u64,
    ) -> Result<Option<(Certified, Arc<KeyBounds>)>, Stranger> {
        let headers = request.headers();
        if headers.contains_key(header::AUTHORIZATION) || !headers.contains_key(&self.header) {
            return Ok(None);
        }
        if !self.proxies.iter().any(|network| network.contains(peer)) {
            return Err(Stranger::NoProxy);
        }
        let name = self.name(headers).ok_or(Stranger::NoIdentity)?;
        let listed = self.people.iter().find(|people| people.who.is_match(name));
        let bounds = Arc::clone(&listed.ok_or(Stranger::Unlisted)?.bounds);
        // Browsers send the proxy's cookie with the requests of any page, so that a change has to name its origin. The
        // origin itself was checked before.
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_same_origin = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
        if !is_read && !is_same_origin && !headers.contains_key(header::ORIGIN) {
            return Err(Stranger::NoOrigin);
        }
        let name = format!("{PERSON}{name}");
        let mark = Mark::of(&name);
        Ok(Some((Certified { name: name.into(), mark, expires_at: now + STREAM_SECONDS }, bounds)))
    }

    /// The single name in the header. Two names mean that the proxy added its own to the client's.
    fn name<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let mut values = headers.get_all(&self.header).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        let name = value.to_str().ok()?.trim();
        (!name.contains(',') && Principal::is_name(&format!("{PERSON}{name}")) && !name.is_empty())
            .then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::certified::Peer;
    use crate::access::{Access, Right, Rights};

    const PROXY: &str = "10.0.0.7";

    fn sign_in() -> SignIn {
        let people = |who: &str, rights| People {
            who: Globs::new([who]).unwrap(),
            bounds: Arc::new(KeyBounds { rights, ..KeyBounds::default() }),
        };
        SignIn {
            header: HeaderName::from_static("x-user"),
            proxies: vec!["10.0.0.0/29".parse().unwrap()],
            people: vec![
                people("alice@a.example", Rights::ALL),
                people("*@a.example", Rights::NONE),
            ],
        }
    }

    fn judged(
        method: Method,
        headers: &[(&str, &str)],
        peer: &str,
    ) -> Result<Option<(String, bool)>, Stranger> {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let found = sign_in().person(&request, peer.parse().unwrap(), 0)?;
        Ok(found.map(|(it, bounds)| (it.name.to_string(), bounds.rights.has(Right::Revoke))))
    }

    #[test]
    fn a_proxy_names_a_person_and_the_first_section_that_fits_has_the_rights() {
        for (name, may_revoke) in [("alice@a.example", true), ("bob@a.example", false)] {
            let found = judged(Method::GET, &[("x-user", name)], PROXY);
            assert_eq!(found, Ok(Some((format!("person:{name}"), may_revoke))));
        }
        assert_eq!(judged(Method::GET, &[], PROXY), Ok(None));
    }

    #[test]
    fn nobody_else_names_a_person() {
        let alice = ("x-user", "alice@a.example");
        for peer in ["10.0.0.8", "127.0.0.1", "::1", "::ffff:10.0.0.8"] {
            assert_eq!(judged(Method::GET, &[alice], peer), Err(Stranger::NoProxy), "{peer}");
        }
        for wrong in ["", " ", "bob@a.example, alice@a.example", "alice\t@a.example"] {
            let found = judged(Method::GET, &[("x-user", wrong)], PROXY);
            assert_eq!(found, Err(Stranger::NoIdentity), "{wrong:?}");
        }
        let twice = judged(Method::GET, &[("x-user", "bob@a.example"), alice], PROXY);
        assert_eq!(twice, Err(Stranger::NoIdentity));
        let other = judged(Method::GET, &[("x-user", "alice@b.example")], PROXY);
        assert_eq!(other, Err(Stranger::Unlisted));
        // With a key the key alone counts.
        let key = ("authorization", "Bearer tnr_");
        for peer in [PROXY, "192.0.2.1"] {
            assert_eq!(judged(Method::GET, &[alice, key], peer), Ok(None));
        }
    }

    #[test]
    fn the_certificate_of_a_proxy_is_no_proof_of_the_person_whom_it_names() {
        let access = Access::certificates().with_people(Some(sign_in()));
        let name: Arc<str> = "proxy".into();
        let mark = Mark::of(&name);
        let certified = Some(Certified { name, mark, expires_at: u64::MAX });
        let proxy = Peer { address: (PROXY.parse::<IpAddr>().unwrap(), 4711).into(), certified };
        let caller = |headers: &[(&str, &str)]| {
            let mut request = Request::builder().extension(proxy.clone());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            access
                .caller(&request.body(()).unwrap())
                .map(|caller| caller.principal.name.to_string())
        };
        assert_eq!(caller(&[]), Ok("proxy".to_owned()), "of its own accord it is let in");
        for person in ["alice@a.example", "bob@b.example", ""] {
            assert_eq!(caller(&[("x-user", person)]), Err(Stranger::NoCertificate), "{person:?}");
        }
    }

    #[test]
    fn what_changes_something_says_which_page_sent_it() {
        let alice = ("x-user", "alice@a.example");
        let post = |more: &[(&str, &str)]| {
            judged(Method::POST, &[&[alice][..], more].concat(), PROXY).map(|found| found.is_some())
        };
        assert_eq!(post(&[]), Err(Stranger::NoOrigin));
        assert_eq!(post(&[("sec-fetch-site", "same-site")]), Err(Stranger::NoOrigin));
        assert_eq!(post(&[("sec-fetch-site", "same-origin")]), Ok(true));
        assert_eq!(post(&[("origin", "https://gateway.example")]), Ok(true));
    }
}
