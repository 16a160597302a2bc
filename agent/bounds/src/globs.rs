//! Lists of globs.

use std::fmt;
use std::sync::OnceLock;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Longest glob, bytes. What fits is small enough for every limit of the matcher.
const GLOB_MAX: usize = 1000;

/// A list of globs, in which `*` also covers slashes.
///
/// It is compiled when it is asked first: of ten thousand lists few are asked, and a compiled one takes
/// kilobytes.
#[derive(Debug, Clone)]
pub struct Globs {
    texts: Box<[String]>,
    set: OnceLock<GlobSet>,
}

/// A glob that has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {rule}")]
pub struct BadGlob {
    pub text: String,
    pub rule: String,
}

impl Globs {
    /// # Errors
    ///
    /// With the first one that has no meaning, or is too long.
    pub fn new(texts: impl IntoIterator<Item = impl Into<String>>) -> Result<Globs, BadGlob> {
        let texts: Box<[String]> = texts.into_iter().map(Into::into).collect();
        for text in &texts {
            let bad = |rule: String| BadGlob { text: text.clone(), rule };
            if text.len() > GLOB_MAX {
                return Err(bad(format!("must be {GLOB_MAX} bytes at most")));
            }
            Glob::new(text).map_err(|error| bad(error.kind().to_string()))?;
        }
        Ok(Globs { texts, set: OnceLock::new() })
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.set.get_or_init(|| compile(&self.texts)).is_match(text)
    }

    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

impl fmt::Display for Globs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        self.texts.iter().try_for_each(|text| {
            write!(f, "{separator}{text:?}")?;
            separator = ", ";
            Ok(())
        })
    }
}

/// One that cannot be compiled covers nothing.
fn compile(texts: &[String]) -> GlobSet {
    let mut globs = GlobSetBuilder::new();
    for glob in texts.iter().flat_map(|text| Glob::new(text)) {
        globs.add(glob);
    }
    globs.build().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_covers_slashes_and_a_bad_one_is_named() {
        let globs = Globs::new(["ci/*", "web-?"]).unwrap();
        for (text, fits) in [("ci/a/b", true), ("ci", false), ("web-1", true), ("web-10", false)] {
            assert_eq!(globs.is_match(text), fits, "{text}");
        }
        assert_eq!(globs.to_string(), r#""ci/*", "web-?""#);
        assert!(!Globs::new([""; 0]).unwrap().is_match("a"), "an empty list covers nothing");
        let bad = Globs::new(["a", "b["]).unwrap_err();
        assert_eq!(bad.to_string(), r#""b[": unclosed character class; missing ']'"#);
        assert!(Globs::new(["a".repeat(GLOB_MAX + 1)]).is_err());
    }
}
