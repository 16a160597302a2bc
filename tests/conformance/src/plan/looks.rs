//! Sessions, and looks at what is there.

use std::sync::Arc;

use tenure_core::model::{Request, Resource, SessionId, SessionRecord};
use tenure_wire::Kind;

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
