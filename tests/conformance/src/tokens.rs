//! Tokens of the two sides, matched one to one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::oracle::{Birth, Oracle};

/// The store's token for each of the engine's.
///
/// Their numbers differ and mean nothing; their order must be the same. The engine has one sequence
/// for all tenants, a store may have one for each: then tokens of different tenants are not compared.
pub(crate) struct Tokens {
    by_tenant: bool,
    /// By tenant and the engine's token.
    pairs: BTreeMap<(Arc<str>, u64), u64>,
    /// The other way round.
    engines: HashMap<(Arc<str>, u64), u64>,
}

impl Tokens {
    /// No token has been told yet.
    pub(crate) fn new(by_tenant: bool) -> Tokens {
        Tokens { by_tenant, pairs: BTreeMap::new(), engines: HashMap::new() }
    }

    fn scope(&self, birth: &Birth) -> Arc<str> {
        if self.by_tenant { birth.resource.tenant.clone() } else { Arc::from("") }
    }

    /// The store's token for one of the engine's, if it has been told.
    pub(crate) fn store(&self, oracle: &Oracle, engine: u64) -> Option<u64> {
        let tenant = self.scope(oracle.birth(engine)?);
        self.pairs.get(&(tenant, engine)).copied()
    }

    /// Takes note that two tokens stand for the same grant; 0 is that of whoever waits.
    pub(crate) fn pair(&mut self, oracle: &Oracle, engine: u64, store: u64) -> Result<(), String> {
        if engine == 0 && store == 0 {
            return Ok(());
        }
        let Some(birth) = oracle.birth(engine) else {
            return Err(format!("token {store} for the engine's {engine}"));
        };
        let tenant = &self.scope(birth);
        if let Some(known) = self.pairs.get(&(tenant.clone(), engine)) {
            let same = *known == store;
            return same.then_some(()).ok_or_else(|| {
                format!("token {store} for the engine's {engine}, which was {known} before")
            });
        }
        if let Some(known) = self.engines.get(&(tenant.clone(), store)) {
            return Err(format!("token {store} for the engine's {engine} and for its {known}"));
        }
        self.check_order(oracle, birth, engine, store)?;
        self.pairs.insert((tenant.clone(), engine), store);
        self.engines.insert((tenant.clone(), store), engine);
        Ok(())
    }

    /// Tokens grow in the order of granting. Where the engine grants permits of several semaphores
    /// at the same instant the order between those is open.
    fn check_order(
        &self,
        oracle: &Oracle,
        birth: &Birth,
        engine: u64,
        store: u64,
    ) -> Result<(), String> {
        let Birth { step, resource } = birth;
        let key = |token| (self.scope(birth), token);
        let ordered = |other: &u64| {
            let other = oracle.birth(*other);
            let open = self.by_tenant;
            other.is_some_and(|other| !open || other.step != *step || other.resource == *resource)
        };
        let before = self.pairs.range(key(0)..key(engine)).rev();
        let after = self.pairs.range(key(engine)..=key(u64::MAX));
        let before = before.map(|((_, it), token)| (it, token)).find(|(it, _)| ordered(it));
        let after = after.map(|((_, it), token)| (it, token)).find(|(it, _)| ordered(it));
        let contradicts = |(other, token)| {
            Err(format!("token {store} for the engine's {engine}, but {token} for {other}"))
        };
        match (before, after) {
            (Some(earlier), _) if *earlier.1 >= store => contradicts(earlier),
            (_, Some(later)) if *later.1 <= store => contradicts(later),
            _ => Ok(()),
        }
    }
}
