//! Query strings, as strict as bodies: a name in one is text, and not what is left of it.

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
        let key = text("the query", decoded(key))?;
        let value = text(&key, decoded(value))?;
        Ok((key, value))
    };
    pairs.map(read).collect()
}

fn text(field: &str, bytes: Vec<u8>) -> Result<String, Invalid> {
    String::from_utf8(bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(error.as_bytes());
        Invalid::new(field, &shown, "UTF-8", "write ö as %C3%B6, for example")
    })
}

/// The bytes of a part of a query. A `%` without two digits stands for itself.
fn decoded(part: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
    }
    bytes
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
