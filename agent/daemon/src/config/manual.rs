//! The documentation of the configuration file: the sample file and the manual page are made of it.

use std::collections::HashMap;

use tenure_stores::settings::Stores;

use super::{Environment, allow, keys, layers};

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

/// A section of the file.
#[derive(Debug)]
pub struct Section {
    /// With its brackets; empty for the keys before all sections.
    pub header: String,
    /// Each line is a paragraph, and is filled when it is printed. Those that begin with two blanks
    /// belong together and are printed as they are.
    pub about: &'static str,
    pub keys: Vec<Entry>,
}

/// A key of a section.
#[derive(Debug)]
pub struct Entry {
    pub name: &'static str,
    /// As a file has it.
    pub value: String,
    /// True if the value is the default, rather than an example.
    pub is_default: bool,
    /// As [`Section::about`].
    pub about: &'static str,
}

/// The sections in the order of the file.
pub fn manual() -> Vec<Section> {
    let defaults = layers::defaults(&Environment::default());
    let of_stores = Stores::default();
    let own = HashMap::from(keys::SECTIONS);
    let about = |section: &str| own.get(section).copied().or_else(|| of_stores.about(section));
    let mut sections = vec![Section { header: String::new(), about: ABOUT, keys: Vec::new() }];
    for key in keys::all() {
        let header = key.section().map(|section| format!("[{section}]")).unwrap_or_default();
        if sections.last().is_none_or(|last| last.header != header) {
            let about = key.section().and_then(about).unwrap_or_default();
            sections.push(Section { header, about, keys: Vec::new() });
        }
        let entry = Entry {
            name: key.name.rsplit('.').next().unwrap_or(key.name),
            value: key.doc.example.map_or_else(|| key.show(&defaults), str::to_owned),
            is_default: key.doc.example.is_none(),
            about: key.doc.about,
        };
        if let Some(section) = sections.last_mut() {
            section.keys.push(entry);
        }
    }
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
