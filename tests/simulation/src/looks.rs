//! Looks at the whole, between steps: what pages and agents say, what is upstream, who waits, and
//! at the end whether anything is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::wire::{HoldState, Kind};
use tenure_core::model::{ClaimId, Resource, SessionId};

use super::core::{Happening, Phase};
use super::invariants::Invariant;
use super::plan::TTL_MS;
use super::store::Store;
use super::world::{LOOK_EVERY, World};

/// A waiter must be served this soon after its resource became free, besides the time in which lost
/// hints are made up for.
const PATIENCE: Duration = Duration::from_secs(1);

impl World {
    /// Looks at everything, and plans the next look.
    pub(super) fn look(&mut self) {
        self.look_at_pages();
        self.look_for_ghosts();
        self.look_for_unread();
        self.look_at_stores();
        if self.core.is_calm() {
            self.look_at_waiters();
        }
        if self.core.phase != Phase::Farewell {
            self.core.after(LOOK_EVERY, Happening::Look);
        }
    }

    /// Claims upstream that no agent knows of.
    fn look_for_ghosts(&mut self) {
        let mut known: BTreeMap<usize, BTreeSet<ClaimId>> = BTreeMap::new();
        for agent in self.agents.iter_mut().filter(|agent| agent.is_settled()) {
            let sessions = agent.inspect(&self.core);
            let holds = sessions.iter().flat_map(|session| &session.holds);
            known.insert(agent.host, holds.map(|view| ClaimId(view.hold)).collect());
        }
        let checks = &self.core.checks;
        let present = checks.ledger.standings().flat_map(|(resource, standing)| {
            let entries = standing.holders.iter().chain(&standing.waiters);
            entries.map(move |entry| (resource.kind, entry))
        });
        let ghosts: Vec<ClaimId> = present
            .filter(|(kind, entry)| {
                let host = entry.owner.host.strip_prefix("host").and_then(|it| it.parse().ok());
                let Some(agent) = host.and_then(|host: usize| self.agents.get(host)) else {
                    return false;
                };
                known.get(&agent.host).is_some_and(|known| !known.contains(&entry.claim))
                    && agent.link.must_know(entry.claim)
                    // A store within the agent knows when that has let it run out, also if that was away.
                    && (!checks.one_end.has_expired(entry.claim)
                        || agent.store.is_some() && *kind != Kind::Lease)
            })
            .map(|(_, entry)| entry.claim)
            .collect();
        let ghosts = if self.upstream.frozen { Vec::new() } else { ghosts };
        let verdict = self.core.checks.left.unowned(self.core.now, &ghosts);
        self.core.judge(Invariant::NothingLeft, verdict);
    }

    /// Grants of which nobody has read.
    fn look_for_unread(&mut self) {
        let checks = &mut self.core.checks;
        let standings = checks.ledger.standings();
        let held = standings.flat_map(|(_, it)| &it.holders).map(|it| it.claim).collect();
        let agents = &self.agents;
        let settled = |host: usize| {
            agents[host].is_up() && agents[host].is_settled() && !self.upstream.frozen
        };
        let verdict = checks.left.kept_unread(self.core.now, &held, settled);
        self.core.judge(Invariant::NothingLeft, verdict);
    }

    /// Checks that stores grant again when nothing is wrong any more.
    fn look_at_stores(&mut self) {
        for agent in self.agents.iter().take(1) {
            let core = &mut self.core;
            if agent.life.frozen {
                core.checks.starvation.stood_still(core.now);
                continue;
            }
            let Some(store) = agent.store.as_ref() else {
                let verdict = core.checks.starvation.store(core.now, None, None);
                core.judge(Invariant::NoStarvation, verdict);
                continue;
            };
            let now = agent.boottime(core);
            let quarantine = store.quarantined_until(now);
            let longest = quarantine.map(|until| until.since(now));
            let longest_max = Duration::from_millis(TTL_MS.1) * 5 / 4;
            let mute = match longest {
                Some(longest) if longest > longest_max => Some(format!("for {longest:?}")),
                Some(_) => None,
                None => store.grants_nothing(),
            };
            let well = agent.machine.storage.well_since();
            let verdict = core.checks.starvation.store(core.now, mute.as_deref(), well);
            core.judge(Invariant::NoStarvation, verdict);
        }
    }

    /// Compares the pages with the agents.
    fn look_at_pages(&mut self) {
        for agent in self.agents.iter_mut().filter(|agent| agent.is_up()) {
            let now = agent.boottime(&self.core).as_nanos();
            let sessions = agent.inspect(&self.core);
            let held: Vec<(SessionId, ClaimId)> = sessions
                .iter()
                .flat_map(|session| session.holds.iter().map(|view| (session.session, view)))
                .filter(|(_, view)| view.valid_until_boottime_ns > now)
                .map(|(session, view)| (SessionId(session), ClaimId(view.hold)))
                .collect();
            let core = &mut self.core;
            let pages = core.checks.exclusion.believed(core.now, agent.host);
            let verdict = core.checks.truth.agree(agent.host, &pages, &held);
            core.judge(Invariant::TruthFirst, verdict);
            if agent.is_attentive() {
                let holders = held.iter().map(|(session, _)| *session);
                let verdict = core.checks.tied.looked(core.now, holders, &agent.machine.processes);
                core.judge(Invariant::Tied, verdict);
                let verdict = core.checks.tied.looked_at_work(agent.host);
                core.judge(Invariant::Tied, verdict);
            }
            let abandoned = agent.abandoned(core);
            let verdict = core.checks.left.abandoned(agent.host, abandoned);
            core.judge(Invariant::NothingLeft, verdict);
        }
    }

