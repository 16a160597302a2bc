//! Words of a command that somebody may paste into a shell.

use crate::show::visible;

/// Longest name of a host (RFC 1035).
const HOST_MAX: usize = 253;

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    literal(&visible(word))
}

/// The same for a shell alone, and not for people: nothing in it is replaced.
pub(crate) fn literal(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An option with its value, which may look like an option itself.
pub(crate) fn option(option: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("{option}{between}{}", quoted(value))
}

/// A name behind the words and options of a command.
pub(crate) fn operand(name: &str) -> String {
    let dashes = if name.starts_with('-') { "-- " } else { "" };
    format!("{dashes}{}", quoted(name))
}

/// The command for another host, whose shell reads it once more; `None` for what is no name of a host: others may write
/// anything there.
pub(crate) fn on_host(host: &str, command: &str) -> Option<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_host = host.len() <= HOST_MAX
        && host.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && host.chars().all(plain);
    let command = if command.contains('\'') { quoted(command) } else { command.to_owned() };
    is_host.then(|| format!("ssh {host} {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("a-b/c:1"), "a-b/c:1");
        assert_eq!(quoted("it's;x"), r"'it'\''s;x'");
        assert_eq!(quoted("\u{1b}[2J"), "'\u{fffd}[2J'");
        assert_eq!(quoted(""), "''");
        assert_eq!(option("--tenant", "-x y"), "--tenant='-x y'");
        assert_eq!(operand("-x"), "-- -x");
    }

    #[test]
    fn another_host_s_shell_reads_the_command_once_more() {
        assert_eq!(on_host("web-1", "why a").as_deref(), Some("ssh web-1 why a"));
        let twice = Some(r"ssh web-1 'why '\''a;b'\'''");
        assert_eq!(on_host("web-1", "why 'a;b'").as_deref(), twice);
        for none in ["", "-oProxyCommand=x", "x;touch${IFS}/tmp/P;:", "a b", "a\u{1b}[2J", "ä"] {
            assert_eq!(on_host(none, "why a"), None, "{none:?}");
        }
        assert_eq!(on_host(&"a".repeat(254), "why a"), None);
    }
}
