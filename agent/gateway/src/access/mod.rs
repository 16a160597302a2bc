//! Callers, and who lets them in.

mod account;
mod bounds;
mod call;
mod certified;
mod edit;
mod fact;
mod file;
mod live;
mod neighbourhood;
mod own;
mod pace;
mod past;
mod quotas;
mod reads;
mod rights;
mod shared;
mod sign_in;
mod stranger;
mod written;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use axum::http::{HeaderMap, Request, header};
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use tenure_wire::rules::{Checked, NAME_MAX, visible};
use uuid::Uuid;

pub use self::account::Account;
pub use self::bounds::{Denied, KeyBounds};
pub use self::call::Call;
use self::certified::Known;
pub use self::certified::{Certified, Peer};
pub use self::edit::{Edit, EditError};
#[cfg(test)]
pub(crate) use self::fact::NOT_FOUND;
pub use self::fact::{Event, Fact};
pub use self::file::{Keys, KeysError, Listed, Stamp};
pub(crate) use self::neighbourhood::neighbourhood;
pub use self::quotas::{Allowance, Quota, Quotas};
pub use self::reads::{Reads, Turn};
pub(crate) use self::reads::{is_large, rows};
pub use self::rights::{Lacking, Right, Rights};
pub use self::shared::{StoreKeys, StoreKeysError};
pub use self::sign_in::{People, SignIn};
pub use self::stranger::{Lapse, Stranger};
pub use self::written::WrittenBounds;
use tenure_stores::gateway::key::Shown;
pub use tenure_stores::gateway::key::{KeyId, New};

/// The principal of everybody, where no key is asked for.
const ANYBODY: &str = "local";
const US_PER_S: u64 = 1_000_000;

/// The owner of sessions and claims, whichever of its keys it shows.
#[derive(Debug)]
pub struct Principal {
    pub name: Arc<str>,
    /// The end of the ids of its sessions and claims.
    pub mark: Mark,
    /// What it has.
    pub account: Account,
}

impl Principal {
    /// Judges the name of a new one.
    ///
    /// # Errors
    ///
    /// With the rule that it breaks.
    pub fn check_name(field: &str, name: &str) -> Checked {
        visible(field, name)
    }

    /// True if it may be the name of one whose key was made at some time.
    pub fn is_name(name: &str) -> bool {
        (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
    }

    pub fn new(name: &str) -> Principal {
        let account = Account::default();
        Principal { name: name.into(), mark: Mark::of(name), account }
    }
}

/// A principal, and what it may have.
#[derive(Debug, Clone)]
pub struct Admission {
    pub principal: Arc<Principal>,
    pub bounds: Arc<KeyBounds>,
}

/// The proof by which a caller was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The gateway requires no proof.
    None,
    Key,
    Certificate,
    /// The identity header of a reverse proxy.
    Proxy,
}

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    pub bounds: Arc<KeyBounds>,
    /// `None` where it showed none.
    pub key: Option<KeyId>,
    proof: Proof,
    /// When the caller's certificate expires, or its proxy has to sign it in again, s since 1970.
    until: Option<u64>,
    /// `None` where it is not known.
    pub peer: Option<SocketAddr>,
    /// Its call. A stream outlives the call that opened it.
    call: Weak<Call>,
}

impl Caller {
    /// Refuses `what` to a caller without the right to it.
    ///
    /// # Errors
    ///
    /// Without the right.
    pub fn needs(&self, right: Right, what: impl FnOnce() -> String) -> Result<(), Lacking> {
        match self.has(right) {
            true => Ok(()),
            false => Err(Lacking { right, what: what(), proof: self.proof }),
        }
    }

    /// True if it was let in without showing who it is.
    pub fn is_anybody(&self) -> bool {
        self.key.is_none() && self.proof == Proof::None
    }

    /// The principal, and the address that it calls from, for people.
    pub fn name(&self) -> String {
        let principal = &self.principal.name;
        self.peer
            .map_or_else(|| principal.to_string(), |peer| format!("{principal} at {}", peer.ip()))
    }

    pub fn has(&self, right: Right) -> bool {
        self.bounds.rights.has(right)
    }

    /// Counts one more call, or one more call with beats, until what this returns is dropped.
    ///
    /// # Errors
    ///
    /// When its principal has as many under way as it may have.
    pub fn begin_call(&mut self, beats: bool, allowance: &Allowance) -> Result<Arc<Call>, Denied> {
        let under_way = self.principal.account.begin_call(beats, &self.bounds, allowance)?;
        let call = Arc::new(Call::new(under_way));
        self.call = Arc::downgrade(&call);
        Ok(call)
    }

    /// Its call, if that is not over.
    pub fn call(&self) -> Option<Arc<Call>> {
        self.call.upgrade()
    }

    /// Lets one call through, or one call with beats.
    ///
    /// # Errors
    ///
    /// With how long to wait, when its key lets it make fewer.
    pub fn pace(&self, beats: bool) -> Result<(), Duration> {
        match self.bounds.requests_per_second {
            Some(per_second) => self.principal.account.pace(clock::now(), beats, per_second),
            None => Ok(()),
        }
    }
}

