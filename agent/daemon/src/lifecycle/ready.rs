//! The lines that the agent prints when it serves.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The lines that a person who starts the agent wants to see.
#[derive(Debug, Clone, Copy)]
pub struct Ready<'a> {
    /// From the start of the process.
    pub took: Duration,
    pub socket: &'a Path,
    /// `embedded`, `redis` or `gateway`.
    pub upstream: &'a str,
    /// The guarantee of the upstream.
    pub guarantee: &'a str,
}

impl fmt::Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ready { took, socket, upstream, guarantee } = self;
        let version = env!("CARGO_PKG_VERSION");
        let (ms, shown) = (took.as_millis(), socket.display());
        writeln!(
            f,
            "tenured {version} ready in {ms} ms — socket {shown}, upstream {upstream}, guarantee: {guarantee}"
        )?;
        let quoted = quoted(socket);
        write!(f, "try: tenure --socket {quoted} lock hello -- sleep 5")
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> Cow<'_, str> {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) {
        return text;
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_and_what_to_try() {
        let ready = Ready {
            took: Duration::from_micros(7_400),
            socket: Path::new("/run/it's/api.sock"),
            upstream: "embedded",
            guarantee: "one host",
        };
        assert_eq!(
            ready.to_string(),
            concat!(
                "tenured 0.1.0 ready in 7 ms — socket /run/it's/api.sock, upstream embedded, ",
                "guarantee: one host\n",
                r"try: tenure --socket '/run/it'\''s/api.sock' lock hello -- sleep 5"
            )
        );
        assert_eq!(
            quoted(Path::new("/run/user/7/tenured/api.sock")),
            "/run/user/7/tenured/api.sock"
        );
    }
}
