//! One layer over the other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tenure_stores::settings::{Broken, Refusal, Shape, value};

use super::environment::is_absent;
use super::error::closest;
use super::masked::{masked, masked_path};
use super::{ConfigError, ConfigFile, Configuration, Environment, Key, List, Origin, files_in};

/// Anybody may read it.
const FOR_OTHERS: u32 = 0o004;

/// How to treat a file that the daemon may not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// That of the host's service, seen by a daemon of a user.
    Skipped,
    /// Somebody named it.
    Refused,
}

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded<C> {
    pub config: C,
    /// Things that deserve a look, though they are no errors.
    pub warnings: Vec<String>,
    /// The files that were read, in the order in which they count.
    pub files: Vec<PathBuf>,
    origins: HashMap<&'static str, Origin>,
    /// The places of the sections of each list.
    pub(super) sections: HashMap<&'static str, Vec<Origin>>,
}

impl<C: Configuration> Loaded<C> {
    /// Reads every layer over these defaults: files, of which one or a directory may be named, environment,
    /// flags.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`]; the first thing that is wrong, in any layer, also when a higher one
    /// overrides it.
    pub fn read<'a>(
        defaults: C,
        named: Option<&Path>,
        environment: &Environment,
        flags: impl Iterator<Item = (&'static str, &'static str, &'a str)>,
    ) -> Result<Loaded<C>, ConfigError> {
        let mut loaded = Loaded {
            config: defaults,
            warnings: Vec::new(),
            files: Vec::new(),
            origins: HashMap::new(),
            sections: HashMap::new(),
        };
        let variable = format!("{}CONFIG", C::PREFIX);
        let named = named.map(Path::to_owned);
        let named = named.or_else(|| environment.variables.get(&variable).map(PathBuf::from));
        match named {
            Some(path) if path.is_dir() => {
                let (files, warnings) = files_in(&path, C::MAIN);
                loaded.warnings.extend(warnings);
                loaded.those_there(&files, Unreadable::Refused)?;
                if loaded.files.is_empty() {
                    // Named, so something is expected there.
                    loaded.file(&ConfigFile::read(&path.join(C::MAIN))?)?;
                }
            }
            Some(path) => loaded.file(&ConfigFile::read(&path)?)?,
            None => {
                let (files, warnings) = C::files(environment);
                loaded.warnings.extend(warnings);
                loaded.those_there(&files, Unreadable::Skipped)?;
            }
        }
        loaded.environment(environment)?;
        for (flag, key, text) in flags {
            #[expect(clippy::expect_used, reason = "a test finds every flag among the keys")]
            let key = C::find(key).expect("a key for every flag");
            loaded.set(key, text, Origin::Flag(flag))?;
        }
        loaded.warn_of_open_passwords();
        Ok(loaded)
    }

    /// True if somebody said something.
    pub fn is_set(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// The origin of a key's value.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    fn set(&mut self, key: &'static Key<C>, text: &str, origin: Origin) -> Result<(), ConfigError> {
        key.set(&mut self.config, text)
            .map_err(|rule| wrong(key, format!("{text:?}"), &origin, rule))?;
        self.origins.insert(key.name, origin);
        Ok(())
    }

