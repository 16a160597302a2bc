//! The proxies that are told of routes.
//!
//! A proxy that registers is a session in the store: every gateway over it tells that proxy, and goes on when the one
//! that took the registration is gone. Gateways that reach it renew that session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, Failure, GATEWAYS_TENANT, Member, Owner, Request, Resource, SessionId,
    SessionRecord, Subject, Within,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use tenure_wire::Kind;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};
use uuid::{Builder, Uuid};

use super::dial::{Dialer, is_address, literal, system};
use super::networks::Outside;
use super::proxy::{Proxy, Standing};
use super::told::Note;
use super::{Delivery, Followed};
use crate::access::{Access, Denied, Quota};
use crate::routes::{PROXIES_MAX, ranges};

/// The project whose sessions are the proxies that register. The surface of each is the tenant whose routes it is told of, and its host
/// the address at which it is told.
const TENANT: &str = GATEWAYS_TENANT;
const PROJECT: &str = "proxies";
/// How long a proxy that nobody reaches stays registered.
const REGISTERED_FOR: Duration = Duration::from_secs(600);
/// How often one that is reached is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(60);
/// How often the store is asked which there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most proxies of all tenants.
const ALL_MAX: usize = 1024;
/// A proxy that was not reached for so long makes way for one of another principal, once there are as many as there may be.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// Tenant, and id of the proxy.
type Key = (Arc<str>, Arc<str>);

/// The proxies that are told.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    running: Mutex<BTreeMap<Key, Running>>,
    /// One has registered here.
    registered: Notify,
}

#[derive(Debug)]
pub(super) struct Running {
    address: Arc<str>,
    /// `None` if it is of the configuration.
    session: Option<SessionId>,
    standing: Arc<Standing>,
    is_new: Arc<Notify>,
    renewed_at: Boottime,
    /// When it was reached last, or its task began.
    reached_at: Boottime,
    _task: AbortOnDropHandle<()>,
}

/// A proxy that wants to be told of the routes of a tenant.
#[derive(Debug, Clone)]
pub struct Registration {
    pub tenant: Arc<str>,
    pub proxy_id: Arc<str>,
    pub address: Arc<str>,
}

/// A proxy, for people.
#[derive(Debug, Clone)]
pub struct Listed {
    pub registration: Registration,
    pub is_connected: bool,
    pub is_behind: bool,
    pub lacks: usize,
    pub reconnects: u64,
    pub partitions: Option<RangeInclusive<u8>>,
    /// The mark of the principal that registered it; `None` if it is of the configuration.
    pub owner: Option<Mark>,
}

/// Why a proxy is not registered.
#[derive(Debug, thiserror::Error)]
pub enum NotRegistered {
    #[error("address must be HOST:PORT, at which this proxy takes gRPC without TLS, not {0:?}")]
    Address(Arc<str>),
    #[error("{0}")]
    Outside(Outside),
    #[error("proxy_id {0:?} is registered by another principal, or in the gateway's configuration")]
    Taken(Arc<str>),
    #[error("this tenant has {PROXIES_MAX} proxies, as many as there are partitions")]
    TooMany,
    #[error("there are {ALL_MAX} proxies of all tenants, as many as a gateway tells")]
    TooManyInAll,
    #[error("{0}")]
    Quota(Denied),
    #[error("{}", .0.cause())]
    Store(Failure),
}

