//! An agent's way to its upstream, as a client of a remote one keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tenure_core::model::{CallId, ClaimId, Failure, Request};
use tenure_core::time::Boottime;
use tenure_stores::remote::StoreClock;

use super::core::{Core, Happening, Origin, Report};
use super::network;

/// A call that has not come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// The instant just before it was sent.
    pub(crate) sent_at: Boottime,
    /// Claims that it releases.
    pub(crate) releases: Option<ClaimId>,
}

/// The connection of one agent.
pub(crate) struct Link {
    /// True while requests get through.
    pub(crate) there: bool,
    /// True while replies and hints get through.
    pub(crate) back: bool,
    /// Grows when either changes, so that an older mending does not count.
    pub(crate) generation: u64,
    /// The life of the upstream's data that it last heard of.
    pub(crate) epoch: Option<u64>,
    /// The upstream's clock, as the last call that was answered tells.
    pub(crate) upstream: StoreClock,
    /// Calls that have not come back.
    pub(crate) in_flight: BTreeMap<CallId, InFlight>,
    /// Claims that were sent in this life of the agent.
    pub(crate) claimed: BTreeSet<ClaimId>,
    /// Claims of which there were two copies.
    pub(crate) doubled: BTreeSet<ClaimId>,
    /// The claims that they are about, in order.
    pub(crate) asked: BTreeMap<CallId, Vec<Option<ClaimId>>>,
}

impl Link {
    /// A link that works.
    pub(crate) fn new() -> Link {
        Link {
            there: true,
            back: true,
            generation: 0,
            epoch: None,
            upstream: StoreClock::default(),
            in_flight: BTreeMap::new(),
            claimed: BTreeSet::new(),
            doubled: BTreeSet::new(),
            asked: BTreeMap::new(),
        }
    }

    /// True if messages get through in both directions.
    pub(crate) fn works(&self) -> bool {
        self.there && self.back
    }

    /// The agent is another one, and has sent nothing yet.
    pub(crate) fn start_anew(&mut self) {
        self.claimed.clear();
        self.in_flight.clear();
        self.asked.clear();
        self.epoch = None;
        self.upstream = StoreClock::default();
    }

    /// True if the agent must know of a claim that is upstream: it sent it, once.
    pub(crate) fn must_know(&self, claim: ClaimId) -> bool {
        self.claimed.contains(&claim) && !self.doubled.contains(&claim)
    }

    /// Sends a call. Its answer, or that there is none, comes as a happening.
    pub(crate) fn submit(
        &mut self,
        core: &mut Core,
        now: Boottime,
        (host, incarnation, upstream_life): Origin,
        call: CallId,
        request: Request,
    ) {
        let weather = core.weather();
        let releases = match &request {
            Request::Release { claim, .. } => Some(*claim),
            _ => None,
        };
        self.in_flight.insert(call, InFlight { sent_at: now, releases });
        if !self.works() && core.random.per_mille(400) {
            // The connection is known to be broken and cannot be made anew.
            let failure = Failure::Unavailable("no connection".to_owned());
            let report = Report::Failed(call, failure);
            let after = core.random.us(50, 20_000);
            core.after(after, Happening::FromUpstream(host, incarnation, report));
            return;
        }
        let failure = Failure::Unknown("no answer in time".to_owned());
        let report = Report::Failed(call, failure);
        core.after(weather.call_deadline, Happening::FromUpstream(host, incarnation, report));
        if !self.there {
            return;
        }
        let request = Rc::new(request);
        let copies = network::request(&mut core.random, &weather);
        if let Request::Claim(claim) = &*request {
            // A second copy may arrive when the first is answered and over; what that leaves runs
            // out by itself.
            self.claimed.insert(claim.id);
            if copies.len() > 1 {
                self.doubled.insert(claim.id);
            }
        }
        for delay in copies {
            let sender = (host, incarnation, upstream_life);
            core.after(delay, Happening::ToUpstream(sender, call, Rc::clone(&request)));
        }
    }
}
