//! The scripts on a real Redis, whose clock is the corpus's.

mod clock;
mod look;
mod planted;
mod server;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{Answer, ClaimId, Request, Resource};
use tenure_stores::redis::exchange::{
    By, CareOf, Cared, Exchange, Grants, Invocation, Step, Verified, care, cared, sweep, verified,
    verify,
};
use tenure_stores::redis::layout::{Channel, Layout};
use tenure_stores::remote::greatest_token;
use tenure_wire::Kind;
use uuid::Uuid;

use crate::allowances::Allowance;
use crate::stores::Store;
use crate::subject::{Grant, Hint, Subject, Upkeep};
pub(crate) use clock::Clock;
use planted::Fault;
pub(crate) use server::EPOCH_US;
use server::Published;
pub(crate) use server::Server;

/// The Lua scripts, called as an agent calls them.
pub(crate) const STORE: Store = Store {
    name: "redis",
    faults: &planted::NAMES,
    open: |fault| Box::new(Scripts::start(fault.and_then(planted::named))),
};

/// Calls that one request may take: pages of a table, or of a long batch.
const CALLS_MAX: usize = 100;

/// The differences of a Redis, by scripts or through the whole client.
pub(crate) const ALLOWANCES: [Allowance; 8] = [
    Allowance::ForgetsSooner,
    Allowance::LateMessages,
    Allowance::OtherHints,
    Allowance::SessionsInAnyOrder,
    Allowance::RoutesInPages,
    Allowance::OtherHoldersListed,
    Allowance::OtherVersions,
    Allowance::TokensByTenant,
];

/// The scripts, as an agent calls them.
struct Scripts {
    server: Server,
    layout: Layout,
    fault: Option<Fault>,
    /// The server's hash of each script, by name: with a fault it has another.
    loaded: HashMap<&'static str, String>,
    /// The greatest token that was told.
    floor: u64,
    /// How many calls the last request took.
    grants: Rc<RefCell<Grants>>,
    calls: usize,
    /// Tenants that were asked about.
    tenants: BTreeSet<String>,
}

impl Scripts {
    fn start(fault: Option<Fault>) -> Scripts {
        Scripts {
            server: Server::start(),
            layout: Layout::default(),
            fault,
            loaded: HashMap::new(),
            floor: 0,
            grants: Rc::default(),
            calls: 0,
            tenants: BTreeSet::new(),
        }
    }

    fn by(&self) -> By {
        By { agent: "corpus".into(), floor: self.floor, grants: Rc::clone(&self.grants) }
    }

    fn call(&mut self, call: &Invocation) -> Result<Value, String> {
        let name = call.script.name();
        if !self.loaded.contains_key(name) {
            let source = look::added_to(name, call.script.source());
            let source = match &self.fault {
                Some(fault) => fault.plant(name, &source),
                None => source,
            };
            let hash =
                redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut self.server.connection);
            // Not a difference: a fault must be one that runs.
            self.loaded.insert(name, hash.unwrap_or_else(|error| panic!("{name}: {error}")));
        }
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.loaded[name]).arg(call.keys.len());
        for part in call.keys.iter().chain(&call.args) {
            command.arg(part.as_slice());
        }
        command.query(&mut self.server.connection).map_err(|error| format!("{name}: {error}"))
    }

    fn hint(&self, message: Published) -> Result<Hint, String> {
        let Published { channel, text } = message;
        let payload = || {
            serde_json::from_str(&text).map_err(|error| format!("{text:?} on {channel}: {error}"))
        };
        Ok(match self.layout.channel(channel.as_bytes()) {
            None => return Err(format!("{text:?} on an unknown channel: {channel}")),
            Some(Channel::Routes { tenant }) => {
                Hint::RoutesVersion { tenant: tenant.to_string(), version: text }
            }
            Some(Channel::Agent | Channel::Agents { .. }) => match text.strip_suffix(" lost") {
                Some(claim) => {
                    Hint::Lost(ClaimId(Uuid::parse_str(claim).map_err(|error| error.to_string())?))
                }
                None => granted(&text).ok_or_else(|| format!("{text:?} on {channel}"))?,
            },
            Some(Channel::ProjectEvents { tenant, project }) => {
                let (tenant, project) = (tenant.to_string(), project.to_string());
                Hint::ToProject { tenant, project, payload: payload()? }
            }
            Some(Channel::SessionEvents { session }) => {
                Hint::ToSession { session, payload: payload()? }
            }
        })
    }
}

/// What an agent is told of a grant to one of its waiters.
fn granted(text: &str) -> Option<Hint> {
    let mut words = text.split(' ');
    let claim = ClaimId(Uuid::parse_str(words.next()?).ok()?);
    let mut number = || words.next()?.parse::<u64>().ok();
    let (token, granted, kept) = (number()?, number()?, number()?);
    let limit = words.next().map(str::parse).transpose().ok()?;
    let until = Duration::from_millis((granted + kept).checked_sub(EPOCH_US / 1000)?);
    Some(Hint::Granted(claim, Some(Grant { token, limit, until })))
}

