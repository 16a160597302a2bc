//! Searches output for characters that a terminal, a log or a reader of lines interprets.

use serde_json::Value;

/// The first place at which a text has something that is not to be shown: what it is, and what is around it.
pub(super) fn danger(bytes: &[u8]) -> Option<String> {
    // Most texts have nothing but ASCII.
    if bytes.iter().all(|byte| (b' '..=b'~').contains(byte) || matches!(byte, b'\n' | b'\t')) {
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Some(format!("no UTF-8 in {}", around(bytes, error.valid_up_to()))),
    };
    let (at, letter) = text.char_indices().find(|(_, letter)| is_dangerous(*letter))?;
    Some(format!("U+{:04X} in {}", u32::from(letter), around(bytes, at)))
}

/// The same in the texts of a JSON document, as its readers see them; none in what is no document.
pub(super) fn danger_in_json(bytes: &[u8]) -> Option<String> {
    fn in_texts(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => danger(text.as_bytes()),
            Value::Array(all) => all.iter().find_map(in_texts),
            Value::Object(all) => all.values().find_map(in_texts),
            _ => None,
        }
    }
    in_texts(&serde_json::from_slice(bytes).ok()?)
}

/// C0 but for the ends of lines and tabs, DEL, C1, and what changes the direction of a text.
pub(super) fn is_dangerous(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\n' | '\t'))
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
}

fn around(bytes: &[u8], at: usize) -> String {
    let part = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
    part.escape_ascii().to_string()
}

/// Beginnings of lines that only a text of a caller has, if its end of line was taken for one.
const FORGED: [&str; 4] = ["ERROR forged", "set session:", "FLUSHALL", "$8"];

/// The first line that a caller made of its own.
pub(super) fn forged(text: &str) -> Option<&str> {
    let is_forged = |line: &&str| FORGED.iter().any(|forged| line.trim_start().starts_with(forged));
    text.lines().find(is_forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_found_and_letters_are_not() {
        for good in ["plain\n\ttext", "größe 名前", "👩\u{200d}👩", "e\u{301}"] {
            assert_eq!(danger(good.as_bytes()), None, "{good:?}");
        }
        for bad in ["\u{1b}[31m", "a\rb", "\u{9b}31m", "\u{7f}", "a\0", "ä\u{202e}", "\u{2028}"] {
            assert!(danger(bad.as_bytes()).is_some(), "{bad:?}");
        }
        assert!(danger(b"a\x9b31m").is_some());
        let escaped = br#"{"rows": [{"name": "a\u001b[2J"}]}"#;
        assert!(danger(escaped).is_none() && danger_in_json(escaped).is_some());
        assert_eq!(forged("a\nERROR forged line"), Some("ERROR forged line"));
        assert_eq!(forged("a: ERROR forged line"), None);
    }
}
