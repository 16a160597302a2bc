//! Writes what packages carry besides programs: manual pages and completions of the agent, and its
//! configuration file. Those of the `tenure` command it prints itself (`tenure man`,
//! `tenure completions`).
//!
//! ```text
//! tenure-generate DIR
//! ```
//!
//! The one source is the agent's command line and the documentation of its keys. `packaging/tenured.toml`
//! is made of the same; a test keeps it so.
#![forbid(unsafe_code)]

mod completions;
mod pages;
mod sample;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use self::sample::Defaults;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: tenure-generate DIR");
    };
    let folder = PathBuf::from(folder);
    let manual = tenured::config::manual();
    write(&folder, "man/tenured.8", &pages::tenured()?)?;
    write(&folder, "man/tenured.toml.5", &pages::tenured_toml(&manual))?;
    write(&folder, "etc/tenured.toml", &sample::text(&manual, Defaults::Unset))?;
    let manual = tenure_gateway::settings::manual();
    write(&folder, "gateway-man/tenured-gateway.8", &pages::gateway()?)?;
    write(&folder, "gateway-man/tenured-gateway.toml.5", &pages::gateway_toml(&manual))?;
    write(&folder, "etc/gateway.toml", &sample::text(&manual, Defaults::Unset))?;
    for (name, script) in completions::scripts() {
        write(&folder, &format!("completions/{name}"), &script)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
