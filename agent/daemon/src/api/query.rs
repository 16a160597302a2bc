//! From the query string of a request to its parts, as strictly as a body.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_core::model::Resource;
use tenure_wire::rules::{self, quote, resource_name, scope};
use tenure_wire::{Code, DEFAULT_TENANT, Kind, Problem};

use super::context::Context;
use super::respond::Refused;

/// A request that comes as a query string.
pub(super) trait Query: Sized {
    const KEYS: &'static [&'static str];

    fn from_pairs(pairs: Pairs) -> Result<Self, Box<Problem>>;
}

/// The query string of a request.
pub(super) struct Queried<T>(pub(super) T);

impl<T: Query> FromRequestParts<Arc<Context>> for Queried<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Context>) -> Result<Self, Refused> {
        let pairs = Pairs::parse(parts.uri.query().unwrap_or_default(), T::KEYS)?;
        Ok(Queried(T::from_pairs(pairs)?))
    }
}

/// Keys, each known and there once, with their values.
pub(super) struct Pairs(Vec<(String, String)>);

impl Pairs {
    pub(super) fn parse(query: &str, keys: &[&str]) -> Result<Pairs, Box<Problem>> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in tenure_service::query::pairs(query) {
            let (key, value) = pair?;
            if !keys.contains(&&*key) {
                let field = quote(&key).replace('\'', "");
                let known = match keys {
                    [] => "there are none".to_owned(),
                    keys => format!("there are: {}", keys.join(", ")),
                };
                let detail = format!(
                    "{field} is not a query parameter of this endpoint; {known}; correct or remove it"
                );
                return Err(Problem::invalid(&field, detail).into());
            }
            if pairs.iter().any(|(other, _)| *other == key) {
                let detail = format!("{key} is there twice; leave one of them");
                return Err(Problem::invalid(&key, detail).into());
            }
            pairs.push((key, value));
        }
        Ok(Pairs(pairs))
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == key)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The value of a key that must be there, read.
    pub(super) fn required<T: std::str::FromStr>(
        &mut self,
        key: &str,
        rule: &str,
    ) -> Result<T, Box<Problem>> {
        let Some(value) = self.take(key) else {
            let detail = format!("{key} is missing; add ?{key}=…, {rule}");
            return Err(Problem::invalid(key, detail).into());
        };
        value.parse().map_err(|_| {
            let detail = format!("{key} is {}, but must be {rule}; correct it", quote(&value));
            Problem::invalid(key, detail).into()
        })
    }

    /// The tenant, or the default one.
    pub(super) fn tenant(&mut self) -> Result<String, Box<Problem>> {
        let tenant = self.take("tenant").unwrap_or_else(|| DEFAULT_TENANT.to_owned());
        scope("tenant", &tenant)?;
        Ok(tenant)
    }
}

/// How many entries a page has unless the caller says otherwise, and at most.
pub(super) const PAGE_DEFAULT: usize = 100;
pub(super) const PAGE_MAX: usize = 1000;

/// `[?limit=…][&cursor=…]`.
pub(super) struct Paged {
    pub(super) limit: usize,
    pub(super) cursor: Option<String>,
}

impl Paged {
    pub(super) fn from_pairs(pairs: &mut Pairs) -> Result<Paged, Box<Problem>> {
        let limit = match pairs.take("limit") {
            None => PAGE_DEFAULT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
                .ok_or_else(|| {
                    let value = quote(&text);
                    let detail = format!(
                        "limit is {value}, but must be a number from 1 to {PAGE_MAX}; correct or \
                         remove it"
                    );
                    Problem::invalid("limit", detail)
                })?,
        };
        let cursor = pairs.take("cursor");
        let is_sound = |it: &str| !it.is_empty() && rules::cursor("cursor", it).is_ok();
        match cursor.as_deref().filter(|cursor| !is_sound(cursor)) {
            Some(bad) => Err(Paged::bad_cursor(bad)),
            None => Ok(Paged { limit, cursor }),
        }
    }

    /// The refusal of a cursor that is none of ours.
    pub(super) fn bad_cursor(cursor: &str) -> Box<Problem> {
        let value = quote(cursor);
        let detail = format!(
            "cursor is {value}, but must be the cursor of an answer of this endpoint; start without one"
        );
        Problem::invalid("cursor", detail).into()
    }
}

/// `?kind=…&name=…[&tenant=…]`.
pub(super) struct ResourceQuery(pub(super) Resource);

impl Query for ResourceQuery {
    const KEYS: &'static [&'static str] = &["kind", "name", "tenant"];

    fn from_pairs(mut pairs: Pairs) -> Result<ResourceQuery, Box<Problem>> {
        let kind: Kind = pairs.required("kind", "master, leader, lease or semaphore")?;
        let name: String =
            pairs.required("name", "the resource's name; for a master the project")?;
        resource_name(kind, &name)?;
        let tenant = pairs.tenant()?;
        Ok(ResourceQuery(Resource { tenant: tenant.into(), kind, name: name.into() }))
    }
}

/// A query string that must be empty.
pub(super) struct NoQuery;

impl Query for NoQuery {
    const KEYS: &'static [&'static str] = &[];

    fn from_pairs(_: Pairs) -> Result<NoQuery, Box<Problem>> {
        Ok(NoQuery)
    }
}

/// A peer that the kernel did not name has no business here.
pub(super) fn unauthorized() -> Problem {
    Problem::new(
        Code::Unauthorized,
        "the kernel does not say who is at the other end of this connection; connect to the Unix socket directly",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<&str, &str>) {
        let result = Pairs::parse(query, ResourceQuery::KEYS)
            .and_then(ResourceQuery::from_pairs)
            .map(|query| query.0.to_string())
            .map_err(|problem| problem.field.unwrap_or_default());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(result, expected, "{query}");
    }

    #[test]
    fn resources() {
        check("kind=leader&name=a", Ok("leader/a"));
        check("name=a%20b&kind=lease&tenant=t", Ok("t:lease/a b"));
        check("name=gr%C3%B6%C3%9Fe&kind=lease", Ok("lease/größe"));
        check("", Err("kind"));
        check("kind=lock&name=a", Err("kind"));
        check("kind=leader", Err("name"));
        check("kind=leader&name=", Err("name"));
        check("kind=leader&name=%0a", Err("name"));
        check("kind=leader&name=%ff", Err("name"));
        check("kind=leader&name=a&tenant=a:b", Err("tenant"));
        check("kind=leader&name=a:b", Ok("leader/a:b"));
        check("kind=master&name=a:b", Err("name"));
        check("kind=leader&name=a&name=b", Err("name"));
        check("kind=leader&name=a&colour=b", Err("colour"));
    }
}