/// The rule by which callers are let in, and those whom certificates named.
#[derive(Debug)]
pub struct Access {
    rule: Rule,
    known: Known,
    /// The bounds of callers that a certificate lets in: their rights, and no others.
    certified: Arc<KeyBounds>,
    /// The way in which reverse proxies sign people in.
    sign_in: Option<SignIn>,
    /// There may be keys that the gateway does not know of.
    is_doubtful: AtomicBool,
}

#[derive(Debug)]
enum Rule {
    /// Everybody is one principal. For a listener that only this host can reach.
    Anybody(Admission),
    /// Those who show one of these keys, which a reload replaces.
    Keys(RwLock<Arc<Keys>>),
    /// Those who show a certificate.
    Certificates,
}

/// A key that a reload added, changed or took away.
#[derive(Debug)]
pub struct KeyChange {
    pub key: KeyId,
    pub principal: Arc<str>,
    pub change: &'static str,
}

impl Access {
    /// Asks nobody for a key.
    pub fn anybody() -> Access {
        let principal = Arc::new(Principal::new(ANYBODY));
        let bounds = KeyBounds { rights: Rights::ALL, ..KeyBounds::default() };
        Access::of(Rule::Anybody(Admission { principal, bounds: Arc::new(bounds) }))
    }

    /// Asks everybody for one of these keys.
    pub fn keys(keys: Keys) -> Access {
        Access::of(Rule::Keys(RwLock::new(Arc::new(keys))))
    }

    /// Asks everybody for a certificate.
    pub fn certificates() -> Access {
        Access::of(Rule::Certificates)
    }

    /// True if callers have to show a key or a certificate.
    pub fn asks_for_proof(&self) -> bool {
        !matches!(self.rule, Rule::Anybody(_))
    }

    fn of(rule: Rule) -> Access {
        Access {
            rule,
            known: Known::default(),
            certified: Arc::default(),
            sign_in: None,
            is_doubtful: AtomicBool::new(false),
        }
    }

    /// The same, with these rights for callers that a certificate lets in. They have none unless this is called.
    #[must_use]
    pub fn with_certificate_rights(mut self, rights: Rights) -> Access {
        self.certified = Arc::new(KeyBounds { rights, ..KeyBounds::default() });
        self
    }

    /// The same, with people that proxies sign in.
    #[must_use]
    pub fn with_people(mut self, sign_in: Option<SignIn>) -> Access {
        self.sign_in = sign_in;
        self
    }

    /// The person whom a reverse proxy names for a request; `None` for a caller with a key of its own.
    ///
    /// # Errors
    ///
    /// When the proxy's header is not accepted.
    pub fn person<B>(&self, request: &Request<B>) -> Result<Option<Caller>, Stranger> {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
        let (Some(sign_in), Some(address)) = (&self.sign_in, peer) else { return Ok(None) };
        let Some((person, bounds)) = sign_in.person(request, address.ip(), now())? else {
            return Ok(None);
        };
        let principal = self.known.principal(&person);
        let (proof, until) = (Proof::Proxy, Some(person.expires_at));
        Ok(Some(Caller { principal, bounds, key: None, proof, until, peer, call: Weak::new() }))
    }

    /// Says whether there may be keys that this gateway does not know of: nobody is refused for good then.
    pub fn set_doubtful(&self, is_doubtful: bool) {
        self.is_doubtful.store(is_doubtful, Relaxed);
    }

    /// The uses of keys that nobody was told of for so many seconds.
    pub fn uses(&self, now: u64, after: u64) -> Vec<(KeyId, u64)> {
        match &self.rule {
            Rule::Keys(keys) => current(keys).uses(now, after),
            Rule::Anybody(_) | Rule::Certificates => Vec::new(),
        }
    }

    /// Goes by these keys from now on, and tells what is different; does nothing where nobody is asked for
    /// one. Principals keep what they have.
    pub fn replace(&self, mut keys: Keys) -> Vec<KeyChange> {
        let Rule::Keys(current) = &self.rule else { return Vec::new() };
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        keys.adopt(&current);
        let changes = keys.changes(&current);
        *current = Arc::new(keys);
        let change = |(key, principal, change)| KeyChange { key, principal, change };
        changes.into_iter().map(change).collect()
    }

    /// The keys that it goes by, without those that have other ids.
    pub fn only(&self, ids: &HashSet<KeyId>) -> Keys {
        match &self.rule {
            Rule::Keys(keys) => current(keys).only(ids),
            Rule::Anybody(_) | Rule::Certificates => Keys::default(),
        }
    }

    /// The caller that sent a request. One that shows a key is whose that is, also if its connection has a
    /// certificate.
    ///
    /// # Errors
    ///
    /// When it is to show a good key or certificate and does not.
    pub fn caller<B>(&self, request: &Request<B>) -> Result<Caller, Stranger> {
        self.let_in(request, false)
    }

