//! Tokens of the two sides, matched one to one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::oracle::{Birth, Oracle};

/// Which token of the upstream stands for which of the engine.
///
/// The engine counts from 1, the upstream from the µs of its clock: that they are equal in number
/// means nothing, that they come in the same order everything. The engine has one sequence for all
/// tenants, the upstream one for each, and tokens of different tenants are never compared.
#[derive(Default)]
pub(super) struct Tokens {
    /// By tenant and the engine's token.
    pairs: BTreeMap<(Arc<str>, u64), u64>,
    /// The other way round.
    engines: HashMap<(Arc<str>, u64), u64>,
}

impl Tokens {
    /// What the upstream calls the engine's token, if it has been told.
    pub(super) fn upstream(&self, oracle: &Oracle, engine: u64) -> Option<u64> {
        let tenant = oracle.birth(engine)?.resource.tenant.clone();
        self.pairs.get(&(tenant, engine)).copied()
    }

    /// Takes note that two tokens stand for the same grant; 0 is that of whoever waits.
    ///
    /// # Errors
    ///
    /// When that contradicts what was noted before, or the order in which they were granted.
    pub(super) fn pair(
        &mut self,
        oracle: &Oracle,
        engine: u64,
        upstream: u64,
    ) -> Result<(), String> {
        if engine == 0 && upstream == 0 {
            return Ok(());
        }
        let Some(birth) = oracle.birth(engine) else {
            return Err(format!("token {upstream} for the engine's {engine}"));
        };
        let tenant = &birth.resource.tenant;
        if let Some(known) = self.pairs.get(&(tenant.clone(), engine)) {
            let same = *known == upstream;
            return same.then_some(()).ok_or_else(|| {
                format!("token {upstream} for the engine's {engine}, which was {known} before")
            });
        }
        if let Some(known) = self.engines.get(&(tenant.clone(), upstream)) {
            return Err(format!("token {upstream} for the engine's {engine} and for its {known}"));
        }
        self.check_order(oracle, birth, engine, upstream)?;
        self.pairs.insert((tenant.clone(), engine), upstream);
        self.engines.insert((tenant.clone(), upstream), engine);
        Ok(())
    }

    /// Tokens grow in the order of granting. Where the engine grants permits of several semaphores
    /// at the same instant the order between those is open.
    fn check_order(
        &self,
        oracle: &Oracle,
        birth: &Birth,
        engine: u64,
        upstream: u64,
    ) -> Result<(), String> {
        let Birth { step, resource } = birth;
        let key = |token| (resource.tenant.clone(), token);
        let ordered = |other: &u64| {
            let other = oracle.birth(*other);
            other.is_some_and(|other| other.step != *step || other.resource == *resource)
        };
        let before = self.pairs.range(key(0)..key(engine)).rev();
        let after = self.pairs.range(key(engine)..=key(u64::MAX));
        let before = before.map(|((_, it), token)| (it, token)).find(|(it, _)| ordered(it));
        let after = after.map(|((_, it), token)| (it, token)).find(|(it, _)| ordered(it));
        let contradicts = |(other, token)| {
            Err(format!("token {upstream} for the engine's {engine}, but {token} for {other}"))
        };
        match (before, after) {
            (Some(earlier), _) if *earlier.1 >= upstream => contradicts(earlier),
            (_, Some(later)) if *later.1 <= upstream => contradicts(later),
            _ => Ok(()),
        }
    }
}
