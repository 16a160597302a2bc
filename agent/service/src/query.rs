//! Query strings, judged as strictly as bodies: bytes that are not UTF-8 are refused, and not replaced.

use percent_encoding::percent_decode_str;
use tenure_wire::rules::{Invalid, quote};

/// The pairs of a query string, in their order; each may be a key or value that is not UTF-8.
pub fn pairs(query: &str) -> impl Iterator<Item = Result<(String, String), Invalid>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = text("the query", key)?;
        // A key that nobody knows is shown, too.
        let value = text(&quote(&key).replace('\'', ""), value)?;
        Ok((key, value))
    })
}

fn text(field: &str, part: &str) -> Result<String, Invalid> {
    let spaced = part.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8().map(Into::into);
    text.map_err(|_| Invalid::new(field, part, "UTF-8", "write ö as %C3%B6, for example"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[(&str, &str)]) {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let read: Result<Vec<_>, Invalid> = pairs(query).collect();
        assert_eq!(read.unwrap(), expected.iter().map(owned).collect::<Vec<_>>(), "{query}");
    }

    #[test]
    fn pairs_are_read_as_they_were_written() {
        check("", &[]);
        check("a=b&&c", &[("a", "b"), ("c", "")]);
        check("a=b=c&a=%c3%B6+%2B", &[("a", "b=c"), ("a", "ö +")]);
        check("%61=100%&b=%4&c=%zz%25", &[("a", "100%"), ("b", "%4"), ("c", "%zz%")]);
    }

    #[test]
    fn a_long_key_is_cut_where_it_is_shown() {
        let query = format!("{}=%ff", "x".repeat(10_000));
        let invalid = pairs(&query).find_map(Result::err).unwrap();
        assert!(invalid.to_string().len() < 1000, "{invalid}");
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_key() {
        for (query, field) in [
            ("a=b&name=x%ff", "name"),
            ("%c3=x", "the query"),
            ("n=%ed%a0%80", "n"),
            ("%1b[2J%E2%80%AE=%ff", r"\u{1b}[2J\u{202e}"),
        ] {
            let invalid = pairs(query).find_map(Result::err).unwrap();
            assert_eq!(invalid.field(), field);
            assert!(invalid.to_string().contains("the rule: UTF-8; "), "{invalid}");
        }
    }
}
