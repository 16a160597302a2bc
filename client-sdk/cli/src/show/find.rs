//! The kind of a resource that is asked for by its name alone.

use tenure::client::Client;
use tenure::wire::rules::resource_name;
use tenure::wire::{DEFAULT_TENANT, Kind};

use super::ask;
use super::table::shown;
use crate::args::{ResourceName, ResourceWords, kind_of};
use crate::exit;
use crate::failure::Failure;
use crate::shell::operand;

/// The resource for a name with or without a kind. Without one the kind is that of a resource which is held or waited
/// for, else that of one which was; else leader, as of `tenure lock`. While the store is away, the agent's own holds
/// count.
///
/// # Errors
///
/// When several kinds have the name; when the agent refuses or cannot be asked.
pub(crate) async fn find(args: &ResourceWords, client: &Client) -> Result<ResourceName, Failure> {
    let usage = |line| Failure::new(exit::USAGE, line);
    let (kind, name) = args.kind_and_name().map_err(usage)?;
    let kind = match kind {
        Some(kind) => kind,
        None => kind_by_name(name, args.tenant.as_deref(), client).await?,
    };
    let (name, tenant) = (name.to_owned(), args.tenant.clone());
    Ok(ResourceName { kind, name, tenant, output: args.output })
}

async fn kind_by_name(name: &str, tenant: Option<&str>, client: &Client) -> Result<Kind, Failure> {
    let having = match kinds_in_store(name, tenant, client).await {
        Err(failure) if failure.code == exit::UNAVAILABLE => {
            kinds_of_agent(name, tenant, client).await?
        }
        having => having?,
    };
    let usage = |line| Failure::new(exit::USAGE, line);
    match having[..] {
        [] if kind_of(name).is_some() => {
            Err(usage(format!("{name}: nothing has that name; write the name after the kind")))
        }
        [] => Ok(Kind::Leader),
        [kind] => Ok(kind),
        _ => Err(usage(several(&having, name))),
    }
}

/// The kinds in use with that name, else the kinds that were in use.
async fn kinds_in_store(
    name: &str,
    tenant: Option<&str>,
    client: &Client,
) -> Result<Vec<Kind>, Failure> {
    let (mut in_use, mut used, mut refusal) = (Vec::new(), Vec::new(), None);
    let kinds = Kind::ALL.into_iter().filter(|kind| resource_name(*kind, name).is_ok());
    for kind in kinds {
        let standing = match ask(client, name, client.standing(kind, name, tenant)).await {
            // The rules for this user may name other kinds.
            Err(failure) if failure.code == exit::FORBIDDEN => {
                refusal = Some(failure);
                continue;
            }
            standing => standing?,
        };
        if standing.holding + standing.waiting > 0 {
            in_use.push(kind);
        } else if in_use.is_empty() {
            let history = ask(client, name, client.history(kind, name, tenant)).await?;
            used.extend((!history.changes.is_empty()).then_some(kind));
        }
    }
    match (in_use.is_empty() && used.is_empty(), refusal) {
        (true, Some(refusal)) => Err(refusal),
        (true, None) => Ok(Vec::new()),
        (false, _) if in_use.is_empty() => Ok(used),
        (false, _) => Ok(in_use),
    }
}

/// The kinds that sessions of this agent hold or wait for by that name.
async fn kinds_of_agent(
    name: &str,
    tenant: Option<&str>,
    client: &Client,
) -> Result<Vec<Kind>, Failure> {
    let status = ask(client, name, client.status()).await?;
    let tenant = tenant.unwrap_or(DEFAULT_TENANT);
    let sessions = status.sessions.iter().filter(|session| session.tenant == tenant);
    let holds = sessions.flat_map(|session| &session.holds).filter(|hold| hold.name == name);
    let kinds: Vec<Kind> = holds.map(|hold| hold.kind).collect();
    Ok(Kind::ALL.into_iter().filter(|kind| kinds.contains(kind)).collect())
}

fn several(having: &[Kind], name: &str) -> String {
    let all: Vec<&str> = having.iter().map(|kind| kind.as_str()).collect();
    let (all, kind, word) = (all.join(", "), having[0], operand(name));
    format!(
        "{}: several kinds have that name ({all}); write for example {kind} {word}",
        shown(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_kinds_are_named_with_the_way_out() {
        let line = several(&[Kind::Leader, Kind::Lease], "a b");
        let all =
            "a b: several kinds have that name (leader, lease); write for example leader 'a b'";
        assert_eq!(line, all);
    }
}
