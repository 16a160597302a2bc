//! The names of all that is there, page by page.
//!
//! The tables are walked from their ends. An entry that is taken out is replaced by the last one, which the walk has
//! met before: so whatever stays is met.

use std::fmt;
use std::str::FromStr;

use super::Engine;
use crate::model::{Answer, Page, RESOURCES_LISTED_MAX};

/// How many entries of a table a walk has not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Of the resources; all projects follow.
    Resources(usize),
    Projects(usize),
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rest::Resources(count) => write!(f, "r{count}"),
            Rest::Projects(count) => write!(f, "p{count}"),
        }
    }
}

impl FromStr for Rest {
    type Err = ();

    fn from_str(text: &str) -> Result<Rest, ()> {
        let count = |text: &str| text.parse().map_err(drop);
        match (text.strip_prefix('r'), text.strip_prefix('p')) {
            (Some(rest), _) => count(rest).map(Rest::Resources),
            (_, Some(rest)) => count(rest).map(Rest::Projects),
            (None, None) => Err(()),
        }
    }
}

impl Engine {
    /// A page of the names of all that is held, waited for or announced.
    pub fn resources(&self, page: &Page) -> Answer {
        // A cursor of nobody's starts at the beginning.
        let rest = page.after.as_ref().and_then(|after| after.parse().ok());
        let rest = rest.unwrap_or(Rest::Resources(usize::MAX));
        let mut room = page.limit.clamp(1, RESOURCES_LISTED_MAX);
        let mut resources = Vec::new();
        let rest = match rest {
            Rest::Projects(count) => count,
            Rest::Resources(count) => {
                let end = count.min(self.resources.len());
                let start = end.saturating_sub(room);
                resources.extend(self.resources.numbered(start..end).cloned());
                if start > 0 {
                    let next = Some(Rest::Resources(start).to_string().into());
                    return Answer::Resources { resources, next };
                }
                room -= end;
                usize::MAX
            }
        };
        let end = rest.min(self.sessions.projects_count());
        let start = end.saturating_sub(room);
        resources.extend(self.sessions.masters(start..end));
        let next = (start > 0).then(|| Rest::Projects(start).to_string().into());
        Answer::Resources { resources, next }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;
    use crate::engine::{EngineSettings, TokenRange};
    use crate::model::{Claim, ClaimId, Owner, Request, Resource, SessionId, SessionRecord, Terms};
    use crate::time::Boottime;

    const NOW: Boottime = Boottime::from_nanos(1);
    const TTL: Duration = Duration::from_secs(90);

    fn resource(kind: Kind, number: u128) -> Resource {
        Resource { tenant: "t".into(), kind, name: number.to_string().into() }
    }

    fn owner(number: u128) -> Owner {
        let session = SessionId(Uuid::from_u128(number));
        Owner { session, host: "here".into(), name: "program".into() }
    }

    /// With so many leaders, each of which somebody else waits for, and as many projects.
    fn engine(count: u128) -> Engine {
        let tokens = TokenRange { first: 1, last: 1_000_000 };
        let mut engine = Engine::new(EngineSettings::default(), tokens);
        for number in 0..count {
            for id in [number, count + number] {
                engine.handle(
                    NOW,
                    Request::Claim(Claim {
                        id: ClaimId(Uuid::from_u128(id)),
                        resource: resource(Kind::Leader, number),
                        owner: owner(id),
                        ttl: TTL,
                        terms: Terms::Leader,
                        enqueue: true,
                    }),
                );
            }
            engine.handle(
                NOW,
                Request::Announce(SessionRecord {
                    owner: owner(number),
                    tenant: "t".into(),
                    project: number.to_string().into(),
                    surface: "test".into(),
                    ttl: TTL,
                    registered_at: None,
                }),
            );
        }
        engine
    }

    fn release(engine: &mut Engine, count: u128, number: u128) {
        for id in [number, count + number] {
            let (claim, resource) = (ClaimId(Uuid::from_u128(id)), resource(Kind::Leader, number));
            engine.handle(NOW, Request::Release { claim, resource });
        }
        let (tenant, project) = ("t".into(), number.to_string().into());
        let session = owner(number).session;
        engine.handle(NOW, Request::EndSession { session, tenant, project });
    }

    /// Everything, in pages of that size, and how many there were; `meanwhile` happens after each.
    fn walk(
        engine: &mut Engine,
        limit: usize,
        mut meanwhile: impl FnMut(&mut Engine),
    ) -> (BTreeSet<Resource>, usize) {
        let (mut all, mut after, mut pages) = (BTreeSet::new(), None, 0);
        loop {
            let page = Page { after, limit };
            let Answer::Resources { resources, next } =
                engine.handle(NOW, Request::Resources { page })
            else {
                panic!("it is answered by names");
            };
            assert!(resources.len() <= limit);
            all.extend(resources);
            pages += 1;
            if next.is_none() {
                return (all, pages);
            }
            after = next;
            meanwhile(engine);
        }
    }

    fn expected(numbers: impl Iterator<Item = u128> + Clone) -> BTreeSet<Resource> {
        let of = |kind| numbers.clone().map(move |number| resource(kind, number));
        of(Kind::Leader).chain(of(Kind::Master)).collect()
    }

    #[test]
    fn pages_have_everything_once() {
        let mut engine = engine(100);
        assert_eq!(walk(&mut engine, 7, |_| {}), (expected(0..100), 29));
        assert_eq!(walk(&mut engine, usize::MAX, |_| {}), (expected(0..100), 1));
        let mut empty = self::engine(0);
        assert_eq!(walk(&mut empty, 7, |_| {}), (BTreeSet::new(), 1));
    }

    #[test]
    fn nothing_that_stays_is_missed_whatever_goes_meanwhile() {
        const COUNT: u128 = 100;
        for step in [1, 3, 7, 99] {
            let mut engine = engine(COUNT);
            let mut gone = BTreeSet::new();
            let mut next = 0;
            let (found, _) = walk(&mut engine, 5, |engine| {
                for _ in 0..4 {
                    next = (next + step) % COUNT;
                    if gone.insert(next) {
                        release(engine, COUNT, next);
                    }
                }
            });
            let stays = expected((0..COUNT).filter(|number| !gone.contains(number)));
            assert!(stays.is_subset(&found), "{step}: {:?}", stays.difference(&found));
        }
    }

    #[test]
    fn a_page_is_no_longer_than_the_most_and_a_strange_cursor_begins_anew() {
        let engine = engine(RESOURCES_LISTED_MAX as u128 + 1);
        for after in [None, Some("x"), Some("r"), Some("r-1"), Some("r99999999999999999999999")] {
            let page = Page { after: after.map(Into::into), limit: usize::MAX };
            let Answer::Resources { resources, next } = engine.resources(&page) else {
                panic!("it is answered by names");
            };
            assert_eq!((resources.len(), next.as_deref()), (RESOURCES_LISTED_MAX, Some("r1")));
        }
    }
}
