//! The environment of a daemon, and the directories that it reads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tenure_stores::settings::secret::Credentials;

/// The part of the environment that a daemon was started with and that matters here.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<String, OsString>,
    /// The effective user.
    pub uid: u32,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Environment {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        Environment { variables, uid: nix::unistd::geteuid().as_raw() }
    }

    /// A variable that names a directory. The XDG base directory specification says that relative
    /// ones are to be ignored.
    pub fn directory(&self, variable: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variables.get(variable)?);
        path.is_absolute().then_some(path)
    }

    /// The first directory of a list, such as the service manager gives.
    pub fn first_of(&self, variable: &str) -> Option<PathBuf> {
        let list = self.variables.get(variable)?.to_str()?;
        list.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The circumstances in which files with passwords are read.
    pub fn credentials(&self) -> Credentials {
        Credentials { directory: self.directory(Credentials::VARIABLE), uid: self.uid }
    }
}

/// The main file of a directory, and then the drop-ins `conf.d/*.toml` in the order of their names.
/// Hidden ones are none: editors leave such things behind.
pub fn files_in(directory: &Path, main: &str) -> (Vec<PathBuf>, Vec<String>) {
    let mut files = vec![directory.join(main)];
    let drop_ins = directory.join("conf.d");
    let found = match std::fs::read_dir(&drop_ins) {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return (files, Vec::new()),
        Err(error) => {
            let warning = format!("cannot read {}: {error}; skipped", drop_ins.display());
            return (files, vec![warning]);
        }
    };
    let is_drop_in = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().is_some_and(|extension| extension == "toml")
    };
    let mut parts: Vec<PathBuf> =
        found.filter_map(|entry| Some(entry.ok()?.path())).filter(is_drop_in).collect();
    parts.sort();
    files.extend(parts);
    (files, Vec::new())
}

/// True if the error says that there is no such file.
pub(super) fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}
