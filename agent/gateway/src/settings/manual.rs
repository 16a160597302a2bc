//! The documentation of the configuration file.

use tenure_service::config::{Entry, Environment, Section, sections};

use super::{namespaces, people, proxies};

/// The text at the top.
const ABOUT: &str = "\
Configuration of the Tenure gateway, tenured-gateway.
Every key below has its default value. An unknown key or a value that breaks a rule keeps the gateway from \
     starting; `tenured-gateway check-config` says what is wrong, and prints what is in effect.
Read in this order, later ones win, key by key:
  /etc/tenured-gateway/gateway.toml; /etc/tenured-gateway/conf.d/*.toml in the order of their names;
  or only what --config or TENURED_GATEWAY_CONFIG names: a file, or a directory instead of that one;
  environment variables: the key stop.deadline is TENURED_GATEWAY_STOP_DEADLINE;
  flags.
A reload (SIGHUP, `systemctl reload tenured-gateway`) reads all of it again, and the keys, and says what of it \
     takes a restart. With anything wrong in it nothing changes.
Durations are texts such as \"15s\", \"500ms\" or \"1h 30m\".";

/// The sections in the order of the file.
pub fn manual() -> Vec<Section> {
    let mut all = sections(&super::defaults(&Environment::default()), ABOUT, &[]);
    for (list, about, example) in [
        (namespaces::LIST, namespaces::ABOUT, &namespaces::EXAMPLE[..]),
        (people::LIST, people::ABOUT, &people::EXAMPLE),
        (proxies::LIST, proxies::ABOUT, &proxies::EXAMPLE),
    ] {
        let keys = example.iter().map(|(name, value)| {
            let value = (*value).to_owned();
            Entry { name, value, is_default: false, about: "" }
        });
        let header = format!("[[{}]]", list.name);
        all.push(Section { header, about, keys: keys.collect() });
    }
    all
}
