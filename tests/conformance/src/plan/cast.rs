//! Programs and resources of a run.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Owner, Resource, SessionId, SessionRecord, Terms};
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

use tenure_harness::random::Random;

/// How long claims live without a beat, s. All of these are multiples of
/// [`QUANTUM_MS`](super::time::QUANTUM_MS).
pub(super) const CLAIM_TTLS: [u64; 4] = [5, 10, 30, 90];
const SESSION_TTLS: [u64; 3] = [15, 30, 90];
const GRACES: [u64; 4] = [0, 5, 30, 60];
/// Names that scripts and keys may stumble over.
const NAMES: [&str; 8] = ["a", "b", "a:b", "%d %s", "naïve ✓", "{x}", "it's \"it\"", "*"];
/// The same for projects, which have no colon.
pub(super) const SCOPES: [&str; 4] = ["p", "q", "a b", "{p}"];
const TENANTS: [&str; 3] = ["default", "blue", "other one"];

/// A program's registration.
pub(super) struct Program {
    pub(super) owner: Owner,
    pub(super) tenant: Arc<str>,
    pub(super) record: SessionRecord,
}

/// Programs and resources.
pub(super) struct Cast {
    pub(super) programs: Vec<Program>,
    /// Every resource that was asked for, or is going to be.
    pub(super) all: Vec<Resource>,
    /// Indexes of `all`, with weights.
    weights: Vec<(u64, usize)>,
    /// The limit of most claims of a semaphore.
    limit: u32,
}

impl Cast {
    /// Few of everything, so that requests meet.
    pub(super) fn draw(random: &mut Random) -> Cast {
        let count = random.weighted(&[(5, 1), (3, 2), (1, 3)]);
        let tenants: Vec<Arc<str>> = TENANTS.into_iter().take(count).map(Arc::from).collect();
        let names = random.weighted(&[(3, 1), (2, 2), (1, 3)]);
        let kinds = [Kind::Leader, Kind::Master, Kind::Lease, Kind::Semaphore, Kind::Semaphore];
        let kinds = kinds.map(|kind| (kind, random.number(0, 4)));
        let mut all = Vec::new();
        let mut weights = Vec::new();
        for tenant in &tenants {
            for (kind, weight) in kinds {
                for _ in 0..names {
                    let among: &[&str] = if kind == Kind::Master { &SCOPES } else { &NAMES };
                    let name = Arc::from(*random.pick(among));
                    all.push(Resource { tenant: tenant.clone(), kind, name });
                    weights.push((weight, all.len() - 1));
                }
            }
        }
        weights.push((1, 0));
        let count = random.number(3, 6);
        let programs = (0..count).map(|number| program(random, &tenants, number)).collect();
        Cast { programs, all, weights, limit: random.number(1, 3) as u32 }
    }

    pub(super) fn resource(&self, random: &mut Random) -> Resource {
        let at = random.weighted(&self.weights);
        self.all[at].clone()
    }

    /// A program of the tenant, if there is one.
    pub(super) fn program_of(&self, random: &mut Random, tenant: &str) -> Option<&Program> {
        let of_tenant = |program: &&Program| *program.tenant == *tenant;
        let fitting: Vec<&Program> = self.programs.iter().filter(of_tenant).collect();
        (!fitting.is_empty()).then(|| *random.pick(&fitting))
    }

    pub(super) fn terms(&self, random: &mut Random, kind: Kind) -> Terms {
        match kind {
            Kind::Leader => Terms::Leader,
            Kind::Master => Terms::Master { priority: *random.pick(&[-1, 0, 0, 0, 1, 2, 100]) },
            Kind::Semaphore => {
                let other = random.per_mille(200).then(|| random.number(1, 5) as u32);
                let keeps = random.per_mille(300);
                Terms::Semaphore { limit: other.unwrap_or(self.limit), keeps, only_own: false }
            }
            Kind::Lease => Terms::Lease {
                grace: Duration::from_secs(*random.pick(&GRACES)),
                attributes: attributes(random),
                take_over: None,
            },
        }
    }
}

fn program(random: &mut Random, tenants: &[Arc<str>], number: u64) -> Program {
    let owner = Owner {
        session: SessionId(uuid(random)),
        host: Arc::from(*random.pick(&["ant", "bee.example"])),
        name: Arc::from(format!("{}{number}", random.pick(&["job", "cöde \"x\" "]))),
    };
    let tenant = random.pick(tenants).clone();
    let record = SessionRecord {
        owner: owner.clone(),
        tenant: tenant.clone(),
        project: Arc::from(*random.pick(&SCOPES)),
        surface: Arc::from(*random.pick(&["cli", "claude_desktop"])),
        ttl: Duration::from_secs(*random.pick(&SESSION_TTLS)),
        registered_at: None,
    };
    Program { owner, tenant, record }
}

fn attributes(random: &mut Random) -> Attributes {
    let mut maybe =
        |texts: &[&str]| random.per_mille(500).then(|| (*random.pick(texts)).to_owned());
    Attributes {
        address: maybe(&["10.0.0.7:8982", "[::1]:80"]),
        proxy_id: maybe(&["proxy-1", "próxy \"2\""]),
        status: maybe(&["warm", "expiring", "0"]),
        partition: random.per_mille(300).then(|| random.number(0, 255) as u16),
    }
}

pub(super) fn uuid(random: &mut Random) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&random.seed()[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