impl Delivery {
    /// Registers a proxy of the principal with this mark; its partitions.
    ///
    /// # Errors
    ///
    /// When it cannot be told, or the store fails.
    pub async fn register(
        &self,
        mark: Mark,
        registration: Registration,
        quota: Quota,
    ) -> Result<RangeInclusive<u8>, NotRegistered> {
        let Registration { tenant, proxy_id, address } = registration;
        if !is_address(&address) {
            return Err(NotRegistered::Address(address));
        }
        self.judge(&address).map_err(NotRegistered::Outside)?;
        // The store knows those that registered elsewhere, or just now.
        let members = self.registered().await.map_err(NotRegistered::Store)?;
        let key = (Arc::clone(&tenant), Arc::clone(&proxy_id));
        let mut ids = BTreeSet::from([Arc::clone(&proxy_id)]);
        let (mut known, mut former) = (None, Vec::new());
        for member in members.iter().filter(|it| it.surface == tenant) {
            ids.insert(Arc::clone(&member.name));
            let session = member.session.parse().ok().filter(|_| member.name == proxy_id);
            if let Some(session) = session {
                if !mark.is_of(session) {
                    return Err(NotRegistered::Taken(proxy_id));
                }
                match member.host == address {
                    true => known = Some(SessionId(session)),
                    false => former.push(SessionId(session)),
                }
            }
        }
        let is_another = known.is_none() && former.is_empty();
        if is_another {
            let own = members.iter().filter_map(|it| it.session.parse().ok());
            let own = own.filter(|session| mark.is_of(*session)).count();
            if own >= quota.number() {
                return Err(NotRegistered::Quota(quota.denied("proxy", own)));
            }
        }
        let displaced = match is_another && members.len() >= ALL_MAX {
            true => Some(self.dead(mark).ok_or(NotRegistered::TooManyInAll)?),
            false => None,
        };
        let is_new = {
            let running = self.running();
            let of_tenant = running.keys().filter(|(of, _)| *of == tenant);
            ids.extend(of_tenant.map(|(_, id)| Arc::clone(id)));
            if ids.len() > PROXIES_MAX {
                return Err(NotRegistered::TooMany);
            }
            let here = running.get(&key);
            if here.is_some_and(|it| it.session.is_none()) {
                return Err(NotRegistered::Taken(proxy_id));
            }
            here.map(|it| Arc::clone(&it.is_new))
        };
        let session = match known {
            Some(session) => session,
            None => SessionId(mark.scoped(random()?)),
        };
        let owner = Owner { session, host: address, name: proxy_id };
        let record = SessionRecord {
            owner,
            tenant: TENANT.into(),
            project: PROJECT.into(),
            surface: tenant,
            ttl: REGISTERED_FOR,
            registered_at: None,
        };
        let announced = self.store.ask(mark, Request::Announce(record)).await;
        announced.map_err(NotRegistered::Store)?;
        // It is at one address. What cannot be ended now ends when nobody renews it.
        for session in former.into_iter().chain(displaced) {
            let (tenant, project) = (TENANT.into(), PROJECT.into());
            let of = Mark::at_end_of(session.0);
            let _ = self.store.ask(of, Request::EndSession { session, tenant, project }).await;
        }
        if let Some(is_new) = is_new {
            is_new.notify_one();
        }
        self.proxies.registered.notify_one();
        let ranges = ranges(ids.iter().map(|id| &**id)).ok_or(NotRegistered::TooMany)?;
        let own = ranges.into_iter().find(|(id, _)| **id == *key.1);
        own.map(|(_, range)| range).ok_or(NotRegistered::TooMany)
    }

    /// The proxies that this gateway tells, by tenant and id.
    pub fn proxies(&self) -> Vec<Listed> {
        let running = self.running();
        let of_tenant = |tenant: &Arc<str>| {
            ranges(running.keys().filter(|(of, _)| of == tenant).map(|(_, id)| &**id))
        };
        let mut partitions: BTreeMap<&Arc<str>, _> = BTreeMap::new();
        let listed = running.iter().map(|((tenant, proxy_id), it)| {
            let ranges = partitions.entry(tenant).or_insert_with(|| of_tenant(tenant));
            let own = ranges.iter().flatten().find(|(id, _)| **id == **proxy_id);
            Listed {
                registration: Registration {
                    tenant: Arc::clone(tenant),
                    proxy_id: Arc::clone(proxy_id),
                    address: Arc::clone(&it.address),
                },
                is_connected: it.standing.is_connected(),
                is_behind: it.standing.is_behind.load(Relaxed),
                lacks: it.standing.lacks.load(Relaxed),
                reconnects: it.standing.reconnects(),
                partitions: own.map(|(_, range)| range.clone()),
                owner: it.session.map(|session| Mark::at_end_of(session.0)),
            }
        });
        listed.collect()
    }

