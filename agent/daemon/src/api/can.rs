//! `GET /v1/can`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_bounds::Ask;
use tenure_core::model::Resource;
use tenure_wire::rules::quote;
use tenure_wire::{Kind, Permission, Problem};

use super::context::Context;
use super::query::{Pairs, Queried, Query, ResourceQuery};
use super::respond::{Refused, json};
use super::server::Connected;

/// `?kind=…&name=…[&tenant=…][&uid=…&gid=…][&priority=…]`.
pub(super) struct CanQuery {
    resource: Resource,
    user: Option<(u32, u32)>,
    priority: Option<i32>,
}

impl Query for CanQuery {
    const KEYS: &'static [&'static str] = &["kind", "name", "tenant", "uid", "gid", "priority"];

    fn from_pairs(mut pairs: Pairs) -> Result<CanQuery, Box<Problem>> {
        let uid = number(&mut pairs, "uid", "a number from 0 to 4294967295")?;
        let gid = number(&mut pairs, "gid", "a number from 0 to 4294967295")?;
        let priority = number(&mut pairs, "priority", "a number of 32 bits")?;
        let ResourceQuery(resource) = ResourceQuery::from_pairs(pairs)?;
        let user = match (uid, gid) {
            (None, None) => None,
            (Some(uid), Some(gid)) => Some((uid, gid)),
            (Some(_), None) => return Err(lacks("gid", "uid")),
            (None, Some(_)) => return Err(lacks("uid", "gid")),
        };
        if let Some(priority) = priority
            && resource.kind != Kind::Master
        {
            let detail = format!("priority is {priority}, but is of a master alone; remove it");
            return Err(Problem::invalid("priority", detail).into());
        }
        Ok(CanQuery { resource, user, priority })
    }
}

fn number<T: std::str::FromStr>(
    pairs: &mut Pairs,
    key: &str,
    rule: &str,
) -> Result<Option<T>, Box<Problem>> {
    let Some(value) = pairs.take(key) else { return Ok(None) };
    let number = value.parse().map_err(|_| {
        let detail =
            format!("{key} is {}, but must be {rule}; correct or remove it", quote(&value));
        Problem::invalid(key, detail)
    })?;
    Ok(Some(number))
}

fn lacks(key: &str, other: &str) -> Box<Problem> {
    let detail =
        format!("{key} is missing, and rules go by both; add ?{key}=…, or leave out {other}");
    Problem::invalid(key, detail).into()
}

/// Whether the `[[allow]]` rules let a user hold a resource, without asking for it.
///
/// Without `uid` and `gid` the caller is meant. Of others only root and the agent's own user may ask.
#[utoipa::path(get, path = "/v1/can", tag = "agent",
    params(
        ("kind" = Kind, Query, description = "The kind"),
        ("name" = String, Query, description = "The name; for a master the project"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
        ("uid" = Option<u32>, Query, description = "The user; with `gid`"),
        ("gid" = Option<u32>, Query, description = "The primary group of its processes"),
        ("priority" = Option<i32>, Query, description = "Master only: the priority to be asked for"),
    ),
    responses(
        (status = 200, description = "What the rules say", body = Permission),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common,
    ))]
pub(super) async fn can(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(CanQuery { resource, user, priority }): Queried<CanQuery>,
) -> Result<Response, Refused> {
    let peer = connection.peer();
    let (uid, gid) = user.unwrap_or((peer.uid, peer.gid));
    if (uid, gid) != (peer.uid, peer.gid) {
        context.check_administrator(peer.uid, "see what other users may have")?;
    }
    let Resource { tenant, kind, name } = &resource;
    let ask = Ask { priority, ..Ask::resource(tenant, *kind, name) };
    let denied = context.policy.current().allows(uid, gid, &ask).err();
    let detail = denied.map(|denied| denied.to_string());
    Ok(json(StatusCode::OK, &Permission { uid, gid, allowed: detail.is_none(), detail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_both_of_its_numbers() {
        let read = |query: &str| {
            let pairs = Pairs::parse(query, CanQuery::KEYS).and_then(CanQuery::from_pairs);
            pairs
                .map(|it| (it.user, it.priority))
                .map_err(|problem| problem.field.unwrap_or_default())
        };
        let leader = "kind=leader&name=a";
        assert_eq!(read(leader), Ok((None, None)));
        assert_eq!(read(&format!("{leader}&uid=7&gid=8")), Ok((Some((7, 8)), None)));
        assert_eq!(read(&format!("{leader}&uid=7")), Err("gid".to_owned()));
        assert_eq!(read(&format!("{leader}&gid=7")), Err("uid".to_owned()));
        assert_eq!(read(&format!("{leader}&uid=bob&gid=8")), Err("uid".to_owned()));
        assert_eq!(read(&format!("{leader}&priority=3")), Err("priority".to_owned()));
        assert_eq!(read("kind=master&name=p&priority=-3"), Ok((None, Some(-3))));
        assert_eq!(read("uid=7&gid=8"), Err("kind".to_owned()));
    }
}
