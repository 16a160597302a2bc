//! Delivery of the routes of mailboxes, to streams and to proxies.
//!
//! | file | what |
//! |---|---|
//! | `followed.rs` | the routes of a tenant, read again when they change, as long as somebody follows them |
//! | `proxies.rs` | which proxies there are: those of the configuration, and those that the store knows |
//! | `networks.rs` | where proxies may be that register |
//! | `proxy.rs`, `dial.rs`, `connection.rs` | the task that tells one proxy, and its connection |
//! | `breaks.rs` | PURE: how often that connection breaks |
//! | `told.rs` | what proxies may have been told, kept over the end of a gateway |
//! | `numbers.rs` | numbers for Prometheus |

mod breaks;
mod connection;
mod dial;
mod followed;
mod networks;
mod numbers;
mod proxies;
mod proxy;
mod told;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::Resource;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::Kind;
use tokio_util::task::AbortOnDropHandle;

pub use self::dial::is_address;
pub use self::followed::Followed;
use self::followed::Reader;
pub use self::networks::{Network, Networks, show};
pub use self::numbers::Numbers;
use self::proxies::Proxies;
pub use self::proxies::{Listed, NotRegistered, Registration};
pub use self::told::Told;
use crate::store::Store;

/// Tenants whose routes are followed at a time.
const TENANTS_MAX: usize = 256;
/// The routes of a tenant are kept for so long after the last reader: it may come back, and resume.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The routes of all tenants that somebody follows, and the proxies that are told of them.
#[derive(Debug)]
pub struct Delivery {
    store: Store,
    /// Others change the store, too.
    is_shared: bool,
    pub numbers: Numbers,
    tenants: Mutex<HashMap<Arc<str>, Tenant>>,
    proxies: Proxies,
    /// The networks of proxies that register.
    networks: Arc<Networks>,
    told: Told,
}

#[derive(Debug)]
struct Tenant {
    followed: Arc<Followed>,
    _reader: AbortOnDropHandle<()>,
    used_at: Boottime,
}

impl Delivery {
    /// Over a store of this kind, after a run that told this.
    pub fn new(
        store: Store,
        kind: &str,
        numbers: Numbers,
        told: Told,
        networks: Networks,
    ) -> Delivery {
        let is_shared = kind != "embedded";
        let (tenants, proxies) = (Mutex::default(), Proxies::default());
        let networks = Arc::new(networks);
        Delivery { store, is_shared, numbers, tenants, proxies, networks, told }
    }

    /// The routes of a tenant, which are read as long as somebody has them. `None` if those of too many tenants are.
    pub fn follow(&self, tenant: &Arc<str>) -> Option<Arc<Followed>> {
        let mut tenants = self.tenants();
        if let Some(known) = tenants.get(tenant) {
            return Some(Arc::clone(&known.followed));
        }
        if tenants.len() >= TENANTS_MAX {
            return None;
        }
        let followed = Arc::new(Followed::new(Arc::clone(tenant), self.told.before(tenant)));
        let reader = Reader::new(Arc::clone(&followed), self.store.clone(), self.is_shared);
        let reader = AbortOnDropHandle::new(tokio::spawn(reader.run()));
        let used_at = clock::now();
        let known = Tenant { followed: Arc::clone(&followed), _reader: reader, used_at };
        tenants.insert(Arc::clone(tenant), known);
        Some(followed)
    }

    /// Something may have become of a lease, by the word of a store that tells of every change.
    pub fn changed(&self, tenant: &str) {
        if let Some(known) = self.tenants().get(tenant).filter(|_| !self.is_shared) {
            known.followed.changed.notify_one();
        }
    }

    /// The routes of all tenants that are followed.
    pub fn followed(&self) -> Vec<Arc<Followed>> {
        self.tenants().values().map(|it| Arc::clone(&it.followed)).collect()
    }

    /// How many mailboxes there are of those that a reader may be told of, and how many runners hold them, in the
    /// tenants that are followed.
    pub fn tally(&self, shows: impl Fn(&Resource) -> bool) -> (usize, usize) {
        let (mut mailboxes, mut runners) = (0, HashSet::new());
        for followed in self.followed() {
            for route in followed.table().routes() {
                let (tenant, name) = (Arc::clone(&followed.tenant), route.name.as_str().into());
                if shows(&Resource { tenant, kind: Kind::Lease, name }) {
                    mailboxes += 1;
                    runners.insert((Arc::clone(&followed.tenant), route.holder.clone()));
                }
            }
        }
        (mailboxes, runners.len())
    }

    /// Lets go what nobody has followed for a while.
    fn sweep(&self, now: Boottime) {
        self.tenants().retain(|_, tenant| {
            // The table here and its reader.
            if Arc::strong_count(&tenant.followed) > 2 {
                tenant.used_at = now;
            }
            now.since(tenant.used_at) < KEPT_FOR
        });
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Arc<str>, Tenant>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