    /// Somebody who shows a key that is to be exchanged.
    ///
    /// # Errors
    ///
    /// When the key is not good; any other one is good for itself.
    pub fn joining<B>(&self, request: &Request<B>) -> Result<Caller, Stranger> {
        self.let_in(request, true)
    }

    fn let_in<B>(&self, request: &Request<B>, joins: bool) -> Result<Caller, Stranger> {
        let headers = request.headers();
        let peer = request.extensions().get::<Peer>();
        let certified = peer.and_then(|peer| peer.certified.as_ref());
        // The certificate of a proxy is no proof of the person whom the proxy names.
        let names_person = self.sign_in.as_ref().is_some_and(|it| headers.contains_key(&it.header));
        let certified = certified
            .filter(|_| !headers.contains_key(header::AUTHORIZATION))
            .filter(|_| !names_person);
        let peer = peer.map(|peer| peer.address);
        if let Some(certified) = certified {
            let Admission { principal, bounds } = self.certified(certified)?;
            let (proof, until) = (Proof::Certificate, Some(certified.expires_at));
            let call = Weak::new();
            return Ok(Caller { principal, bounds, key: None, proof, until, peer, call });
        }
        let (Admission { principal, bounds }, key, is_used) = match &self.rule {
            Rule::Anybody(admission) => (admission.clone(), None, false),
            Rule::Certificates => return Err(Stranger::NoCertificate),
            Rule::Keys(keys) => {
                let shown = bearer(headers).ok_or(Stranger::NoKey)?;
                let shown = Shown::parse(shown).ok_or(Stranger::WrongKey)?;
                let keys = current(keys);
                let admission = keys.admission(now(), &shown).ok_or_else(|| {
                    let is_doubtful = self.is_doubtful.load(Relaxed) && !keys.has(shown.id);
                    if is_doubtful { Stranger::Doubtful } else { Stranger::WrongKey }
                })?;
                (admission, Some(shown.id), keys.is_exchanged(shown.id))
            }
        };
        if bounds.is_once && !joins {
            return Err(if is_used { Stranger::UsedJoinKey } else { Stranger::JoinKey });
        }
        let proof = if key.is_some() { Proof::Key } else { Proof::None };
        Ok(Caller { principal, bounds, key, proof, until: None, peer, call: Weak::new() })
    }

    /// What a certificate lets its owner have: bounds are of keys, so it has none but rights.
    fn certified(&self, certified: &Certified) -> Result<Admission, Stranger> {
        if now() >= certified.expires_at {
            return Err(Stranger::Expired);
        }
        let with_key = match &self.rule {
            Rule::Keys(keys) => current(keys).principal(&certified.name),
            Rule::Anybody(_) | Rule::Certificates => None,
        };
        let principal = with_key.unwrap_or_else(|| self.known.principal(certified));
        Ok(Admission { principal, bounds: Arc::clone(&self.certified) })
    }

    /// The owner of a session or a claim, if it has a key or had a certificate.
    pub fn owner(&self, id: Uuid) -> Option<Arc<Principal>> {
        let owner = match &self.rule {
            Rule::Anybody(Admission { principal, .. }) => {
                principal.mark.is_of(id).then(|| Arc::clone(principal))
            }
            Rule::Keys(keys) => current(keys).owner(id).cloned(),
            Rule::Certificates => None,
        };
        owner.or_else(|| self.known.owner(id))
    }

    /// All principals that have a key or had a certificate.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        let mut all = match &self.rule {
            Rule::Anybody(Admission { principal, .. }) => vec![Arc::clone(principal)],
            Rule::Keys(keys) => current(keys).principals(),
            Rule::Certificates => Vec::new(),
        };
        all.extend(self.known.principals());
        all
    }

    /// Judges an admission after a while: a stream goes by the bounds and rights that its caller had when it was opened.
    ///
    /// # Errors
    ///
    /// When the caller would not be let in now, or with other bounds.
    pub fn still_lets_in(&self, caller: &Caller) -> Result<(), Lapse> {
        if let Some(until) = caller.until {
            return if now() < until { Ok(()) } else { Err(Stranger::Expired.into()) };
        }
        let was = (&*caller.principal, &caller.bounds);
        match (&self.rule, caller.key) {
            (Rule::Anybody(_), _) => Ok(()),
            (Rule::Keys(keys), Some(id)) => current(keys).still_lets_in(now(), id, was),
            (Rule::Keys(_) | Rule::Certificates, _) => Err(Stranger::WrongKey.into()),
        }
    }
}

fn current(keys: &RwLock<Arc<Keys>>) -> Arc<Keys> {
    Arc::clone(&keys.read().unwrap_or_else(PoisonError::into_inner))
}

/// s since 1970. Keys expire by the wall clock, which whoever made them went by.
pub fn now() -> u64 {
    clock::wall_us() / US_PER_S
}

/// The key of the one header that may have it.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}
