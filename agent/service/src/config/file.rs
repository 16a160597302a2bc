//! A configuration file, and where its entries stand.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{ConfigError, Origin};

/// Largest file, bytes; a larger one is refused.
const FILE_MAX: u64 = 1024 * 1024;

/// The contents of a file.
pub struct ConfigFile {
    pub path: PathBuf,
    pub table: toml::Table,
    /// Lines of keys, by `key` and `section.key`.
    lines: HashMap<String, usize>,
    /// Lines of the entries of lists of sections, such as `[[allow]]`.
    rules: HashMap<String, Vec<usize>>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is not TOML.
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let fail = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(fail)?;
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(fail)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > FILE_MAX) {
            let rule = format!("must have at most {FILE_MAX} bytes");
            return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, rule)));
        }
        ConfigFile::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigError> {
        let line_at = |at: usize| {
            let before = &text.as_bytes()[..at.min(text.len())];
            1 + before.iter().filter(|&&byte| byte == b'\n').count()
        };
        let wrong = |error: toml::de::Error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_at(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        };
        let table: toml::Table = text.parse().map_err(wrong)?;
        let (mut lines, mut rules) = (HashMap::new(), HashMap::new());
        for (name, value) in DeTable::parse(text).map_err(wrong)?.get_ref() {
            lines.insert(name.get_ref().to_string(), line_at(name.span().start));
            match value.get_ref() {
                DeValue::Table(section) => {
                    for key in section.keys() {
                        let full = format!("{}.{}", name.get_ref(), key.get_ref());
                        lines.insert(full, line_at(key.span().start));
                    }
                }
                DeValue::Array(array) => {
                    let lines = array.iter().map(|entry| line_at(entry.span().start)).collect();
                    rules.insert(name.get_ref().to_string(), lines);
                }
                _ => {}
            }
        }
        Ok(ConfigFile { path: path.to_owned(), table, lines, rules })
    }

    /// The place of a key.
    pub fn origin(&self, key: &str) -> Origin {
        self.at(self.lines.get(key).copied())
    }

    /// The place of the entry with that index of a list of sections.
    pub fn origin_of_entry(&self, list: &str, index: usize) -> Origin {
        self.at(self.rules.get(list).and_then(|lines| lines.get(index)).copied())
    }

    fn at(&self, line: Option<usize>) -> Origin {
        Origin::File { path: self.path.clone(), line: line.unwrap_or(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_its_line() {
        let text =
            "a = 1\n\n[s]\n# why\nb = 2\nc.d = 3\n\n[[allow]]\nuid = 1\n[[allow]]\nuid = 2\n";
        let file = ConfigFile::parse(Path::new("/f"), text).unwrap();
        for (key, place) in [("a", "/f:1"), ("s", "/f:3"), ("s.b", "/f:5"), ("s.c", "/f:6")] {
            assert_eq!(file.origin(key).to_string(), place);
        }
        assert_eq!(file.origin_of_entry("allow", 0).to_string(), "/f:8");
        assert_eq!(file.origin_of_entry("allow", 1).to_string(), "/f:10");
        assert!(
            ConfigFile::parse(Path::new("/f"), "a = 1\r\nb")
                .is_err_and(|error| { error.to_string().starts_with("/f:2: ") })
        );
    }

    #[test]
    fn a_byte_order_mark_and_line_ends_of_windows_change_nothing() {
        let text = "# why\na = 1\n\n[s]\nb = \"c\"\n\n[[allow]]\nuid = 1\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        // Also where the first line is a key.
        for text in [text, &text[6..]] {
            std::fs::write(&path, text).unwrap();
            let plain = ConfigFile::read(&path).unwrap();
            std::fs::write(&path, format!("\u{feff}{}", text.replace('\n', "\r\n"))).unwrap();
            let file = ConfigFile::read(&path).unwrap();
            assert_eq!(file.table, plain.table);
            assert_eq!((file.lines, file.rules), (plain.lines, plain.rules));
        }
    }

    #[test]
    fn a_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        std::fs::write(&path, " ".repeat(usize::try_from(FILE_MAX).unwrap())).unwrap();
        assert!(ConfigFile::read(&path).is_ok());
        std::fs::write(&path, " ".repeat(usize::try_from(FILE_MAX).unwrap() + 1)).unwrap();
        assert!(matches!(ConfigFile::read(&path), Err(ConfigError::Read { .. })));
    }
}
