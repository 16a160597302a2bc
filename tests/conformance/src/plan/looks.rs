//! Sessions, and looks at what is there.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    ClaimId, Ending, HISTORY_MAX, HistoryEntry, Holder, Request, Resource, SessionId, SessionRecord,
};
use tenure_wire::{Happened, Kind};

use super::cast::SCOPES;
use super::draft::Draft;

impl Draft {
    pub(super) fn announce(&mut self) {
        let moves_to = self.random.per_mille(200).then(|| *self.random.pick(&SCOPES));
        let record = &mut self.some_program().record;
        if let Some(project) = moves_to {
            record.project = Arc::from(project);
        }
        let record = record.clone();
        let (tenant, name) = (record.tenant.clone(), record.project.clone());
        let master = Resource { tenant, kind: Kind::Master, name };
        if !self.cast.all.contains(&master) {
            self.cast.all.push(master);
        }
        self.ask(Request::Announce(record));
    }

    pub(super) fn end_session(&mut self) {
        let next = SessionId(self.id());
        // Its requests may come after its end.
        let is_late = self.random.per_mille(300);
        let program = self.some_program();
        let SessionRecord { owner, tenant, project, .. } = program.record.clone();
        if !is_late {
            program.owner.session = next;
            program.record.owner.session = next;
        }
        self.ask(Request::EndSession { session: owner.session, tenant, project });
    }

    pub(super) fn inspect(&mut self) {
        let resource = match self.random.below(10) {
            0..6 => self.some_drawn().map(|at| self.drawn[at].claim.resource.clone()),
            6..8 => {
                let SessionRecord { tenant, project, .. } = &self.some_program().record;
                let (tenant, name) = (tenant.clone(), project.clone());
                Some(Resource { tenant, kind: Kind::Master, name })
            }
            _ => None,
        };
        let resource = resource.unwrap_or_else(|| self.resource());
        self.ask(Request::Inspect(resource));
    }

    /// Changes of one resource: at times more of them than are kept.
    pub(super) fn record(&mut self) {
        if self.recorded_ms == Some(self.now_ms) {
            return self.pass();
        }
        self.recorded_ms = Some(self.now_ms);
        // The same once more, as after a reply that was lost. Of more than are kept those that have gone would come
        // back, at an instant by the clock of each store.
        let is_kept = (1..=HISTORY_MAX).contains(&self.recorded.len());
        if is_kept && self.random.per_mille(300) {
            return self.ask(Request::Record(self.recorded.clone()));
        }
        let resource = self.resource();
        let count = if self.random.per_mille(300) { 60 } else { 2 };
        let entries = (0..count).map(|at| {
            let claim = ClaimId(self.id());
            let owner = self.some_program().owner.clone();
            HistoryEntry {
                resource: resource.clone(),
                claim,
                owner,
                token: claim.0.as_u64_pair().0 >> 12,
                what: if at % 2 == 0 { Happened::Granted } else { Happened::Lost },
                holder: Holder { pid: Some(7), ..Holder::default() },
                end: Ending {
                    reason: (at % 2 == 1).then(|| "expired".into()),
                    kept: Duration::from_millis(at % 2 * at),
                    ..Ending::default()
                },
                held: Duration::from_millis(at),
                ago: Duration::from_micros(count - at),
            }
        });
        self.recorded = entries.collect();
        self.ask(Request::Record(self.recorded.clone()));
    }

    pub(super) fn history(&mut self) {
        let last = self.recorded.first().map(|entry| entry.resource.clone());
        let last = last.filter(|_| self.random.per_mille(700));
        let resource = last.unwrap_or_else(|| self.resource());
        self.ask(Request::History(resource));
    }

    pub(super) fn routes(&mut self) {
        let resource = self.resource();
        let leases: Vec<Arc<str>> = self
            .cast
            .all
            .iter()
            .filter(|it| it.kind == Kind::Lease && it.tenant == resource.tenant)
            .map(|it| it.name.clone())
            .collect();
        let name = self.random.per_mille(300).then(|| self.random.pick(&leases).clone());
        self.ask(Request::Routes {
            tenant: resource.tenant,
            name,
            page: tenure_core::model::Page::whole(),
        });
    }
}
