//! Commands about keys: each reads or changes the file, and a gateway that uses it notices.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Error};
use clap::{Args, Subcommand};

use tenure_stores::settings::Opener;

use crate::access::{self, Edit, KeyId, Keys, Listed, New, StoreKeys, WrittenBounds};

/// Said where a command does not know which keys it is about.
const NO_PLACE: &str = "where are the keys? Give the settings of the gateway (--config), or --keys-in-store with \
     its --upstream, or --keys-file with the file that it reads";
/// Said where nobody could note that a join key was used.
const NOT_IN_FILE: &str = "--once: join keys take keys in a Redis or Postgres, where their use is noted, and these are in a file: give \
     --keys-in-store, and that store as --upstream, or leave --once out";
/// Printed with a new key: gateways look for new keys every second in the store, every two seconds in a file.
const KNOWN_WITHIN: &str =
    "tenured-gateway: running gateways let this key in within 5 s; until then they answer 401";
/// How a key is said to end.
const ENDS: &str =
    "must be a time such as 30d or 12h, or a date such as 2027-01-31 or 2027-01-31T12:00:00Z";

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum KeysCommand {
    /// Make a key: it is shown once, after the lines that let it in, to be added to the file of keys.
    #[command(after_help = EXAMPLES)]
    New(NewKey),
    /// Make a key and add it to those in the store, or to the file of keys: it is shown once. Running
    /// gateways let it in within 5 s.
    #[command(after_help = EXAMPLES)]
    Add(NewKey),
    /// List the keys: id, principal, end, last use (in the store, a minute or so behind) and bounds. No secret is in it.
    List,
    /// Make another key of the same principal with the same bounds; the old one ends after an overlap.
    ///
    /// Sessions and holds belong to the principal, so that an agent that changes its key loses none: put the
    /// new key into its upstream_secret_file before the overlap is over, and reload or restart it.
    Rotate {
        /// Id of the key: its 8 characters after tnr_.
        #[arg(value_name = "ID", value_parser = id)]
        id: KeyId,
        /// How long the old key goes on to be good.
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = overlap)]
        overlap: Duration,
        /// End of the new key, such as 90d or 2027-01-31; left out, it has none.
        #[arg(long, value_name = "TIME", value_parser = end)]
        expires: Option<u64>,
    },
    /// Take a key out of the store, or the file: within 5 s it lets nobody in, and what it opened ends.
    ///
    /// What its principal holds is held until its ttl is over, or goes on with another key of the principal.
    Revoke {
        /// Id of the key: its 8 characters after tnr_.
        #[arg(value_name = "ID", value_parser = id)]
        id: KeyId,
    },
}

const EXAMPLES: &str = "Examples:
  A laptop that may do everything in one tenant, and is no master before others:
    tenured-gateway keys add --subject laptop-7 --tenant acme --priority-max 0
  A build server that may only take leaders and semaphores named ci/…, for 90 days:
    tenured-gateway keys add --subject ci --kind leader --kind semaphore --name 'ci/*' --expires 90d
  A guest with few things, for a short time, and slowly:
    tenured-gateway keys add --subject guest --sessions-max 5 --holds-max 20 --ttl-max 2m \\
        --requests-per-second 20 --expires 12h
  A key for a new laptop that one agent exchanges for its own, within the hour:
    tenured-gateway keys add --subject laptop-8 --once --expires 1h
  The agent of a team, whose `tenure why` is to name other holders and tell what was before:
    tenured-gateway keys add --subject team-3 --tenant acme --right owners --right history
  An operator, who may take from others what they hold, and read numbers and the state of the store:
    tenured-gateway keys add --subject ops --right all

Two keys of one subject are the same caller: they have the same sessions and holds. Numbers are per subject, \
     and each gateway counts what passes through it.";

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NewKey {
    /// Principal, the name of the caller: two keys of one principal are the same caller.
    #[arg(long, value_name = "NAME")]
    pub subject: String,
    /// End of the key, such as 90d or 2027-01-31; left out, it has none.
    #[arg(long, value_name = "TIME", value_parser = end)]
    pub expires: Option<u64>,
    #[command(flatten)]
    pub bounds: WrittenBounds,
}

