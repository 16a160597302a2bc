//! When a plan's operations happen.

use tenure_core::model::{Claim, Request, SessionRecord};
use tenure_wire::Kind;

use super::draft::Draft;
use crate::operation::Operation;

/// Every duration that is asked for is a multiple of this, ms, as are those that the rules name; and
/// no two instants of a run are as far apart as a multiple of it. So no deadline ever falls on an
/// instant at which something is asked, where Redis has a key live one ms longer than the engine
/// has a grant.
pub(super) const QUANTUM_MS: u64 = 5000;

/// Requests of one ms take some µs in the store, and must stay within that ms: when so many have
/// passed, ms pass.
pub(super) const ROOM_US: u64 = 150;

/// After this everything has run out that was ever asked for, ms.
const FOREVER_MS: u64 = 15 * 60 * 1000;

impl Draft {
    pub(super) fn pass(&mut self) {
        let random = &mut self.random;
        let to_ms = match random.below(20) {
            0..8 => self.now_ms + random.number(1, 400),
            8..15 => self.now_ms + random.number(400, 6000),
            15..17 => self.now_ms + random.number(6000, 40_000),
            17..18 => self.now_ms + random.number(40_000, 300_000),
            _ => {
                // Close to where something runs out.
                let next = self.drawn.iter().filter(|it| it.there).map(|it| it.ends_ms);
                let next: Vec<u64> = next.filter(|at| *at > self.now_ms).collect();
                if next.is_empty() {
                    return;
                }
                let around = random.pick(&next) + random.number(0, 20);
                around.saturating_sub(10).max(self.now_ms + 1)
            }
        };
        self.pass_to(to_ms);
    }

    pub(super) fn pass_to(&mut self, mut to_ms: u64) {
        while !self.used.insert(to_ms % QUANTUM_MS) {
            to_ms += 1;
        }
        if !self.lazy {
            while let Some(at) = self.oracle.poll_timeout().filter(|at| *at <= to_ms) {
                self.oracle.handle_timeout(at);
            }
        }
        self.now_ms = to_ms;
        self.spent_us = 0;
        self.operations.push(Operation::Pass(to_ms));
    }

    /// Everybody goes, clean or not, and looks are taken at what is left. Returns how many of the
    /// operations see to it that nothing is.
    pub(super) fn end(&mut self) -> usize {
        self.pass_to(self.now_ms + 1);
        if self.random.per_mille(500) {
            for at in 0..self.drawn.len() {
                if !self.drawn[at].there {
                    continue;
                }
                if self.spent_us > ROOM_US {
                    self.pass_to(self.now_ms + 1);
                }
                let Claim { id, resource, .. } = self.drawn[at].claim.clone();
                self.ask(Request::Release { claim: id, resource });
            }
            for at in 0..self.cast.programs.len() {
                let SessionRecord { owner, tenant, project, .. } =
                    self.cast.programs[at].record.clone();
                self.ask(Request::EndSession { session: owner.session, tenant, project });
            }
        }
        let before = self.operations.len();
        self.pass_to(self.now_ms + FOREVER_MS);
        for resource in self.cast.all.clone() {
            if resource.kind == Kind::Lease {
                let tenant = resource.tenant.clone();
                self.ask(Request::Routes {
                    tenant,
                    name: None,
                    page: tenure_core::model::Page::whole(),
                });
            }
            self.ask(Request::Inspect(resource));
        }
        // Looks may have left marks.
        self.pass_to(self.now_ms + FOREVER_MS);
        self.operations.len() - before
    }
}
