//! The documentation of the configuration file: the sample file and the manual page are made of it.

use tenure_service::config::{Entry, Section, sections};

use super::{Environment, allow, keys, load};

/// The text at the top; see [`Section::about`].
const ABOUT: &str = "\
Configuration of the Tenure agent, tenured.
Every key below has its default value. An unknown key or a value that breaks a rule keeps the agent from \
     starting; `tenured check-config` says what is wrong, and prints what is in effect.
Read in this order, later ones win, key by key:
  /etc/tenured/tenured.toml; /etc/tenured/conf.d/*.toml in the order of their names, hidden ones
  left out; $XDG_CONFIG_HOME/tenured/tenured.toml;
  or only what --config or TENURED_CONFIG names: a file, or a directory in place of /etc/tenured;
  environment variables: the key leader.ttl is TENURED_LEADER_TTL, state_dir is TENURED_STATE_DIR;
  flags.
[[allow]] rules of all files count together. A file has at most 1 MiB.
A reload (SIGHUP, `systemctl reload tenured`) reads all of it again and logs what changed, with the old \
     value and the new one, and what of it takes a restart. With anything wrong in it nothing changes.
Durations are texts such as \"15s\", \"500ms\" or \"1h 30m\".";

/// The sections in the order of the file.
pub fn manual() -> Vec<Section> {
    let defaults = load::defaults(&Environment::default());
    let mut sections = sections(&defaults, ABOUT, &keys::SECTIONS);
    let keys = allow::EXAMPLE.map(|(name, value)| Entry {
        name,
        value: value.to_owned(),
        is_default: false,
        about: "",
    });
    let header = "[[allow]]".to_owned();
    sections.push(Section { header, about: allow::ABOUT, keys: keys.into() });
    sections
}