impl NewKey {
    /// Adds the key.
    fn edit(&self) -> Edit {
        let NewKey { subject, expires, bounds } = self.clone();
        Edit::Add { principal: subject, expires_at: expires, bounds: Box::new(bounds) }
    }
}

impl KeysCommand {
    /// True if it is about no keys that are somewhere.
    pub fn takes_no_place(&self) -> bool {
        matches!(self, KeysCommand::New(_))
    }

    /// Carries the command out, with the place of the keys.
    ///
    /// # Errors
    ///
    /// For people.
    pub fn run(&self, place: Place) -> anyhow::Result<()> {
        let change = |edit: Edit| place.change(&edit);
        match self {
            KeysCommand::New(NewKey { bounds, .. }) if bounds.once => Err(Error::msg(NOT_IN_FILE)),
            KeysCommand::Add(NewKey { bounds, expires: None, .. }) if bounds.once => {
                Err(Error::msg("--once: a join key must end, such as with --expires 1h"))
            }
            KeysCommand::New(key @ NewKey { subject, expires, bounds }) => {
                key.edit().check()?;
                let new = New::make().map_err(|error| Error::msg(error.to_string()))?;
                let line = Keys::line(&new, subject, *expires, bounds)?;
                say(&format!("{line}\n{}", new.text))
            }
            KeysCommand::Add(key) => show(change(key.edit())?),
            KeysCommand::List => {
                let keys = place.read()?;
                let notes_uses = matches!(place, Place::Store(_));
                say(listed(access::now(), &keys.list(), notes_uses).trim_end())
            }
            KeysCommand::Rotate { id, overlap, expires } => show(change(Edit::Rotate {
                id: *id,
                old_expires_at: access::now().saturating_add(overlap.as_secs()),
                expires_at: *expires,
            })?),
            KeysCommand::Revoke { id } => change(Edit::Revoke { id: *id }).map(drop),
        }
    }
}

/// The place of keys.
#[derive(Debug)]
pub enum Place {
    /// No setting says where they are.
    None,
    File(PathBuf),
    /// The store that this opens.
    Store(Arc<dyn Opener>),
}

/// The keys in the store that this opens. Must be called in a runtime.
///
/// # Errors
///
/// With a store that keeps none.
pub fn keys_of(opener: &dyn Opener) -> anyhow::Result<StoreKeys> {
    let ring = opener.keyring();
    let rule = "keys_in_store: this store keeps no keys of gateways; put them into a file, and name it in keys_file";
    ring.map(StoreKeys::new).context(rule)
}

impl Place {
    fn change(&self, edit: &Edit) -> anyhow::Result<Option<New>> {
        match self {
            Place::None => Err(Error::msg(NO_PLACE)),
            Place::File(_) if matches!(edit, Edit::Add { bounds, .. } if bounds.once) => {
                Err(Error::msg(NOT_IN_FILE))
            }
            Place::File(file) => {
                edit.carry_out(file).with_context(|| format!("{}", file.display()))
            }
            Place::Store(opener) => {
                in_runtime(async { keys_of(&**opener)?.carry_out(edit).await.map_err(Error::from) })
            }
        }
    }

    fn read(&self) -> anyhow::Result<Keys> {
        match self {
            Place::None => Err(Error::msg(NO_PLACE)),
            Place::File(file) => Keys::read(file).with_context(|| format!("{}", file.display())),
            Place::Store(opener) => in_runtime(async {
                let keys = keys_of(&**opener)?;
                let read = async {
                    keys.remove_expired().await?;
                    keys.read().await
                };
                read.await.map_err(|failure| Error::msg(failure.cause().to_owned()))
            }),
        }
    }
}

pub(crate) fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(work)
}

