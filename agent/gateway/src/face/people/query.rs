//! From the query string of a request to its parts.

use std::str::FromStr;

use axum::http::Uri;
use tenure_service::query;
use tenure_wire::Code;

use crate::face::refused::Refused;

/// Keys, each known and there once, with their values.
#[derive(Debug)]
pub(super) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Reads the query string.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8, or a key is there that is not one of these, or twice.
    pub(super) fn of(uri: &Uri, keys: &[&str]) -> Result<Pairs, Refused> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query::pairs(uri.query().unwrap_or_default()) {
            let (key, value) = pair?;
            if !keys.contains(&&*key) {
                let detail = format!(
                    "{key:?} is not a query parameter of this endpoint; there are: {}",
                    keys.join(", ")
                );
                return Err(Refused::new(Code::Invalid, detail));
            }
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(Refused::field(&key, "is there twice; leave one of them"));
            }
            pairs.push((key, value));
        }
        Ok(Pairs(pairs))
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == key)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The same, read.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is not good.
    pub(super) fn read<T: FromStr>(
        &mut self,
        key: &str,
        rule: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.take(key) else { return Ok(None) };
        match text.parse().ok().filter(is_good) {
            Some(value) => Ok(Some(value)),
            None => Err(Refused::field(key, &format!("is {text:?}, but must be {rule}"))),
        }
    }
}
