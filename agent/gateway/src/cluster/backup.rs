//! Backups in files.

use std::fs::{self, File, OpenOptions};
use std::future::pending;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tenure_cluster::control::Client;
use tenure_cluster::recovery::Survivor;

use super::say;

/// The shortest time between two backups: each takes the memory of an image at its node.
const EVERY_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct BackupArgs {
    /// The file; only its owner can read it.
    file: PathBuf,
    /// Read the folder of a stopped node instead of asking a node that runs: needs no majority. Run this as the owner
    /// of the folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "every")]
    from_folder: Option<PathBuf>,
    /// Go on until this command is ended, and write a backup at this interval. FILE is a whole backup at any time.
    #[arg(long, value_name = "DURATION", value_parser = every)]
    every: Option<Duration>,
    /// The number of backups that are kept, with --every: FILE, and earlier ones as FILE.1, FILE.2 and so on.
    #[arg(long, value_name = "COUNT", requires = "every", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    keep: u16,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if every < EVERY_MIN {
        return Err(format!("must be {EVERY_MIN:?} at least"));
    }
    Ok(every)
}

impl BackupArgs {
    /// Writes one backup, or one at each interval.
    pub(super) async fn run(&self, client: &Client) -> anyhow::Result<()> {
        let BackupArgs { file, from_folder, every, keep } = self;
        if let Some(every) = every {
            return write_every(client, file, *every, *keep).await;
        }
        let mut to = create(file)?;
        let taken = write(client, from_folder.as_deref(), &mut to).await;
        let what = taken.inspect_err(|_| {
            // A partial file must not pass for a backup.
            let _ = fs::remove_file(file);
        })?;
        say(&format!("{}: {what}", file.display()))
    }
}

/// Writes backups for ever. A node that does not answer is asked again in time; a file that cannot be written is an
/// error.
async fn write_every(
    client: &Client,
    file: &Path,
    every: Duration,
    keep: u16,
) -> anyhow::Result<()> {
    loop {
        match client.backup().await {
            Ok(text) => {
                put(file, &text, keep).with_context(|| format!("{}", file.display()))?;
                say(&format!("{}: {} bytes", file.display(), text.len()))?;
            }
            Err(error) => {
                let next = humantime::format_duration(every);
                eprintln!(
                    "tenured-gateway: no backup was taken, and the next try is in {next}: {error}"
                );
            }
        }
        // A sleep of the machine delays the next backup, and does no harm.
        let _ = tokio::time::timeout(every, pending::<()>()).await;
    }
}

/// Puts a backup in the place of the one before, which becomes FILE.1 if more than one is kept.
fn put(file: &Path, text: &str, keep: u16) -> io::Result<()> {
    let named = |suffix: String| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let earlier = |number: u16| named(format!(".{number}"));
    let unless_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    let (new, old) = (named(".new".to_owned()), named(".old".to_owned()));
    // A command that was killed leaves such files.
    for left in [&new, &old] {
        unless_missing(fs::remove_file(left))?;
    }
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    to.write_all(text.as_bytes()).and_then(|()| to.sync_all())?;
    // FILE has a second name meanwhile, so that it is there at any instant.
    if keep > 1 {
        unless_missing(fs::hard_link(file, &old))?;
    }
    for number in (1..keep).rev() {
        let from = if number == 1 { old.clone() } else { earlier(number - 1) };
        unless_missing(fs::rename(from, earlier(number)))?;
    }
    fs::rename(&new, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn create(file: &Path) -> anyhow::Result<File> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    made.with_context(|| format!("{}: must be a file that is not there yet", file.display()))
}

/// Writes a backup, taken now by a node or read from the folder of a stopped one; returns its description.
async fn write(client: &Client, folder: Option<&Path>, to: &mut File) -> anyhow::Result<String> {
    let (text, what) = match folder {
        None => (client.backup().await?, String::new()),
        Some(folder) => {
            let survivor = Survivor::read(folder).await?;
            let (node, last) = (survivor.node(), survivor.last);
            (survivor.backup.text(), format!(", what node {node:x} had up to entry {last}"))
        }
    };
    to.write_all(text.as_bytes()).and_then(|()| to.sync_all()).context("cannot write")?;
    Ok(format!("{} bytes{what}", text.len()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_backup_takes_the_place_of_the_one_before_and_so_many_are_kept() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("backup");
        fs::write(folder.path().join("backup.new"), "half of one").unwrap();
        for text in ["one", "two", "three", "four"] {
            put(&file, text, 3).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("backup").as_deref(), Some("four"));
        assert_eq!(read("backup.1").as_deref(), Some("three"));
        assert_eq!(read("backup.2").as_deref(), Some("two"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(every("0s").is_err() && every("soon").is_err());
        assert_eq!(every("1h").unwrap(), Duration::from_secs(3600));
    }
}