    /// Reads those of the files that there are.
    fn those_there(
        &mut self,
        files: &[PathBuf],
        unreadable: Unreadable,
    ) -> Result<(), ConfigError> {
        for path in files {
            match ConfigFile::read(path) {
                Ok(file) => self.file(&file)?,
                Err(ConfigError::Read { source, .. }) if is_absent(&source) => {}
                Err(ConfigError::Read { path, source })
                    if source.kind() == io::ErrorKind::PermissionDenied
                        && unreadable == Unreadable::Skipped =>
                {
                    self.warnings.push(format!("{} is not readable: skipped", path.display()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &ConfigFile) -> Result<(), ConfigError> {
        for (name, value) in &file.table {
            match value {
                toml::Value::Table(section) => {
                    for (key, value) in section {
                        self.entry(file, &format!("{name}.{key}"), value)?;
                    }
                }
                value => match C::LISTS.iter().find(|list| list.name == name) {
                    Some(list) => self.sections(file, list, value)?,
                    None => self.entry(file, name, value)?,
                },
            }
        }
        self.files.push(file.path.clone());
        Ok(())
    }

    fn sections(
        &mut self,
        file: &ConfigFile,
        list: &List,
        value: &toml::Value,
    ) -> Result<(), ConfigError> {
        let tables = list.tables(value, &file.origin(list.name))?;
        let origins = (0..tables.len()).map(|index| file.origin_of_entry(list.name, index));
        let sections: Vec<_> = tables.into_iter().zip(origins).collect();
        let known = self.sections.entry(list.name).or_default();
        known.extend(sections.iter().map(|(_, origin)| origin.clone()));
        self.config.add_sections(list, sections)
    }

    fn entry(
        &mut self,
        file: &ConfigFile,
        name: &str,
        value: &toml::Value,
    ) -> Result<(), ConfigError> {
        let origin = file.origin(name);
        let key = C::find(name).ok_or_else(|| ConfigError::UnknownKey {
            key: name.to_owned(),
            origin: origin.clone(),
            nearest: closest(name, C::keys().iter().map(|key| key.name)),
        })?;
        let text = text_of(value, key.shape)
            .map_err(|rule| wrong(key, value.to_string(), &origin, rule))?;
        self.set(key, &text, origin)
    }

    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        let shared = C::SHARED.iter().map(|(variable, key)| ((*variable).to_owned(), *key));
        let own = C::keys().iter().map(|key| (key.variable(), key.name));
        let known: Vec<_> = shared.chain(own).collect();
        for (variable, key) in &known {
            let (Some(value), Some(key)) = (environment.variables.get(variable), C::find(key))
            else {
                continue;
            };
            let origin = Origin::Environment(variable.clone());
            let Some(text) = value.to_str() else {
                return Err(wrong(key, format!("{value:?}"), &origin, "must be UTF-8".to_owned()));
            };
            // A variable that was made of a file may end with the file's line break.
            let text = text.trim_ascii_end();
            // Clients ignore an empty variable, too.
            let is_shared = C::SHARED.iter().any(|(shared, _)| shared == variable);
            if !(text.is_empty() && is_shared) {
                self.set(key, text, origin)?;
            }
        }
        // Only a warning: Kubernetes makes such variables of its own for a service of this name.
        for variable in environment.variables.keys() {
            let ours = variable.strip_prefix(C::PREFIX).is_some_and(|rest| rest != "CONFIG");
            let is_known = known.iter().any(|(name, _)| name == variable);
            if ours && !is_known {
                self.warnings.push(format!("environment variable {variable} is no key: ignored"));
            }
        }
        Ok(())
    }

    /// A password that others can see is one no more, but that is no reason not to serve.
    fn warn_of_open_passwords(&mut self) {
        let Some(elsewhere) = self.config.stores().upstream().passwords_elsewhere() else { return };
        let daemon = C::DAEMON;
        let way_out = format!(
            "put it into a file that only the {daemon} can read, name that in {elsewhere}, and change the password"
        );
        let warning = match self.origin("upstream") {
            Origin::Flag(flag) => format!(
                "{flag} has a password, which every user of this host sees in the list of processes \
                 (ps): {way_out}"
            ),
            Origin::File { path, .. }
                if fs::metadata(path).is_ok_and(|found| found.mode() & FOR_OTHERS != 0) =>
            {
                let path = path.display();
                format!("{path} has a password, and every user of this host can read it: {way_out}")
            }
            _ => return,
        };
        self.warnings.push(warning);
    }

    /// A rule between keys that is broken, as an error that says where the value came from.
    pub fn broken(&self, Broken { key, rule }: Broken) -> ConfigError {
        let found = C::find(&key);
        let value = found.map(|key| key.show(&self.config)).unwrap_or_default();
        let origin = self.origin(&key);
        match found {
            Some(found) => wrong(found, value, origin, rule),
            None => ConfigError::Value { key, value, origin: origin.clone(), rule },
        }
    }
}

fn wrong<C>(key: &Key<C>, value: String, origin: &Origin, rule: String) -> ConfigError {
    let value = match key.shape {
        Shape::Secret => masked(&value),
        _ if key.name.ends_with("secret_file") => masked_path(&value),
        _ => value,
    };
    ConfigError::Value { key: key.name.to_owned(), value, origin: origin.clone(), rule }
}

/// The text of a value of a file.
fn text_of(found: &toml::Value, shape: Shape) -> Result<String, Refusal> {
    match (found, shape) {
        (toml::Value::Integer(number), Shape::Count) => Ok(number.to_string()),
        (toml::Value::Boolean(is_on), Shape::Switch) => Ok(is_on.to_string()),
        (toml::Value::String(text), Shape::Text | Shape::Secret | Shape::Duration) => {
            Ok(text.clone())
        }
        (_, Shape::Count) => Err("must be a number without quotes".to_owned()),
        (_, Shape::Switch) => Err("must be true or false, without quotes".to_owned()),
        (_, Shape::Duration) => Err(value::DURATION.to_owned()),
        (_, Shape::Text | Shape::Secret) => Err("must be a text in quotes".to_owned()),
    }
}
