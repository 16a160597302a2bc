//! Pure. The names of all resources, as they were read last.

use std::sync::Arc;

use tenure_core::model::{Resource, is_own_tenant};
use tenure_wire::Kind;

use crate::access::KeyBounds;

/// Names that are kept; the first in their order.
pub(super) const NAMES_MAX: usize = 100_000;
/// Names that are looked through without letting others have their turn.
const NAMES_PER_TURN: usize = 1024;

/// The names that a reading found.
#[derive(Debug, Clone, Default)]
pub(super) struct Listing {
    /// Sorted, each once.
    pub(super) names: Arc<[Resource]>,
    /// All of them are there.
    pub(super) is_complete: bool,
    /// When the reading ended, or had come so far; ms since 1970. 0 without any.
    pub(super) read_at: u64,
    /// How long it took, ms.
    pub(super) took_ms: u64,
    /// Why the latest reading failed; then this is what one before it found.
    pub(super) failure: Option<String>,
}

/// What somebody wants to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Only this kind.
    pub(super) kind: Option<Kind>,
    /// Only names with this part; in lower case, empty for all.
    pub(super) search: String,
}

impl Wanted {
    fn is_match(&self, resource: &Resource) -> bool {
        self.kind.is_none_or(|kind| kind == resource.kind)
            && (self.search.is_empty() || resource.name.to_lowercase().contains(&self.search))
    }
}

impl Listing {
    /// Visits all that somebody with these bounds may see, but for what agents and gateways keep for themselves.
    pub(super) async fn each(&self, bounds: &KeyBounds, mut visit: impl FnMut(&Resource)) {
        let shows_all = bounds.scope.names_all();
        for some in self.names.chunks(NAMES_PER_TURN) {
            let some = some.iter().filter(|name| !is_own_tenant(&name.tenant));
            some.filter(|name| shows_all || bounds.shows(name)).for_each(&mut visit);
            tokio::task::yield_now().await;
        }
    }

    /// How many somebody with these bounds may see of what he wants, and those of them from `offset` on.
    pub(super) async fn page(
        &self,
        bounds: &KeyBounds,
        wanted: &Wanted,
        offset: usize,
        limit: usize,
    ) -> (usize, Vec<Resource>) {
        let (mut total, mut page) = (0, Vec::new());
        self.each(bounds, |name| {
            if wanted.is_match(name) {
                if total >= offset && page.len() < limit {
                    page.push(name.clone());
                }
                total += 1;
            }
        })
        .await;
        (total, page)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::AGENTS_TENANT;

    use super::*;

    fn resource(kind: Kind, name: &str) -> Resource {
        Resource { tenant: "t".into(), kind, name: name.into() }
    }

    #[tokio::test]
    async fn a_page_is_a_part_of_what_matches() {
        let names = ["Ärger/a", "b", "übel/C"].map(|name| resource(Kind::Leader, name));
        let tenant = AGENTS_TENANT.into();
        let of_agents = Resource { tenant, kind: Kind::Master, name: "agents".into() };
        let listing = Listing {
            names: names.into_iter().chain([resource(Kind::Lease, "a"), of_agents]).collect(),
            ..Listing::default()
        };
        let bounds = KeyBounds::default();
        for (kind, search, offset, limit, expected) in [
            (None, "", 0, 100, (4, vec!["Ärger/a", "b", "übel/C", "a"])),
            (None, "", 1, 2, (4, vec!["b", "übel/C"])),
            (None, "", 9, 2, (4, vec![])),
            (Some(Kind::Lease), "", 0, 100, (1, vec!["a"])),
            (None, "/", 0, 1, (2, vec!["Ärger/a"])),
            (None, "ärg", 0, 9, (1, vec!["Ärger/a"])),
            (Some(Kind::Master), "", 0, 9, (0, vec![])),
        ] {
            let wanted = Wanted { kind, search: search.to_owned() };
            let (total, page) = listing.page(&bounds, &wanted, offset, limit).await;
            let page: Vec<&str> = page.iter().map(|it| &*it.name).collect();
            assert_eq!((total, page), expected, "{wanted:?}");
        }
    }
}
