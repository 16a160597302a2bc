//! `tenure revoke`.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{Holder, Revoke, Revoked};

use super::table::shown;
use super::{ask, find};
use crate::args::duration::millis;
use crate::args::{ResourceName, RevokeArgs};
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

/// Takes a resource away.
///
/// # Errors
///
/// When the agent refuses or cannot be asked; when nobody held the resource.
pub(crate) async fn revoke(args: &RevokeArgs, client: &Client) -> Result<(), Failure> {
    let ResourceName { kind, name, tenant, output } = &find(&args.resource, client).await?;
    let RevokeArgs { token, reason, barred_for, .. } = args;
    let what = format!("{kind}/{name}");
    let revoke = Revoke {
        kind: *kind,
        name: name.clone(),
        tenant: tenant.clone(),
        token: *token,
        reason: reason.clone(),
        for_ms: barred_for.map(millis),
    };
    let revoked = ask(client, &what, client.revoke(&revoke)).await?;
    if output.json {
        return print_json(&revoked);
    }
    if revoked.revoked == 0 {
        let line = format!("{what}: nothing to revoke; see `tenure standing {kind} {name}`");
        return Err(Failure::new(exit::REFUSED, line));
    }
    print(&render(&what, &revoked))
}

fn render(what: &str, revoked: &Revoked) -> String {
    let Revoked { revoked, kept_ms, from } = revoked;
    let grants = if *revoked == 1 { "grant" } else { "grants" };
    let kept = kept_ms.map(|ms| {
        let s = ms.div_ceil(1000);
        format!("; kept from others until its command has ended, {s} s at most")
    });
    let mut out = format!("{what}: {revoked} {grants} revoked{}\n", kept.unwrap_or_default());
    for holder in from {
        out.push_str(&loser(holder));
    }
    if (from.len() as u64) < *revoked && !from.is_empty() {
        out.push_str(&format!("the first {} of {revoked} are shown\n", from.len()));
    }
    if kept_ms.is_none() {
        out.push_str("what was not run by `tenure run` may go on: make sure that it has stopped\n");
    }
    out
}

fn loser(holder: &Holder) -> String {
    let Holder { host, name, since_ms, token, pid, .. } = holder;
    let pid = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    let since = brief(Duration::from_millis(*since_ms));
    format!("taken from {} on {}{pid}: held for {since}, token {token}\n", shown(name), shown(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_from_whom_it_took_what() {
        let of = |host: &str, pid| Holder {
            host: host.into(),
            name: "billing".into(),
            since_ms: 22_320_000,
            token: 17,
            pid,
            ..Holder::default()
        };
        let elsewhere = Revoked { revoked: 1, kept_ms: None, from: vec![of("hosta", None)] };
        assert_eq!(
            render("leader/a", &elsewhere),
            "leader/a: 1 grant revoked\n\
             taken from billing on hosta: held for 6h12m, token 17\n\
             what was not run by `tenure run` may go on: make sure that it has stopped\n"
        );
        let here = Revoked { revoked: 1, kept_ms: Some(9_100), from: vec![of("hostb", Some(3))] };
        assert_eq!(
            render("leader/a", &here),
            "leader/a: 1 grant revoked; kept from others until its command has ended, 10 s at most\n\
             taken from billing on hostb, pid 3: held for 6h12m, token 17\n"
        );
    }
}
