//! Query strings, as strict as bodies: a name in one is text, and not what is left of it.

use percent_encoding::percent_decode_str;
use tenure_wire::rules::Invalid;

/// The pairs of a query string, in their order.
///
/// # Errors
///
/// With the first key or value that is not UTF-8.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, Invalid> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = text("the query", key)?;
        let value = text(&key, value)?;
        Ok((key, value))
    };
    pairs.map(read).collect()
}

fn text(field: &str, part: &str) -> Result<String, Invalid> {
    let part = part.replace('+', " ");
    let bytes = percent_decode_str(&part);
    bytes.clone().decode_utf8().map(Into::into).map_err(|_| {
        let shown = bytes.decode_utf8_lossy();
        Invalid::new(field, &shown, "UTF-8", "write ö as %C3%B6, for example")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[(&str, &str)]) {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        assert_eq!(
            pairs(query).unwrap(),
            expected.iter().map(owned).collect::<Vec<_>>(),
            "{query}"
        );
    }

    #[test]
    fn pairs_are_read_as_they_were_written() {
        check("", &[]);
        check("a=b&&c", &[("a", "b"), ("c", "")]);
        check("a=b=c&a=%c3%B6+%2B", &[("a", "b=c"), ("a", "ö +")]);
        check("%61=100%&b=%4&c=%zz%25", &[("a", "100%"), ("b", "%4"), ("c", "%zz%")]);
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_key() {
        for (query, field) in
            [("a=b&name=x%ff", "name"), ("%c3=x", "the query"), ("n=%ed%a0%80", "n")]
        {
            let invalid = pairs(query).unwrap_err();
            assert_eq!(invalid.field(), field);
            assert!(invalid.to_string().contains("the rule: UTF-8; "), "{invalid}");
        }
    }
}