/// Prints a key. Scripts read standard output, so that the hint for people goes to standard error.
fn show(new: Option<New>) -> anyhow::Result<()> {
    let Some(new) = new else { return Ok(()) };
    say(&new.text)?;
    // The key is valid even if the hint cannot be printed.
    let _ = writeln!(io::stderr(), "{KNOWN_WITHIN}");
    Ok(())
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot write")
}

/// A line for each key.
fn listed(now: u64, keys: &[Listed<'_>], notes_uses: bool) -> String {
    let mut text = String::new();
    for Listed { id, principal, expires_at, used_at, joined, bounds, .. } in keys {
        let end = match expires_at {
            None => "no end".to_owned(),
            Some(at) if *at <= now => format!("expired {}", date(*at)),
            Some(at) => format!("until {}", date(*at)),
        };
        let bounds = match bounds.is_empty() {
            true => "no bounds".to_owned(),
            // One line of TOML each.
            false => toml::to_string(bounds).unwrap_or_default().trim_end().replace('\n', ", "),
        };
        let used = match (joined, used_at) {
            (Some(own), _) => format!("exchanged for {own}  "),
            (None, Some(at)) => format!("used {}  ", date(*at)),
            (None, None) if notes_uses => "never used  ".to_owned(),
            (None, None) => String::new(),
        };
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{id}  {principal:?}  {end}  {used}{bounds}");
    }
    text
}

fn date(seconds: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
        // The last year that has four digits.
        Some(time) if seconds < 253_402_300_800 => {
            humantime::format_rfc3339_seconds(time).to_string()
        }
        _ => format!("{seconds} s after 1970"),
    }
}

fn id(text: &str) -> Result<KeyId, String> {
    KeyId::parse(text)
        .ok_or_else(|| "must be 8 characters a to z and 2 to 7; see keys list".to_owned())
}

fn overlap(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "must be a duration such as 1h or 2d".to_owned())
}

/// The s after 1970 of an end that is still to come.
fn end(text: &str) -> Result<u64, String> {
    let now = access::now();
    if let Ok(duration) = humantime::parse_duration(text) {
        return Ok(now.saturating_add(duration.as_secs()));
    }
    let full = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let time = humantime::parse_rfc3339_weak(&full).map_err(|_| ENDS.to_owned())?;
    let at = time.duration_since(UNIX_EPOCH).map_err(|_| ENDS.to_owned())?.as_secs();
    if at > now { Ok(at) } else { Err("is over already".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_from_now_or_a_date() {
        let now = access::now();
        assert!((now + 3600..=now + 3660).contains(&end("1h").unwrap()));
        assert_eq!(end("2999-01-31").unwrap(), end("2999-01-31T00:00:00Z").unwrap());
        for wrong in ["", "soon", "2999-13-01", "2001-01-01", "99"] {
            end(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_list_has_ids_ends_and_bounds_and_no_hash() {
        let bounds = WrittenBounds {
            names: Some(vec!["ci/*".to_owned()]),
            holds_max: Some(5),
            ..WrittenBounds::default()
        };
        let mut text = String::new();
        for (subject, expires) in
            [("alpha", None), ("beta", Some(86_400)), ("gamma", Some(5_000_000_000))]
        {
            let bounds = if expires.is_none() { bounds.clone() } else { WrittenBounds::default() };
            text.push_str(&Keys::line(&New::make().unwrap(), subject, expires, &bounds).unwrap());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let keys = Keys::read(&path).unwrap();
        let list = listed(1_000_000, &keys.list(), false);
        let lines: Vec<&str> = list.lines().map(|line| &line[10..]).collect();
        assert_eq!(
            lines,
            [
                "\"alpha\"  no end  names = [\"ci/*\"], holds_max = 5",
                "\"beta\"  expired 1970-01-02T00:00:00Z  no bounds",
                "\"gamma\"  until 2128-06-11T08:53:20Z  no bounds",
            ]
        );
        assert!(
            text.lines().filter(|line| line.starts_with("sha256")).all(|line| !list.contains(line))
        );
    }
}