impl Scripts {
    fn care(&mut self, semaphores: &[&Resource]) -> Result<Vec<Upkeep>, String> {
        if semaphores.is_empty() {
            return Ok(Vec::new());
        }
        let of: Vec<CareOf> = semaphores
            .iter()
            .map(|Resource { tenant, name, .. }| CareOf {
                tenant: tenant.clone(),
                name: name.clone(),
                shared: true,
            })
            .collect();
        let reply = self.call(&care(&self.layout, &of, self.floor))?;
        let found = cared(reply).map_err(|error| error.to_string())?;
        let upkeep = |Cared { holders, waiting, next, foreign }| match foreign {
            true => Err("members of other programs".to_owned()),
            false => Ok(Upkeep { holders, waiting, next }),
        };
        found.into_iter().map(upkeep).collect()
    }

    fn look(&mut self, resources: &[Resource]) -> Result<Vec<Upkeep>, String> {
        let mut found = Vec::with_capacity(resources.len());
        for some in resources.chunks(look::PER_CALL) {
            let reply = self.call(&look::call(&self.layout, some, self.by()))?;
            found.extend(look::found(reply)?);
        }
        Ok(found)
    }
}

impl Subject for Scripts {
    fn allowances(&self) -> &'static [Allowance] {
        &ALLOWANCES
    }

    fn begin(&mut self) {
        self.server.wipe();
        self.server.published();
        self.tenants.clear();
        self.floor = 0;
    }

    fn set_clock(&mut self, us: u64) {
        self.server.set_clock(EPOCH_US + us);
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        self.tenants.extend(tenant_of(request).map(str::to_owned));
        let (mut exchange, mut call) = Exchange::start(&self.layout, request, self.by());
        for calls in 1..=CALLS_MAX {
            self.calls = calls;
            let reply = self.call(&call)?;
            match exchange.step(&self.layout, reply).map_err(|error| error.to_string())? {
                Step::Done(answer) => {
                    self.floor = self.floor.max(greatest_token(&answer).unwrap_or(0));
                    return Ok(answer);
                }
                Step::Next(next, invocation) => (exchange, call) = (next, invocation),
            }
        }
        Err(format!("no answer after {CALLS_MAX} calls"))
    }

    fn calls(&self) -> usize {
        self.calls
    }

    fn reconnect(&mut self) {
        self.server.reconnect();
    }

    fn hints(&mut self) -> Result<Vec<Hint>, String> {
        let messages = self.server.published();
        messages.into_iter().map(|message| self.hint(message)).collect()
    }

    fn look_after(&mut self, resources: &[Resource]) -> Result<Option<Vec<Upkeep>>, String> {
        let of_semaphores = |resource: &&Resource| resource.kind == Kind::Semaphore;
        let (semaphores, others): (Vec<_>, Vec<_>) = resources.iter().partition(of_semaphores);
        let mut permits = self.care(&semaphores)?.into_iter();
        let mut exclusive =
            self.look(&others.into_iter().cloned().collect::<Vec<_>>())?.into_iter();
        let in_order = resources.iter().map(|resource| match resource.kind {
            Kind::Semaphore => permits.next(),
            _ => exclusive.next(),
        });
        in_order.collect::<Option<_>>().map(Some).ok_or_else(|| "too few were looked at".to_owned())
    }

    fn verify(
        &mut self,
        resource: &Resource,
        claims: &[ClaimId],
    ) -> Result<Option<Vec<bool>>, String> {
        if claims.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let claims: Vec<(ClaimId, Resource)> =
            claims.iter().map(|claim| (*claim, resource.clone())).collect();
        let reply = self.call(&verify(&self.layout, &claims))?;
        let found = verified(reply).map_err(|error| error.to_string())?;
        Ok(Some(found.into_iter().map(|found| found != Verified::Gone).collect()))
    }

    fn changes(&mut self) -> Option<u64> {
        Some(self.server.changes())
    }

    fn left(&mut self) -> Vec<String> {
        let counters = |tenant: &String| [self.layout.fence(tenant), self.layout.routes(tenant)];
        let counters: Vec<String> = self.tenants.iter().flat_map(counters).collect();
        let mut left = self.server.keys();
        // A set that is gone stays listed until the next sweep.
        self.call(&sweep(&self.layout)).expect("a sweep");
        let (sets, swept) = (self.layout.sets(), self.server.keys());
        let histories: Vec<String> =
            self.tenants.iter().map(|tenant| self.layout.histories(tenant)).collect();
        let stays = |key: &String| {
            counters.contains(key)
                || *key == sets && !swept.contains(key)
                || key.ends_with(":histories")
                || histories.iter().any(|prefix| key.starts_with(prefix))
        };
        left.retain(|key| !stays(key));
        left
    }
}

fn tenant_of(request: &Request) -> Option<&str> {
    match request {
        Request::Claim(claim) => Some(&claim.resource.tenant),
        Request::Release { resource, .. } | Request::Inspect(resource) => Some(&resource.tenant),
        Request::Record(entries) => entries.first().map(|entry| &*entry.resource.tenant),
        _ => None,
    }
}
