//! `tenure standing` and `tenure routes`.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{DEFAULT_TENANT, Routes, Standing};

use super::list::{held_for, holder_name, state, user};
use super::table::{Cell, Look, Screen, Table, or_dash, shown, visible};
use super::when::{kept, now};
use super::{ask, find};
use crate::args::{ResourceName, RoutesArgs, StandingArgs};
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{coloured, print, print_json};

/// Shows who holds a resource and who waits; returns the exit status.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn standing(args: &StandingArgs, client: &Client) -> Result<u8, Failure> {
    let ResourceName { kind, name, tenant, output } = &find(&args.resource, client).await?;
    let what = format!("{kind}/{name}");
    let standing = ask(client, &what, client.standing(*kind, name, tenant.as_deref())).await?;
    match (args.quiet, output.json) {
        (true, _) => return Ok(if standing.holding == 0 { exit::REFUSED } else { 0 }),
        (false, true) => print_json(&standing)?,
        (false, false) => print(&render(&standing, coloured()))?,
    }
    Ok(0)
}

pub(super) fn render(standing: &Standing, coloured: bool) -> String {
    let Standing { kind, name, limit, holders, holding, waiters, waiting, tenant, .. } = standing;
    let mut title = format!("{kind}/{}", visible(name));
    if tenant != DEFAULT_TENANT {
        title = format!("{title} of tenant {}", visible(tenant));
    }
    let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
    title = match (holding, limit) {
        (0, None) => format!("{title}: free"),
        (held, _) => format!("{title}: {held}{of} held"),
    };
    title = match waiting {
        0 => title,
        waiting => format!("{title}, {waiting} waiting"),
    };
    let mut table = Table::new(&["", "HOST", "NAME", "PID", "USER", "TOKEN", "FOR"]);
    for holder in holders {
        table.row([
            state(holder),
            Cell::from(&holder.host),
            Cell::from(holder_name(holder)),
            Cell::from(or_dash(holder.pid)),
            Cell::from(user(holder)),
            Cell::from(holder.token),
            Cell::from(held_for(holder)),
        ]);
    }
    for waiter in waiters {
        table.row([
            Cell::new(format!("{}.", waiter.position), Look::Warning),
            Cell::from(&waiter.host),
            Cell::from(&waiter.name),
            Cell::from(or_dash(waiter.pid)),
            Cell::from("-"),
            Cell::from("-"),
            Cell::from(brief(Duration::from_millis(waiter.since_ms))),
        ]);
    }
    let mut out = title + "\n";
    if !table.is_empty() {
        out.push_str(&table.render(Screen { coloured, width: None }));
    }
    for holder in holders {
        if let Some(kept) = kept(holder, now()) {
            out.push_str(&format!("{} on {} {kept}\n", shown(&holder.name), shown(&holder.host)));
        }
    }
    for (listed, all, what) in
        [(holders.len(), *holding, "held"), (waiters.len(), *waiting, "waiting")]
    {
        if (listed as u64) < all {
            out.push_str(&format!("{what}: the first {listed} of {all} are shown\n"));
        }
    }
    let Standing { sessions, members, .. } = standing;
    if !sessions.is_empty() {
        let names: Vec<String> = sessions.iter().map(|name| shown(name)).collect();
        let more = members.saturating_sub(sessions.len() as u64);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        out.push_str(&format!("sessions of the project: {}{more}\n", names.join(", ")));
    }
    out
}

/// Shows the routing table.
///
/// # Errors
///
/// When the agent refuses or cannot be asked; when the one lease that was asked for is not in it.
pub(crate) async fn routes(args: &RoutesArgs, client: &Client) -> Result<(), Failure> {
    let question = client.routes(args.name.as_deref(), args.tenant.as_deref());
    let routes = ask(client, "routes", question).await?;
    if args.output.json {
        print_json(&routes)?;
    } else {
        print(&render_routes(&routes, coloured()))?;
    }
    match &args.name {
        Some(name) if routes.routes.is_empty() => Err(Failure::new(
            exit::REFUSED,
            format!("lease/{name}: not in the routing table; nobody holds it"),
        )),
        _ => Ok(()),
    }
}

fn render_routes(routes: &Routes, coloured: bool) -> String {
    let mut table = Table::new(&[
        "LEASE",
        "ADDRESS",
        "STATUS",
        "HOST",
        "HOLDER",
        "PROXY",
        "PARTITION",
        "TOKEN",
        "VERSION",
    ]);
    let dashed = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    for route in &routes.routes {
        let look = if route.status == "expiring" { Look::Warning } else { Look::Plain };
        table.row([
            Cell::from(&route.name),
            Cell::from(dashed(&route.address)),
            Cell::new(dashed(&route.status), look),
            Cell::from(&route.host),
            Cell::from(&route.holder),
            Cell::from(dashed(&route.proxy_id)),
            Cell::from(route.partition),
            Cell::from(route.token),
            Cell::from(route.version),
        ]);
    }
    let title = format!("version {}, {} leases\n", routes.version, routes.routes.len());
    if table.is_empty() { title } else { title + &table.render(Screen { coloured, width: None }) }
}

#[cfg(test)]
mod tests {
    use tenure::wire::{Holder, Kind, Waiter};

    use super::*;

    #[test]
    fn a_standing_counts_holders_and_waiters() {
        let free = Standing {
            tenant: "default".to_owned(),
            kind: Kind::Leader,
            name: "cleanup".to_owned(),
            limit: None,
            holders: vec![],
            holding: 0,
            waiters: vec![],
            waiting: 0,
            sessions: vec![],
            members: 0,
        };
        assert_eq!(render(&free, false), "leader/cleanup: free\n");
        let holder = Holder { host: "a".into(), name: "x".into(), token: 7, ..Holder::default() };
        let waiter = Waiter {
            host: "b".into(),
            name: "y".into(),
            position: 1,
            pid: Some(3),
            since_ms: 1000,
        };
        let taken = Standing {
            kind: Kind::Semaphore,
            limit: Some(4),
            holders: vec![holder],
            holding: 1,
            waiters: vec![waiter],
            waiting: 1,
            ..free
        };
        assert_eq!(
            render(&taken, false),
            "semaphore/cleanup: 1 of 4 held, 1 waiting\n        \
             HOST  NAME  PID  USER  TOKEN  FOR\n  \
             held  a     x     -    -     7      0ms\n  \
             1.    b     y     3    -     -      1.0s\n"
        );
    }
}
