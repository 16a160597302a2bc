//! Log lines for people.

use std::fmt;

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Fields as `message name=value`. What a program or a server said may have line breaks that would
/// look like lines of their own, and sequences that a terminal obeys: they are written as escapes.
pub(super) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let one = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => plain(writer, &text),
            name => {
                write!(writer, "{name}=")?;
                plain(writer, &text)
            }
        }
    };
    debug_fn(one).delimited(" ")
}

fn plain(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
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

    use super::super::buffer::Buffer;
    use super::*;

    #[test]
    fn no_value_makes_a_line_of_its_own() {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let layer = fmt::layer().with_writer(move || out.clone()).without_time();
        let layer = layer.with_target(false).with_ansi(false).fmt_fields(fields());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            info!(name = %"a\nINFO forged\r\x1b[2J\u{9b}", debug = ?"b\nc", pid = 7, "said\nmore");
        });
        let text = buffer.text();
        let line = r#" INFO said\nmore name=a\nINFO forged\r\u{1b}[2J\u{9b} debug="b\nc" pid=7"#;
        assert_eq!(text, format!("{line}\n"));
    }
}