    /// Tells those proxies that there are, and keeps those registered that are reached. Ends when it is dropped.
    pub async fn run(&self, access: &Access, configured: &[Registration]) {
        let mut note = Note::default();
        loop {
            let now = clock::now();
            // While the store is away those are told that were known.
            if let Ok(members) = self.registered().await {
                let mut wanted = wanted(access, configured, members);
                // One that registered at a gateway with other networks.
                wanted.retain(|_, (address, session)| {
                    session.is_none() || self.judge(address).is_ok()
                });
                self.tell_those(now, wanted);
            }
            self.renew(now).await;
            note.keep(&self.told, &self.told_of()).await;
            self.count();
            self.sweep(now);
            let _ = timeout(LOOK_EVERY, self.proxies.registered.notified()).await;
        }
    }

    /// A proxy that makes way for one of another principal.
    fn dead(&self, newcomer: Mark) -> Option<SessionId> {
        let now = clock::now();
        let running = self.running();
        let of = |it: &Running| Some((it.session?, now.since(it.reached_at)));
        longest_dead(newcomer, running.values().filter_map(of))
    }

    /// The routes that proxies are told of.
    fn told_of(&self) -> Vec<Arc<Followed>> {
        let tenants: BTreeSet<_> = self.running().keys().map(|(of, _)| Arc::clone(of)).collect();
        self.followed().into_iter().filter(|it| tenants.contains(&it.tenant)).collect()
    }

    /// The sessions of the proxies that registered, the oldest first.
    async fn registered(&self) -> Result<Vec<Member>, Failure> {
        let within = Within::Project { tenant: TENANT.into(), project: PROJECT.into() };
        match self.store.look(Request::Members { within, listed: true, page: None }).await? {
            Answer::Members(members) => Ok(members.map_or_else(Vec::new, |it| it.sessions)),
            _ => {
                Err(Failure::Unknown("the store answered something else than sessions".to_owned()))
            }
        }
    }

    /// Judges the address of a proxy that registers, as far as that is known without asking for a name.
    fn judge(&self, address: &str) -> Result<(), Outside> {
        literal(address).map_or(Ok(()), |address| self.networks.judge(address))
    }

    /// Starts and ends tasks.
    fn tell_those(&self, now: Boottime, mut wanted: BTreeMap<Key, (Arc<str>, Option<SessionId>)>) {
        let mut running = self.running();
        running.retain(|(tenant, id), running| {
            let key = (Arc::clone(tenant), Arc::clone(id));
            let stays = wanted.get(&key).is_some_and(|(address, session)| {
                // One of the configuration may be anywhere, and no other one.
                *address == running.address && session.is_none() == running.session.is_none()
            });
            if !stays {
                info!(%tenant, proxy_id = %id, address = %running.address, "a proxy is told no more");
                return false;
            }
            if let Some((_, session)) = wanted.remove(&key)
                && running.session != session
            {
                running.session = session;
                running.is_new.notify_one();
            }
            true
        });
        for ((tenant, id), (address, session)) in wanted {
            let Some(followed) = self.follow(&tenant).filter(|_| running.len() < ALL_MAX) else {
                warn!(%tenant, proxy_id = %id, "too many tenants or proxies: it is not told of routes");
                continue;
            };
            info!(%tenant, proxy_id = %id, %address, "a proxy is told of routes");
            let (standing, is_new) = (Arc::<Standing>::default(), Arc::<Notify>::default());
            let proxy = Proxy {
                proxy_id: Arc::clone(&id),
                followed,
                dialer: Dialer::new(
                    Arc::clone(&address),
                    session.map(|_| Arc::clone(&self.networks)),
                    system(),
                ),
                standing: Arc::clone(&standing),
                is_new: Arc::clone(&is_new),
                numbers: self.numbers.clone(),
            };
            let task = AbortOnDropHandle::new(tokio::spawn(proxy.run()));
            let (renewed_at, reached_at) = (now, now);
            let proxy =
                Running { address, session, standing, is_new, renewed_at, reached_at, _task: task };
            running.insert((tenant, id), proxy);
        }
    }

