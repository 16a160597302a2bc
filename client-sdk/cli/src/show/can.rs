//! `tenure can`: what the rules of the agent let a user have.

use nix::unistd::{Gid, Group, Uid, User};
use tenure::client::Client;
use tenure::wire::Permission;

use super::ask;
use crate::args::CanArgs;
use crate::exit;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Says whether a user may hold a resource; returns the exit status.
///
/// # Errors
///
/// When the user is not known; when the agent refuses or cannot be asked.
pub(crate) async fn can(args: &CanArgs, client: &Client) -> Result<u8, Failure> {
    let usage = |line| Failure::new(exit::USAGE, line);
    let user = args.uid.as_deref().map(|uid| user(uid, args.gid.as_deref()));
    let user = user.transpose().map_err(usage)?;
    let (kind, name) = args.resource.kind_and_name().map_err(usage)?;
    let kind = kind.ok_or_else(|| {
        usage(format!(
            "{name}: rules go by the kind: write leader (or lock), lease, semaphore or master before the name"
        ))
    })?;
    let what = format!("{kind}/{name}");
    let tenant = args.resource.tenant.as_deref();
    let question = client.can(kind, name, tenant, user, args.priority);
    let permission = ask(client, &what, question).await?;
    match args.resource.output.json {
        true => print_json(&permission)?,
        false => print(&render(&what, &permission))?,
    }
    Ok(if permission.allowed { 0 } else { exit::FORBIDDEN })
}

fn render(what: &str, Permission { uid, gid, detail, .. }: &Permission) -> String {
    match detail {
        None => format!("yes: uid {uid} (gid {gid}) may have {what}\n"),
        Some(detail) => format!("no: {detail}\n"),
    }
}

/// The numbers of a user and of its primary group.
fn user(uid: &str, gid: Option<&str>) -> Result<(u32, u32), String> {
    let found = match uid.parse().map(Uid::from_raw) {
        Ok(uid) => User::from_uid(uid),
        Err(_) => User::from_name(uid),
    };
    let found = found.ok().flatten();
    let number = uid.parse().ok().or(found.as_ref().map(|user| user.uid.as_raw()));
    let number = number.ok_or_else(|| {
        format!("--uid {uid}: this host knows no such user; name one of its own, or a number")
    })?;
    let group = match gid {
        Some(gid) => group(gid)?,
        None => found.map(|user| user.gid).ok_or_else(|| {
            format!("--uid {uid}: this host does not know its group; name it with --gid")
        })?,
    };
    Ok((number, group.as_raw()))
}

fn group(gid: &str) -> Result<Gid, String> {
    let found = || Group::from_name(gid).ok().flatten().map(|group| group.gid);
    let number = gid.parse().map(Gid::from_raw).ok().or_else(found);
    number.ok_or_else(|| {
        format!("--gid {gid}: this host knows no such group; name one of its own, or a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_or_a_number() {
        assert_eq!(user("root", None), Ok((0, 0)));
        assert_eq!(user("0", None), Ok((0, 0)));
        assert_eq!(user("0", Some("7")), Ok((0, 7)));
        assert_eq!(user("4000000001", Some("root")), Ok((4_000_000_001, 0)));
        for (uid, gid, said) in [
            ("no such user", None, "this host knows no such user"),
            ("4000000001", None, "name it with --gid"),
            ("0", Some("no such group"), "this host knows no such group"),
        ] {
            let error = user(uid, gid).expect_err(uid);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let allowed = Permission { uid: 7, gid: 8, allowed: true, detail: None };
        assert_eq!(render("leader/a", &allowed), "yes: uid 7 (gid 8) may have leader/a\n");
        let denied = Permission { allowed: false, detail: Some("no rule".to_owned()), ..allowed };
        assert_eq!(render("leader/a", &denied), "no: no rule\n");
    }
}
