//! The key of the programs of this gateway's user, in a file that only they can read.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Error};
use tenure_host::directory::Directory;
use tenure_stores::gateway::LOCAL_KEY;

use crate::access::{Keys, New, WrittenBounds};
use crate::settings::Settings;

/// Its principal, as that of everybody where no key is asked for.
const PRINCIPAL: &str = "local";
/// Its rights: those of everybody where no key is asked for.
const ALL: &str = "all";
/// The name until it is whole.
const UNFINISHED: &str = "key.new";

/// A key that was made for this run of the gateway.
pub struct LocalKey(New);

impl LocalKey {
    /// Makes one, if the settings ask for keys and name none. Also the keys that let it in.
    ///
    /// # Errors
    ///
    /// Without random bytes.
    pub fn make(settings: &Settings) -> anyhow::Result<Option<(LocalKey, Keys)>> {
        if !settings.makes_local_key() {
            return Ok(None);
        }
        let new = New::make().map_err(|error| Error::msg(error.to_string()))?;
        let rights = Some(vec![ALL.to_owned()]);
        let bounds = WrittenBounds { rights, ..WrittenBounds::default() };
        let keys = Keys::one(&new, PRINCIPAL, &bounds)?;
        Ok(Some((LocalKey(new), keys)))
    }

    /// Leaves it in the runtime directory, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn leave(self, runtime_dir: &Directory) -> anyhow::Result<LeftKey> {
        let write = || -> io::Result<()> {
            runtime_dir.remove(UNFINISHED)?;
            writeln!(runtime_dir.create(UNFINISHED, 0o600)?, "{}", self.0.text)?;
            runtime_dir.rename(UNFINISHED, LOCAL_KEY)
        };
        write()
            .with_context(|| format!("cannot write {}", runtime_dir.join(LOCAL_KEY).display()))?;
        Ok(LeftKey(runtime_dir.clone()))
    }
}

/// A key in a runtime directory. One of a gateway that was killed is replaced at its next start.
pub struct LeftKey(Directory);

impl Drop for LeftKey {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove(LOCAL_KEY) {
            tracing::warn!(%error, "cannot remove the key of this run");
        }
    }
}

/// The address of the page, with the key that is left for this user.
///
/// # Errors
///
/// When a key is asked for and cannot be read.
pub fn page(settings: &Settings) -> anyhow::Result<String> {
    let scheme = if settings.tls.certificate.is_some() { "https" } else { "http" };
    let listen = settings.listen;
    let place = match listen.ip().is_unspecified() {
        true => format!("localhost:{}", listen.port()),
        false => listen.to_string(),
    };
    let address = format!("{scheme}://{place}/");
    if !settings.makes_local_key() {
        return Ok(address);
    }
    let path = settings.runtime_dir.join(LOCAL_KEY);
    let key = std::fs::read_to_string(&path).with_context(|| advice(&path))?;
    Ok(format!("{address}#key={}", key.trim_end()))
}

fn advice(path: &Path) -> String {
    format!(
        "cannot read {}: the gateway makes it at its start, for its own user and root; give --runtime-dir if that of the \
         gateway is another",
        path.display()
    )
}
