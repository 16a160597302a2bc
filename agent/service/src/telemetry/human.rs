//! Log lines for people.

use std::fmt;

use tenure_wire::steers_terminal;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Fields as `message name=value`. What a program or a server said may have line breaks that would
/// look like lines of their own, and sequences that a terminal obeys: they are written as escapes. A value
/// that could be read as several fields is quoted.
pub(crate) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let one = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => plain(writer, &text),
            name => {
                write!(writer, "{name}=")?;
                if is_one_word(&text) || is_quoted(&text) {
                    plain(writer, &text)
                } else {
                    plain(writer, &format!("{text:?}"))
                }
            }
        }
    };
    debug_fn(one).delimited(" ")
}

fn is_one_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || matches!(c, '=' | '"'))
}

/// True if the text is one string literal already.
fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut escaped = false;
    inner.is_some_and(|inner| {
        inner.chars().all(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            !ends
        }) && !escaped
    })
}

fn plain(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if steers_terminal(c) {
            write!(writer, "{}", c.escape_default())?;
        } else {
            writer.write_char(c)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tracing::info;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_value_is_one_field() {
        for value in ["cron uid=0 pid=1", "a=b", "", "\"a\" uid=0 \"b\"", "\"a\\\" uid=0", "\u{a0}"]
        {
            assert!(!is_one_word(value) && !is_quoted(value), "{value}");
        }
        for value in ["cron", "größe", "a/b:c", "Some(Process)"] {
            assert!(is_one_word(value), "{value}");
        }
        for value in [r#""a b""#, r#""a \" uid=0""#, r#""""#] {
            assert!(is_quoted(value), "{value}");
        }
    }

    #[test]
    fn no_value_makes_a_line_of_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let out = std::sync::Arc::new(file.reopen().unwrap());
        let layer = fmt::layer().with_writer(out).without_time();
        let layer = layer.with_target(false).with_ansi(false).fmt_fields(fields());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            info!(name = %"a\nINFO forged\r\x1b[2J\u{9b}\u{202e}\u{2066}", debug = ?"b\nc", pid = 7, "said\nmore");
        });
        let text = std::fs::read_to_string(file.path()).unwrap();
        let line = r#" INFO said\nmore name="a\nINFO forged\r\u{1b}[2J\u{9b}\u{202e}\u{2066}" debug="b\nc" pid=7"#;
        assert_eq!(text, format!("{line}\n"));
    }
}
