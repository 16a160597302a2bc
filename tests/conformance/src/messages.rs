//! Hints: those that the engine gives must be given by the store as well.

use crate::allowances::{Allowance, nameless};
use crate::compare::Comparer;
use crate::oracle::Oracle;
use crate::subject::Hint;

/// A hint of the engine.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) hint: Hint,
    /// True if time alone brought it about.
    pub(crate) by_itself: bool,
}

/// The engine's hints that the store has not given yet.
#[derive(Default)]
pub(crate) struct Messages {
    open: Vec<Told>,
}

impl Messages {
    /// Checks the store's hints since the last time against the engine's.
    pub(crate) fn check(
        &mut self,
        oracle: &Oracle,
        comparer: &mut Comparer,
        mut told: Vec<Told>,
        given: Vec<Hint>,
    ) -> Result<(), String> {
        if comparer.allows(Allowance::NoHints) {
            return Ok(());
        }
        if comparer.allows(Allowance::OtherHints) {
            told.retain(|told| !matches!(told.hint, Hint::Changed(_)));
        }
        self.open.extend(told);
        let late = comparer.allows(Allowance::LateMessages);
        for hint in given {
            if let Hint::RoutesVersion { tenant, version } = &hint {
                comparer.routes.published(tenant, version)?;
                continue;
            }
            let fits = |told: &Told| told.says(&hint);
            // Hints that are owed come before those that need not be given.
            let owed = self.open.iter().position(|told| !told.by_itself && fits(told));
            let Some(at) = owed.or_else(|| self.open.iter().position(fits)) else {
                return Err(format!("a hint of what did not happen: {hint:?}"));
            };
            let told = self.open.remove(at);
            if let (Some(engine), Some(store)) = (told.hint.token(), hint.token()) {
                comparer.tokens.pair(oracle, engine, store)?;
            }
        }
        if !comparer.allows(Allowance::NoVersionHints) {
            comparer.routes.all_published()?;
        }
        match self.open.iter().find(|told| !(told.by_itself && late)) {
            Some(told) => Err(format!("{:?} was not told", told.hint)),
            None => Ok(()),
        }
    }
}

impl Told {
    /// True if the store's hint says the same, but for tokens.
    fn says(&self, store: &Hint) -> bool {
        let (mut engine, mut store) = (self.hint.clone(), store.clone());
        if self.by_itself {
            nameless(&mut engine, store.clone());
        }
        if let (Hint::Granted(_, Some(engine)), Hint::Granted(_, Some(store))) =
            (&mut engine, &store)
        {
            engine.token = store.token;
            if self.by_itself {
                // The store grants it when it is asked, and from then on.
                engine.until = store.until;
            }
        }
        for payload in [engine.payload_mut(), store.payload_mut()].into_iter().flatten() {
            if let Some(token) = payload.get_mut("token") {
                *token = serde_json::Value::Null;
            }
        }
        engine == store
    }
}
