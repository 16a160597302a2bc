//! Whether two answers say the same.

use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, ClaimAnswer, Request, StandingEntry, UpstreamStanding,
};

use super::allowances::{in_any_order, in_one_page};
use super::oracle::Oracle;
use super::routes::RouteVersions;
use super::tokens::Tokens;

/// The engine's clock shows whole ms, the upstream's µs.
const PRECISION: Duration = Duration::from_millis(1);

/// What answers are compared by.
#[derive(Default)]
pub(super) struct Comparer {
    pub(super) tokens: Tokens,
    pub(super) routes: RouteVersions,
}

/// In what two answers differ.
type Compared = Result<(), String>;

impl Comparer {
    /// Whether the upstream's answer, which took so many calls, says what the engine's does.
    ///
    /// # Errors
    ///
    /// In what they differ.
    pub(super) fn compare(
        &mut self,
        oracle: &Oracle,
        request: &Request,
        engine: &Answer,
        upstream: &Answer,
        calls: usize,
    ) -> Compared {
        match (engine, upstream) {
            (Answer::Claim(engine), Answer::Claim(upstream)) => {
                self.claim(oracle, engine, upstream)
            }
            (Answer::Renew(engine), Answer::Renew(upstream)) => {
                equal("the number of beats", &engine.len(), &upstream.len())?;
                let mut pairs = engine.iter().zip(upstream).enumerate();
                pairs.try_for_each(|(at, (engine, upstream))| {
                    let compared = self.beat(oracle, engine, upstream);
                    compared.map_err(|what| format!("beat {at}: {what}"))
                })
            }
            (Answer::Standing(engine), Answer::Standing(upstream)) => {
                self.standing(oracle, engine, upstream)
            }
            (Answer::Routes(engine), Answer::Routes(upstream)) => {
                equal("the number of routes", &engine.routes.len(), &upstream.routes.len())?;
                for (engine, upstream) in engine.routes.iter().zip(&upstream.routes) {
                    self.tokens.pair(oracle, engine.token, upstream.token)?;
                }
                let (tenant, whole) = match request {
                    Request::Routes { tenant, name, .. } => (&**tenant, name.is_none()),
                    _ => return Err("nobody asked for routes".to_owned()),
                };
                self.routes.check(tenant, whole, engine, &in_one_page(upstream, calls))
            }
            (engine, upstream) => equal("the answer", engine, upstream),
        }
    }

    fn claim(&mut self, oracle: &Oracle, engine: &ClaimAnswer, upstream: &ClaimAnswer) -> Compared {
        match (engine, upstream) {
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
                    (Some(engine), Some(upstream)) => self.entry(oracle, engine, upstream)?,
                    (engine, upstream) => equal("the holder", engine, upstream)?,
                }
                match (free_in, other_free) {
                    (Some(engine), Some(upstream)) => about("free in", *engine, *upstream)?,
                    (engine, upstream) => equal("free in", engine, upstream)?,
                }
                equal("the limit", limit, other_limit)?;
                equal("the limit before", limit_was, other_was)
            }
            (engine, upstream) => equal("the answer", engine, upstream),
        }
    }

    fn beat(&mut self, oracle: &Oracle, engine: &BeatAnswer, upstream: &BeatAnswer) -> Compared {
        match (engine, upstream) {
            (
                BeatAnswer::Held { token, limit },
                BeatAnswer::Held { token: other, limit: other_limit },
            ) => {
                self.tokens.pair(oracle, *token, *other)?;
                equal("the limit", limit, other_limit)
            }
            (engine, upstream) => equal("the answer", engine, upstream),
        }
    }

    fn standing(
        &mut self,
        oracle: &Oracle,
        engine: &UpstreamStanding,
        upstream: &UpstreamStanding,
    ) -> Compared {
        equal("the limit", &engine.limit, &upstream.limit)?;
        // Of more than a standing lists each side names some: the engine those that were granted first, Redis
        // those that run out first.
        if engine.holding == engine.holders.len() as u64 {
            self.entries(oracle, "holders", &engine.holders, &upstream.holders)?;
        } else {
            let listed = (engine.holders.len(), upstream.holders.len());
            equal("the number of holders listed", &listed.0, &listed.1)?;
        }
        self.entries(oracle, "waiters", &engine.waiters, &upstream.waiters)?;
        match (engine.runs_out, upstream.runs_out) {
            (Some(engine), Some(upstream)) => about("runs out", engine, upstream)?,
            (engine, upstream) => equal("runs out", &engine, &upstream)?,
        }
        equal("how many hold", &engine.holding, &upstream.holding)?;
        equal("how many wait", &engine.waiting, &upstream.waiting)?;
        equal("how many sessions", &engine.members, &upstream.members)?;
        if engine.members > engine.sessions.len() as u64 {
            return Ok(());
        }
        equal("sessions", &in_any_order(engine), &in_any_order(upstream))
    }

    fn entries(
        &mut self,
        oracle: &Oracle,
        what: &str,
        engine: &[StandingEntry],
        upstream: &[StandingEntry],
    ) -> Compared {
        equal(&format!("the number of {what}"), &engine.len(), &upstream.len())?;
        let mut pairs = engine.iter().zip(upstream);
        pairs.try_for_each(|(engine, upstream)| {
            let compared = self.entry(oracle, engine, upstream);
            compared.map_err(|different| format!("{what}: {different}"))
        })
    }

    fn entry(
        &mut self,
        oracle: &Oracle,
        engine: &StandingEntry,
        upstream: &StandingEntry,
    ) -> Compared {
        equal("the claim", &engine.claim, &upstream.claim)?;
        equal("its owner", &engine.owner, &upstream.owner)?;
        about("since", engine.since, upstream.since)?;
        self.tokens.pair(oracle, engine.token, upstream.token)
    }
}

/// Refuses what is not equal.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    engine: &T,
    upstream: &T,
) -> Compared {
    if engine == upstream {
        return Ok(());
    }
    Err(format!("{what} is {upstream:?} instead of {engine:?}"))
}

fn about(what: &str, engine: Duration, upstream: Duration) -> Compared {
    if engine.abs_diff(upstream) <= PRECISION {
        return Ok(());
    }
    Err(format!("{what} is {upstream:?} instead of {engine:?}"))
}
