//! Comparison of two answers.

use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, ClaimAnswer, HistoryEntry, Request, StandingEntry, UpstreamStanding,
};

use crate::allowances::{Allowance, in_any_order, in_one_page};
use crate::oracle::Oracle;
use crate::routes::RouteVersions;
use crate::tokens::Tokens;

/// The engine's clock shows whole ms, a store's µs.
const PRECISION: Duration = Duration::from_millis(1);

/// The state of a comparison of answers.
pub(crate) struct Comparer {
    allowances: &'static [Allowance],
    pub(crate) tokens: Tokens,
    pub(crate) routes: RouteVersions,
}

type Compared = Result<(), String>;

impl Comparer {
    /// Nothing has been compared yet.
    pub(crate) fn new(allowances: &'static [Allowance]) -> Comparer {
        let tokens = Tokens::new(allowances.contains(&Allowance::TokensByTenant));
        Comparer { allowances, tokens, routes: RouteVersions::default() }
    }

    /// True if the store may differ so.
    pub(crate) fn allows(&self, allowance: Allowance) -> bool {
        self.allowances.contains(&allowance)
    }

    /// Checks that the store's answer, which took so many calls, says the same as the engine's.
    pub(crate) fn compare(
        &mut self,
        oracle: &Oracle,
        request: &Request,
        engine: &Answer,
        store: &Answer,
        calls: usize,
    ) -> Compared {
        match (engine, store) {
            (Answer::Claim(engine), Answer::Claim(store)) => self.claim(oracle, engine, store),
            (Answer::Renew(engine), Answer::Renew(store)) => {
                equal("the number of beats", &engine.len(), &store.len())?;
                let mut pairs = engine.iter().zip(store).enumerate();
                pairs.try_for_each(|(at, (engine, store))| {
                    let compared = self.beat(oracle, engine, store);
                    compared.map_err(|what| format!("beat {at}: {what}"))
                })
            }
            (Answer::Standing(engine), Answer::Standing(store)) => {
                self.standing(oracle, engine, store)
            }
            (Answer::Routes(engine), Answer::Routes(store)) => {
                equal("the number of routes", &engine.routes.len(), &store.routes.len())?;
                for (engine, store) in engine.routes.iter().zip(&store.routes) {
                    self.tokens.pair(oracle, engine.token, store.token)?;
                }
                let (tenant, whole) = match request {
                    Request::Routes { tenant, name, .. } => (&**tenant, name.is_none()),
                    _ => return Err("nobody asked for routes".to_owned()),
                };
                if !self.allows(Allowance::OtherVersions) {
                    equal("the version", &engine.version, &store.version)?;
                }
                match self.allows(Allowance::RoutesInPages) {
                    true => self.routes.check(tenant, whole, engine, &in_one_page(store, calls)),
                    false => self.routes.check(tenant, whole, engine, store),
                }
            }
            (Answer::History(_), Answer::History(store)) if self.allows(Allowance::OwnWords) => {
                equal("the number of changes that were granted", &0, &store.len())
            }
            (Answer::History(engine), Answer::History(store)) => history(engine, store),
            (engine, store) => equal("the answer", engine, store),
        }
    }

    fn claim(&mut self, oracle: &Oracle, engine: &ClaimAnswer, store: &ClaimAnswer) -> Compared {
        match (engine, store) {
            (
                ClaimAnswer::Held { token, limit, limit_was },
                ClaimAnswer::Held { token: other, limit: other_limit, limit_was: other_was },
            ) => {
                self.tokens.pair(oracle, *token, *other)?;
                equal("the limit", limit, other_limit)?;
                equal("the limit before", limit_was, other_was)
            }
            (
                ClaimAnswer::Contended { holder, free_in, limit, limit_was },
                ClaimAnswer::Contended {
                    holder: other,
                    free_in: other_free,
                    limit: other_limit,
                    limit_was: other_was,
                },
            ) => {
                match (holder, other) {
                    (Some(engine), Some(store)) => self.entry(oracle, engine, store)?,
                    (engine, store) => equal("the holder", engine, store)?,
                }
                match (free_in, other_free) {
                    (Some(engine), Some(store)) => about("free in", *engine, *store)?,
                    (engine, store) => equal("free in", engine, store)?,
                }
                equal("the limit", limit, other_limit)?;
                equal("the limit before", limit_was, other_was)
            }
            (engine, store) => equal("the answer", engine, store),
        }
    }