    /// Checks that no waiter of an agent waits for a resource that is free upstream.
    fn look_at_waiters(&mut self) {
        let mut waiting: BTreeMap<Resource, Vec<String>> = BTreeMap::new();
        let mut untold = BTreeSet::new();
        for agent in &mut self.agents {
            for session in agent.inspect(&self.core) {
                for view in session.holds.iter().filter(|it| it.state == HoldState::Waiting) {
                    let resource = Resource {
                        tenant: session.tenant.as_str().into(),
                        kind: view.kind,
                        name: view.name.as_str().into(),
                    };
                    untold.insert(ClaimId(view.hold));
                    waiting.entry(resource).or_default().push(view.hold.to_string());
                }
            }
        }
        let patience = PATIENCE + self.core.plan.settings.poll.unwrap_or_default();
        let stores = self.agents.iter().filter_map(|agent| agent.store.as_ref());
        let quarantined = self.upstream.is_quarantined(&self.core)
            || stores.into_iter().any(|store| store.grants_nothing().is_some());
        let standings: BTreeMap<&Resource, _> = self.core.checks.ledger.standings().collect();
        let free: BTreeSet<Resource> = waiting
            .keys()
            .filter(|resource| {
                !quarantined
                    && standings.get(resource).is_none_or(|standing| {
                        let limit = match resource.kind {
                            Kind::Semaphore => standing.limit.unwrap_or(1) as usize,
                            _ => 1,
                        };
                        standing.holders.len() < limit
                    })
            })
            .cloned()
            .collect();
        let known: Vec<Resource> =
            self.core.checks.ledger.standings().map(|it| it.0.clone()).collect();
        for resource in known.iter().chain(waiting.keys()) {
            let waiters = waiting.get(resource).map_or(&[][..], Vec::as_slice);
            let is_free = free.contains(resource);
            let core = &mut self.core;
            let verdict =
                core.checks.starvation.looked(core.now, resource, is_free, waiters, patience);
            core.judge(Invariant::NoStarvation, verdict);
        }
        let standings = self.core.checks.ledger.standings();
        let held: BTreeSet<ClaimId> =
            standings.flat_map(|(_, it)| &it.holders).map(|entry| entry.claim).collect();
        untold.retain(|claim| held.contains(claim));
        let verdict = self.core.checks.starvation.untold(self.core.now, &untold, patience);
        self.core.judge(Invariant::NoStarvation, verdict);
        for client in &self.clients {
            if let Some(asked) = client.unanswered(self.core.now) {
                let what = format!("{:?} of client {}", asked.what, client.id);
                let verdict =
                    self.core.checks.starvation.answered_late(&what, asked.at, self.core.now);
                self.core.judge(Invariant::NoStarvation, verdict);
            }
        }
    }

    /// Everything must have ended.
    pub(super) fn finish(&mut self) {
        let verdict = self.core.checks.one_end.finished();
        self.core.judge(Invariant::OneEnd, verdict);
        let hosts = self.core.plan.hosts;
        for agent in self.agents.iter().filter(|agent| agent.host < hosts || agent.is_up()) {
            let mut left = Vec::new();
            if let Some(keeper) = &agent.keeper {
                let sizes = keeper.sizes();
                let some = sizes.iter().filter(|(_, count)| *count > 0);
                left.extend(some.map(|(name, count)| format!("{count} {name}")));
                if !keeper.is_empty() {
                    left.push("something of the keeper".to_owned());
                }
                if let Some(at) = keeper.poll_timeout() {
                    left.push(format!("a timer at {at:?}"));
                }
            } else {
                left.push("no agent".to_owned());
            }
            left.extend(agent.journal.rows.names());
            left.extend(agent.store.iter().flat_map(Store::names));
            left.extend(agent.machine.pages.keys().map(|session| format!("page {session}")));
            left.extend(agent.callers.watches.keys().map(|session| format!("watch of {session}")));
            left.extend(
                agent.callers.tickets.keys().map(|ticket| format!("unanswered {ticket:?}")),
            );
            left.extend(agent.callers.streams.keys().map(|stream| format!("open {stream:?}")));
            let place = format!("on host {}", agent.host);
            let verdict = self.core.checks.left.finished(&place, &left);
            self.core.judge(Invariant::NothingLeft, verdict);
        }
        let verdict = self.core.checks.left.finished("upstream", &self.upstream.names());
        self.core.judge(Invariant::NothingLeft, verdict);
    }
}