    /// Keeps those registered that are reached.
    async fn renew(&self, now: Boottime) {
        let mut due = Vec::new();
        for running in self.running().values_mut() {
            if running.standing.is_connected() {
                running.reached_at = now;
            }
            let is_due = now.since(running.renewed_at) >= RENEW_EVERY;
            if is_due && running.standing.is_reached.load(Relaxed) {
                running.renewed_at = now;
                due.extend(running.session);
            }
        }
        for session in due {
            let master =
                Resource { tenant: TENANT.into(), kind: Kind::Master, name: PROJECT.into() };
            let beat = Beat { subject: Subject::Session { session, master }, ttl: REGISTERED_FOR };
            // One that is not renewed registers again.
            let _ = self.store.ask(Mark::at_end_of(session.0), Request::Renew(vec![beat])).await;
        }
    }

    fn count(&self) {
        let running = self.running();
        let count = |of: fn(&Standing) -> bool| {
            running.values().filter(|running| of(&running.standing)).count() as u64
        };
        self.numbers.proxies.set(running.len() as u64);
        self.numbers.connected.set(count(Standing::is_connected));
        self.numbers.behind.set(count(|it| it.is_behind.load(Relaxed)));
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Key, Running>> {
        self.proxies.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxies that are to be told, with their addresses: those of the configuration, and of those that registered the
/// latest of each id whose principal has a key still.
fn wanted(
    access: &Access,
    configured: &[Registration],
    members: Vec<Member>,
) -> BTreeMap<Key, (Arc<str>, Option<SessionId>)> {
    let mut wanted = BTreeMap::new();
    for member in members {
        let Ok(session) = member.session.parse::<Uuid>() else { continue };
        if access.owner(session).is_some() && is_address(&member.host) {
            wanted.insert((member.surface, member.name), (member.host, Some(SessionId(session))));
        }
    }
    for Registration { tenant, proxy_id, address } in configured.iter().cloned() {
        wanted.insert((tenant, proxy_id), (address, None));
    }
    wanted
}

/// The proxy that is dead longest, of the principal with the most that are dead for long, other than the newcomer's.
fn longest_dead(
    newcomer: Mark,
    unreached: impl Iterator<Item = (SessionId, Duration)>,
) -> Option<SessionId> {
    let mut by_principal: HashMap<Mark, Vec<(Duration, SessionId)>> = HashMap::new();
    for (session, since) in unreached {
        let of = Mark::at_end_of(session.0);
        if of != newcomer && since >= DEAD_AFTER {
            by_principal.entry(of).or_default().push((since, session));
        }
    }
    let most = by_principal.into_values().max_by_key(Vec::len)?;
    most.into_iter().max_by_key(|(since, _)| *since).map(|(_, session)| session)
}

fn random() -> Result<Uuid, NotRegistered> {
    let mut bytes = [0; 16];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| NotRegistered::Store(Failure::Unavailable(error.to_string())))?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_dead_proxies_those_of_the_principal_with_the_most_make_way() {
        let (greedy, other, newcomer) = (Mark::of("greedy"), Mark::of("other"), Mark::of("new"));
        let of = |mark: Mark, number: u128, seconds| {
            let session = SessionId(mark.scoped(Uuid::from_u128(number << 64)));
            (session, Duration::from_secs(seconds))
        };
        let all = [
            of(greedy, 1, 40),
            of(greedy, 2, 50),
            of(greedy, 3, 5),
            of(other, 4, 600),
            of(newcomer, 5, 600),
            of(newcomer, 6, 600),
            of(newcomer, 7, 600),
        ];
        assert_eq!(longest_dead(newcomer, all.into_iter()), Some(all[1].0));
        assert_eq!(longest_dead(greedy, all[..4].iter().copied()), Some(all[3].0));
        assert_eq!(longest_dead(newcomer, all[2..3].iter().copied()), None, "it is not dead long");
    }
}