    fn beat(&mut self, oracle: &Oracle, engine: &BeatAnswer, store: &BeatAnswer) -> Compared {
        match (engine, store) {
            (
                BeatAnswer::Held { token, limit },
                BeatAnswer::Held { token: other, limit: other_limit },
            ) => {
                self.tokens.pair(oracle, *token, *other)?;
                equal("the limit", limit, other_limit)
            }
            (engine, store) => equal("the answer", engine, store),
        }
    }

    fn standing(
        &mut self,
        oracle: &Oracle,
        engine: &UpstreamStanding,
        store: &UpstreamStanding,
    ) -> Compared {
        equal("the limit", &engine.limit, &store.limit)?;
        let others = self.allows(Allowance::OtherHoldersListed);
        if !others || engine.holding == engine.holders.len() as u64 {
            self.entries(oracle, "holders", &engine.holders, &store.holders)?;
        } else {
            let listed = (engine.holders.len(), store.holders.len());
            equal("the number of holders listed", &listed.0, &listed.1)?;
        }
        self.entries(oracle, "waiters", &engine.waiters, &store.waiters)?;
        match (engine.runs_out, store.runs_out) {
            (Some(engine), Some(store)) => about("runs out", engine, store)?,
            (Some(_), None) if self.allows(Allowance::TellsInTime) => {}
            (engine, store) => equal("runs out", &engine, &store)?,
        }
        // A store may keep no grace yet, and takes the beats of one batch in an order of its own.
        match (engine.lease, store.lease) {
            (Some(engine), Some(store)) => {
                about("how long nobody has renewed it", engine.unbeaten, store.unbeaten)?;
            }
            (engine, store) => equal("the lease's times", &engine, &store)?,
        }
        equal("how many hold", &engine.holding, &store.holding)?;
        equal("how many wait", &engine.waiting, &store.waiting)?;
        equal("how many sessions", &engine.members, &store.members)?;
        if engine.members > engine.sessions.len() as u64 {
            return Ok(());
        }
        match self.allows(Allowance::SessionsInAnyOrder) {
            true => equal("sessions", &in_any_order(engine), &in_any_order(store)),
            false => equal("sessions", &engine.sessions, &store.sessions),
        }
    }

    fn entries(
        &mut self,
        oracle: &Oracle,
        what: &str,
        engine: &[StandingEntry],
        store: &[StandingEntry],
    ) -> Compared {
        equal(&format!("the number of {what}"), &engine.len(), &store.len())?;
        let mut pairs = engine.iter().zip(store);
        pairs.try_for_each(|(engine, store)| {
            let compared = self.entry(oracle, engine, store);
            compared.map_err(|different| format!("{what}: {different}"))
        })
    }

    fn entry(
        &mut self,
        oracle: &Oracle,
        engine: &StandingEntry,
        store: &StandingEntry,
    ) -> Compared {
        equal("the claim", &engine.claim, &store.claim)?;
        equal("its owner", &engine.owner, &store.owner)?;
        about("since", engine.since, store.since)?;
        if let (Some(engine), Some(store)) = (engine.unbeaten, store.unbeaten) {
            about("unbeaten", engine, store)?;
        }
        self.tokens.pair(oracle, engine.token, store.token)
    }
}

/// Refuses what is not equal.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, engine: &T, store: &T) -> Compared {
    if engine == store {
        return Ok(());
    }
    Err(format!("{what} is {store:?} instead of {engine:?}"))
}

/// Ids are those of whoever asked; a token of a history is what its writer says.
fn history(engine: &[HistoryEntry], store: &[HistoryEntry]) -> Compared {
    equal("the number of changes", &engine.len(), &store.len())?;
    for (engine, store) in engine.iter().zip(store) {
        about("how long ago", engine.ago, store.ago)?;
        let same = HistoryEntry {
            claim: engine.claim,
            owner: engine.owner.clone(),
            ago: engine.ago,
            ..store.clone()
        };
        equal("the change", engine, &same)?;
        equal("its host", &engine.owner.host, &store.owner.host)?;
    }
    Ok(())
}

fn about(what: &str, engine: Duration, store: Duration) -> Compared {
    if engine.abs_diff(store) <= PRECISION {
        return Ok(());
    }
    Err(format!("{what} is {store:?} instead of {engine:?}"))
}
